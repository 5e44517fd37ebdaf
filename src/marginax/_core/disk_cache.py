"""Compiled programs kept on disk between processes: in which folder, how many, and when not.

    with kept_on_disk(): ...     what is compiled inside is written there, and found again
    configure(cache=None)        nothing is kept, from now on in this process

`fit`, `run` and the shell keep their programs. Options of JAX's own cache, where they are set, are
left as they are. Whatever is wrong with the folder, a program is then compiled, and nothing fails.
"""

import contextlib
import hashlib
import importlib
import os
import platform
import stat
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

__all__ = [
    "cache_folder",
    "cache_size",
    "clear_cache",
    "configure",
    "folder_in_use",
    "is_of_jax",
    "kept_on_disk",
    "processor",
]

VARIABLE = "MARGINAX_CACHE"  # of the environment: a folder, or one of these words
OFF = ("", "0", "off", "no", "none", "false")
MOST_BYTES, LEFT_BYTES = 500_000_000, 300_000_000
LOOKED_AT = ".looked_at"  # a file as old as the last look at the entries
FOLDER, THRESHOLD = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
USUAL_THRESHOLD = 1.0  # JAX's own
OF_JAX, PROGRAM = "-cache", "-program"  # how the names of entries end: JAX's, and our own
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how its files begin


_chosen: list[Path | None] = []  # what `configure` was told; empty until then
_lock, _users = threading.Lock(), [0]  # calls of `kept_on_disk` that have not ended
_before: dict[str, Any] = {}  # JAX's options, to be given back
_in_use: list[Path] = []  # the folder of these calls
_tidied: set[Path] = set()  # once in a process is enough


def configure(*, cache: str | Path | None) -> None:
    """Chooses where this process keeps the programs that it compiles for `fit` and `run`.

    By default they are in the user's cache folder, so that the first fit of a process is quick
    where another process has made one like it. The environment variable `MARGINAX_CACHE` (a
    folder, or `off`) does the same for every process. A folder of programs is trusted code: see
    that nobody else can write to it.

    Args:
        cache: a folder; None to keep nothing.
    """
    _chosen[:] = [None if cache is None else Path(cache).expanduser()]


def is_of_jax() -> bool:
    """Whether JAX's own options say where programs are kept, those of others among them."""
    return bool(getattr(jax.config, FOLDER))


def cache_folder() -> Path | None:
    """Where programs are kept: JAX's own setting, the one chosen, or the user's cache folder."""
    if is_of_jax():
        return Path(getattr(jax.config, FOLDER))
    if not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
        return None
    if _chosen:
        return _chosen[0]
    said = os.environ.get(VARIABLE)
    if said is not None:
        return None if said.strip().lower() in OFF else Path(said).expanduser()
    with contextlib.suppress(RuntimeError):  # nobody's home
        # Code for one processor may fail on another that shares the home folder.
        return _users_cache() / "compiled" / processor()
    return None


def _users_cache() -> Path:
    """As platforms have it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "marginax"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "marginax"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marginax"


@lru_cache
def processor() -> str:
    """The processor and what it can do, in a word."""
    features = ""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    can = hashlib.sha256(" ".join(sorted(features.split())).encode()).hexdigest()[:8]
    return f"{platform.machine() or 'any'}-{can}"


@contextlib.contextmanager
def kept_on_disk() -> Iterator[None]:
    """Within it JAX keeps what it compiles, unless the user has set JAX's own cache."""
    folder = None if is_of_jax() and not _users[0] else cache_folder()
    if folder is None or (not _users[0] and not _is_ours(folder)):
        yield
        return
    with _lock:
        _users[0] += 1
        if _users[0] == 1:
            _begin(folder)
    try:
        yield
    finally:
        with _lock:
            _users[0] -= 1
            if _users[0] == 0:
                _end()


def folder_in_use() -> Path | None:
    """Where programs are kept now: None outside of `kept_on_disk`, and with JAX's own cache."""
    return _in_use[0] if _in_use else None


def _begin(folder: Path) -> None:
    if folder not in _tidied:
        _tidy(folder)
        _tidied.add(folder)
    # A program that cannot be read or written is compiled, and that is all there is to say of it.
    warnings.filterwarnings(
        "ignore", message="Error (reading|writing) persistent compilation cache entry"
    )
    _in_use[:] = [folder]
    _before.update({name: getattr(jax.config, name) for name in (FOLDER, THRESHOLD)})
    jax.config.update(FOLDER, str(folder))
    if _before[THRESHOLD] == USUAL_THRESHOLD:  # a hundred small programs take as long as a large
        jax.config.update(THRESHOLD, 0.0)
    compilation_cache.reset_cache()  # JAX looks at its options once


def _end() -> None:
    _in_use.clear()
    for name, value in _before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def _is_ours(folder: Path) -> bool:
    """Makes the folder; whether it is the user's, and nobody else can write to it."""
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True)
        found = folder.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _tidy(folder: Path) -> None:
    """Removes damaged programs, and those not used for longest if there are too many."""
    with contextlib.suppress(OSError):
        mark = folder / LOOKED_AT
        last = mark.stat().st_mtime if mark.exists() else 0.0
        entries = [(one, one.stat()) for one in _entries(folder)]
        # Every entry is read once after it was written: a process may have been killed then.
        for one, found in entries:
            if found.st_mtime >= last and not _is_whole(one):
                one.unlink(missing_ok=True)
        total = sum(found.st_size for _, found in entries)
        if total > MOST_BYTES:
            for one, found in sorted(entries, key=lambda pair: _last_used(pair[1])):
                if total <= LEFT_BYTES:
                    break
                one.unlink(missing_ok=True)
                total -= found.st_size
        mark.touch()


def _last_used(found: os.stat_result) -> float:
    return max(found.st_atime, found.st_mtime)


def _is_whole(entry: Path) -> bool:
    """Whether a program can be unpacked, by the packer that JAX takes if it is there."""
    packed = entry.read_bytes()
    try:
        if packed.startswith(ZSTANDARD):
            return bool(_unpack_zstandard(packed))
        return bool(zlib.decompress(packed))
    except Exception:  # noqa: BLE001, whatever the packer raises
        return False


def _unpack_zstandard(packed: bytes) -> bytes:
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            return bytes(importlib.import_module(name).decompress(packed))
    return b""  # nor could JAX read it


def _entries(folder: Path) -> list[Path]:
    return [one for end in (OF_JAX, PROGRAM) for one in folder.glob(f"*{end}") if one.is_file()]


def cache_size(folder: Path) -> tuple[int, int]:
    """How many programs a folder holds, and their bytes."""
    try:
        sizes = [one.stat().st_size for one in _entries(folder)]
    except OSError:
        return 0, 0
    return len(sizes), sum(sizes)


def clear_cache(folder: Path) -> tuple[int, int]:
    """Removes the programs of a folder, and says how many and how many bytes that were."""
    number, total = 0, 0
    for one in _entries(folder):
        with contextlib.suppress(OSError):
            size = one.stat().st_size
            one.unlink()
            number, total = number + 1, total + size
    return number, total

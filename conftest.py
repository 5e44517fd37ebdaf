"""Test-wide switches: float64, strict dtype promotion, no silent rank promotion."""

import collections
import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

X64 = os.environ.get("JAX_ENABLE_X64", "1") != "0"

jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Most of the time goes into compiling. Code that is optimised less is compiled sooner (the round in
# float32 has what users have), and what one test has compiled, another need not, nor a script that
# a test starts.
if X64:
    flags = "--xla_backend_optimization_level=0"
    if jax.version.__version_info__ < (0, 11):  # later ones have no such flag, and would abort
        flags += " --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", flags)
COMPILED = str(Path(__file__).parent / ".pytest_cache" / "compiled")
for name, value in (
    ("jax_compilation_cache_dir", COMPILED),
    ("jax_persistent_cache_min_compile_time_secs", 0.0),
):
    chosen = os.environ.setdefault(name.upper(), str(value))
    jax.config.update(name, type(value)(chosen))


MEMORY = Path("/proc/self/statm")
MOST, MORE = 1.8e9, 0.4e9  # bytes of a process, and how many more before it is tidied up again
_limit = MOST


def pytest_runtest_teardown() -> None:
    """Gives compiled programs back before a process has gigabytes of them.

    Every program also has some memory maps, of which Linux allows a process 65,530.
    """
    global _limit
    if not MEMORY.exists() or _resident() < _limit:
        return
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)
    _limit = max(MOST, _resident() + MORE)


def _resident() -> int:
    return int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests first where processes share them, so that none is the tail."""
    for item in items:
        if item.nodeid.startswith("src/marginax/fitting/fitter.py"):  # its example
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = collections.Counter(
            item.path for item in items if item.get_closest_marker("slow") is not None
        )
        items.sort(key=lambda item: -slow[item.path])  # stable: a file's tests stay together


# Programs that tests start as processes of their own: they set up JAX when they are imported.
collect_ignore = ["tests/support"]


@pytest.fixture
def key() -> jax.Array:
    """One fixed seed for all tests that need one."""
    return jax.random.key(20260)


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of the test are compiled as users have them: for one that runs longer than that."""
    from marginax._core import programs  # not before jaxtyping's hook

    monkeypatch.setattr(programs, "_quick_options", lambda: programs.QUICK)


@pytest.fixture
def as_users_write() -> Iterator[None]:
    """JAX's own promotion rules, for models written as users write them."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield

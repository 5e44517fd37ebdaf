"""Machine code of programs in files, found by what a program is and not by what is traced.

JAX's own cache finds a compiled program by its text, for which it must be traced and lowered anew:
in a second process that is most of the time of a small fit. A program that has an identity, which
other processes make alike, is found here by that, by the types of its arguments, and by all that
may change what is compiled: versions, JAX's options, the machine.

Whatever is wrong with a file, the program is compiled, and nothing fails.
"""

import contextlib
import hashlib
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import optax
from jax.experimental import serialize_executable

from marginax._core.disk_cache import PROGRAM, processor
from marginax._core.files import write_atomically

__all__ = [
    "calls_of",
    "can_keep",
    "file_of",
    "options_of_jax",
    "read",
    "types_of",
    "without_jaxs_cache",
    "write",
]

LAPACK = "lapack_"  # how the names of its functions begin

# Of JAX, on which a trace depends.
OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
)
# With one of these a user wants to see what is traced and computed.
DEBUGGING = (
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_disable_jit",
    "jax_enable_checks",
    "jax_check_tracer_leaks",
)


def types_of(leaves: list[Any]) -> tuple[Any, ...] | None:
    """The types of arguments; None if they are traced, or not all on the first device."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return None
    device = jax.local_devices()[0]
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set != {device}:
            return None
    return tuple(jax.typeof(leaf) for leaf in leaves)


def options_of_jax() -> tuple[Any, ...] | None:
    """The options on which a trace depends; None where nothing is to be taken from a file."""
    if any(getattr(jax.config, name, False) for name in DEBUGGING):
        return None
    if getattr(jax.config, "jax_default_device", None) is not None or jax.process_count() > 1:
        return None
    return tuple(getattr(jax.config, name, None) for name in OPTIONS)


@lru_cache
def _versions() -> str:
    """All that decides what is compiled, and is the same throughout a process."""
    package = Path(__file__).parents[1]
    # As Python itself knows whether its compiled files are of these sources.
    sources = sorted(
        (str(file.relative_to(package)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in package.rglob("*.py")
    )
    device = jax.local_devices()[0]
    return repr(
        (
            (jax.__version__, jaxlib.version.__version__, optax.__version__, np.__version__),
            sources,
            (device.platform, device.device_kind, jax.device_count(), processor()),
            tuple(os.environ.get(name) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")),
        )
    )


def file_of(folder: Path, name: str, *parts: Any) -> Path:
    """Where the machine code of a program is, or would be.

    Args:
        folder: of compiled programs.
        name: of the function, for whoever looks into the folder.
        parts: what tells it from others.
    """
    told = hashlib.sha256(f"{_versions()} {parts!r}".encode()).hexdigest()
    return folder / f"{name}-{told}{PROGRAM}"


def read(file: Path, arguments: Any) -> Any:
    """The compiled program of a file, or None.

    Args:
        file: from `file_of`.
        arguments: a tree like those that it is called with.
    """
    with contextlib.suppress(Exception):
        payload, result, calls_lapack = pickle.loads(zlib.decompress(file.read_bytes()))
        if calls_lapack:
            _find_lapack()
        inputs = jax.tree.structure((arguments, {}))
        return serialize_executable.deserialize_and_load(
            payload, inputs, jax.tree.structure(result)
        )
    return None


def write(file: Path, compiled: Any, calls: set[str]) -> None:
    """Keeps a compiled program, if it can be.

    Args:
        file: from `file_of`.
        compiled: the program.
        calls: from `calls_of`, all of which `can_keep`.
    """
    with contextlib.suppress(Exception):
        payload, _, outputs = serialize_executable.serialize(compiled)
        result = jax.tree.unflatten(outputs, [0] * outputs.num_leaves)
        calls_lapack = any(name.startswith(LAPACK) for name in calls)
        packed = zlib.compress(pickle.dumps((payload, result, calls_lapack)), level=1)
        write_atomically(file, lambda there: there.write_bytes(packed))


def calls_of(lowered: Any) -> set[str]:
    """The functions outside of it that a program calls, by name."""
    return set(re.findall(r"custom_call\s+@([\w.$]+)", lowered.as_text()))


def can_keep(calls: set[str]) -> bool:
    """Whether a process that did not lower the program can run it.

    A function that is called is found by its name in the process. JAX sees to that when it lowers a
    call; where it has not, LAPACK's are there but lead nowhere, and the process would crash.
    """
    return all(name.startswith(LAPACK) for name in calls)


@lru_cache
def _find_lapack() -> None:
    """Has JAX find LAPACK, as lowering any call of it does."""
    jax.jit(jnp.linalg.eigh).lower(np.eye(2, dtype=np.float32))


@contextlib.contextmanager
def without_jaxs_cache() -> Iterator[None]:
    """Within it, and in this thread alone, JAX writes no entry of its own for what is compiled."""
    waiting = _shortest_kept()
    if waiting is None:
        yield
        return
    with waiting(float("inf")):
        yield


@lru_cache
def _shortest_kept() -> Callable[[float], Any] | None:
    """JAX's threshold as a context of one thread, which has no public name."""
    with contextlib.suppress(Exception):
        from jax._src.config import persistent_cache_min_compile_time_secs as threshold

        return threshold
    return None

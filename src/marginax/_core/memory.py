"""Out of memory, in a sentence: how much the run holds, and what to make smaller."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
from jaxtyping import PyTree

from marginax.errors import OutOfMemoryError

__all__ = ["memory_explained", "memory_size"]


# Where Linux says how much a container may use, in its newer and its older way.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_size() -> int | None:
    """How many bytes the first device has, all in all; None if nobody says."""
    stats = jax.local_devices()[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    known = []
    with suppress(OSError, ValueError, AttributeError):  # another system than Linux
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            known.append(int(Path(path).read_text()))
    return min(known, default=None)


@contextmanager
def memory_explained(what: str, held: PyTree = None) -> Iterator[None]:
    """Turns the device's own out-of-memory error into advice.

    Args:
        what: what goes on, in words.
        held: state and data that are held meanwhile; their size is named.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # A GPU's compiler says it somewhere among other things.
        said = re.search(r"[Oo]ut of memory.*?allocat\w+ [\d.]+ ?\w+", str(error))
        words = said[0] if said else str(error).splitlines()[0]
        raise OutOfMemoryError(
            f"The device ran out of memory in {what} ({words}{_size(held)}). What helps, in "
            "this order: batches (`run(..., batch_size=...)` for groups or minibatched data), "
            "fewer particles, a smaller tile for kernels of many particles (`kernels.rbf(..., "
            "tile=2**20)`), float32 instead of float64, and several devices (`mesh=`). On a GPU, "
            "look whether another program holds its memory."
        ) from error


def _size(held: PyTree) -> str:
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(held))
    return f"; state and data take {size / 1e9:.2g} GB" if size > 5e6 else ""

"""Many runs as one vmapped, compiled call, in chunks that fit the memory."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

__all__ = ["Progress", "grid", "sweep", "thinned"]

Progress = Callable[[int], None]  # told how many more runs are done

_CPU_BUDGET = 2**30
_CPU_LANES = 512  # beyond this the caches are full and only the bar gets coarser


def grid(**axes: Sequence[Any] | np.ndarray) -> dict[str, np.ndarray]:
    """The Cartesian product of the axes, flattened, the last axis fastest."""
    columns = zip(*itertools.product(*axes.values()), strict=True)
    return {name: np.asarray(column) for name, column in zip(axes, columns, strict=True)}


def sweep(
    run: Callable[..., PyTree],
    settings: Mapping[str, Any],
    *shared: Any,
    progress: Progress | None = None,
) -> PyTree:
    """`run(setting, *shared)` for every setting: compiled once, mapped over as many as fit.

    Args:
        run: a pure function of one setting (a dict of scalars and arrays) and what all share.
        settings: a dict of arrays with the same leading axis.
        shared: data that every run sees, passed and not captured.
        progress: told after every chunk how many runs it held.

    Returns:
        What `run` returns, as NumPy arrays with the leading axis of the settings.
    """
    settings = {name: jnp.asarray(value) for name, value in settings.items()}
    total = len(next(iter(settings.values())))
    shared = jax.tree.map(jnp.asarray, shared)
    mapped = jax.jit(jax.vmap(run, in_axes=(0,) + (None,) * len(shared)))

    def compiled_for(lanes: int) -> Any:
        some = jax.tree.map(lambda leaf: leaf[:lanes], settings)
        return mapped.lower(some, *shared).compile()

    budget, most_lanes = _limits()
    lanes = _even(total, min(total, most_lanes))
    compiled = compiled_for(lanes)
    # What the compiler says it needs is the only honest estimate of what a lane costs.
    needed = _bytes_needed(compiled)
    if needed > budget and lanes > 1:
        lanes = _even(total, max(1, int(lanes * budget / needed)))
        compiled = compiled_for(lanes)

    chunks = []
    for first in range(0, total, lanes):
        # The last chunk begins earlier if need be: one shape, one compilation.
        start = min(first, total - lanes)
        chunk = jax.tree.map(lambda leaf, start=start: leaf[start : start + lanes], settings)
        done = jax.tree.map(np.asarray, compiled(chunk, *shared))
        fresh = first - start
        chunks.append(jax.tree.map(lambda leaf, fresh=fresh: leaf[fresh:], done))
        if progress is not None:
            progress(lanes - fresh)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)


def thinned(num_steps: int, num_points: int = 200) -> np.ndarray:
    """Step numbers from 1 to `num_steps`, dense at the start, to draw on both kinds of axis."""
    even = np.linspace(1, num_steps, num_points // 2)
    early = np.geomspace(1, num_steps, num_points // 2)
    return np.unique(np.round(np.concatenate([even, early])).astype(int))


def _even(total: int, lanes: int) -> int:
    return math.ceil(total / math.ceil(total / lanes))


def _limits() -> tuple[int, int]:
    """Bytes and lanes one call may take on the device in use."""
    device = jnp.zeros(()).devices().pop()
    if device.platform == "cpu":
        return _CPU_BUDGET, _CPU_LANES
    memory = (device.memory_stats() or {}).get("bytes_limit", 4 * _CPU_BUDGET)
    return memory // 3, 2**16


def _bytes_needed(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes

"""Many runs as one vmapped, compiled call, and what the paper reads off them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

__all__ = ["Progress", "grid", "iterations", "recorded_starts", "sweep", "thinned"]

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

    def compiled_for(num_runs: int) -> Any:
        some = jax.tree.map(lambda leaf: leaf[:num_runs], settings)
        return mapped.lower(some, *shared).compile()

    budget, most_runs = _limits()
    num_runs = _even(total, min(total, most_runs))
    compiled = compiled_for(num_runs)
    # What the compiler says it needs is the only honest estimate of what a run costs.
    needed = _bytes_needed(compiled)
    if needed > budget and num_runs > 1:
        num_runs = _even(total, max(1, int(num_runs * budget / needed)))
        compiled = compiled_for(num_runs)

    chunks = []
    for first in range(0, total, num_runs):
        # The last chunk begins earlier if need be: one shape, one compilation.
        start = min(first, total - num_runs)
        chunk = jax.tree.map(lambda leaf, start=start: leaf[start : start + num_runs], settings)
        done = jax.tree.map(np.asarray, compiled(chunk, *shared))
        fresh = first - start
        chunks.append(jax.tree.map(lambda leaf, fresh=fresh: leaf[fresh:], done))
        if progress is not None:
            progress(num_runs - fresh)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)


def thinned(num_steps: int, num_points: int = 200) -> np.ndarray:
    """Step numbers from 1 to `num_steps`, dense at the start, to draw on both kinds of axis."""
    even = np.linspace(1, num_steps, num_points // 2)
    early = np.geomspace(1, num_steps, num_points // 2)
    return np.unique(np.round(np.concatenate([even, early])).astype(int))


def _even(total: int, num_runs: int) -> int:
    return math.ceil(total / math.ceil(total / num_runs))


def _limits() -> tuple[int, int]:
    """Bytes and num_runs one call may take on the device in use."""
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


def iterations(
    history: Float[Array, " steps"],
    exact: ArrayLike,
    tolerance: float = 0.05,
    in_a_row: int = 10,
) -> Int[Array, ""]:
    """Index of the first of ten iterates in a row within the tolerance; the length if none are.

    NaN is never within anything, so a run that diverged has not arrived.
    """
    close = (jnp.abs(history - exact) < tolerance).astype(jnp.int32)
    kept = jnp.convolve(close, jnp.ones(in_a_row, jnp.int32), mode="valid") == in_a_row
    return jnp.where(jnp.any(kept), jnp.argmax(kept), history.shape[0])


def recorded_starts() -> dict[str, np.ndarray]:
    """Where the released code started; see `data/README.md`."""
    with files("marginax.reproduction").joinpath("data/starts.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        return {name: archive[name] for name in archive.files}

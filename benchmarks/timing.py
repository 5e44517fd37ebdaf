"""How the benchmarks measure: wall time to a ready result, the best of a few repeats."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

__all__ = ["best_seconds", "interleaved", "seconds", "temporary_bytes"]


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call, compilation included if it is the first."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def best_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """The shortest of several calls after one that compiles: the least disturbed by other work."""
    function()
    return min(seconds(function) for _ in range(repeats))


def interleaved(
    functions: Mapping[str, Callable[[], Any]], repeats: int = 7, least: float = 0.0
) -> dict[str, float]:
    """The shortest time of each, taken in turns, so that a busy spell of the machine meets all.

    Args:
        functions: by name; each is called once before, to compile.
        repeats: how many turns.
        least: go on, up to ten times as many turns, until this many seconds have been spent.
    """
    for function in functions.values():
        jax.block_until_ready(function())
    best = dict.fromkeys(functions, float("inf"))
    began = time.perf_counter()
    for turn in range(10 * repeats):
        if turn >= repeats and time.perf_counter() - began > least:
            break
        for name, function in functions.items():
            best[name] = min(best[name], seconds(function))
    return best


def temporary_bytes(compiled: Any) -> int:
    """Peak temporary memory of a compiled program, as XLA planned it: the same in every run."""
    return int(compiled.memory_analysis().temp_size_in_bytes)

"""How the benchmarks measure: wall time to a ready result, the best of a few repeats."""

import time
from collections.abc import Callable
from typing import Any

import jax

__all__ = ["best_seconds", "seconds"]


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call, compilation included if it is the first."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def best_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """The shortest of several calls after one that compiles: the least disturbed by other work."""
    function()
    return min(seconds(function) for _ in range(repeats))

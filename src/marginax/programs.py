"""Compiled programs of users' functions, of which the most recent are kept.

A static argument of `jax.jit` is remembered for good, and with it the function of a user that it
holds and the machine code made for it: a study of some hundred models would run out of memory maps.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax

__all__ = ["recent"]

KEPT = 8  # programs of each function


def recent(function: Callable[..., Any]) -> Callable[..., Any]:
    """`recent(function)(*fixed)` is `jax.jit` of function with its first arguments fixed.

    The same `fixed` gives the same compiled program, until `KEPT` others have been asked for.
    """

    @lru_cache(KEPT)
    def program(*fixed: Any) -> Any:
        return jax.jit(partial(function, *fixed))

    return program

"""Compiled programs of users' functions: by which key they are found, and how many are kept.

A static argument of `jax.jit` is remembered for good, and with it the function of a user that it
holds and the machine code made for it: a study of some hundred models would run out of memory maps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax

__all__ = ["ById", "recent"]


def _parts(mark: Any) -> tuple[Any, Any]:
    """The object and the function of a method; twice itself for anything else."""
    return getattr(mark, "__self__", mark), getattr(mark, "__func__", mark)


@dataclass(frozen=True, eq=False)
class ById:
    """A value as a static argument of jit, equal to another if both carry the same `mark`.

    Functions of a user need not be hashable: a method of an object with arrays is not.
    """

    value: Any
    mark: Any

    def __hash__(self) -> int:
        return id(getattr(self.mark, "__self__", self.mark))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ById):
            return False
        # A method is a new object whenever it is asked for.
        one, two = (_parts(mark) for mark in (self.mark, other.mark))
        return one[0] is two[0] and one[1] is two[1]


KEPT = 8  # programs of each function


def recent(function: Callable[..., Any]) -> Callable[..., Any]:
    """`recent(function)(*fixed)` is `jax.jit` of function with its first arguments fixed.

    The same `fixed` gives the same compiled program, until `KEPT` others have been asked for.
    """

    @lru_cache(KEPT)
    def program(*fixed: Any) -> Any:
        return jax.jit(partial(function, *fixed))

    return program

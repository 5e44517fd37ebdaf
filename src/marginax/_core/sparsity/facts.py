"""What is known of an array in a trace, and which entries of the probe each of its numbers needs.

The second is a set for every number of the array, all of them together a sparse matrix with a row
for every number and a column for every entry of the probe.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

__all__ = [
    "MOST",
    "Fact",
    "Link",
    "Step",
    "TooManyDependencies",
    "along",
    "either",
    "grouped",
    "keep_rows",
    "linear",
    "mixed",
    "places",
    "take_rows",
    "widened",
]

MOST = 20_000_000  # dependencies, or numbers, of one array


class TooManyDependencies(Exception):
    """The sets of an array grow beyond what is worth keeping.

    Attributes:
        why: the end of a sentence that begins with where.
        where: the primitive and the user's line; None until it is known.
    """

    def __init__(self, why: str, where: str | None = None):
        super().__init__(why)
        self.why = why
        self.where = where


class Fact:
    """What is known of one array.

    Attributes:
        shape: of the array.
        value: the array itself, if it depends on data alone; None otherwise.
        reach: [size, columns] the entries of the probe that each number depends on; None if none
            depends on any.
    """

    __slots__ = ("_support", "reach", "shape", "value")

    def __init__(
        self,
        shape: Sequence[int],
        value: Any = None,
        reach: Any = None,
        support: np.ndarray | None = None,
    ):
        """A fact.

        Args:
            shape: of the array.
            value: the array, or None.
            reach: [size, columns] or None.
            support: [size] where the array may differ from zero; None means everywhere.
        """
        self.shape = tuple(int(size) for size in shape)
        self.value = value
        self.reach = reach if reach is not None and reach.nnz else None
        self._support = None if support is None or support.all() else support

    @property
    def size(self) -> int:
        """How many numbers the array has."""
        return math.prod(self.shape)

    @property
    def support(self) -> np.ndarray | None:
        """[size] where the array may differ from zero; None means everywhere."""
        plain = self.value is not None and isinstance(self.value, np.ndarray | np.generic)
        if plain and self._support is None and np.ndim(self.value) == len(self.shape):
            nonzero = np.asarray(self.value != 0).reshape(-1)
            self._support = None if nonzero.all() else nonzero
        return self._support


class Step(NamedTuple):
    """An equation of a trace, as the rules see it.

    Attributes:
        name: of the primitive.
        parameters: of the equation.
        shapes: of the results.
        columns: how many entries the probe has.
        walk: `walk(program, facts, columns)`, the facts of a program's results.
        bind: `bind(values, **parameters)`, what the primitive makes of values.
    """

    name: str
    parameters: dict[str, Any]
    shapes: list[tuple[int, ...]]
    columns: int
    walk: Any
    bind: Any


class Link(NamedTuple):
    """By which numbers of an operand the numbers of a result are made, by adding some of them.

    Attributes:
        sources: [size of the result] the number each result comes from, or -1; or, with `targets`,
            one end of each pair.
        targets: the results that these go to; None where each result has one source.
    """

    sources: np.ndarray
    targets: np.ndarray | None = None


def places(shape: tuple[int, ...], start: int = 0) -> np.ndarray:
    """The places of the numbers of an array, in its shape, counted from `start`."""
    return np.arange(start, start + math.prod(shape), dtype=np.int32).reshape(shape)


def _matrix(indices: np.ndarray, pointers: np.ndarray, columns: int) -> Any:
    data = np.ones(len(indices), bool)
    shape = (len(pointers) - 1, columns)
    return sparse.csr_array((data, indices, pointers.astype(np.int32)), shape=shape)


def _limited(count: int) -> None:
    if count > MOST:
        raise TooManyDependencies(f"needs {count:,} dependencies to be kept, and {MOST:,} may be")


def take_rows(reach: Any, rows: np.ndarray) -> Any:
    """The sets of some rows, in their order; an empty one for -1."""
    counts = np.where(rows < 0, 0, np.diff(reach.indptr)[rows])
    _limited(max(int(counts.sum(dtype=np.int64)), len(rows)))
    pointers = np.concatenate([[0], np.cumsum(counts)])
    shifts = np.repeat(reach.indptr[rows] - pointers[:-1], counts)
    return _matrix(reach.indices[shifts + np.arange(len(shifts))], pointers, reach.shape[1])


def keep_rows(reach: Any, kept: np.ndarray | None) -> Any:
    """The same sets, but empty ones where `kept` is false."""
    if reach is None or kept is None:
        return reach
    counts = np.diff(reach.indptr)
    pointers = np.concatenate([[0], np.cumsum(np.where(kept, counts, 0))])
    return _matrix(reach.indices[np.repeat(kept, counts)], pointers, reach.shape[1])


def widened(reach: Any, columns: int) -> Any:
    """The same sets of a probe with more entries behind its own."""
    if reach is None or reach.shape[1] == columns:
        return reach
    return _matrix(reach.indices, reach.indptr, columns)


def either(first: Any, second: Any) -> Any:
    """The unions of two families of sets; None is a family of empty ones."""
    if first is None or second is None or first is second:
        return second if first is None else first
    _limited(max(first.nnz, second.nnz))
    return first + second


def _linked(reach: Any, link: Link, size: int) -> Any:
    if link.targets is None:
        return take_rows(reach, link.sources)
    full = np.diff(reach.indptr)[link.sources] > 0  # of the others nothing comes
    sources, targets = link.sources[full], link.targets[full]
    _limited(len(sources))
    ones = np.ones(len(sources), bool)
    chosen = sparse.csr_array((ones, (targets, sources)), shape=(size, reach.shape[0]))
    result = chosen @ reach
    _limited(result.nnz)
    return result


def _linked_support(fact: Fact, link: Link, size: int) -> np.ndarray | None:
    support = fact.support
    if link.targets is None:
        there = link.sources >= 0
        return there if support is None else there & support[link.sources]
    chosen = np.zeros(size, bool)
    kept = link.targets if support is None else link.targets[support[link.sources]]
    chosen[kept] = True
    return chosen


def linear(parts: list[tuple[Fact, Link]], shape: tuple[int, ...]) -> Fact:
    """A result that is made of its operands by choosing, placing and adding numbers."""
    size, reach, support = math.prod(shape), None, np.zeros(math.prod(shape), bool)
    for fact, link in parts:
        if fact.reach is not None:
            reach = either(reach, _linked(fact.reach, link, size))
        if not support.all():
            support |= _linked_support(fact, link, size)
    return Fact(shape, reach=reach, support=support)


def along(shape: tuple[int, ...], axes: Sequence[Any]) -> np.ndarray:
    """[size] for every number of an array, its place in the array summed over some axes."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return np.broadcast_to(places(kept), shape).reshape(-1)


def grouped(reach: Any, groups: np.ndarray, count: int) -> Any:
    """The unions of the sets of each group of rows, [count, columns]."""
    return _linked(reach, Link(np.arange(len(groups), dtype=np.int32), groups), count)


def mixed(reach: Any, shape: tuple[int, ...], axes: Sequence[Any]) -> Any:
    """The sets where every number may depend on all those in its line along some axes."""
    if reach is None or not axes:
        return reach
    groups = along(shape, axes)
    return take_rows(grouped(reach, groups, int(groups.max(initial=-1)) + 1), groups)

"""Rules for products of matrices and for systems of linear equations.

Of a factor that is zero somewhere, whatever the latents are, nothing comes there: a design matrix
or a precision matrix that is mostly zeros keeps the result sparse.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from marginax._core.sparsity.facts import (
    MOST,
    Fact,
    Link,
    Step,
    along,
    either,
    grouped,
    linear,
    mixed,
    places,
    take_rows,
)

__all__ = ["PRODUCTS"]


class _Side(NamedTuple):
    """A factor of a product, as [batch, own, summed].

    Attributes:
        fact: of the factor.
        order: [batch, own, summed] the places of its numbers.
    """

    fact: Fact
    order: np.ndarray

    @property
    def support(self) -> np.ndarray | None:
        """[batch, own, summed] where it may differ from zero."""
        support = self.fact.support
        return None if support is None else support[self.order]


def _side(fact: Fact, batch: Any, summed: Any) -> _Side:
    own = [axis for axis in range(len(fact.shape)) if axis not in (*batch, *summed)]
    sizes = [math.prod(fact.shape[axis] for axis in axes) for axes in (batch, own, summed)]
    order = places(fact.shape).transpose([*batch, *own, *summed]).reshape(sizes)
    return _Side(fact, order)


def _came_by(side: _Side, other: _Side, shape: tuple[int, ...], first: bool) -> Any:
    """The sets of a product that come by one factor."""
    if side.fact.reach is None:
        return None
    batch, own, summed = side.order.shape
    theirs, support = other.order.shape[1], other.support
    results = places((batch, own, theirs) if first else (batch, theirs, own))
    results = results if first else results.transpose(0, 2, 1)  # [batch, own, theirs]
    if support is None or np.count_nonzero(support) * own > MOST:
        groups = np.empty(side.fact.size, np.int32)
        groups[side.order.reshape(-1)] = along((batch, own, summed), (2,))
        union = grouped(side.fact.reach, groups, batch * own)
        rows = np.empty(math.prod(shape), np.int32)
        rows[results.reshape(-1)] = along((batch, own, theirs), (2,))
        return take_rows(union, rows)
    at_batch, at_theirs, at_summed = np.nonzero(support)
    sources = side.order[at_batch, :, at_summed].reshape(-1)
    targets = results[at_batch, :, at_theirs].reshape(-1)
    return linear([(side.fact, Link(sources, targets))], shape).reach


def _support(first: _Side, second: _Side) -> np.ndarray | None:
    """Where the product may differ from zero, if that is cheaply found."""
    x, y = first.support, second.support
    work = first.order.size * second.order.shape[1]
    if (x is None and y is None) or work > 20 * MOST:
        return None
    x = np.ones(first.order.shape, bool) if x is None else x
    y = np.ones(second.order.shape, bool) if y is None else y
    counts = x.astype(np.float32) @ y.astype(np.float32).transpose(0, 2, 1)
    return (counts > 0).reshape(-1)


def _product(step: Step, facts: list[Fact]) -> list[Fact]:
    (shape,) = step.shapes
    summed, batch = step.parameters["dimension_numbers"]
    first, second = (_side(facts[k], batch[k], summed[k]) for k in range(2))
    reach = either(
        _came_by(first, second, shape, True),
        _came_by(second, first, shape, False),
    )
    return [Fact(shape, reach=reach, support=_support(first, second))]


def _triangular_solve(step: Step, facts: list[Fact]) -> list[Fact]:
    """Right-hand sides apart from each other; nothing apart where the matrix depends on a probe."""
    matrix, sides = facts
    (shape,) = step.shapes
    if matrix.reach is not None:
        raise ValueError("a matrix of the probe")
    axis = len(shape) - (2 if step.parameters["left_side"] else 1)
    return [Fact(shape, reach=mixed(sides.reach, shape, (axis,)))]


def _tridiagonal_solve(step: Step, facts: list[Fact]) -> list[Fact]:
    *diagonals, sides = facts
    (shape,) = step.shapes
    if any(fact.reach is not None for fact in diagonals):
        raise ValueError("a matrix of the probe")
    return [Fact(shape, reach=mixed(sides.reach, shape, (len(shape) - 2,)))]


def _linear_solve(step: Step, facts: list[Fact]) -> list[Fact]:
    """By the program that solves, given its constants and the right-hand side."""
    lengths, programs = step.parameters["const_lengths"], step.parameters["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    constants = facts[before : before + lengths.solve]
    return step.walk(programs.solve, [*constants, *facts[sum(lengths) :]], step.columns)


PRODUCTS = {
    "dot_general": _product,
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
    "custom_linear_solve": _linear_solve,
}

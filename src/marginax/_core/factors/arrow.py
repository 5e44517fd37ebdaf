"""Factors of arrows: many latents that are simple among themselves, and a border that is dense.

Two crossed factors: given one of them, the latents of the other know nothing of each other. A
time series with a few coefficients that touch all of it: given those, it is a chain. So the
matrix is [[A, C'], [C, B]] with A easy to factorise, A = M_A M_A', and

    M = [[M_A, 0], [V, L]],   V = C M_A'^-1,   L L' = B - V V'   (dense).

What A is, and how V is stored, is the business of an `Interior`: `small_units` or `long_chains`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from marginax._core.factors.base import Factors, Pattern, all_positive, on_columns
from marginax._core.factors.dense import dense_cost, inverse_of
from marginax._core.linalg import cholesky, lower_solve, matmul

__all__ = ["Arrow", "Interior", "Split", "arrow_factors", "split"]

NUMBERS, FEW = 10_000_000, 16


class Split(NamedTuple):
    """A pattern with a border: which latents are inside, and which places are where.

    Attributes:
        inside: the latents of A, in their order.
        border: the latents of B, in their order.
        own: which places of the pattern are in A, and as a pattern of A.
        own_pattern: the latter.
        across: which places are in C, with their latents by number in B and in A.
        across_rows: by number in B.
        across_cols: by number in A.
        corner: which places are in B.
        corner_rows: by number in B, not less than `corner_cols`.
        corner_cols: by number in B.
    """

    inside: Int[np.ndarray, " a"]
    border: Int[np.ndarray, " b"]
    own: Int[np.ndarray, " own"]
    own_pattern: Pattern
    across: Int[np.ndarray, " across"]
    across_rows: Int[np.ndarray, " across"]
    across_cols: Int[np.ndarray, " across"]
    corner: Int[np.ndarray, " corner"]
    corner_rows: Int[np.ndarray, " corner"]
    corner_cols: Int[np.ndarray, " corner"]


class Interior(NamedTuple):
    """A without its border, and V. Vectors are columns, [a, k] of A and [b, k] of B.

    Attributes:
        words: what it is, for users.
        cost: of `factor` and `gram`, in nanoseconds.
        factor: (values of A, values of C) to E.
        gram: E to the lower triangle of V V', at least; what is above is not read.
        half_solve: (E, x) to M_A^-1 x.
        unwhiten: (E, u) to M_A'^-1 u.
        whiten: (E, x) to M_A' x.
        to_border: (E, x) to V x.
        from_border: (E, x) to V' x.
        log_determinant: E to log |A|.
        positive: E to whether A is positive definite.
        inverse: (E, (L L')^-1) to the inverse's entries at the places of A and of C.
    """

    words: str
    cost: float
    factor: Callable[[Any, Any], Any]
    gram: Callable[[Any], Any]
    half_solve: Callable[[Any, Any], Any]
    unwhiten: Callable[[Any, Any], Any]
    whiten: Callable[[Any, Any], Any]
    to_border: Callable[[Any, Any], Any]
    from_border: Callable[[Any, Any], Any]
    log_determinant: Callable[[Any], Any]
    positive: Callable[[Any], Any]
    inverse: Callable[[Any, Any], tuple[Any, Any]]


class Arrow(NamedTuple):
    """The factor: of the interior with V, and L of the border."""

    interior: PyTree
    border: Float[Array, "b b"]


def split(pattern: Pattern, border: Int[np.ndarray, " b"]) -> Split:
    """The pattern, taken apart by which latents are the border."""
    rows, cols, n = pattern
    outside = np.zeros(n, bool)
    outside[border] = True
    inside, border = np.flatnonzero(~outside), np.flatnonzero(outside)
    number = np.empty(n, np.int64)
    number[inside], number[border] = np.arange(len(inside)), np.arange(len(border))
    own = np.flatnonzero(~outside[rows] & ~outside[cols])
    corner = np.flatnonzero(outside[rows] & outside[cols])
    across = np.flatnonzero(outside[rows] != outside[cols])
    row, col = rows[across], cols[across]
    return Split(
        inside=inside,
        border=border,
        own=own,
        own_pattern=Pattern(number[rows[own]], number[cols[own]], len(inside)),
        across=across,
        across_rows=number[np.where(outside[row], row, col)],
        across_cols=number[np.where(outside[row], col, row)],
        corner=corner,
        corner_rows=number[rows[corner]],
        corner_cols=number[cols[corner]],
    )


def arrow_factors(pattern: Pattern, parts: Split, interior: Interior) -> Factors:
    """Factors by elimination of the interior."""
    size = len(parts.border)
    # V is sparse: its product takes a number for each of its entries and every vector.
    columns = partial(on_columns, at_once=max(FEW, NUMBERS // max(1, len(parts.across))))

    def factor(values: Float[Array, " nnz"]) -> Arrow:
        inner = interior.factor(values[parts.own], values[parts.across])
        corner = jnp.zeros((size, size), values.dtype)
        corner = corner.at[parts.corner_rows, parts.corner_cols].set(values[parts.corner])
        schur = jnp.tril(corner - interior.gram(inner))
        return Arrow(inner, cholesky(schur + jnp.tril(schur, -1).T))

    def apart(x: Float[Array, "n k"]) -> tuple[Float[Array, "a k"], Float[Array, "b k"]]:
        return x[parts.inside], x[parts.border]

    def together(a: Float[Array, "a k"], b: Float[Array, "b k"]) -> Float[Array, "n k"]:
        x = jnp.zeros((pattern.n, a.shape[1]), a.dtype)
        return x.at[parts.inside].set(a).at[parts.border].set(b)

    def half_solve(f: Arrow, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        a, b = apart(x)
        a = interior.half_solve(f.interior, a)
        return together(a, lower_solve(f.border, b - interior.to_border(f.interior, a)))

    def unwhiten(f: Arrow, u: Float[Array, "n k"]) -> Float[Array, "n k"]:
        a, b = apart(u)
        b = lower_solve(f.border, b, transposed=True)
        return together(interior.unwhiten(f.interior, a - interior.from_border(f.interior, b)), b)

    def whiten(f: Arrow, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        a, b = apart(x)
        inner = interior.whiten(f.interior, a) + interior.from_border(f.interior, b)
        return together(inner, matmul(f.border.T, b))

    def inverse_on_pattern(f: Arrow) -> Float[Array, " nnz"]:
        corner = inverse_of(f.border)
        own, across = interior.inverse(f.interior, corner)
        values = jnp.zeros(len(pattern.rows), corner.dtype)
        values = values.at[parts.own].set(own).at[parts.across].set(across)
        return values.at[parts.corner].set(corner[parts.corner_rows, parts.corner_cols])

    return Factors(
        kind="arrow",
        words=interior.words,
        pattern=pattern,
        traceable=True,
        cost=interior.cost + dense_cost(size),
        factor=jax.jit(factor),
        solve=columns(lambda f, b: unwhiten(f, half_solve(f, b))),
        half_solve=columns(half_solve),
        log_determinant=jax.jit(
            lambda f: (
                interior.log_determinant(f.interior) + 2 * jnp.sum(jnp.log(jnp.diagonal(f.border)))
            )
        ),
        inverse_on_pattern=jax.jit(inverse_on_pattern),
        whiten=columns(whiten),
        unwhiten=columns(unwhiten),
        positive=jax.jit(
            lambda f: interior.positive(f.interior) & all_positive(jnp.diagonal(f.border))
        ),
    )

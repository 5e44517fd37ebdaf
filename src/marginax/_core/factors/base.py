"""Factors of sparse symmetric matrices: what every kind can do, and what holds for all of them.

A pattern is where a symmetric matrix H may differ from zero: its lower triangle with the whole
diagonal, sorted by row, then column. Values come in the same order. A kind of factor does its
bookkeeping once for a pattern and is then a handful of pure functions (`Factors`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

__all__ = [
    "FUNCTIONS",
    "Factors",
    "Pattern",
    "Raised",
    "all_positive",
    "multiply",
    "on_columns",
    "pattern_of",
    "raised",
    "units",
]

# The fields of `Factors` that are functions.
FUNCTIONS = (
    "factor",
    "solve",
    "half_solve",
    "log_determinant",
    "inverse_on_pattern",
    "whiten",
    "unwhiten",
    "positive",
)
OnColumns = Callable[[Any, Float[Array, "n k"]], Float[Array, "n k"]]
FIRST, GROWTH, MOST = 1e-3, 4.0, 24  # 1e-3 * 4**24 is beyond any sum of a row


class Pattern(NamedTuple):
    """Places of the lower triangle, diagonal included, sorted by row, then column."""

    rows: Int[np.ndarray, " nnz"]
    cols: Int[np.ndarray, " nnz"]
    n: int


class Factors(NamedTuple):
    """Factors of the matrices of one pattern: H = M M', M = P' L P, L triangular, P an order.

    `factor` makes of values what the other functions take: arrays where `traceable`, when all of
    them are functions of JAX (compiled, batched by vmap, on any device), and otherwise an object
    on the host. A matrix that is not positive definite has a factor too, of which only `positive`
    says anything.

    Attributes:
        kind: "dense", "chain", "arrow" or "sparse".
        words: the same for users, in one phrase.
        pattern: the places of the values.
        traceable: whether these are functions of JAX.
        cost: of a factor, in nanoseconds on a CPU, roughly; what kinds are chosen by.
        factor: of values [nnz].
        solve: (F, b) to H^-1 b, for b [n] or [k, n].
        half_solve: (F, b) to M^-1 b, the first half of that; the second is `unwhiten`.
        log_determinant: F to log |H|.
        inverse_on_pattern: F to the entries of H^-1 at the places of the values.
        whiten: (F, x) to u = M' x, for x [n] or [k, n]. u_i stands where x_i does.
        unwhiten: (F, u) to x = M'^-1 u: of standard normal u, draws of covariance H^-1.
        positive: F to whether H is positive definite.
    """

    kind: str
    words: str
    pattern: Pattern
    traceable: bool
    cost: float
    factor: Callable[[Any], Any]
    solve: Callable[[Any, Any], Any]
    half_solve: Callable[[Any, Any], Any]
    log_determinant: Callable[[Any], Any]
    inverse_on_pattern: Callable[[Any], Any]
    whiten: Callable[[Any, Any], Any]
    unwhiten: Callable[[Any, Any], Any]
    positive: Callable[[Any], Any]


def pattern_of(rows: ArrayLike, cols: ArrayLike, n: int) -> Pattern:
    """The pattern of places, or a sentence about what is wrong with them."""
    row, col = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
    if row.ndim != 1 or row.shape != col.shape:
        raise ValueError(
            f"The rows and columns of a pattern have the shapes {row.shape} and {col.shape}; they "
            "must be two vectors of the same length."
        )
    if row.size and (col.min() < 0 or row.max() >= n or np.any(col > row)):
        raise ValueError(
            f"A pattern of {n} latents needs 0 <= column <= row < {n} everywhere: it is the lower "
            "triangle of a symmetric matrix."
        )
    if np.any(np.diff(row * n + col) <= 0):
        raise ValueError("The places of a pattern must be sorted by row, then column, each once.")
    if np.count_nonzero(row == col) != n:
        raise ValueError(
            f"A pattern must have the whole diagonal: {np.count_nonzero(row == col)} of {n} places "
            "are there."
        )
    return Pattern(row, col, int(n))


def multiply(
    pattern: Pattern, values: Float[Array, " nnz"], x: Float[Array, "*k n"]
) -> Float[Array, "*k n"]:
    """H x, for one x [n] or several [k, n]."""
    rows, cols, _ = pattern
    lower = jnp.zeros_like(x).at[..., rows].add(_rowwise(values, x) * x[..., cols])
    above = jnp.where(jnp.asarray(rows != cols), values, 0)
    return lower.at[..., cols].add(_rowwise(above, x) * x[..., rows])


def _rowwise(values: Float[Array, " nnz"], x: Float[Array, "*k n"]) -> Float[Array, "*k nnz"]:
    return jnp.broadcast_to(values, (*x.shape[:-1], *values.shape))


def on_columns(function: OnColumns, at_once: int | None = None) -> Callable[[Any, Any], Any]:
    """A function of a factor and columns [n, k] as one of x [n] or [k, n], compiled.

    Args:
        function: of a factor and columns.
        at_once: the most columns that it is given at a time, where each takes much memory.
    """

    def of_rows(factor: PyTree, rows: Float[Array, "k n"]) -> Float[Array, "k n"]:
        return function(factor, rows.T).T

    def on_vectors(factor: PyTree, x: Float[Array, "*k n"]) -> Float[Array, "*k n"]:
        rows = x.reshape(-1, x.shape[-1])
        if at_once is None or len(rows) <= at_once:
            return of_rows(factor, rows).reshape(x.shape)
        padded = jnp.pad(rows, ((0, -len(rows) % at_once), (0, 0)))
        some = padded.reshape(-1, at_once, x.shape[-1])
        done = jax.lax.map(lambda part: of_rows(factor, part), some)
        return done.reshape(padded.shape)[: len(rows)].reshape(x.shape)

    return jax.jit(on_vectors)


def all_positive(diagonal: Float[Array, "*any"]) -> Bool[Array, ""]:
    """Whether the diagonal of a Cholesky factor is one: NaN is where there is none."""
    return jnp.all((diagonal > 0) & jnp.isfinite(diagonal))


class Raised(NamedTuple):
    """A factor of H + diag(added).

    Attributes:
        factor: as `Factors.factor` makes it.
        values: of the raised matrix.
        share: what was added, as a share of `units`; 0 where H itself has a factor, and NaN where
            no matrix of these values has one, because they are not finite.
    """

    factor: PyTree
    values: Float[ArrayLike, " nnz"]
    share: Float[ArrayLike, ""]


def raised(factors: Factors, values: Float[ArrayLike, " nnz"], *, share: ArrayLike = 0.0) -> Raised:
    """The factor of H with its diagonal raised until there is one, as by a trust region.

    What is added to each entry of the diagonal is a share of that entry's own `units`, so that
    latents may be measured in anything; the share is `share` at first, then 0.001, and then four
    times more until H is positive definite. Entries that are not positive themselves become one
    unit before, so that one bad latent need not hold all the others back.

    Args:
        factors: of H's pattern.
        values: of H.
        share: what to begin with, such as the share that a trust region is at.
    """
    diagonal = np.flatnonzero(factors.pattern.rows == factors.pattern.cols)
    values = jnp.asarray(values)
    unit, own = units(factors.pattern, values), values[diagonal]

    def attempt(share: Array, tries: Any) -> tuple[Any, Array, Array, Any]:
        base = jnp.where((own <= 0) & (share > 0), unit, own)  # and NaN remains NaN
        lifted = values.at[diagonal].set(base + share * unit)
        return factors.factor(lifted), lifted, share, tries

    def failed(state: tuple[Any, Array, Array, Any]) -> Any:
        factor, _, _, tries = state
        return jnp.logical_not(factors.positive(factor)) & (tries < MOST)

    def more(state: tuple[Any, Array, Array, Any]) -> tuple[Any, Array, Array, Any]:
        _, _, share, tries = state
        return attempt(jnp.maximum(GROWTH * share, jnp.asarray(FIRST, values.dtype)), tries + 1)

    state = attempt(jnp.asarray(share, values.dtype), 0)
    if factors.traceable:
        state = jax.lax.while_loop(failed, more, state)
    else:
        while failed(state):
            state = more(state)
    factor, lifted, share, _ = state
    return Raised(factor, lifted, jnp.where(factors.positive(factor), share, jnp.nan))


def units(pattern: Pattern, values: Float[Array, " nnz"]) -> Float[Array, " n"]:
    """What is a large change of each diagonal entry of H, in its own units; never 0.

    That is |H_ii|, unless the entry is unsound: not positive, or so small that all its neighbours
    object, since H_ij^2 < H_ii H_jj in a positive definite matrix. A curvature that turns negative
    passes 0, where its size says nothing. Then it is twice what the sound neighbours take away from
    H_ii when they are eliminated, the sum of H_ij^2 / H_jj.

    Among 5 rules on grids, chains, crossed and scattered patterns with one entry of the diagonal
    spoilt, this one raised the others least, by 0.001 of their own in 95 % of cases with an entry
    that was not positive (|H_ii| alone: up to 17,000). An entry that is positive but much too small
    remains hard: nothing tells it from its neighbour, and shares of 1 to 16 are usual.
    """
    rows, cols, n = pattern
    off = np.flatnonzero(rows != cols)
    here, there = np.concatenate([rows[off], cols[off]]), np.concatenate([cols[off], rows[off]])
    diagonal = values[np.flatnonzero(rows == cols)]
    own, positive = jnp.abs(diagonal), diagonal > 0
    size = jnp.abs(jnp.concatenate([values[off], values[off]]))
    # A quotient first: squares of numbers that are far from 1 leave float32.
    taken = size * (size / jnp.where(own > 0, own, 1)[there])

    def number(which: Bool[Array, " m"]) -> Int[Array, " n"]:
        return jnp.zeros(n, int).at[here].add(which.astype(int))

    heard, objecting = number(positive[there]), number(positive[there] & (taken > own[here]))
    unsound = ~positive | ((heard > 0) & (objecting == heard))
    needed = jnp.zeros_like(own).at[here].add(jnp.where(unsound[there], 0, taken))
    unit = jnp.where(unsound, jnp.maximum(own, 2 * needed), own)
    # With a diagonal of zeros all around, the entries of the row; with no entries, the others'.
    unit = jnp.where(unit > 0, unit, jnp.zeros_like(own).at[here].max(size))
    typical = jnp.exp(jnp.mean(jnp.log(jnp.where(unit > 0, unit, 1)), where=unit > 0))
    given = jnp.where(unit > 0, unit, jnp.where(jnp.any(unit > 0), typical, 1))
    return jnp.where(jnp.isnan(own), own, given)

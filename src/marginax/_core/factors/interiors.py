"""Interiors of arrows: very many small units, or long chains, each given the border.

Of units (a latent alone, or a few that see each other) V has entries where a unit sees the border,
and is stored so: one vector of the unit's size for each of these ties. All that is quadratic in V
is a sum over pairs of ties of one unit. Of long chains, which fill it, V is dense.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from marginax._core.factors.arrow import Interior, Split
from marginax._core.factors.base import Factors, Pattern, all_positive
from marginax._core.linalg import cholesky, lower_solve, matmul

__all__ = ["Layout", "Units", "long_chains", "number_of_pairs", "small_units", "units_of"]


class Layout(NamedTuple):
    """Where the latents of A are: in which unit, and at which of its places.

    Attributes:
        unit: of every latent.
        slot: of every latent, within its unit.
        number: how many units there are.
        size: of the largest.
    """

    unit: Int[np.ndarray, " a"]
    slot: Int[np.ndarray, " a"]
    number: int
    size: int


class Ties(NamedTuple):
    """Pairs of a unit and a latent of the border that see each other, by unit, then latent.

    Attributes:
        unit: of every tie.
        border: latent of the border, of every tie.
        entry: which tie each place of C belongs to.
        left: of all pairs of ties of one unit, with themselves too, the later one.
        right: and the earlier one.
    """

    unit: Int[np.ndarray, " ties"]
    border: Int[np.ndarray, " ties"]
    entry: Int[np.ndarray, " across"]
    left: Int[np.ndarray, " pairs"]
    right: Int[np.ndarray, " pairs"]


class Units(NamedTuple):
    """The factor of the interior: of every unit, and V as a vector for every tie."""

    lower: Float[Array, "m p p"]
    across: Float[Array, "ties p"]


def units_of(pattern: Pattern) -> Layout:
    """The connected components of a pattern."""
    rows, cols, n = pattern
    graph = coo_array((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    count, unit = connected_components(graph.tocsr(), directed=False)
    order = np.argsort(unit, kind="stable")
    sizes = np.bincount(unit, minlength=count)
    slot = np.empty(n, np.int64)
    slot[order] = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Layout(unit.astype(np.int64), slot, int(count), int(sizes.max(initial=1)))


def number_of_pairs(parts: Split, layout: Layout) -> int:
    """How many pairs of ties of one unit there are: the work of an interior of small units."""
    keys = np.unique(_keys(parts, layout))
    each = np.bincount(keys // max(len(parts.border), 1), minlength=layout.number)
    return int(np.sum(each * (each + 1) // 2))


def _keys(parts: Split, layout: Layout) -> Int[np.ndarray, " across"]:
    return layout.unit[parts.across_cols] * len(parts.border) + parts.across_rows


def _ties(parts: Split, layout: Layout) -> Ties:
    size = max(len(parts.border), 1)
    keys, entry = np.unique(_keys(parts, layout), return_inverse=True)
    unit, border = keys // size, keys % size
    first = np.searchsorted(unit, unit)  # of the ties of the same unit
    number = np.arange(len(keys)) - first + 1
    left = np.repeat(np.arange(len(keys)), number)
    right = np.arange(len(left)) - np.repeat(np.cumsum(number) - number, number) + first[left]
    return Ties(*(part.reshape(-1).astype(np.int32) for part in (unit, border, entry, left, right)))


def _pivots(e: Units) -> Float[Array, "m p"]:
    return jnp.diagonal(e.lower, axis1=-2, axis2=-1)


def small_units(parts: Split, layout: Layout, words: str) -> Interior:
    """An interior of very many units of a few latents; all of them are padded to the largest."""
    size, p, m = len(parts.border), layout.size, layout.number
    ties = _ties(parts, layout)
    place = layout.unit * p + layout.slot
    rows, cols = place[parts.own_pattern.rows], place[parts.own_pattern.cols]
    lower, upper = rows * p + cols % p, cols * p + rows % p
    unused = np.setdiff1d(np.arange(m * p), place)
    entries = ties.entry * p + layout.slot[parts.across_cols]
    off = np.flatnonzero(ties.left != ties.right)
    left, right = ties.left[off], ties.right[off]

    def factor(own: Float[Array, " own"], across: Float[Array, " across"]) -> Units:
        blocks = jnp.zeros(m * p * p, own.dtype).at[unused * p + unused % p].set(1)
        blocks = blocks.at[lower].set(own).at[upper].set(own).reshape(m, p, p)
        roots = cholesky(blocks)
        columns = jnp.zeros(len(ties.unit) * p, own.dtype).at[entries].set(across)
        columns = columns.reshape(-1, p, 1)
        return Units(roots, lower_solve(roots[ties.unit], columns)[..., 0])

    def gram(e: Units) -> Float[Array, "b b"]:
        products = jnp.sum(e.across[ties.left] * e.across[ties.right], axis=1)
        flat = jnp.zeros(size * size, products.dtype)
        where = ties.border[ties.left] * size + ties.border[ties.right]
        return flat.at[where].add(products).reshape(size, size)

    def by_unit(x: Float[Array, "a k"]) -> Float[Array, "m p k"]:
        slots = jnp.zeros((m * p, x.shape[1]), x.dtype).at[place].set(x)
        return slots.reshape(m, p, x.shape[1])

    def by_latent(x: Float[Array, "m p k"]) -> Float[Array, "a k"]:
        return x.reshape(m * p, x.shape[2])[place]

    def solved(e: Units, x: Float[Array, "a k"], transposed: bool) -> Float[Array, "a k"]:
        return by_latent(lower_solve(e.lower, by_unit(x), transposed=transposed))

    def to_border(e: Units, x: Float[Array, "a k"]) -> Float[Array, "b k"]:
        tied = jnp.sum(e.across[:, :, None] * by_unit(x)[ties.unit], axis=1)
        return jnp.zeros((size, x.shape[1]), x.dtype).at[ties.border].add(tied)

    def from_border(e: Units, x: Float[Array, "b k"]) -> Float[Array, "a k"]:
        tied = e.across[:, :, None] * x[ties.border][:, None, :]
        return by_latent(jnp.zeros((m, p, x.shape[1]), x.dtype).at[ties.unit].add(tied))

    def inverse(e: Units, corner: Float[Array, "b b"]) -> tuple[Array, Array]:
        gains = lower_solve(e.lower[ties.unit], e.across[..., None], transposed=True)[..., 0]
        between = corner[ties.border[left], ties.border[right]][:, None]
        beside = corner[ties.border, ties.border][:, None] * gains
        beside = beside.at[left].add(between * gains[right])
        beside = beside.at[right].add(between * gains[left])
        eye = jnp.broadcast_to(jnp.eye(p, dtype=corner.dtype), (m, p, p))
        half = lower_solve(e.lower, eye)
        blocks = matmul(half.mT, half)
        blocks = blocks.at[ties.unit].add(gains[:, :, None] * beside[:, None, :])
        return blocks.reshape(-1)[lower], -beside.reshape(-1)[entries]

    return Interior(
        words=words,
        # Measured: 1 to 4 nanoseconds a pair of ties for latents alone, 17 for units of two.
        cost=(3.0 if p == 1 else 8.0 * p) * len(ties.left) + 20.0 * m * p,
        factor=factor,
        gram=gram,
        half_solve=lambda e, x: solved(e, x, False),
        unwhiten=lambda e, u: solved(e, u, True),
        whiten=lambda e, x: by_latent(matmul(e.lower.mT, by_unit(x))),
        to_border=to_border,
        from_border=from_border,
        log_determinant=lambda e: 2 * jnp.sum(jnp.log(_pivots(e))),
        positive=lambda e: all_positive(_pivots(e)),
        inverse=inverse,
    )


class Within(NamedTuple):
    """The factor of an interior of any kind, and V, dense."""

    own: Any
    across: Float[Array, "b a"]


def long_chains(parts: Split, inner: Factors, words: str) -> Interior:
    """An interior that has factors of its own, with a border that is small or sees all of it."""
    size, n = len(parts.border), len(parts.inside)
    rows, cols, _ = parts.own_pattern

    def factor(own: Float[Array, " own"], across: Float[Array, " across"]) -> Within:
        f = inner.factor(own)
        dense = jnp.zeros((size, n), own.dtype)
        dense = dense.at[parts.across_rows, parts.across_cols].set(across)
        return Within(f, inner.half_solve(f, dense))

    def inverse(e: Within, corner: Float[Array, "b b"]) -> tuple[Array, Array]:
        gains = inner.unwhiten(e.own, e.across)
        beside = matmul(corner, gains)

        def add(total: Float[Array, " own"], row: tuple[Array, Array]) -> tuple[Array, None]:
            return total + row[0][rows] * row[1][cols], None

        own = jax.lax.scan(add, inner.inverse_on_pattern(e.own), (beside, gains))[0]
        return own, -beside[parts.across_rows, parts.across_cols]

    return Interior(
        words=words,
        cost=inner.cost * (1 + size / 4) + size**2 * n / 10,  # 15 to 20 operations a nanosecond
        factor=factor,
        gram=lambda e: matmul(e.across, e.across.T),
        half_solve=lambda e, x: inner.half_solve(e.own, x.T).T,
        unwhiten=lambda e, u: inner.unwhiten(e.own, u.T).T,
        whiten=lambda e, x: inner.whiten(e.own, x.T).T,
        to_border=lambda e, x: matmul(e.across, x),
        from_border=lambda e, x: matmul(e.across.T, x),
        log_determinant=lambda e: inner.log_determinant(e.own),
        positive=lambda e: inner.positive(e.own),
        inverse=inverse,
    )

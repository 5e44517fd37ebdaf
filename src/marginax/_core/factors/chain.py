"""Factors of chains: matrices whose entries are near the diagonal, once the latents are in order.

Time series, walks, seasons, small grids. With the latents in the order of reverse Cuthill and McKee
(1969), or in their own if that is as good, entries are at most b places off the diagonal; so the
matrix is block-tridiagonal with blocks of b, and everything is a recursion over the blocks, forth
for the factor and back for the inverse. Blocks of 1 are numbers.

L has the blocks L_i on its diagonal and W_i left of it, L_i L_i' = H_ii - W_i W_i' and
W_i = H_i,i-1 L_i-1^-T. Inverse, from the last block back, with G_i = W_i+1 L_i^-1:
S_i+1,i = -S_i+1,i+1 G_i and S_ii = (L_i L_i')^-1 + G_i' S_i+1,i+1 G_i.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from marginax._core.factors.base import Factors, Pattern, all_positive, on_columns
from marginax._core.linalg import SMALL, cholesky, lower_solve, matmul

__all__ = ["Chain", "bandwidth", "chain_cost", "chain_factors", "chain_order"]

Blocks = Float[Array, "m b k"]


class Chain(NamedTuple):
    """The factor: blocks on the diagonal of L, and left of it (the first of these is 0)."""

    diagonal: Float[Array, "m b b"]
    left: Float[Array, "m b b"]


def chain_cost(n: int, width: int) -> float:
    """Nanoseconds of a factor: of each step, and of its 10/3 b^3 operations.

    Measured: 20 a step for numbers and blocks of 2, 900 for blocks of 4, 2,400 for 12; and 15 to 20
    operations in a nanosecond for blocks of 60 to 100.
    """
    step = 20 if width <= 2 else 900 if width <= SMALL else 2000
    return n / width * (step + 10 * width**3 / 3 / 15)


def bandwidth(pattern: Pattern, order: Int[np.ndarray, " n"]) -> int:
    """The largest distance between two neighbours that stand in this order, and at least 1."""
    place = np.argsort(order)
    return int(np.max(np.abs(place[pattern.rows] - place[pattern.cols]), initial=1))


def chain_order(pattern: Pattern) -> Int[np.ndarray, " n"]:
    """The latents in an order that brings neighbours close to each other."""
    rows, cols, n = pattern
    own = np.arange(n)
    graph = coo_array((np.ones(len(rows)), (rows, cols)), shape=(n, n)).tocsr()
    found = reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True).astype(np.int64)
    return found if bandwidth(pattern, found) < bandwidth(pattern, own) else own


def chain_factors(pattern: Pattern, order: Int[np.ndarray, " n"] | None = None) -> Factors:
    """Factors of a matrix that is a chain of blocks, of whatever size that takes."""
    n = pattern.n
    order = chain_order(pattern) if order is None else order
    b = bandwidth(pattern, order)
    m = -(-n // b)
    lower, upper = _places(pattern, np.argsort(order), b)
    missing = np.arange(n, m * b)  # an identity matrix fills the last block
    filled = (missing // b * b + missing % b) * b + missing % b

    def factor(values: Float[Array, " nnz"]) -> Chain:
        both = jnp.zeros(2 * m * b * b, values.dtype).at[filled].set(1)
        both = both.at[lower].set(values).at[upper].set(values)
        return _factor(*both.reshape(2, m, b, b))

    def blocks(x: Float[Array, "n k"]) -> Blocks:
        ordered = jnp.concatenate([x[order], jnp.zeros((m * b - n, x.shape[1]), x.dtype)])
        return ordered.reshape(m, b, x.shape[1])

    def latents(x: Blocks) -> Float[Array, "n k"]:
        return jnp.zeros((n, x.shape[2]), x.dtype).at[order].set(x.reshape(m * b, -1)[:n])

    return Factors(
        kind="chain",
        words="a chain" if b == 1 else f"a chain of blocks of {b}",
        pattern=pattern,
        traceable=True,
        cost=chain_cost(n, b),
        factor=jax.jit(factor),
        solve=on_columns(lambda f, x: latents(_backward(f, _forward(f, blocks(x))))),
        half_solve=on_columns(lambda f, x: latents(_forward(f, blocks(x)))),
        log_determinant=jax.jit(lambda f: 2 * jnp.sum(jnp.log(_pivots(f)))),
        inverse_on_pattern=jax.jit(lambda f: jnp.stack(_inverse(f)).reshape(-1)[lower]),
        whiten=on_columns(lambda f, x: latents(_transposed_times(f, blocks(x)))),
        unwhiten=on_columns(lambda f, u: latents(_backward(f, blocks(u)))),
        positive=jax.jit(lambda f: all_positive(_pivots(f))),
    )


def _places(
    pattern: Pattern, place: Int[np.ndarray, " n"], b: int
) -> tuple[Int[np.ndarray, " nnz"], Int[np.ndarray, " nnz"]]:
    """Where each value goes: into a block on the diagonal, twice, or into one left of it."""
    ends = place[pattern.rows], place[pattern.cols]
    i, j = np.maximum(*ends), np.minimum(*ends)
    left = i // b > j // b
    blocks = np.where(left, -(-pattern.n // b), 0) + i // b
    lower = (blocks * b + i % b) * b + j % b
    return lower, np.where(left, lower, (blocks * b + j % b) * b + i % b)


def _times(a: Float[Array, "*m b c"], x: Float[Array, "*m c k"]) -> Float[Array, "*m b k"]:
    """A product of blocks, which for blocks of 1 is one of numbers."""
    return a * x if a.shape[-2:] == (1, 1) else matmul(a, x)


def _pivots(f: Chain) -> Float[Array, "m b"]:
    return jnp.diagonal(f.diagonal, axis1=-2, axis2=-1)


def _next_left(f: Chain) -> Float[Array, "m b b"]:
    """W_i+1 for every i, and 0 for the last."""
    return jnp.concatenate([f.left[1:], jnp.zeros_like(f.left[:1])])


def _factor(diagonal: Float[Array, "m b b"], left: Float[Array, "m b b"]) -> Chain:
    def step(before: Float[Array, "b b"], here: tuple[Array, Array]) -> tuple[Array, Chain]:
        block, beside = here
        beside = lower_solve(before, beside.T).T
        lower = cholesky(block - _times(beside, beside.T))
        return lower, Chain(lower, beside)

    none = jnp.eye(diagonal.shape[-1], dtype=diagonal.dtype)
    return jax.lax.scan(step, none, (diagonal, left))[1]


def _forward(f: Chain, b: Blocks) -> Blocks:
    """L^-1 b."""

    def step(before: Float[Array, "b k"], here: tuple[Chain, Array]) -> tuple[Array, Array]:
        (lower, left), right = here
        solved = lower_solve(lower, right - _times(left, before))
        return solved, solved

    return jax.lax.scan(step, jnp.zeros_like(b[0]), (f, b))[1]


def _backward(f: Chain, b: Blocks) -> Blocks:
    """L^-T b."""

    def step(after: Float[Array, "b k"], here: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        lower, next_left, right = here
        solved = lower_solve(lower, right - _times(next_left.T, after), transposed=True)
        return solved, solved

    inputs = (f.diagonal, _next_left(f), b)
    return jax.lax.scan(step, jnp.zeros_like(b[0]), inputs, reverse=True)[1]


def _transposed_times(f: Chain, x: Blocks) -> Blocks:
    """L' x."""
    after = jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])
    return _times(f.diagonal.mT, x) + _times(_next_left(f).mT, after)


def _inverse(f: Chain) -> tuple[Float[Array, "m b b"], Float[Array, "m b b"]]:
    """The inverse's blocks on the diagonal and left of it."""
    eye = jnp.broadcast_to(jnp.eye(f.left.shape[-1], dtype=f.left.dtype), f.left.shape)
    half = lower_solve(f.diagonal, eye)
    own, along = _times(half.mT, half), _times(_next_left(f), half)

    def step(after: Float[Array, "b b"], here: tuple[Array, Array]) -> tuple[Array, tuple]:
        block, gain = here
        beside = _times(after, gain)
        block = block + _times(gain.T, beside)
        return block, (block, -beside)

    nothing = jnp.zeros_like(own[0])
    blocks, below = jax.lax.scan(step, nothing, (own, along), reverse=True)[1]
    return blocks, jnp.concatenate([jnp.zeros_like(below[:1]), below[:-1]])

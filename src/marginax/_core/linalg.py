r"""Linear algebra: of very many very small matrices, and of clouds, one particle a row.

Matrices of up to 8 rows are factorised by arithmetic that the compiler fuses and vectorises over
the batch, which is many times faster than a call of LAPACK for each; and it cannot hang: batched
LAPACK calls on the CPU wait for threads of the pool that they run in, and two of them at once can
wait for ever where the pool has two. Larger matrices go to LAPACK, or what a GPU has for it.

Of a cloud x: products in full precision (on GPUs JAX's default is not), distances, centring, and
least squares on the cloud's own coordinates.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = [
    "by_covariance",
    "centered",
    "cholesky",
    "eigh",
    "left_svd",
    "lower_solve",
    "matmul",
    "product",
    "regress",
    "solve_positive",
    "squared_distances",
    "variances",
]

SMALL = 8
Square = Float[Array, "*batch p p"]


def cholesky(a: Square) -> Square:
    """L with L L' = a, for a positive definite; NaN where it is not."""
    p = a.shape[-1]
    if p > SMALL:
        return jnp.linalg.cholesky(a)
    columns: list[Array] = []
    for j in range(p):
        column = a[..., :, j]
        for known in columns:
            column = column - known * known[..., j : j + 1]
        column = column / jnp.sqrt(column[..., j : j + 1])
        columns.append(jnp.where(jnp.arange(p) >= j, column, 0))
    return jnp.stack(columns, axis=-1)


def lower_solve(
    lower: Square, b: Float[Array, "*batch p m"], *, transposed: bool = False
) -> Float[Array, "*batch p m"]:
    """L^-1 b, or L'^-1 b."""
    p = lower.shape[-1]
    if p > SMALL:
        return jax.lax.linalg.triangular_solve(
            lower, b, left_side=True, lower=True, transpose_a=transposed
        )
    rows: dict[int, Array] = {}
    for i in reversed(range(p)) if transposed else range(p):
        row = b[..., i, :]
        for k, known in rows.items():
            entry = lower[..., k, i] if transposed else lower[..., i, k]
            row = row - entry[..., None] * known
        rows[i] = row / lower[..., i, i, None]
    return jnp.stack([rows[i] for i in range(p)], axis=-2)


def solve_positive(a: Square, b: Float[Array, "*batch p m"]) -> Float[Array, "*batch p m"]:
    """a^-1 b for a positive definite."""
    if a.shape[-1] > SMALL:
        return jnp.linalg.solve(a, b)
    lower = cholesky(a)
    return lower_solve(lower, lower_solve(lower, b), transposed=True)


def eigh(a: Square) -> tuple[Float[Array, "*batch p"], Square]:
    """Eigenvalues, in any order, and eigenvectors as columns, of symmetric matrices."""
    p = a.shape[-1]
    if p > SMALL:
        values, vectors = jnp.linalg.eigh(a)
        return values, vectors
    # Shifted until no eigenvalue is negative, singular vectors are eigenvectors.
    shift = jnp.sqrt(jnp.sum(a**2, axis=(-2, -1)))
    identity = jnp.broadcast_to(jnp.eye(p, dtype=a.dtype), a.shape)
    vectors, values = left_svd(a + shift[..., None, None] * identity)
    return values - shift[..., None], vectors


def left_svd(a: Float[Array, "*batch p m"]) -> tuple[Square, Float[Array, "*batch p"]]:
    """Left singular vectors as columns, and singular values in any order, of p x m with p <= m.

    By one-sided Jacobi rotations (Hestenes, 1958): rows are rotated in pairs until all are
    orthogonal; their lengths are the singular values, and the rotations the vectors.
    """
    p, m = a.shape[-2:]
    if p > SMALL:
        left, values, _ = jnp.linalg.svd(a, full_matrices=False)
        return left, values
    identity = jnp.broadcast_to(jnp.eye(p, dtype=a.dtype), (*a.shape[:-1], p))
    together = jnp.concatenate([a, identity], axis=-1)  # so that one rotation serves both
    rows = [together[..., i, :] for i in range(p)]
    if p > 1:
        rows = jax.lax.fori_loop(0, 2 if p == 2 else 4 + p // 2, _sweep(p, m), rows)
    together = jnp.stack(rows, axis=-2)
    values = jnp.sqrt(jnp.sum(together[..., :m] ** 2, axis=-1))
    return jnp.swapaxes(together[..., m:], -1, -2), values


def _sweep(p: int, m: int) -> Callable[[Array, list[Array]], list[Array]]:
    """Every pair of rows once."""

    def inner(one: Array, other: Array) -> Array:
        return jnp.sum(one[..., :m] * other[..., :m], axis=-1, keepdims=True)

    def sweep(_: Array, rows: list[Array]) -> list[Array]:
        rows = list(rows)
        for i in range(p):
            for j in range(i + 1, p):
                across = inner(rows[i], rows[j])
                apart = (inner(rows[j], rows[j]) - inner(rows[i], rows[i])) / 2
                # tan of the smaller angle that makes them orthogonal; 0 if they are.
                root = jnp.abs(apart) + jnp.hypot(apart, across)
                tan = jnp.where(apart >= 0, 1, -1) * across / jnp.where(root > 0, root, 1)
                cos = 1 / jnp.sqrt(1 + tan**2)
                rows[i], rows[j] = cos * (rows[i] - tan * rows[j]), cos * (tan * rows[i] + rows[j])
        return rows

    return sweep


def squared_distances(x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """r_ij^2 = ||x_i - x_j||^2 by one matrix product; exactly 0 on the diagonal, never negative."""
    x = x - jnp.mean(x, axis=0, keepdims=True)  # a cloud far from the origin would cancel to noise
    norms = jnp.sum(x**2, axis=1)
    squared = norms[:, None] + norms[None, :] - 2 * matmul(x, x.T)
    return jnp.where(jnp.eye(x.shape[0], dtype=bool), 0, jnp.maximum(squared, 0))


def by_covariance(z: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """S^-1 z for every particle, S = z'z/N with a ridge in the units of each coordinate.

    Where the cloud does not extend, z is 0 too, so that the ridge only has to keep S invertible.
    """
    n, d = z.shape
    units = jnp.sqrt(variances(z))
    scaled = z / units
    ridge = jnp.finfo(z.dtype).eps ** 0.5 * jnp.eye(min(n, d), dtype=z.dtype)
    if d <= n:
        solved = solve_positive(matmul(scaled.T, scaled) / n + ridge, scaled.T).T
    else:  # the same by an N x N system, so that no D x D matrix exists
        solved = solve_positive(matmul(scaled, scaled.T) / n + ridge, scaled)
    return solved / units


def centered(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """x less its mean, and exactly 0 in coordinates that vary by no more than rounding."""
    z = x - jnp.mean(x, axis=0, keepdims=True)
    size = jnp.max(jnp.abs(x), axis=0, keepdims=True)
    rounding = 4 * jnp.finfo(x.dtype).eps * size
    return jnp.where(jnp.max(jnp.abs(z), axis=0, keepdims=True) > rounding, z, 0)


def variances(z: Float[Array, "n d"]) -> Float[Array, "1 d"]:
    """Of every coordinate of a centred cloud; 1 where it does not vary, to be divided by."""
    squares = jnp.mean(z**2, axis=0, keepdims=True)
    return jnp.where(squares > 0, squares, 1)


def product(precision: jax.lax.Precision) -> Callable[[Array, Array], Array]:
    """A matrix product in a precision; on GPUs JAX's default rounds float32 to 10 bits."""
    return lambda a, b: jnp.matmul(a, b, precision=precision)


matmul = product(jax.lax.Precision.HIGHEST)


def regress(
    scaled: Float[Array, "n d"], z: Float[Array, "n d"], values: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """(1/N) scaled z' values, by the smaller of the two matrices in between."""
    n, d = z.shape
    if d <= n:
        return matmul(scaled, matmul(z.T, values)) / n
    return matmul(matmul(scaled, z.T), values) / n

r"""Linear algebra of small matrices in plain arithmetic, for thousands of groups at once.

LAPACK takes such matrices one by one, and waits for helpers of the very thread pool that called it:
two independent batches on a machine with two cores waited for each other for ever. Up to `LARGEST`
rows everything here is arithmetic that XLA fuses over the groups; beyond that it is LAPACK's.
"""

from itertools import combinations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["largest_eigenvalue", "left_singular", "solve_positive"]

LARGEST = 4
SWEEPS = 8  # of Jacobi's rotations; they converge quadratically, and two rows need one rotation


def solve_positive(a: Float[Array, "p p"], b: Float[Array, "p n"]) -> Float[Array, "p n"]:
    """a^-1 b for a symmetric positive definite matrix."""
    p = a.shape[0]
    if p > LARGEST:
        return jnp.linalg.solve(a, b)
    # Cholesky's L, and L^-1 b on the way.
    lower: dict[tuple[int, int], Array] = {}
    forward: list[Array] = []
    for i in range(p):
        for j in range(i):
            before = sum((lower[i, k] * lower[j, k] for k in range(j)), jnp.zeros((), a.dtype))
            lower[i, j] = (a[i, j] - before) / lower[j, j]
        squares = sum((lower[i, k] ** 2 for k in range(i)), jnp.zeros((), a.dtype))
        lower[i, i] = jnp.sqrt(a[i, i] - squares)
        forward.append((b[i] - sum(lower[i, k] * forward[k] for k in range(i))) / lower[i, i])
    solved: list[Array] = [b[0]] * p
    for i in reversed(range(p)):
        after = sum(lower[k, i] * solved[k] for k in range(i + 1, p))
        solved[i] = (forward[i] - after) / lower[i, i]
    return jnp.stack(solved)


def largest_eigenvalue(a: Float[Array, "p p"]) -> Float[Array, ""]:
    """Of a symmetric matrix."""
    p = a.shape[0]
    if p == 1:
        return a[0, 0]
    if p == 2:
        half = (a[0, 0] - a[1, 1]) / 2
        return (a[0, 0] + a[1, 1]) / 2 + jnp.sqrt(half**2 + a[0, 1] ** 2)
    if p > LARGEST:
        return jnp.max(jnp.linalg.eigvalsh(a))
    # Shifted to be positive, its singular values are its eigenvalues.
    shift = jnp.max(jnp.sum(jnp.abs(a), axis=1))
    return jnp.max(left_singular(a + shift * jnp.eye(p, dtype=a.dtype))[1]) - shift


def left_singular(a: Float[Array, "p q"]) -> tuple[Float[Array, "p p"], Float[Array, " p"]]:
    """U and the singular values of a = U diag(values) V', in any order, for p <= q."""
    p = a.shape[0]
    if p > LARGEST:
        vectors, values, _ = jnp.linalg.svd(a, full_matrices=False)
        return vectors, values

    def sweep(_: int | Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        # One-sided Jacobi: turn two rows until they are orthogonal, and so on for every pair. Each
        # row carries its row of U' behind it.
        rows = list(carry)
        for i, j in combinations(range(p), 2):
            rows[i], rows[j] = _orthogonal(rows[i], rows[j], a.shape[1])
        return tuple(rows)

    rows: tuple[Array, ...] = tuple(jnp.concatenate([a, jnp.eye(p, dtype=a.dtype)], axis=1))
    rows = sweep(0, rows) if p <= 2 else jax.lax.fori_loop(0, SWEEPS, sweep, rows)
    turned = jnp.stack(rows)
    values = jnp.sqrt(jnp.sum(turned[:, : a.shape[1]] ** 2, axis=1))
    return turned[:, a.shape[1] :].T, values


def _orthogonal(
    first: Float[Array, " m"], second: Float[Array, " m"], size: int
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Both turned in their plane so that their first `size` entries are orthogonal."""
    u, v = first[:size], second[:size]
    across = jnp.sum(u * v)
    # tan of the angle, the smaller root of t^2 + 2 k t - 1 = 0 with k = difference / (2 across).
    apart = jnp.sum(v**2) - jnp.sum(u**2)
    root = jnp.sqrt(apart**2 + 4 * across**2)
    sign = jnp.where(apart < 0, -1, 1).astype(across.dtype)
    below = apart + sign * root
    t = 2 * across / jnp.where(below == 0, 1, below)
    cos = 1 / jnp.sqrt(1 + t**2)
    return cos * (first - t * second), cos * (t * first + second)

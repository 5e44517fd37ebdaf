"""Transforms onto Cholesky factors of correlation and covariance matrices."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.model.transforms.base import Display, Transform

__all__ = ["correlation_cholesky", "covariance_cholesky"]


def _below_diagonal(size: int, offset: int = -1) -> tuple[Any, Any, list[str]]:
    """Rows and columns of a lower triangle, row by row, and their labels."""
    rows, columns = jnp.tril_indices(size, offset)
    labels = [f"[{i},{j}]" for i, j in zip(rows.tolist(), columns.tolist(), strict=True)]
    return rows, columns, labels


def correlation_cholesky(size: int) -> Transform:
    """Onto lower Cholesky factors of size x size correlation matrices.

    The unconstrained leaf is a vector of size (size - 1) / 2 inverse hyperbolic tangents of
    canonical partial correlations, row by row. Tables show the correlations.
    """
    if size < 2:
        raise ValueError(f"correlation_cholesky({size}): a correlation needs a size of at least 2.")
    return _correlations(size)


def _correlations(size: int) -> Transform:
    """The same, also for the one correlation matrix of size 1, which has no free number."""
    rows, columns, labels = _below_diagonal(size)

    def left_over(u: Array) -> tuple[Array, Array]:
        """The log of sqrt(1 - tanh^2) of every entry, and its sum over those before it in a row."""
        # Of u itself: near 1 the difference 1 - tanh^2 has no digits, and its root no gradient.
        log_left = jnp.zeros((size, size), u.dtype)
        log_left = log_left.at[rows, columns].set(math.log(2) - u - jax.nn.softplus(-2 * u))
        return log_left, jnp.cumsum(log_left, axis=1) - log_left

    def forward(u: Array) -> Array:
        partial = jnp.eye(size, dtype=u.dtype).at[rows, columns].set(jnp.tanh(u))
        # Entry (i, j) is the partial correlation times what the entries before it left over.
        return jnp.tril(partial * jnp.exp(left_over(u)[1]))

    def inverse(factor: Array) -> Array:
        left = 1 - jnp.cumsum(factor**2, axis=1)
        before = jnp.concatenate([jnp.ones((size, 1), factor.dtype), left[:, :-1]], axis=1)
        return jnp.arctanh(factor[rows, columns] / jnp.sqrt(before[rows, columns]))

    def log_abs_det_jacobian(u: Array) -> Array:
        # d L_ij / d u_ij, and L depends on u triangularly: the diagonal is the determinant.
        log_left, before = left_over(u)
        return jnp.sum((2 * log_left + before)[rows, columns])

    def contains(factor: Any) -> Any:
        unit = jnp.allclose(jnp.sum(factor**2, axis=1), 1.0, atol=1e-5)
        return unit & jnp.all(jnp.diag(factor) > 0)

    return Transform(
        f"correlation_cholesky({size})",
        forward,
        inverse,
        log_abs_det_jacobian,
        contains,
        Display(lambda factor: (factor @ factor.T)[rows, columns], labels, jnp.arctanh, jnp.tanh),
        limits=((-1.0, 1.0),),
    )


def covariance_cholesky(size: int) -> Transform:
    """Onto lower Cholesky factors of size x size covariance matrices.

    The unconstrained leaf has the logs of the standard deviations first, then what
    `correlation_cholesky` has. Tables show standard deviations ("sd[0]") and correlations
    ("[1,0]").
    """
    if size < 1:
        raise ValueError(f"covariance_cholesky({size}): a covariance needs a size of at least 1.")
    correlation = _correlations(size)
    rows, columns, labels = _below_diagonal(size)

    def forward(u: Array) -> Array:
        return jnp.exp(u[:size])[:, None] * correlation.forward(u[size:])

    def inverse(factor: Array) -> Array:
        sd = jnp.sqrt(jnp.sum(factor**2, axis=1))
        return jnp.concatenate([jnp.log(sd), correlation.inverse(factor / sd[:, None])])

    def log_abs_det_jacobian(u: Array) -> Array:
        # Row i is sd_i times a unit vector c of i + 1 entries, the last of which the others fix:
        # the volume is sd_i^(i + 1) / c_ii times that of the others, as of polar coordinates.
        powers = jnp.arange(1, size + 1, dtype=u.dtype)
        volume = jnp.sum(powers * u[:size])
        diagonal = jnp.diagonal(correlation.forward(u[size:]))
        return volume + correlation.log_abs_det_jacobian(u[size:]) - jnp.sum(jnp.log(diagonal))

    def contains(factor: Any) -> Any:
        fits = jnp.shape(factor) == (size, size)
        return fits and jnp.all(jnp.diag(factor) > 0) & jnp.all(jnp.triu(factor, 1) == 0)

    def values(factor: Array) -> Array:
        sd = jnp.sqrt(jnp.sum(factor**2, axis=1))
        between = factor / sd[:, None]
        return jnp.concatenate([sd, (between @ between.T)[rows, columns]])

    is_sd = jnp.arange(size + len(labels)) < size

    def stretch(shown: Array) -> Array:
        return jnp.where(is_sd, jnp.log(jnp.abs(shown)), jnp.arctanh(jnp.where(is_sd, 0, shown)))

    return Transform(
        f"covariance_cholesky({size})",
        forward,
        inverse,
        log_abs_det_jacobian,
        contains,
        Display(
            values,
            [*(f".sd[{i}]" for i in range(size)), *labels],
            stretch,
            lambda u: jnp.where(is_sd, jnp.exp(u), jnp.tanh(u)),
        ),
        limits=((0.0, math.inf),) * size + ((-1.0, 1.0),) * len(labels),
    )

"""Transforms of vectors whose entries hang together: increasing ones, and shares of a whole."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.model.transforms.base import Display, Transform

__all__ = ["ordered", "simplex"]


def _increments(x: Array) -> Array:
    """The first number of every vector, and the differences after it."""
    return jnp.concatenate([x[..., :1], jnp.diff(x, axis=-1)], axis=-1)


# Vectors whose entries increase, along the last axis: cut points, the means of mixture components.
ordered = Transform(
    "ordered",
    lambda u: jnp.cumsum(jnp.concatenate([u[..., :1], jnp.exp(u[..., 1:])], axis=-1), axis=-1),
    lambda x: jnp.concatenate([x[..., :1], jnp.log(_increments(x)[..., 1:])], axis=-1),
    lambda u: jnp.sum(u[..., 1:]),
    lambda x: jnp.ndim(x) > 0 and jnp.all(jnp.diff(x, axis=-1) > 0),
)


def simplex(size: int) -> Transform:
    """Onto vectors of positive numbers that add up to 1, by stick breaking.

    The unconstrained leaf has size - 1 numbers: number k is the log odds of what x_k takes of the
    stick that is left, shifted so that zeros are equal shares. Tables show all shares, with
    intervals on the scale of log odds.
    """
    if size < 2:
        raise ValueError(f"simplex({size}): shares of a whole need a size of at least 2.")
    shift = jnp.log(jnp.arange(size - 1, 0, -1.0))

    def logs(u: Array) -> tuple[Array, Array]:
        """Log shares of the stick that is left, and logs of what is left before each."""
        odds = u - shift.astype(u.dtype)
        log_left = jnp.cumsum(jax.nn.log_sigmoid(-odds))
        before = jnp.concatenate([jnp.zeros(1, u.dtype), log_left])
        return jax.nn.log_sigmoid(odds), before

    def forward(u: Array) -> Array:
        taken, before = logs(u)
        return jnp.exp(jnp.concatenate([taken + before[:-1], before[-1:]]))

    def inverse(x: Array) -> Array:
        after = jnp.cumsum(x[::-1])[::-1][1:]  # added up from the small end, without cancellation
        return jnp.log(x[:-1]) - jnp.log(after) + shift.astype(x.dtype)

    def log_abs_det_jacobian(u: Array) -> Array:
        # x_k depends on u_1..u_k: the Jacobian is triangular, with s (1 - s) times what was left.
        taken, before = logs(u)
        odds = u - shift.astype(u.dtype)
        return jnp.sum(taken + jax.nn.log_sigmoid(-odds) + before[:-1])

    def contains(x: Any) -> Any:
        fits = jnp.shape(x) == (size,) and jnp.all(jnp.asarray(x) > 0)
        return fits and jnp.allclose(jnp.sum(x), 1.0, atol=1e-5)

    display = Display(
        lambda x: x,
        [f"[{i}]" for i in range(size)],
        lambda x: jnp.log(x) - jnp.log1p(-x),
        jax.nn.sigmoid,
    )
    return Transform(
        f"simplex({size})",
        forward,
        inverse,
        log_abs_det_jacobian,
        contains,
        display,
        limits=((0.0, None),),  # upwards, what those before it leave
    )

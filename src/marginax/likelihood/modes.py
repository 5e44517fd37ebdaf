"""Modes and curvatures of independent log densities, by a damped Newton method for all at once.

x <- x + (H + lambda diag|H|)^-1 grad,   H = -hessian; lambda / 10 after a gain, x 10 after a loss

Blocks do not interact, so that the gradient of their sum holds every block's own, and one
Hessian-vector product a column of every block's Hessian.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core.linalg import eigh

__all__ = ["Laplace", "LogDensities", "hessians", "laplace"]

LogDensities = Callable[[Float[Array, "blocks p"]], Float[Array, " blocks"]]


class Laplace(NamedTuple):
    """For every block a Gaussian that touches its density at the mode.

    Attributes:
        mode: where the density is largest, or the best point found.
        root: R with R R^T = H^-1, H the negative Hessian there (made positive where it is not).
        log_root: log |det R|; -inf where the density is narrower than numbers resolve.
    """

    mode: Float[Array, "blocks p"]
    root: Float[Array, "blocks p p"]
    log_root: Float[Array, " blocks"]


def hessians(
    log_densities: LogDensities, x: Float[Array, "blocks p"]
) -> Float[Array, "blocks p p"]:
    """The Hessian of every block's log density at its row of x."""
    gradient = jax.grad(lambda x: jnp.sum(log_densities(x)))

    def column(direction: Float[Array, " p"]) -> Float[Array, "blocks p"]:
        return jax.jvp(gradient, (x,), (jnp.broadcast_to(direction, x.shape),))[1]

    return jax.vmap(column, out_axes=2)(jnp.eye(x.shape[1], dtype=x.dtype))


def laplace(
    log_densities: LogDensities, start: Float[Array, "blocks p"], max_steps: int = 100
) -> Laplace:
    """Climbs to every mode from `start`, never to a worse point.

    Args:
        log_densities: of a row per block, up to a constant.
        start: rows where they are finite.
        max_steps: proposals, accepted or not.
    """
    gradient = jax.grad(lambda x: jnp.sum(log_densities(x)))
    tiny = jnp.finfo(start.dtype).eps

    def climb(state: Any) -> Any:
        x, value, damping, done, step = state
        g = gradient(x)
        w, v = eigh(_symmetric(-hessians(log_densities, x)))
        largest = jnp.max(jnp.abs(w), axis=1, keepdims=True)
        scale = jnp.maximum(jnp.abs(w), tiny * largest + jnp.finfo(x.dtype).tiny)
        along = jnp.einsum("bpk,bp->bk", v, g)
        move = jnp.einsum("bpk,bk->bp", v, along / (scale * (1 + damping)[:, None]))
        proposed = log_densities(x + move)
        better = (proposed > value) & ~done
        gain = jnp.sum(g * move, axis=1)  # what a quadratic would promise, twice over
        at_rest = (gain < 100 * tiny * (1 + jnp.abs(value))) | (damping > 1e12)
        return (
            jnp.where(better[:, None], x + move, x),
            jnp.where(better, proposed, value),
            jnp.where(better, damping / 10, jnp.maximum(10 * damping, 1e-3)),
            done | at_rest,
            step + 1,
        )

    def going(state: Any) -> Any:
        return jnp.any(~state[3]) & (state[4] < max_steps)

    each = start.shape[:1]
    first = (
        start,
        log_densities(start),
        jnp.zeros(each, start.dtype),
        jnp.zeros(each, bool),
        jnp.zeros((), jnp.int32),
    )
    x, *_ = jax.lax.while_loop(going, climb, first)
    w, v = eigh(_symmetric(-hessians(log_densities, x)))
    largest = jnp.max(jnp.abs(w), axis=1, keepdims=True)
    scale = jnp.maximum(jnp.abs(w), 1e-8 * largest + jnp.finfo(x.dtype).tiny)
    root = v / jnp.sqrt(scale)[:, None, :]
    # A density so narrow that the numbers around its mode cannot tell it cannot be integrated.
    seen = jnp.all(jnp.linalg.norm(root, axis=2) > 1e3 * tiny * jnp.abs(x), axis=1)
    return Laplace(x, root, jnp.where(seen, -0.5 * jnp.sum(jnp.log(scale), axis=1), -jnp.inf))


def _symmetric(matrices: Float[Array, "blocks p p"]) -> Float[Array, "blocks p p"]:
    return (matrices + jnp.swapaxes(matrices, 1, 2)) / 2

"""The mode and the curvature of one block's log density, by a damped Newton method under vmap.

x <- x + (H + lambda diag|H|)^-1 grad,   H = -hessian; lambda / 10 after a gain, x 10 after a loss
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Laplace", "laplace"]


class Laplace(NamedTuple):
    """A Gaussian that touches the density at its mode.

    Attributes:
        mode: where the density is largest, or the best point found.
        root: R with R R^T = H^-1, H the negative Hessian there (made positive where it is not).
        log_root: log |det R|; -inf where the density is narrower than numbers resolve.
        settled: whether the gradient at the mode is negligible in units of the curvature.
    """

    mode: Float[Array, " p"]
    root: Float[Array, "p p"]
    log_root: Float[Array, ""]
    settled: Any


def laplace(
    log_density: Callable[[Float[Array, " p"]], Float[Array, ""]],
    start: Float[Array, " p"],
    max_steps: int = 100,
) -> Laplace:
    """Climbs to the mode from `start`, never to a worse point.

    Args:
        log_density: of a vector, up to a constant.
        start: a point where it is finite.
        max_steps: proposals, accepted or not.
    """
    gradient, hessian = jax.grad(log_density), jax.hessian(log_density)
    tiny = jnp.finfo(start.dtype).eps

    def climb(state: Any) -> Any:
        x, value, damping, _, step = state
        curvature, g = -hessian(x), gradient(x)
        w, v = jnp.linalg.eigh(_symmetric(curvature))
        scale = jnp.maximum(jnp.abs(w), tiny * jnp.max(jnp.abs(w)) + jnp.finfo(x.dtype).tiny)
        move = v @ ((v.T @ g) / (scale * (1 + damping)))
        proposal = x + move
        proposed = log_density(proposal)
        better = proposed > value
        gain = g @ move  # what a quadratic would promise, twice over
        done = (gain < 100 * tiny * (1 + jnp.abs(value))) | (damping > 1e12)
        return (
            jnp.where(better, proposal, x),
            jnp.where(better, proposed, value),
            jnp.where(better, damping / 10, jnp.maximum(10 * damping, 1e-3)),
            done,
            step + 1,
        )

    def going(state: Any) -> Any:
        return ~state[3] & (state[4] < max_steps)

    zero = jnp.zeros((), start.dtype)
    first = (start, log_density(start), zero, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    x, value, _, _, _ = jax.lax.while_loop(going, climb, first)
    w, v = jnp.linalg.eigh(_symmetric(-hessian(x)))
    scale = jnp.maximum(jnp.abs(w), 1e-8 * jnp.max(jnp.abs(w)) + jnp.finfo(x.dtype).tiny)
    left = jnp.sum((v.T @ gradient(x)) ** 2 / scale)
    root = v / jnp.sqrt(scale)[None, :]
    # A density so narrow that the numbers around its mode cannot tell it cannot be integrated.
    seen = jnp.all(jnp.linalg.norm(root, axis=1) > 1e3 * tiny * jnp.abs(x))
    return Laplace(
        x,
        root,
        jnp.where(seen, -0.5 * jnp.sum(jnp.log(scale)), -jnp.inf),
        (left < 1e-4) & jnp.all(w > 0) & jnp.isfinite(value),
    )


def _symmetric(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    return (matrix + matrix.T) / 2

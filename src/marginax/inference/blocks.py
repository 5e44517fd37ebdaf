"""A problem as independent blocks with flat latents: its groups, or the whole as one block.

Quadrature, importance sampling, mode search and posterior sampling all go block by block; here is
the one place that knows how a problem falls into them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from marginax.base import Data, Latent
from marginax.inference.modes import Laplace, laplace
from marginax.problem import Problem

__all__ = ["Blocks", "as_blocks", "finite_values", "flat_latents", "place", "to_latent"]


class Blocks(NamedTuple):
    """Blocks that are independent given theta.

    Attributes:
        log_density: `log_density(theta, x, y)` of one block: flat free theta, flat free latent.
        data: the data of all blocks, with a leading axis over them.
        start: where a mode search starts, [blocks, size].
    """

    log_density: Callable[[Array, Array, Any], Array]
    data: Data
    start: Float[Array, "blocks size"]


def as_blocks(problem: Problem) -> Blocks:
    """The blocks of a problem."""
    _, unravel_theta = ravel_pytree(problem.start_theta())
    grouped = problem.num_groups is not None
    whole = problem.start_latent()
    one = jax.tree.map(lambda leaf: leaf[0], whole) if grouped else whole
    flat, unravel = ravel_pytree(one)
    log_joint = problem.free_group_log_joint if grouped else problem.free_log_joint

    def log_density(theta: Array, x: Array, y: Any) -> Array:
        return log_joint(unravel_theta(theta), unravel(x), y)

    data = problem.data if grouped else jax.tree.map(lambda leaf: leaf[None], problem.data)
    return Blocks(log_density, data, jnp.tile(flat[None], (problem.num_groups or 1, 1)))


def place(blocks: Blocks, theta: Array, start: Float[Array, "blocks size"], data: Data) -> Laplace:
    """The mode and the curvature of every block's posterior at theta."""

    def one(start: Array, y: Any) -> Laplace:
        return laplace(lambda x: blocks.log_density(theta, x, y), start)

    return jax.vmap(one)(start, data)


def flat_latents(problem: Problem, latent: Latent) -> Float[Array, "blocks size"]:
    """One whole free latent as a row per block."""
    if problem.num_groups is None:
        return ravel_pytree(latent)[0][None]
    return jax.vmap(lambda one: ravel_pytree(one)[0])(latent)


def to_latent(problem: Problem, flat: Float[Array, "blocks size"]) -> Latent:
    """The reverse of `flat_latents`."""
    whole = problem.start_latent()
    if problem.num_groups is None:
        return ravel_pytree(whole)[1](flat[0])
    return jax.vmap(ravel_pytree(jax.tree.map(lambda leaf: leaf[0], whole))[1])(flat)


def finite_values(
    log_density: Callable[[Array], Array], points: Float[Array, "n p"], inside: Float[Array, " p"]
) -> tuple[Float[Array, " n"], Array]:
    """The log density at points some of which may lie where it is -inf or NaN.

    Such points count as zero density. Their derivatives would be NaN and spoil the sum's, so the
    density is differentiated at a point inside instead, and that term then left out.

    Returns:
        The values, and how many were NaN or +inf rather than -inf.
    """
    seen = jax.lax.stop_gradient(jax.vmap(log_density)(points))
    good = jnp.isfinite(seen)
    values = jax.vmap(log_density)(jnp.where(good[:, None], points, inside[None]))
    return jnp.where(good, values, -jnp.inf), jnp.sum(~good & ~jnp.isneginf(seen))

"""The cloud by itself: how wide it is, and in how many directions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax import _tree
from marginax.base import Latent, Particles
from marginax.stein import centred, matmul, variances

__all__ = ["effective_dimension", "spread"]


def spread(particles: Particles) -> Latent:
    """The standard deviation of every coordinate over the cloud (1/N), like one latent."""
    return jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), particles)


def effective_dimension(particles: Particles) -> Float[Array, ""]:
    """In how many directions the cloud extends.

    (sum w)^2 / sum w^2, with w the eigenvalues of the cloud's correlation matrix: between 1 (all
    coordinates move together) and the smaller of D and N - 1. It does not depend on units;
    coordinates that do not vary are left out.
    """
    x = _tree.ravel_cloud(particles)
    z = centred(x)
    z = z / jnp.sqrt(variances(z))
    gram: Array = matmul(z, z.T) if z.shape[0] < z.shape[1] else matmul(z.T, z)
    squares = jnp.sum(gram**2)
    return jnp.trace(gram) ** 2 / jnp.where(squares > 0, squares, 1)

r"""Measures of a cloud: the Stein ratio, its spread, and in how many directions it extends.

The Stein ratio says how much of the posterior's variance the cloud holds, without knowing it:

    c_d = -(1/N) sum_i s_d(x_i) (x_{i,d} - mean_d)

Under the posterior its expectation is 1 (Stein's identity; (N-1)/N for N independent draws). For a
Gaussian posterior with precision P and a cloud with covariance S it is (P S)_dd: the variance of
the cloud over the true one, where coordinates are uncorrelated or S is proportional to P^-1.

What it cannot see is correlation that the blocks of a kernel cut: see `cross_block_curvature`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax._core import partition, trees
from marginax._core.checks import check_start
from marginax._core.linalg import centered, matmul, variances
from marginax._core.partition import BlockSpec
from marginax._core.programs import ById, recent
from marginax.flows.scores import latent_scores
from marginax.model.log_joint import as_log_joint
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["SteinSummary", "effective_dimension", "spread", "stein_ratio", "summarize"]


class SteinSummary(NamedTuple):
    """A Stein ratio in few numbers.

    Attributes:
        mean: over all coordinates.
        low: the smallest of any coordinate.
        high: the largest of any coordinate.
        per_block: the mean of every block, an array of length G per family of blocks.
    """

    mean: Array
    low: Array
    high: Array
    per_block: tuple[Array, ...]


def stein_ratio(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data = None
) -> Latent:
    """c_d of every coordinate, in the structure of one latent; 1 is right.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta: the estimate.
        particles: the cloud.
        data: handed to `log_joint`.

    Returns:
        A pytree like one latent. Below 0.8 the cloud has lost variance, above 1.25 it has too much
        (or has not settled). With N random draws, one coordinate has a standard error of about
        sqrt(2 / N): look at the mean.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)  # posterior variance 1/2
        >>> cloud = jnp.array([[-0.5, -1.0], [0.5, 1.0]])  # variances 1/4 and 1
        >>> mx.diagnostics.stein_ratio(log_joint, 0.0, cloud, jnp.zeros(2)).tolist()
        [0.5, 2.0]
    """
    theta, particles = check_start(theta, particles)
    fixed = ById(log_joint, mark=log_joint, identity=as_log_joint(log_joint).identity)
    arrays = all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(data))
    program = _ratio_program(fixed) if arrays else partial(_ratio, fixed)
    return program(theta, particles, data)


def _ratio(log_joint: ById, theta: Theta, particles: Particles, data: Data) -> Latent:
    scores = latent_scores(log_joint.value, theta, particles, data)
    return jax.tree.map(
        lambda x, s: -jnp.mean(s * (x - jnp.mean(x, axis=0, keepdims=True)), axis=0),
        particles,
        scores,
    )


_ratio_program = recent(_ratio)


def summarize(ratio: Latent, blocks: BlockSpec = "leading") -> SteinSummary:
    """The Stein ratio overall, at its extremes, and per block (blocks as in `blockwise`)."""
    families = partition.families(blocks, ratio)
    parts = partition.split(families, jax.tree.map(lambda leaf: leaf[None], ratio))
    flat = jnp.concatenate([part.ravel() for part in parts])
    per_block = tuple(jnp.mean(part, axis=(1, 2)) for part in parts)
    return SteinSummary(jnp.mean(flat), jnp.min(flat), jnp.max(flat), per_block)


def spread(particles: Particles) -> Latent:
    """The standard deviation of every coordinate over the cloud (1/N), like one latent."""
    return jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), particles)


def effective_dimension(particles: Particles) -> Float[Array, ""]:
    """In how many directions the cloud extends.

    (sum w)^2 / sum w^2, with w the eigenvalues of the cloud's correlation matrix: between 1 (all
    coordinates move together) and the smaller of D and N - 1. It does not depend on units;
    coordinates that do not vary are left out.
    """
    x = trees.ravel_cloud(particles)
    z = centered(x)
    z = z / jnp.sqrt(variances(z))
    gram: Array = matmul(z, z.T) if z.shape[0] < z.shape[1] else matmul(z.T, z)
    squares = jnp.sum(gram**2)
    return jnp.trace(gram) ** 2 / jnp.where(squares > 0, squares, 1)

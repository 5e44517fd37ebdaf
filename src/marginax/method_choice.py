"""Which algorithm, kernel and how many particles `fit` takes, by rule, and in words."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from marginax import kernels, metrics, momentum
from marginax.algorithms.m_svgd_em import m_svgd_em
from marginax.base import Algorithm, Key, Particles
from marginax.em_gradient import em_gradient
from marginax.inference.likelihood import flat_latents, one_latent
from marginax.inference.modes import Laplace, laplace
from marginax.problem import Problem

__all__ = ["Choice", "choose", "overdispersed", "start_particles"]

LARGEST_BLOCK = 150  # latents moved in their own dense curvature
FEWEST_PARTICLES = 20


class Choice(NamedTuple):
    """What `fit` runs.

    Attributes:
        algorithm: on free theta and latents.
        num_particles: how many.
        words: which, and why.
    """

    algorithm: Algorithm
    num_particles: int
    words: str


def choose(problem: Problem, num_particles: int | None = None) -> Choice:
    """The tuning-free configuration, with blocks as the problem has them.

    Args:
        problem: grouped or not.
        num_particles: if the user wants another number than the rule's.
    """
    size = problem.latent_size
    over = "whole" if problem.num_groups is None else "leading"
    if size > LARGEST_BLOCK:
        raise ValueError(
            f"The latent has {size} numbers in one block, but fit moves blocks of at most "
            f"{LARGEST_BLOCK} in their own curvature. If the model falls into groups, say so with "
            "`Problem.grouped`; otherwise run a sampler of the family, `run` with `mpgd`."
        )
    # A cloud of N particles spans N - 1 dimensions, and its covariance must have full rank.
    count = num_particles or max(FEWEST_PARTICLES, size + size // 4 + 2)
    if count <= size:
        raise ValueError(
            f"num_particles is {count}, but a block of {size} latents needs more than {size} for a "
            "covariance of full rank. Leave it out, or give a larger number."
        )
    algorithm = m_svgd_em(
        problem.free_log_joint,
        em_gradient(),
        0.5,
        kernels.blockwise(kernels.moment_matched(kernels.rbf("mean")), over),
        theta_momentum=momentum.adaptive_restart(),
        particle_momentum=momentum.adaptive_restart(),
        particle_metric=metrics.curvature(largest_block=LARGEST_BLOCK),
    )
    blocks = "one block" if problem.num_groups is None else f"{problem.num_groups} groups"
    words = f"M-SVGD-EM, {count} particles, a moment-matched kernel and curvature in {blocks}"
    return Choice(algorithm, count, words)


def start_particles(problem: Problem, key: Key, num_particles: int) -> Particles:
    """A cloud around the modes of the blocks at the start of theta, a tenth as wide as they are.

    Narrow on purpose: the first steps of theta then see each block's best guess, not its spread,
    and the flow widens a cloud much faster than it narrows one.
    """
    theta = problem.start_theta()
    _, unravel = ravel_pytree(one_latent(problem))
    grouped = problem.num_groups is not None
    log_joint = problem.free_group_log_joint if grouped else problem.free_log_joint
    data = problem.data if grouped else jax.tree.map(lambda leaf: leaf[None], problem.data)

    @jax.jit
    def find(starts: Array, data: object) -> Laplace:
        return jax.vmap(lambda start, y: laplace(lambda x: log_joint(theta, unravel(x), y), start))(
            starts, data
        )

    at = find(flat_latents(problem), data)
    z = jax.random.normal(key, (num_particles, *at.mode.shape), at.mode.dtype)
    cloud = at.mode[None] + 0.1 * jnp.einsum("gpq,ngq->ngp", at.root, z)
    each = jax.vmap(jax.vmap(unravel))(cloud)
    return each if grouped else jax.tree.map(lambda leaf: leaf[:, 0], each)


def overdispersed(theta: np.ndarray, key: Key, restarts: int) -> np.ndarray:
    """The given start first, and others a standard normal away on the reals."""
    away = np.array(jax.random.normal(key, (restarts, theta.size)))
    away[0] = 0.0
    return theta + away

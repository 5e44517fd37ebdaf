"""Which algorithm, kernel and how many particles `fit` takes, by rule, and in words.

By the numbers in a block of the latent: up to 150, M-SVGD-EM with a moment-matched kernel and dense
curvature per block; beyond that M-SVGD-EM by the problem's own `latent_blocks`, or coordinate by
coordinate with diagonal curvature; and from 1,000 on MPGD after it, because few particles cannot
show how so many latents go together.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from marginax import _tree, kernels, metrics, momentum, partition
from marginax.algorithms.m_svgd_em import m_svgd_em
from marginax.algorithms.mpgd import mpgd
from marginax.ascent import Optimiser
from marginax.base import Algorithm, ById, Data, Key, Particles, Theta
from marginax.em_gradient import LARGEST_THETA, em_gradient
from marginax.inference.blocks import as_blocks, place, to_latent
from marginax.partition import Over
from marginax.problem import Problem
from marginax.programs import KEPT
from marginax.scores import mean_log_joint
from marginax.stein import Kernel
from marginax.twins import twin

__all__ = ["LARGEST_DENSE", "Choice", "by_batches", "choose", "overdispersed", "start_particles"]

LARGEST_DENSE = 150  # latents moved in their own dense curvature
LARGEST_STEIN = 1000  # latents moved by a Stein flow at all
FEWEST_PARTICLES = 20
# theta's second derivatives cost as many gradients as it has numbers: beyond these, over few
# particles.
MANY_PARAMETERS, FEW_FOR_CURVATURE = 12, 4


class Choice(NamedTuple):
    """What `fit` runs.

    Attributes:
        algorithm: on free theta and latents.
        num_particles: how many.
        words: which, and why.
        then: from free theta and a cloud at its end to another algorithm that goes on.
    """

    algorithm: Algorithm
    num_particles: int
    words: str
    then: Callable[[Theta, Particles], Algorithm] | None = None


def choose(
    problem: Problem,
    num_particles: int | None = None,
    kernel: Kernel | None = None,
    algorithm: Algorithm | None = None,
) -> Choice:
    """The configuration for a problem.

    Args:
        problem: grouped or not.
        num_particles: if the user wants another number than the rule's.
        kernel: if the user wants another kernel than the rule's.
        algorithm: if the user wants another algorithm altogether, which may need fewer particles.
    """
    size = problem.latent_size
    if algorithm is not None:
        largest = size if size <= LARGEST_DENSE else _blocks_of_many(problem)[1]
        return Choice(algorithm, num_particles or _usual(largest), "the given algorithm")
    blocks = "one block" if problem.num_groups is None else f"{problem.num_groups} groups"
    if kernel is not None:
        count = num_particles or max(FEWEST_PARTICLES, min(size, LARGEST_DENSE) + 2)
        algorithm = _stein(problem, kernel)
        return Choice(algorithm, count, f"M-SVGD-EM, {count} particles, the given kernel")
    if size <= LARGEST_DENSE:
        # A cloud of N particles spans N - 1 dimensions, and its covariance must have full rank.
        count = num_particles or _usual(size)
        if count <= size:
            raise ValueError(
                f"num_particles is {count}, but a block of {size} latents needs more than {size} "
                "for a covariance of full rank. Leave it out, or give a larger number."
            )
        over: Over = "whole" if problem.num_groups is None else "leading"
        words = f"M-SVGD-EM, {count} particles, a moment-matched kernel and curvature in {blocks}"
        return Choice(_default(twin(problem), over), count, words)
    over, largest, how = _blocks_of_many(problem)
    count = num_particles or _usual(largest)
    if size <= LARGEST_STEIN:
        words = f"M-SVGD-EM, {count} particles, {how} (a block has {size} latents, too many for "
        words += "dense curvature)"
        return Choice(_default(twin(problem), over), count, words)
    words = f"MPGD, {count} particles, after M-SVGD-EM {how} (a block has {size} latents, in which "
    words += "few particles cannot show how they go together)"
    return Choice(_default(twin(problem), over), count, words, then=partial(_mpgd, problem))


def _usual(largest: int) -> int:
    """How many particles for blocks of so many latents."""
    return max(FEWEST_PARTICLES, largest + largest // 4 + 2)


def _blocks_of_many(problem: Problem) -> tuple[Over, int, str]:
    """Blocks for too many latents to be one: the problem's own if they are small, or single ones.

    Returns:
        The blocks, the size of the largest, and words for both.
    """
    if problem.num_groups is None and problem.latent_blocks is not None:
        over = partition.check_over(problem.latent_blocks)
        sizes = [f.block_size for f in partition.families(over, problem.start_latent())]
        if 1 < max(sizes) <= LARGEST_DENSE:
            return over, max(sizes), "with curvature block by block"
    return "coordinates", 1, "coordinate by coordinate with diagonal curvature"


def _matched(over: Over) -> Kernel:
    return kernels.blockwise(kernels.moment_matched(kernels.rbf("mean")), over)


@lru_cache(KEPT)
def _default(problem: Problem, over: Over) -> Algorithm:
    return _stein(problem, _matched(over))


def _theta_optimiser(problem: Problem) -> Optimiser:
    """The EM gradient as far as theta's curvature is affordable."""
    size = problem.num_parameters
    if size > LARGEST_THETA:
        return optax.adagrad(0.1)
    return em_gradient(FEW_FOR_CURVATURE if size > MANY_PARAMETERS else None)


def _stein(problem: Problem, kernel: Kernel) -> Algorithm:
    return m_svgd_em(
        problem.free_log_joint,
        _theta_optimiser(problem),
        0.5,
        kernel,
        theta_momentum=momentum.adaptive_restart(),
        particle_momentum=momentum.adaptive_restart(),
        particle_metric=metrics.curvature(largest_block=LARGEST_DENSE),
    )


def by_batches(problem: Problem, theta_optimiser: Optimiser | None = None) -> Algorithm:
    """The same for batches of groups: theta averages over them, so that only particles look ahead.

    Args:
        problem: grouped.
        theta_optimiser: instead of the usual one; `optax.set_to_zero()` holds theta.
    """
    dense = problem.latent_size <= LARGEST_DENSE
    return m_svgd_em(
        problem.free_log_joint,
        theta_optimiser or _theta_optimiser(problem),
        0.5,
        _matched("leading" if dense else "coordinates"),
        theta_momentum=0.0,
        particle_momentum=momentum.per_group(momentum.adaptive_restart()),
        particle_metric=metrics.curvature(largest_block=LARGEST_DENSE),
    )


def _mpgd(problem: Problem, theta: Theta, particles: Particles) -> Algorithm:
    """MPGD with a step that the largest curvature allows, theta in units that match."""

    @jax.jit
    def curvatures(theta: Theta, particles: Particles, data: Data) -> tuple[Array, Array]:
        mean, unravel = ravel_pytree(_tree.particle_mean(particles))

        def log_joint(x: Array) -> Array:
            return problem.free_log_joint(theta, unravel(x), data)

        def power(v: Array, _: None) -> tuple[Array, Array]:
            w = jax.jvp(jax.grad(log_joint), (mean,), (v,))[1]
            size = jnp.linalg.norm(w)
            return w / jnp.maximum(size, jnp.finfo(w.dtype).tiny), size

        v = jax.random.normal(jax.random.key(0), mean.shape, mean.dtype)
        largest = jax.lax.scan(power, v / jnp.linalg.norm(v), None, 30)[1][-1]
        flat, unravel_theta = ravel_pytree(theta)
        hessian = jax.hessian(
            lambda t: mean_log_joint(problem.free_log_joint, unravel_theta(t), particles, data)
        )(flat)
        return largest, jnp.abs(jnp.diagonal(hessian))

    largest, of_theta = curvatures(theta, particles, problem.data)
    _, unravel_theta = ravel_pytree(theta)
    # In units of the curvature: friction 1, momentum 0.9, a step that resolves the fastest mode.
    step = 1.0 / max(float(largest), 1e-12)
    scale = unravel_theta(jnp.sqrt(largest / jnp.maximum(of_theta, 1e-6 * largest)))
    return mpgd(problem.free_log_joint, step, 1.0, 0.1 / step, theta_scale=scale)


def start_particles(
    problem: Problem, thetas: np.ndarray, key: Key, num_particles: int, width: float = 0.1
) -> Particles:
    """Clouds around the modes of the blocks at each start of theta, a tenth as wide as they are.

    Narrow on purpose: the first steps of theta then see each block's best guess, not its spread,
    and the flow widens a cloud much faster than it narrows one. Blocks without dense curvature
    start where the problem says, with spread.

    Args:
        problem: grouped or not.
        thetas: a row per start, flat and free.
        key: for the clouds' shape.
        num_particles: in each.
        width: 1 where theta is known well already.
    """
    blocks = as_blocks(problem)
    cloud_at = _cloud_at(twin(problem), blocks.bare, num_particles, width)
    clouds = [
        cloud_at(theta.astype(blocks.start.dtype), blocks.start, blocks.data, key)
        for theta in thetas
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *clouds)


@lru_cache(KEPT)
def _cloud_at(problem: Problem, bare: ById, num_particles: int, width: float) -> Any:
    @jax.jit
    def cloud_at(theta: Array, start: Array, data: Data, key: Key) -> Particles:
        z = jax.random.normal(key, (num_particles, *start.shape), start.dtype)
        if problem.latent_size > LARGEST_DENSE:
            away = start[None] + 0.1 * z
        else:
            at = place(bare.value, theta, start, data)
            away = at.mode[None] + width * jnp.einsum("gpq,ngq->ngp", at.root, z)
        return jax.vmap(partial(to_latent, problem))(away)

    return cloud_at


def overdispersed(theta: np.ndarray, key: Key, restarts: int) -> np.ndarray:
    """The given start first, and others a standard normal away on the reals."""
    away = np.array(jax.random.normal(key, (restarts, theta.size)))
    away[0] = 0.0
    return theta + away

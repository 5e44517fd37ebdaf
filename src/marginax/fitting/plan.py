"""The plan of a fit: which algorithm, kernel and how many particles, by rule, and in words.

By the numbers in a block of the latent: up to 150, the tuning-free M-SVGD-EM with dense curvature
per block; beyond that by the problem's own `latent_blocks`, or coordinate by coordinate with
diagonal curvature; and from 1,000 on MPGD after it, because few particles cannot show how a
thousand latents go together.
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

from marginax._core import partition, trees
from marginax._core.partition import BlockSpec
from marginax._core.programs import KEPT, ById
from marginax.algorithms import Algorithm, mpgd, tuning_free
from marginax.algorithms._tuning_free import LARGEST_DENSE
from marginax.flows.scores import mean_log_joint
from marginax.kernels import Kernel
from marginax.likelihood.blocks import as_blocks, place, to_latent
from marginax.model.model_key import shared_model
from marginax.model.problem import Problem
from marginax.typing import Data, Key, Particles, Theta

__all__ = ["NARROW", "Plan", "make_plan", "overdispersed", "start_particles"]

LARGEST_STEIN = 1000  # latents moved by a Stein flow at all
FEWEST_PARTICLES = 20
NARROW = 0.1  # of a posterior's width: how clouds start where theta is not known well yet


class Plan(NamedTuple):
    """What `fit` runs.

    Attributes:
        algorithm: on theta and latents on the reals.
        num_particles: how many.
        words: which, and why.
        then: from theta and a cloud at its end to another algorithm that goes on; None if none.
        in_batches: the algorithm for batches of groups.
        held: the same with theta held where it is.
    """

    algorithm: Algorithm
    num_particles: int
    words: str
    then: Callable[[Theta, Particles], Algorithm] | None
    in_batches: Algorithm
    held: Algorithm


def make_plan(
    problem: Problem,
    num_particles: int | None = None,
    kernel: Kernel | None = None,
    algorithm: Algorithm | None = None,
) -> Plan:
    """The configuration for a problem.

    Args:
        problem: grouped or not.
        num_particles: if the user wants another number than the rule's.
        kernel: if the user wants another kernel than the rule's.
        algorithm: if the user wants another algorithm altogether, which may need fewer particles.
    """
    if algorithm is not None and kernel is not None:
        raise ValueError("Give algorithm= or kernel=, not both: an algorithm has its own kernel.")
    size = problem.latent_size
    blocks, largest, how = _blocks(problem)
    count = num_particles or _usual_number(largest)
    model = shared_model(problem)
    if algorithm is not None:
        _, in_batches, held = _tuning_free(model, blocks, None)
        return Plan(algorithm, count, "the given algorithm", None, algorithm, held)
    if kernel is not None:
        count = num_particles or max(FEWEST_PARTICLES, min(size, LARGEST_DENSE) + 2)
        words = f"M-SVGD-EM, {count} particles, the given kernel"
        one, in_batches, held = _tuning_free(model, None, kernel)
        return Plan(one, count, words, None, in_batches, held)
    if size <= LARGEST_DENSE and count <= size:
        # A cloud of N particles spans N - 1 dimensions, and its covariance must have full rank.
        raise ValueError(
            f"num_particles is {count}, but a block of {size} latents needs more than {size} "
            "for a covariance of full rank. Leave it out, or give a larger number."
        )
    one, in_batches, held = _tuning_free(model, blocks, None)
    then = partial(_mpgd, problem) if size > LARGEST_STEIN else None
    return Plan(one, count, _words(problem, count, how), then, in_batches, held)


def _words(problem: Problem, count: int, how: str) -> str:
    size = problem.latent_size
    if size <= LARGEST_DENSE:
        where = "one block" if problem.num_groups is None else f"{problem.num_groups} groups"
        return f"M-SVGD-EM, {count} particles, a moment-matched kernel and curvature in {where}"
    if size <= LARGEST_STEIN:
        return (
            f"M-SVGD-EM, {count} particles, {how} (a block has {size} latents, too many for dense "
            "curvature)"
        )
    return (
        f"MPGD, {count} particles, after M-SVGD-EM {how} (a block has {size} latents, in which few "
        "particles cannot show how they go together)"
    )


def _usual_number(largest: int) -> int:
    """How many particles for blocks of this many latents."""
    return max(FEWEST_PARTICLES, largest + largest // 4 + 2)


def _blocks(problem: Problem) -> tuple[BlockSpec, int, str]:
    """Blocks in which particles move: groups, the whole, the problem's own, or single coordinates.

    Returns:
        The blocks, the size of the largest, and words for both.
    """
    if problem.latent_size <= LARGEST_DENSE:
        return "whole" if problem.num_groups is None else "leading", problem.latent_size, ""
    if problem.num_groups is None and problem.latent_blocks is not None:
        blocks = partition.check_blocks(problem.latent_blocks)
        sizes = [f.block_size for f in partition.families(blocks, problem.start_latent())]
        if 1 < max(sizes) <= LARGEST_DENSE:
            return blocks, max(sizes), "with curvature block by block"
    return "coordinates", 1, "coordinate by coordinate with diagonal curvature"


@lru_cache(KEPT)
def _tuning_free(
    problem: Problem, blocks: BlockSpec | None, kernel: Kernel | None
) -> tuple[Algorithm, Algorithm, Algorithm]:
    """For all groups at once, in batches, and in batches with theta held; one of each per model."""
    make = partial(tuning_free, problem.unconstrained_log_joint, blocks=blocks, kernel=kernel)
    held = make(batches=True, theta_optimizer=optax.set_to_zero())
    return make(), make(batches=True), held


def _mpgd(problem: Problem, theta: Theta, particles: Particles) -> Algorithm:
    """MPGD with a step that the largest curvature allows, theta in units that match."""

    @jax.jit
    def curvatures(theta: Theta, particles: Particles, data: Data) -> tuple[Array, Array]:
        mean, unravel = ravel_pytree(trees.particle_mean(particles))

        def log_joint(x: Array) -> Array:
            return problem.unconstrained_log_joint(theta, unravel(x), data)

        def power(v: Array, _: None) -> tuple[Array, Array]:
            w = jax.jvp(jax.grad(log_joint), (mean,), (v,))[1]
            size = jnp.linalg.norm(w)
            return w / jnp.maximum(size, jnp.finfo(w.dtype).tiny), size

        v = jax.random.normal(jax.random.key(0), mean.shape, mean.dtype)
        largest = jax.lax.scan(power, v / jnp.linalg.norm(v), None, 30)[1][-1]
        flat, unravel_theta = ravel_pytree(theta)
        hessian = jax.hessian(
            lambda t: mean_log_joint(
                problem.unconstrained_log_joint, unravel_theta(t), particles, data
            )
        )(flat)
        return largest, jnp.abs(jnp.diagonal(hessian))

    largest, of_theta = curvatures(theta, particles, problem.data)
    _, unravel_theta = ravel_pytree(theta)
    # In units of the curvature: friction 1, momentum 0.9, a step that resolves the fastest mode.
    step = 1.0 / max(float(largest), 1e-12)
    scale = unravel_theta(jnp.sqrt(largest / jnp.maximum(of_theta, 1e-6 * largest)))
    return mpgd(problem.unconstrained_log_joint, step, 1.0, 0.1 / step, theta_scale=scale)


def start_particles(
    problem: Problem, thetas: np.ndarray, key: Key, num_particles: int, width: float = NARROW
) -> Particles:
    """Clouds around the modes of the blocks at each start of theta, a tenth as wide as they are.

    Narrow on purpose: the first steps of theta then see each block's best guess, not its spread,
    and the flow widens a cloud much faster than it narrows one. Blocks without dense curvature
    start where the problem says, with spread.

    Args:
        problem: grouped or not.
        thetas: a row per start, flat, on the reals.
        key: for the clouds' shape.
        num_particles: in each.
        width: 1 where theta is known well already.
    """
    blocks = as_blocks(problem)
    cloud_at = _cloud_at(shared_model(problem), blocks.bare, num_particles, width)
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


def overdispersed(problem: Problem, key: Key, num_starts: int) -> np.ndarray:
    """Starts of theta, flat: the given one first, others a standard normal away on the reals."""
    theta = np.asarray(ravel_pytree(problem.start_theta())[0], float)
    away = np.array(jax.random.normal(key, (num_starts, theta.size)))
    away[0] = 0.0
    return theta + away

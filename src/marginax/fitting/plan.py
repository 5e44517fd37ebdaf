"""The plan of a fit: which algorithm, kernel and how many particles, by rule, and in words.

By the numbers in a block of the latent: up to 150, the tuning-free M-SVGD-EM with dense curvature
per block; beyond that by the problem's own `latent_blocks`, or coordinate by coordinate with
diagonal curvature; and from 1,000 on MPGD after it, because few particles cannot show how a
thousand latents go together.
"""

from collections.abc import Callable, Sequence
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
from marginax._core.programs import KEPT, ById, program
from marginax._core.random_numbers import standard_normal
from marginax.algorithms import Algorithm, mpgd, tuning_free
from marginax.algorithms._tuning_free import LARGEST_DENSE
from marginax.flows.m_step import LARGEST_THETA, em_gradient
from marginax.flows.scores import mean_log_joint
from marginax.kernels import Kernel
from marginax.likelihood.blocks import Blocks, as_blocks, flat_latents, to_latent
from marginax.likelihood.proposals import as_modes, proposals_by_chunk
from marginax.model.model_key import shared_model
from marginax.model.problem import Problem, in_double_precision
from marginax.model.structure import Structure
from marginax.typing import Data, Key, Particles, Theta

__all__ = ["NARROW", "Plan", "make_plan", "start_particles", "structured_plan"]

LARGEST_STEIN = 1000  # latents moved by a Stein flow at all
FEWEST_PARTICLES = 20
FEW = 4
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


def structured_plan(problem: Problem, plan: Plan, structure: Structure) -> Plan:
    """The plan for one block of very many latents whose sparse curvature is known.

    Args:
        problem: in the precision of the run.
        plan: by the rule for large blocks.
        structure: of the curvature.
    """
    count = plan.num_particles
    if not structure.factors.traceable:
        words = (
            f"M-SVGD-EM, {count} particles, coordinate by coordinate with diagonal curvature "
            "(that of the whole is factored on the host)"
        )
        return plan._replace(then=None, words=words)
    one = _in_units_of(shared_model(problem), ById(structure, structure.curvature))
    words = (
        f"M-SVGD-EM, {count} particles, a moment-matched kernel latent by latent in the units of "
        "the whole curvature"
    )
    return plan._replace(algorithm=one, then=None, words=words)


@lru_cache(KEPT)
def _in_units_of(problem: Problem, structure: ById) -> Algorithm:
    # theta's curvature over a few particles: of thousands of latents each says the same.
    one = tuning_free(
        problem.unconstrained_log_joint,
        structure=structure.value,
        theta_optimizer=None if problem.num_parameters > LARGEST_THETA else em_gradient(FEW),
    )
    known = structure.value.identity
    return one if known is None else one._replace(identity=f"in units of {known}")


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
    log_joint = problem.unconstrained_log_joint
    make = partial(tuning_free, log_joint, blocks=blocks, kernel=kernel)
    held = make(batches=True, theta_optimizer=optax.set_to_zero())
    each = {"at once": make(), "in batches": make(batches=True), "held": held}
    if log_joint.identity is not None and kernel is None:
        each = {
            name: one._replace(identity=repr((name, blocks, log_joint.identity)))
            for name, one in each.items()
        }
    return each["at once"], each["in batches"], each["held"]


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
    problem: Problem,
    thetas: np.ndarray,
    key: Key,
    num_particles: int,
    width: float = NARROW,
    modes: Sequence[Array] | None = None,
    structure: Structure | None = None,
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
        modes: of every start the modes of the blocks, if several are known: particles start in all.
        structure: of one block of very many latents; clouds then have its shape around the modes.
    """
    start = flat_latents(problem, problem.start_latent())
    z = np.asarray(standard_normal(key, (num_particles, *start.shape), start.dtype))
    if structure is not None and modes is not None:
        clouds = [
            _around_mode(structure, theta, np.asarray(at)[0], problem.data, z[:, 0])[:, None]
            for theta, at in zip(thetas, modes, strict=True)
        ]
    elif problem.latent_size > LARGEST_DENSE:
        clouds = [_around_start(problem, theta, z) for theta in thetas]
    else:
        with jax.enable_x64(True):
            blocks = as_blocks(in_double_precision(problem))
            known = [blocks.start] * len(thetas) if modes is None else modes
            clouds = [
                _around_modes(blocks, theta, at, z, width)
                for theta, at in zip(thetas, known, strict=True)
            ]
    flat = np.stack(clouds).astype(start.dtype)
    return to_latent(problem, flat)


def _around_mode(
    structure: Structure, theta: np.ndarray, mode: np.ndarray, data: Data, z: np.ndarray
) -> np.ndarray:
    """A cloud [N, n] with the mode for its mean, and the curvature there for its shape."""
    at = jnp.asarray(theta), jnp.asarray(mode)
    entries = structure.curvature(*at, data, structure.maps)
    factor = structure.lift(entries, jnp.zeros((), entries.dtype)).factor
    z = (z - z.mean(axis=0)) / z.std(axis=0)  # of means and variances nothing is left to chance
    return np.asarray(mode[None] + structure.factors.unwhiten(factor, jnp.asarray(z, float)))


def _around_modes(
    blocks: Blocks, theta: np.ndarray, modes: Array, z: np.ndarray, width: float
) -> np.ndarray:
    """A cloud [N, blocks, p] in the modes of every block, particles in each as it has a share."""
    modes = as_modes(modes)
    parts = []
    for rows, proposal, _ in proposals_by_chunk(blocks)(theta, modes, len(modes)):
        share = np.cumsum(np.exp(np.asarray(proposal.log_share)), axis=0)
        evenly = (np.arange(len(z)) + 0.5) / len(z)
        which = np.minimum(np.sum(evenly[:, None, None] > share[None], axis=1), len(modes) - 1)
        here = np.arange(which.shape[1])
        mode, root = (np.asarray(part)[which, here] for part in proposal.at[:2])
        parts.append(mode + width * np.einsum("ngpq,ngq->ngp", root, z[:, rows]))
    with np.errstate(over="ignore"):
        cloud = np.concatenate(parts, axis=1).astype(z.dtype)
    start = np.asarray(blocks.start, z.dtype)
    # A block whose density is not finite there has no mode to start at.
    return np.where(np.isfinite(cloud), cloud, start + np.where(start == 0, 1, np.abs(start)) * z)


def _around_start(problem: Problem, theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """A cloud [N, blocks, p] where the problem starts, in units of each latent's own curvature."""
    blocks = as_blocks(problem)
    spread = _spread_at(blocks.bare)
    units = np.asarray(spread(jnp.asarray(theta, blocks.start.dtype), blocks.start, blocks.data))
    return np.asarray(blocks.start) + NARROW * units * z


@lru_cache(KEPT)
def _spread_at(bare: ById) -> Any:
    """1 / sqrt of the absolute curvature along every latent, from one random probe."""
    log_densities = bare.value.log_densities

    @program(bare)
    def spread(theta: Array, x: Array, data: Data) -> Array:
        probe = jax.random.rademacher(jax.random.key(0), x.shape, x.dtype)
        gradient = jax.grad(lambda x: jnp.sum(log_densities(theta, x, data)))
        curvature = jnp.abs(probe * jax.jvp(gradient, (x,), (probe,))[1])
        typical = jnp.median(curvature)
        typical = jnp.where(typical > 0, typical, 1)
        return 1 / jnp.sqrt(jnp.where(curvature > 1e-6 * typical, curvature, typical))

    return spread

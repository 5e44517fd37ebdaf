"""The last digits: the marginal likelihood climbed from where the particles came to rest.

By quadrature or importance sampling where these can be believed, otherwise with scores and
information from posterior draws. No step is taken that lowers what it climbs.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.base import Key
from marginax.inference import by_importance
from marginax.inference.blocks import as_blocks, place
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.likelihood import Evidence, Likelihood
from marginax.inference.louis import LouisClimb, louis_climb
from marginax.inference.modes import Laplace
from marginax.inference.newton import Climb, climb
from marginax.inference.quadrature import LARGEST_BLOCK
from marginax.inference.refresh import Posterior, sampler
from marginax.problem import Problem

__all__ = ["Polished", "believable", "by_draws", "polish", "posterior_sampler"]


class Polished(NamedTuple):
    """What the climbs found.

    Attributes:
        climbs: one from every end that is not where another already led.
        best: the one with the highest likelihood, after the last steps.
        start: from which end the best one came.
        likelihood: what was climbed.
        evidence: at the best.
    """

    climbs: list[Climb]
    best: Climb
    start: int
    likelihood: Likelihood
    evidence: Evidence


def polish(problem: Problem, ends: np.ndarray, order: list[int]) -> Polished | None:
    """Climbs from the ends, in this order; None where the likelihood cannot be computed.

    Args:
        problem: in double precision.
        ends: where the particles' runs ended, flat and free, a row per start.
        order: which to climb from first.
    """
    likelihood = _likelihood(problem, ends[order[0]])
    if likelihood is None:
        return None
    climbs: list[Climb] = []
    starts: list[int] = []
    for i in order:
        if any(np.allclose(ends[i], found.theta, atol=0.02, rtol=0.02) for found in climbs):
            continue
        found = climb(likelihood.evaluate, ends[i], likelihood.start)
        if np.isfinite(found.local.value):
            climbs.append(found)
            starts.append(i)
    if not climbs:
        return None
    which = int(np.argmax([found.local.value for found in climbs]))
    best = climbs[which]
    if likelihood.evaluate_finely is not None:  # derivatives without the draws' noise
        best = climb(likelihood.evaluate_finely, best.theta, best.local.extra, max_steps=8)
        climbs[which] = best
    evidence = likelihood.describe(best.theta, best.local.extra)
    return Polished(climbs, best, starts[which], likelihood, evidence)


def _likelihood(problem: Problem, theta: np.ndarray) -> Likelihood | None:
    size = problem.latent_size
    if problem.num_groups is not None and size <= LARGEST_BLOCK:
        return quadrature_likelihood(problem)
    if size <= by_importance.LARGEST_BLOCK:
        return by_importance.importance_likelihood(problem, theta)
    return None


def believable(evidence: Evidence) -> bool:
    """Whether the weights say that the likelihood and its derivatives are right."""
    return not evidence.pareto_k > 0.7 and evidence.effective_draws >= 200


def posterior_sampler(problem: Problem) -> Callable[[np.ndarray, Array, Key], Posterior]:
    """`sample(theta, cloud, key)`: draws at theta by chains from the cloud [N, blocks, size]."""
    blocks = as_blocks(problem)
    sample = sampler(blocks)
    find = jax.jit(partial(place, blocks))
    dense = blocks.start.shape[1] <= by_importance.LARGEST_BLOCK

    def draw(theta: np.ndarray, cloud: Array, key: Key) -> Posterior:
        flat = jnp.asarray(theta)
        if dense:
            at = find(flat, jnp.mean(cloud, axis=0), blocks.data)
        else:  # too many for dense curvature: the cloud's own spread
            sd = jnp.std(cloud, axis=0) + 1e-12
            ok = jnp.ones(len(sd), bool)
            at = Laplace(
                jnp.mean(cloud, axis=0), jax.vmap(jnp.diag)(sd), jnp.sum(jnp.log(sd), axis=1), ok
            )
        return sample(flat, at, cloud, key)

    return draw


def by_draws(problem: Problem, theta: np.ndarray, cloud: Array, key: Key) -> LouisClimb:
    """Newton steps with scores and information from posterior draws, from theta."""
    draw = posterior_sampler(problem)

    def sample(theta: np.ndarray, step: int) -> Posterior:
        return draw(theta, cloud, jax.random.fold_in(key, step))

    return louis_climb(sample, as_blocks(problem), theta)


def by_new_weights(problem: Problem, climbed: LouisClimb) -> Evidence | None:
    """The likelihood from a proposal fitted to the draws; None where the latents are too many."""
    if problem.latent_size > by_importance.LARGEST_BLOCK:
        return None
    return by_importance.evidence_from_draws(problem, climbed.theta, climbed.posterior.draws)

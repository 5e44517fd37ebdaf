"""The last digits: the marginal likelihood climbed from where the particles came to rest.

By quadrature or importance sampling where these can be believed, otherwise with scores and
information from posterior draws. No step is taken that lowers what it climbs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from marginax.base import Key
from marginax.inference.blocks import as_blocks, placing
from marginax.inference.by_importance import MOST_LATENTS, importance_likelihood
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.by_weights import evidence_from_draws
from marginax.inference.likelihood import Evidence, Likelihood
from marginax.inference.louis import LouisClimb, louis_climb
from marginax.inference.modes import Laplace
from marginax.inference.newton import Climb, climb
from marginax.inference.quadrature import MOST_DIMENSIONS
from marginax.inference.refresh import Posterior, sampler
from marginax.problem import Problem

__all__ = [
    "Polished",
    "as_high",
    "believable",
    "by_draws",
    "by_new_weights",
    "distance",
    "is_near",
    "likelihood_of",
    "polish",
    "posterior_sampler",
    "search",
]

DISTANCES = (*range(2, 25, 2), *range(-2, -25, -2))
FLAT = 0.05  # a curvature that makes a standard error of more than 4 on the reals


class Polished(NamedTuple):
    """What the climbs found.

    Attributes:
        best: the climb with the highest likelihood, after the last steps.
        start: the end of the particles that is nearest to it.
        agreeing: how many of the climbs made before led there.
        lower: by how much the likelihood is lower at each other maximum that was found.
        likelihood: what was climbed.
        evidence: at the best.
    """

    best: Climb
    start: int
    agreeing: int
    lower: tuple[float, ...]
    likelihood: Likelihood
    evidence: Evidence


def likelihood_of(
    problem: Problem, theta: np.ndarray, mesh: Mesh | None = None
) -> Likelihood | None:
    """The likelihood as a function, or None where the latents are too many for it.

    Args:
        problem: in double precision.
        theta: flat and free; where it will first be evaluated.
        mesh: over whose devices the groups are spread, if any.
    """
    size = problem.latent_size
    if problem.num_groups is not None and size <= MOST_DIMENSIONS:
        return quadrature_likelihood(problem, mesh)
    if size <= MOST_LATENTS:
        return importance_likelihood(problem, theta, mesh)
    return None


def search(likelihood: Likelihood, thetas: np.ndarray, max_steps: int = 60) -> list[Climb]:
    """A climb from every start, off plateaus too."""
    climbs = []
    for theta in thetas:
        found = climb(likelihood.evaluate, theta, likelihood.start, max_steps=max_steps)
        climbs.append(_off_plateau(likelihood, found, thetas[0], max_steps))
    return climbs


def polish(likelihood: Likelihood, ends: np.ndarray, known: list[Climb]) -> Polished | None:
    """Climbs from the ends of the particles, unless they are where a known climb led.

    Args:
        likelihood: to be climbed.
        ends: where the particles' runs ended, flat and free, a row per start.
        known: climbs made before.

    Returns:
        What was found; None if the likelihood is finite nowhere.
    """
    climbs = [found for found in known if np.isfinite(found.local.value)]
    for end in ends:
        if not any(is_near(end, found) for found in climbs):
            more = search(likelihood, end[None])
            climbs += [found for found in more if np.isfinite(found.local.value)]
    if not climbs:
        return None
    best = max(climbs, key=lambda found: found.local.value)
    # Judged before the last steps, which change the rule and with it every value a little.
    lower = tuple(
        best.local.value - found.local.value
        for found in climbs
        if found.settled and not as_high(found, best)
    )
    agreeing = sum(as_high(found, best) for found in known)
    if likelihood.adapt is not None:
        likelihood = likelihood.adapt(best.theta, best.local.extra)
    if likelihood.evaluate_finely is not None:
        fine = climb(likelihood.evaluate_finely, best.theta, best.local.extra, max_steps=8)
        best = fine if np.isfinite(fine.local.value) else best
    nearest = int(np.argmin([distance(end, best) for end in ends]))
    evidence = likelihood.describe(best.theta, best.local.extra)
    return Polished(best, nearest, agreeing, lower, likelihood, evidence)


def distance(theta: np.ndarray, found: Climb) -> float:
    """How far theta is from where a climb ended, in standard errors."""
    away = theta - found.theta
    return float(np.sqrt(np.abs(away @ found.local.hessian @ away)))


def is_near(theta: np.ndarray, found: Climb) -> bool:
    """Whether theta is as good as where a climb ended: a fraction of a standard error away."""
    return distance(theta, found) < 0.05


def as_high(found: Climb, best: Climb) -> bool:
    """Whether a climb led to the same place, or to another that is as high (a flat ridge)."""
    return is_near(found.theta, best) or found.local.value > best.local.value - 1e-2


def _off_plateau(likelihood: Likelihood, found: Climb, home: np.ndarray, max_steps: int) -> Climb:
    """Climbs on from a plateau that has higher ground beside it.

    On a log scale a standard deviation of nearly 0 makes the likelihood flat, so that a climb comes
    to rest there though the maximum is elsewhere. Flat coordinates are tried at a distance, and at
    home, the first start.
    """
    for _ in range(3):
        if not np.isfinite(found.local.value):
            return found
        flat = np.flatnonzero(np.abs(np.diag(found.local.hessian)) < FLAT)
        higher = None
        for i in flat:
            for move in (home[i] - found.theta[i], *DISTANCES):
                moved = found.theta.copy()
                moved[i] += move
                there = likelihood.evaluate(moved, found.local.extra)
                if there.value > max(found.local.value + 1e-3, higher[0] if higher else -np.inf):
                    higher = (there.value, moved, there.extra)
        if higher is None:
            return found
        again = climb(likelihood.evaluate, higher[1], higher[2], max_steps=max_steps)
        found = again if again.local.value > found.local.value else found
    return found


def believable(evidence: Evidence) -> bool:
    """Whether the weights say that the likelihood and its derivatives are right."""
    return not evidence.pareto_k > 0.7 and evidence.effective_draws >= 200


def posterior_sampler(problem: Problem) -> Callable[[np.ndarray, Array, Key], Posterior]:
    """`sample(theta, cloud, key)`: draws at theta by chains from the cloud [N, blocks, size]."""
    blocks = as_blocks(problem)
    sample = sampler(blocks)
    find = placing(blocks.bare)
    dense = blocks.start.shape[1] <= MOST_LATENTS

    def draw(theta: np.ndarray, cloud: Array, key: Key) -> Posterior:
        flat = jnp.asarray(theta)
        if dense:
            at = find(flat, jnp.mean(cloud, axis=0), blocks.data)
        else:  # too many for dense curvature: the cloud's own spread
            sd = jnp.std(cloud, axis=0) + 1e-12
            at = Laplace(jnp.mean(cloud, axis=0), sd, jnp.sum(jnp.log(sd), axis=1))
        return sample(flat, at, cloud, key)

    return draw


def by_draws(problem: Problem, theta: np.ndarray, cloud: Array, key: Key) -> LouisClimb | None:
    """Newton steps with scores and information from posterior draws, from theta."""
    draw = posterior_sampler(problem)

    def sample(theta: np.ndarray, step: int) -> Posterior:
        return draw(theta, cloud, jax.random.fold_in(key, step))

    return louis_climb(sample, as_blocks(problem), theta)


def by_new_weights(problem: Problem, climbed: LouisClimb) -> Evidence | None:
    """The likelihood from a proposal fitted to the draws; None where the latents are too many."""
    if problem.latent_size > MOST_LATENTS:
        return None
    return evidence_from_draws(problem, climbed.theta, climbed.posterior.draws)

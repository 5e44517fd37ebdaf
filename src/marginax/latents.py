"""The latents at the estimate, natural scale: "random effects", and draws of them."""

from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.base import Latent
from marginax.bijections import identity
from marginax.checks import check_level
from marginax.constraints import is_map
from marginax.inference.blocks import to_latent
from marginax.inference.likelihood import Evidence
from marginax.inference.refresh import Posterior
from marginax.problem import Problem

__all__ = ["LatentSummary", "latent_summary", "natural_draws"]


class LatentSummary(NamedTuple):
    """The posterior of the latents at the estimate ("random effects"), natural scale.

    Attributes:
        mean: trees like the latent, all groups.
        sd: standard deviations.
        low: lower end of the central interval.
        high: upper end.
    """

    mean: Latent
    sd: Latent
    low: Latent
    high: Latent


def latent_summary(
    problem: Problem, evidence: Evidence | None, posterior: Posterior | None, level: float
) -> LatentSummary:
    """Exact moments where the latents are free; otherwise those of posterior draws.

    Without draws, a constrained latent gets its median and, by the delta method, its standard
    deviation.
    """
    check_level(level)
    maps = jax.tree.leaves(problem.constrain_latent, is_leaf=is_map)
    free = all(to is identity for to in maps)
    if posterior is not None and not (free and evidence is not None):
        return _of_draws(natural_draws(problem, posterior), level)
    if evidence is None:
        raise ValueError(
            "This fit has no posterior of the latents: it was made with polish=False and "
            "refresh=False. Fit again without one of these."
        )
    half = NormalDist().inv_cdf(0.5 + level / 2)

    def natural(flat: Array) -> Latent:
        return problem.natural_latent(to_latent(problem, flat))

    mean, sd = _like(problem, evidence.mean), _like(problem, evidence.sd)
    low, high = (natural(mean + sign * half * sd) for sign in (-1, 1))
    middle, slope = jax.jvp(natural, (mean,), (sd,))
    return LatentSummary(middle, jax.tree.map(jnp.abs, slope), low, high)


def natural_draws(problem: Problem, posterior: Posterior) -> PyTree:
    """Draws on the natural scale: a tree like the latent, [chains, draws, ...] at every leaf."""
    convert = jax.vmap(
        jax.vmap(lambda flat: problem.natural_latent(partial(to_latent, problem)(flat)))
    )
    return convert(_like(problem, posterior.draws))


def _of_draws(draws: PyTree, level: float) -> LatentSummary:
    tails = (0.5 - level / 2, 0.5 + level / 2)
    low, high = (
        jax.tree.map(lambda leaf, q=q: jnp.quantile(leaf, q, axis=(0, 1)), draws) for q in tails
    )
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=(0, 1)), draws)
    return LatentSummary(
        mean, jax.tree.map(lambda leaf: jnp.std(leaf, axis=(0, 1)), draws), low, high
    )


def _like(problem: Problem, flat: np.ndarray) -> jax.Array:
    return jnp.asarray(flat, jax.tree.leaves(problem.start_latent())[0].dtype)

"""The latents at the estimate: random effects, draws of them, predictions and new data sets."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from marginax._core.checks import check_level
from marginax.likelihood.blocks import to_latent
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import Likelihood
from marginax.model.problem import Problem
from marginax.model.transforms import identity
from marginax.model.transforms.trees import is_transform
from marginax.typing import Key, Latent, Theta

__all__ = [
    "RandomEffects",
    "constrained_draws",
    "predict",
    "random_effects",
    "simulate",
    "theta_draws",
]


class RandomEffects(NamedTuple):
    """The posterior of the latents at the estimate ("random effects"), constrained scale.

    Attributes:
        mean: trees like the latent, all groups.
        sd: standard deviations.
        low: lower end of the central interval.
        high: upper end.
        labels: of the groups, if `pad_groups` made them; None otherwise.
    """

    mean: Latent
    sd: Latent
    low: Latent
    high: Latent
    labels: np.ndarray | None = None


def random_effects(
    problem: Problem, likelihood: Likelihood | None, posterior: Posterior | None, level: float
) -> RandomEffects:
    """Exact moments where the latents live on the reals; otherwise those of posterior draws.

    Without draws, a constrained latent gets its median and, by the delta method, its standard
    deviation.
    """
    check_level(level)
    on_the_reals = _on_the_reals(problem)
    if posterior is not None and not (on_the_reals and likelihood is not None):
        return _of_draws(constrained_draws(problem, posterior), level)
    if likelihood is None:
        raise ValueError(
            "This fit has no posterior of the latents: it was made with "
            "compute_likelihood=False and draw_posterior=False. Fit again without one of these."
        )
    half = NormalDist().inv_cdf(0.5 + level / 2)
    if on_the_reals:
        center, spread = likelihood.mean, likelihood.sd
        parts = (center, spread, center - half * spread, center + half * spread)
        return RandomEffects(*(_latent_of(problem, part) for part in parts))

    def constrained(flat: Array) -> Latent:
        return problem.constrained_latent(to_latent(problem, flat))

    mean, sd = _like(problem, likelihood.mean), _like(problem, likelihood.sd)
    low, high = (constrained(mean + sign * half * sd) for sign in (-1, 1))
    middle, slope = jax.jvp(constrained, (mean,), (sd,))
    return RandomEffects(middle, jax.tree.map(jnp.abs, slope), low, high)


def constrained_draws(problem: Problem, posterior: Posterior) -> PyTree:
    """Draws, constrained, as a tree like the latent: [chains, draws, ...] in every leaf."""
    if _on_the_reals(problem):
        return _latent_of(problem, posterior.draws)
    convert = jax.vmap(
        jax.vmap(lambda flat: problem.constrained_latent(partial(to_latent, problem)(flat)))
    )
    return jax.jit(convert)(_like(problem, posterior.draws))


def _latent_of(problem: Problem, flat: np.ndarray) -> Latent:
    """Flat latents [..., blocks, size] that are on the reals as they are, as trees."""
    return jax.tree.map(jnp.asarray, to_latent(problem, flat))


def _on_the_reals(problem: Problem) -> bool:
    transforms = jax.tree.leaves(problem.latent_transforms, is_leaf=is_transform)
    return all(one is identity for one in transforms)


def _of_draws(draws: PyTree, level: float) -> RandomEffects:
    tails = (0.5 - level / 2, 0.5 + level / 2)
    low, high = (
        jax.tree.map(lambda leaf, q=q: jnp.quantile(leaf, q, axis=(0, 1)), draws) for q in tails
    )
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=(0, 1)), draws)
    return RandomEffects(
        mean, jax.tree.map(lambda leaf: jnp.std(leaf, axis=(0, 1)), draws), low, high
    )


def _like(problem: Problem, flat: np.ndarray) -> jax.Array:
    return jnp.asarray(flat, jax.tree.leaves(problem.start_latent())[0].dtype)


def theta_draws(
    problem: Problem, theta: np.ndarray, covariance: np.ndarray, key: Key, count: int
) -> Theta:
    """Draws of theta around the estimate, constrained, with a leading axis over them.

    What is at a boundary, or has no finite variance, stays at its estimate.

    Args:
        problem: what was fitted.
        theta: the estimate, flat, on the reals.
        covariance: of it.
        key: a `jax.random.key`.
        count: how many.
    """
    known = np.isfinite(np.diag(covariance))
    part = np.where(np.outer(known, known), covariance, 0.0)
    w, v = np.linalg.eigh((part + part.T) / 2)
    root = v * np.sqrt(np.maximum(w, 0.0))
    z = np.asarray(jax.random.normal(key, (count, len(theta))), float)
    flat = theta + z @ root.T
    _, unravel = ravel_pytree(problem.start_theta())
    dtype = jax.tree.leaves(problem.start_theta())[0].dtype
    return jax.vmap(lambda one: problem.constrained_theta(unravel(one)))(jnp.asarray(flat, dtype))


def predict(
    fn: Callable[[Key, Theta, Any], PyTree],
    theta: Theta,
    draws: PyTree,
    key: Key,
    num_draws: int,
    *,
    theta_axis: int | None = None,
) -> PyTree:
    """`fn(key, theta, latent)` for draws of the latents, with a leading axis over them.

    Args:
        fn: a prediction, or simulated data, for one latent; constrained values.
        theta: the estimate, or draws of it.
        draws: [chains, draws, ...] at every leaf.
        key: a `jax.random.key`.
        num_draws: how many to use, at most all.
        theta_axis: 0 where theta has an axis over draws.
    """
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    total = jax.tree.leaves(pooled)[0].shape[0]
    pick_key, fn_key = jax.random.split(key)
    chosen = jax.random.permutation(pick_key, total)[:num_draws]
    latents = jax.tree.map(lambda leaf: leaf[chosen], pooled)
    keys = jax.random.split(fn_key, len(chosen))
    if theta_axis == 0:
        theta = jax.tree.map(lambda leaf: leaf[: len(chosen)], theta)
    return jax.jit(jax.vmap(fn, (0, theta_axis, 0)))(keys, theta, latents)


def simulate(fn: Callable[[Key, Theta], PyTree], theta: Theta, key: Key, num: int) -> PyTree:
    """`fn(key, theta)` for `num` keys, with a leading axis over them."""
    return jax.jit(jax.vmap(fn, (0, None)))(jax.random.split(key, num), theta)

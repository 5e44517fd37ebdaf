r"""Draws, their importance weights, and what the weights of a block say of its likelihood.

    log p_theta(y) = log mean_s exp(l(theta, x_s) - log q(x_s)),   x_s = m + R z_s

The draws z_s are fixed and quasi-random, so that the likelihood is a smooth function of theta: its
gradient is the weighted mean of the scores, its Hessian Louis' information. For a Gaussian
posterior every weight is the same and the answer exact.

SciPy is imported where it is used: it would double the time that `import marginax` takes.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.likelihood.blocks import finite_values
from marginax.likelihood.modes import LogDensities
from marginax.likelihood.proposals import (
    Proposal,
    log_densities_of,
    log_standard_t,
    points_of,
)

__all__ = [
    "Draws",
    "Ratios",
    "StandardDraws",
    "Weighed",
    "fewest_effective",
    "log_ratios",
    "pareto_k",
    "standard_draws",
]


class Draws(NamedTuple):
    """Draws from a standard distribution and their log densities.

    Attributes:
        z: [draws, size].
        log_density: of every draw.
        degrees: of freedom of the t distribution, infinite for a Gaussian.
    """

    z: np.ndarray
    log_density: np.ndarray
    degrees: float


class StandardDraws(NamedTuple):
    """The same on the device."""

    z: Float[Array, "draws p"]
    log_density: Float[Array, " draws"]
    degrees: Float[Array, ""]


class Ratios(NamedTuple):
    """Of every block the log weights of its draws.

    Attributes:
        logs: [blocks, draws].
        points: the draws themselves.
        num_undefined: at how many of them the log density is NaN.
    """

    logs: Float[Array, "blocks draws"]
    points: Float[Array, "blocks draws p"]
    num_undefined: Array


def standard_draws(size: int, num_draws: int, degrees: float = math.inf, seed: int = 0) -> Draws:
    """Quasi-random draws of a standard Gaussian or multivariate t; `num_draws` a power of two."""
    from scipy import stats

    heavy = math.isfinite(degrees)
    sobol = stats.qmc.Sobol(size + heavy, seed=seed)
    uniform = np.clip(sobol.random(num_draws), 1e-12, 1 - 1e-12)
    z = stats.norm.ppf(uniform[:, :size])
    if heavy:
        z = z * np.sqrt(degrees / stats.chi2.ppf(uniform[:, -1:], degrees))
        log_density = stats.multivariate_t(np.zeros(size), np.eye(size), degrees).logpdf(z)
    else:
        log_density = -0.5 * np.sum(z**2, axis=1) - size / 2 * math.log(2 * math.pi)
    return Draws(z, np.atleast_1d(log_density), degrees)


def log_ratios(log_densities: LogDensities, proposal: Proposal, draws: StandardDraws) -> Ratios:
    """l(x_s) - log q(x_s) for every draw of every block, around all its modes."""
    points = points_of(proposal, draws.z)
    log_q, log_share = log_densities_of(
        proposal, draws.z, partial(log_standard_t, degrees=draws.degrees), draws.log_density
    )
    # Draws around a mode count by its share, as if all had been drawn from the mixture.
    log_weights = log_share - log_q + math.log(len(proposal.log_share))
    values, undefined = finite_values(log_densities, points, proposal.at.mode[0], log_weights)
    logs = values + log_weights
    logs = jnp.where(jnp.isneginf(log_share) | jnp.isnan(logs), -jnp.inf, logs)
    return Ratios(logs.T, jnp.swapaxes(points, 0, 1), jnp.sum(undefined, axis=0))


class Weighed(NamedTuple):
    """What the weights of a block's draws say of it, a row per block.

    Attributes:
        log_marginal: log p_theta(y_g).
        mean: of the posterior.
        sd: of the posterior.
        effective: draws.
        pareto_k: of the weights' tail; -inf where all weights are the same.
        undefined: the share of draws whose log density is NaN.
    """

    log_marginal: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    effective: np.ndarray
    pareto_k: np.ndarray
    undefined: np.ndarray

    @classmethod
    def of(cls, chunks: Iterable[Ratios]) -> "Weighed":
        """A chunk at a time: all draws of all blocks may be too many."""
        weighed = [cls._of_a_chunk(chunk) for chunk in chunks]
        return cls(*(np.concatenate(parts) for parts in zip(*weighed, strict=True)))

    @classmethod
    def _of_a_chunk(cls, ratios: Ratios) -> "Weighed":
        from scipy import special

        logs, points = np.asarray(ratios.logs), np.asarray(ratios.points)
        num_draws = logs.shape[1]
        share = special.softmax(logs, axis=1)
        mean = np.einsum("gs,gsp->gp", share, points)
        return cls(
            special.logsumexp(logs, axis=1) - math.log(num_draws),
            mean,
            np.sqrt(np.einsum("gs,gsp->gp", share, (points - mean[:, None]) ** 2)),
            1 / np.sum(share**2, axis=1),
            np.array([pareto_k(row) for row in logs]),
            np.asarray(ratios.num_undefined) / num_draws,
        )


def fewest_effective(chunks: Iterable[Ratios]) -> float:
    """Effective draws of the worst block."""
    from scipy import special

    shares = (special.softmax(np.asarray(chunk.logs), axis=1) for chunk in chunks)
    return min(float(np.min(1 / np.sum(share**2, axis=1))) for share in shares)


def pareto_k(ratios: np.ndarray) -> float:
    """The shape of the largest weights' tail; above 0.7 the sum of the weights cannot be believed.

    Zhang and Stephens' (2009) estimate of the generalised Pareto shape, with the weak prior of
    Vehtari et al. (2024), on the largest min(S / 5, 3 sqrt(S)) weights.
    """
    from scipy import special

    weights = np.sort(np.exp(ratios - ratios.max()))
    tail = int(min(len(weights) / 5, 3 * math.sqrt(len(weights))))
    excess = weights[-tail:] - weights[-tail - 1]
    if excess[-1] <= 1e-12:
        return -math.inf  # all weights are the same: nothing could be better
    n = len(excess)
    grid = np.arange(1, 30 + int(math.sqrt(n)) + 1)
    quarter = excess[int(n / 4 + 0.5) - 1]
    quarter = quarter if quarter > 0 else excess[excess > 0][0]
    b = 1 / excess[-1] + (1 - np.sqrt(len(grid) / (grid - 0.5))) / (3 * quarter)
    k = np.array([np.mean(np.log1p(-value * excess)) for value in b])
    log_profile = n * (np.log(-b / k) - k - 1)
    best = float(np.sum(b * special.softmax(log_profile)))
    shape = float(np.mean(np.log1p(-best * excess)))
    return (n * shape + 5) / (n + 10)

r"""log p_theta(y) by importance sampling from a Gaussian or t fitted to the posterior's mode.

    log p_theta(y) = log mean_s exp(l(theta, x_s) - log q(x_s)),   x_s = m + R z_s

The draws z_s are fixed and quasi-random, so that the likelihood is a smooth function of theta: its
gradient is the weighted mean of the scores, its Hessian Louis' information. For a Gaussian
posterior every weight is the same and the answer exact.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy import special, stats

from marginax.inference.blocks import finite_values
from marginax.inference.modes import Laplace

__all__ = ["Draws", "log_ratios", "pareto_k", "standard_draws"]


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


def standard_draws(size: int, num_draws: int, degrees: float = math.inf, seed: int = 0) -> Draws:
    """Quasi-random draws of a standard Gaussian or multivariate t; `num_draws` a power of two."""
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


def log_ratios(
    log_density: Callable[[Float[Array, " p"]], Float[Array, ""]],
    at: Laplace,
    z: Float[Array, "draws p"],
    log_q: Float[Array, " draws"],
) -> tuple[Float[Array, " draws"], Float[Array, "draws p"], Array]:
    """l(x_s) - log q(x_s) for every draw, the draws, and at how many of them l is NaN."""
    points = at.mode[None] + z @ at.root.T
    values, undefined = finite_values(log_density, points, at.mode)
    return values - log_q + at.log_root, points, undefined


def pareto_k(ratios: np.ndarray) -> float:
    """The shape of the largest weights' tail; above 0.7 the sum of the weights cannot be believed.

    Zhang and Stephens' (2009) estimate of the generalised Pareto shape, with the weak prior of
    Vehtari et al. (2024), on the largest min(S / 5, 3 sqrt(S)) weights.
    """
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

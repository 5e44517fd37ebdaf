"""What weighted draws add to Laplace's approximation of very many latents.

The maximum of the likelihood itself instead of the approximation's; its value with an error; draws
of the latents. All from the Gaussian that is nearest to the posterior, which suits its own theta
and few others: very many latents tell theta well.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.likelihood.best_gaussian import Gaussian, best_gaussian
from marginax.likelihood.laplace import Mode
from marginax.likelihood.many_latents import Latents
from marginax.likelihood.results import StructuredLikelihood
from marginax.likelihood.weighted_draws import weigh

__all__ = ["CLIMBING_DRAWS", "CLIMBING_SEED", "NEAR", "Top", "maximum_by_draws", "value_by_draws"]

CLIMBING_SEED, VALUE_SEED = 1, 2
# Draws by which the estimate is found, for an error of no more than this in standard errors, and at
# most; and those by which the likelihood is, likewise.
CLIMBING_DRAWS, GOOD_ESTIMATE, MOST_CLIMBING = 1000, 0.015, 16_000
DRAWS, GOOD_ERROR, MOST_DRAWS = 2000, 0.02, 32_000
NEAR = 0.01  # a step that is much less than draws can tell, in standard errors
ROUNDS = 6  # of Newton steps


class Top(NamedTuple):
    """The maximum by draws.

    Attributes:
        theta: there.
        gaussian: nearest to the posterior at it.
        num_draws: by which it was found.
    """

    theta: np.ndarray
    gaussian: Gaussian
    num_draws: int


def maximum_by_draws(
    latents: Latents, theta: np.ndarray, hessian: np.ndarray, mode: Mode, fitting: Array
) -> Top:
    """From Laplace's maximum to the likelihood's own.

    Newton's steps with the score by weighted draws and a Gaussian for each; with more draws where
    the noise of the score would move the estimate.

    Args:
        latents: of the problem.
        theta: Laplace's maximum.
        hessian: of Laplace's approximation there.
        mode: there.
        fitting: draws by which Gaussians are fitted.
    """
    at, gaussian = theta, best_gaussian(latents, jnp.asarray(theta), mode, fitting)
    num_draws = CLIMBING_DRAWS
    for _ in range(ROUNDS):
        drawn = weigh(latents, jnp.asarray(at), gaussian, num_draws, CLIMBING_SEED)
        step = np.linalg.lstsq(-hessian, drawn.score)[0]
        if not np.all(np.isfinite(step)):
            break
        errors = np.sqrt(np.abs(np.diag(hessian))) * np.abs(step)
        if errors.max() < 1:  # near enough for its noise to be that of the end
            num_draws = max(num_draws, _enough(hessian, drawn.score_covariance, num_draws))
            drawn = weigh(
                latents, jnp.asarray(at), gaussian, num_draws, CLIMBING_SEED, drawn.chunks
            )
            step = np.linalg.lstsq(-hessian, drawn.score)[0]
            errors = np.sqrt(np.abs(np.diag(hessian))) * np.abs(step)
        at = at + step / max(1.0, float(errors.max()))
        gaussian = best_gaussian(latents, jnp.asarray(at), gaussian, fitting)
        if errors.max() < NEAR:
            break
    return Top(at, gaussian, num_draws)


def _enough(hessian: np.ndarray, noise: np.ndarray, num_draws: int) -> int:
    """How many draws make the estimate's own error small beside its standard errors."""
    inverse = np.linalg.pinv(-hessian)
    moved, errors = np.diag(inverse @ noise @ inverse), np.abs(np.diag(inverse))
    worst = np.max(np.nan_to_num(moved / np.where(errors > 0, errors, np.inf)))
    times = math.ceil(worst / GOOD_ESTIMATE**2)
    return num_draws * max(1, min(times, MOST_CLIMBING // num_draws))


def value_by_draws(
    latents: Latents, theta: np.ndarray, gaussian: Gaussian, laplace: float, num_climbed: int
) -> StructuredLikelihood:
    """The likelihood at theta, with draws until its error is small, or they are very many.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        gaussian: nearest to the posterior there.
        laplace: the approximation's value, to be shown beside it.
        num_climbed: the draws by which theta was found.
    """
    drawn = weigh(latents, jnp.asarray(theta), gaussian, DRAWS, VALUE_SEED)
    if drawn.error > GOOD_ERROR:
        more = DRAWS * min(MOST_DRAWS // DRAWS, math.ceil((drawn.error / GOOD_ERROR) ** 2))
        drawn = weigh(latents, jnp.asarray(theta), gaussian, more, VALUE_SEED, drawn.chunks)
    return StructuredLikelihood(
        log_likelihood=drawn.log_likelihood,
        error=drawn.error,
        mean=drawn.mean[None],
        sd=drawn.sd[None],
        undefined=drawn.num_undefined / len(drawn.logs),
        structure=latents.structure.words,
        laplace=laplace,
        num_draws=len(drawn.logs),
        effective_draws=drawn.effective_draws,
        pareto_k=drawn.pareto_k,
        # That of the draws that were climbed, which may be fewer.
        score_covariance=drawn.score_covariance * len(drawn.logs) / num_climbed,
    )

"""The exact answers of the logistic regression, by importance sampling on the host, for comparison.

theta enters through the prior alone, so that one set of draws gives the marginal likelihood at
every theta near the one it was drawn for.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike
from scipy import optimize, special, stats

__all__ = ["ExactLogistic", "exact_logistic"]


class ExactLogistic(NamedTuple):
    """What a method should find.

    Attributes:
        theta: the maximum marginal likelihood estimate.
        standard_error: of theta, from the finite number of draws.
        joint_mode: the theta that maximises the joint density instead: the wrong target.
        draws: from the posterior of the weights at theta.
    """

    theta: float
    standard_error: float
    joint_mode: float
    draws: np.ndarray


def exact_logistic(
    features: ArrayLike, labels: ArrayLike, prior_variance: float, num_draws: int, seed: int = 0
) -> ExactLogistic:
    """Laplace's approximation, made exact by weights.

    Args:
        features: of the training part.
        labels: 0 or 1.
        prior_variance: of every weight about theta.
        num_draws: from a multivariate t distribution with 8 degrees of freedom.
        seed: of the draws.
    """
    features, labels = (np.asarray(given, float) for given in (features, labels))
    dimension = features.shape[1]
    identity = np.eye(dimension) / prior_variance
    # The best theta for given weights is their mean, which leaves a penalty on their spread alone.
    spread = identity - np.full((dimension, dimension), 1 / (dimension * prior_variance))
    joint_mode = float(_mode(features, labels, spread, 0.0).mean())
    mode = _mode(features, labels, identity, joint_mode)
    covariance = np.linalg.inv(_curvature(features, mode, identity))
    proposal = stats.multivariate_t(mode, covariance, df=8, seed=seed)
    draws = proposal.rvs(num_draws)
    likelihood = np.concatenate(
        [_log_likelihood(some, features, labels) for some in np.array_split(draws, 100)]
    ) - proposal.logpdf(draws)

    def log_weights(theta: float) -> np.ndarray:
        prior = -((draws - theta) ** 2).sum(axis=1) / (2 * prior_variance)
        return likelihood + prior - dimension / 2 * np.log(2 * np.pi * prior_variance)

    optimum = optimize.minimize_scalar(
        lambda theta: -special.logsumexp(log_weights(theta)),
        bounds=(joint_mode - 1, joint_mode + 1),
        method="bounded",
        options={"xatol": 1e-8},
    )
    theta = float(optimum.x)
    share = special.softmax(log_weights(theta))
    means = draws.mean(axis=1)
    information = (
        dimension / prior_variance
        - share @ (means - theta) ** 2 * (dimension / prior_variance) ** 2
    )
    score_sd = np.sqrt(np.sum((share * (means - theta)) ** 2)) * dimension / prior_variance
    chosen = np.random.default_rng(seed).choice(num_draws, size=1000, p=share)
    return ExactLogistic(theta, float(score_sd / information), joint_mode, draws[chosen])


def _log_likelihood(draws: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
    logits = draws @ features.T
    return logits @ labels - np.logaddexp(0, logits).sum(axis=-1)


def _curvature(features: np.ndarray, weights: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    p = special.expit(features @ weights)
    return features.T @ (features * (p * (1 - p))[:, None]) + penalty


def _mode(
    features: np.ndarray, labels: np.ndarray, penalty: np.ndarray, centre: float
) -> np.ndarray:
    """Maximises the log likelihood minus (x - centre)' penalty (x - centre) / 2."""

    def loss(x: np.ndarray) -> float:
        quadratic = (x - centre) @ penalty @ (x - centre) / 2
        return float(quadratic - _log_likelihood(x, features, labels))

    optimum = optimize.minimize(
        loss,
        np.zeros(features.shape[1]),
        jac=lambda x: penalty @ (x - centre) - features.T @ (labels - special.expit(features @ x)),
        hess=lambda x: _curvature(features, x, penalty),
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    return optimum.x

r"""Successes out of trials: y ~ Binomial(n, p), p = inverse link of eta.

    log p(y) = log C(n, y) + y log p + (n - y) log (1 - p)

The response is 0 and 1, two categories of which the second is the success, a proportion with the
numbers of trials as weights, `cbind(successes, failures)` or `prop(successes, trials)`.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array

from marginax.formulas.families.base import (
    Family,
    Values,
    log_factorial,
    no_parameters,
    softplus,
)
from marginax.formulas.responses import Response

__all__ = ["binomial", "log_chances"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    if response.categories is not None:
        return _two_categories(response)
    y, trials = response.values, response.trials
    if trials is None and weights is not None:
        y, trials = np.round(y * weights, 6), weights
    trials = np.ones_like(y) if trials is None else trials
    bad = np.flatnonzero((y < 0) | (y > trials) | (trials != np.round(trials)))
    bad = bad if len(bad) else np.flatnonzero(np.abs(y - np.round(y)) > 1e-4)
    if len(bad):
        k = bad[0]
        raise ValueError(
            f"The response {response.name!r} has {y[k]:g} successes in {trials[k]:g} trials in row "
            f'{k + 1} of those used. The family "binomial" needs 0 and 1, a proportion with '
            "weights=trials, cbind(successes, failures) or prop(successes, trials). For counts "
            'take "poisson".'
        )
    y = np.round(y)
    if not 0 < y.sum() < trials.sum():
        raise ValueError(
            f"The response {response.name!r} is {'all successes' if y.sum() else 'never a success'}"
            ": the log odds are infinite. There is nothing to fit."
        )
    return response._replace(values=y, trials=trials.astype(float))


def _two_categories(response: Response) -> Response:
    categories = response.categories or ()
    if len(categories) != 2:
        raise ValueError(
            f"The response {response.name!r} has the categories {', '.join(categories[:6])}; the "
            'family "binomial" needs two. For ordered categories take "ordinal".'
        )
    return response._replace(trials=np.ones_like(response.values))


def log_chances(link: str, eta: Array) -> tuple[Array, Array]:
    """log p and log(1 - p), without loss far out."""
    if link == "logit":
        return -softplus(-eta), -softplus(eta)
    if link == "probit":
        return log_ndtr(eta), log_ndtr(-eta)
    rate = jnp.exp(jnp.minimum(eta, 700.0))  # cloglog
    return jnp.log(-jnp.expm1(-rate)), -rate


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    one, other = log_chances(link, eta)
    return y * one + (trials - y) * other


def _constant(y: np.ndarray, trials: np.ndarray) -> np.ndarray:
    return log_factorial(trials) - log_factorial(y) - log_factorial(trials - y)


def _first_mean(response: Response) -> np.ndarray:
    trials = np.ones_like(response.values) if response.trials is None else response.trials
    return (response.values + 0.5) / (trials + 1)


binomial = Family(
    name="binomial",
    links=("logit", "probit", "cloglog"),
    parameters=no_parameters(),
    check=_check,
    log_density=_log_density,
    constant=_constant,
    first_mean=_first_mean,
    variance=lambda mean, values, trials: mean * (1 - mean) / trials,
    simulate=lambda random, mean, values, trials: random.binomial(trials.astype(int), mean),
    is_log_concave=True,
)

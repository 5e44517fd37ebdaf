r"""Shares strictly between 0 and 1: y ~ Beta(m k, (1 - m) k), m the mean and k the precision.

log p(y) = log G(k) - log G(m k) - log G((1 - m) k) + (m k - 1) log y + ((1 - m) k - 1) log(1 - y)
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, no_constant, no_trials
from marginax.formulas.families.binomial import log_chances
from marginax.formulas.responses import Response
from marginax.model.transforms import positive

__all__ = ["beta"]

LEAST = 1e-12  # of a mean and of its rest, where numbers end


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "beta")
    bad = np.flatnonzero((response.values <= 0) | (response.values >= 1))
    if len(bad):
        raise ValueError(
            f"The response {response.name!r} is {response.values[bad[0]]:g} in row {bad[0] + 1} of "
            'those used; the family "beta" is of shares strictly between 0 and 1. For successes '
            'out of trials take "binomial".'
        )
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    precision = values["precision"]
    one, other = (jnp.maximum(jnp.exp(log), LEAST) * precision for log in log_chances(link, eta))
    ways = gammaln(precision) - gammaln(one) - gammaln(other)
    return ways + (one - 1) * jnp.log(y) + (other - 1) * jnp.log1p(-y)


def _precision(response: Response, mean: np.ndarray) -> Any:
    spread = float(np.mean((response.values - mean) ** 2 / (mean * (1 - mean))))
    return float(np.clip(1 / max(spread, 1e-6) - 1, 0.5, 1e6))


def _simulate(
    random: np.random.Generator, mean: np.ndarray, values: Values, trials: np.ndarray
) -> np.ndarray:
    k = values["precision"]
    return np.clip(random.beta(mean * k, (1 - mean) * k), 1e-12, 1 - 1e-12)


beta = Family(
    name="beta",
    links=("logit", "probit", "cloglog"),
    parameters=(
        Parameter("precision", positive, _precision, "variance is mean (1 - mean) / (1 + it)"),
    ),
    check=_check,
    log_density=_log_density,
    constant=no_constant,
    first_mean=lambda response: response.values,
    variance=lambda mean, values, trials: mean * (1 - mean) / (1 + values["precision"]),
    simulate=_simulate,
    is_log_concave=False,
)

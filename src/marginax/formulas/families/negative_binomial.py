r"""Counts that vary more than Poisson's: variance mean + mean^2 / size, log mean = eta.

    log p(y) = log G(y + k) - log G(k) - log y! + k log(k / (k + m)) + y log(m / (k + m))

with k the size and m the mean; a size of infinity is Poisson's distribution.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from marginax.formulas.families.base import (
    Family,
    Parameter,
    Values,
    check_whole,
    log_factorial,
    no_trials,
    softplus,
)
from marginax.formulas.responses import Response
from marginax.model.transforms import positive

__all__ = ["negative_binomial"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "negative_binomial")
    check_whole(response, "negative_binomial")
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    size = values["size"]
    away = eta - jnp.log(size)  # log(m / k)
    ways = gammaln(y + size) - gammaln(size)
    return ways - size * softplus(away) - y * softplus(-away)


def _size(response: Response, mean: np.ndarray) -> Any:
    """By moments, kept within what data can tell."""
    more = np.sum((response.values - mean) ** 2 - mean)
    return float(np.clip(np.sum(mean**2) / more if more > 0 else 20.0, 0.2, 20.0))


negative_binomial = Family(
    name="negative_binomial",
    links=("log",),
    parameters=(Parameter("size", positive, _size, "variance is mean + mean^2 / size"),),
    check=_check,
    log_density=_log_density,
    constant=lambda y, trials: -log_factorial(y),
    first_mean=lambda response: response.values + 0.1 * response.values.mean(),
    variance=lambda mean, values, trials: mean + mean**2 / values["size"],
    simulate=lambda random, mean, values, trials: random.poisson(
        random.gamma(values["size"], mean / values["size"])
    ),
    is_log_concave=True,
)

r"""Counts: y ~ Poisson(mean), log mean = eta.

log p(y) = y eta - exp(eta) - log y!
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.formulas.families.base import (
    Family,
    Values,
    check_whole,
    log_factorial,
    no_parameters,
    no_trials,
)
from marginax.formulas.responses import Response

__all__ = ["poisson"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "poisson")
    check_whole(response, "poisson")
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    return y * eta - jnp.exp(eta)


poisson = Family(
    name="poisson",
    links=("log",),
    parameters=no_parameters(),
    check=_check,
    log_density=_log_density,
    constant=lambda y, trials: -log_factorial(y),
    first_mean=lambda response: response.values + 0.1 * response.values.mean(),
    variance=lambda mean, values, trials: mean,
    simulate=lambda random, mean, values, trials: random.poisson(mean),
    is_log_concave=True,
)

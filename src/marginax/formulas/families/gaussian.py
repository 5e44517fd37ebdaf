"""Normal responses: y ~ N(eta, sigma^2 / weight).

The fit itself is exact linear algebra (`linear_fit`); this is for residuals and simulation.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, no_constant, no_trials
from marginax.formulas.responses import Response
from marginax.model.transforms import positive

__all__ = ["gaussian"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "gaussian")
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    sigma = values["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - jnp.log(sigma) - 0.5 * np.log(2 * np.pi)


def _sigma(response: Response, mean: np.ndarray) -> Any:
    return float(np.std(response.values - mean))


gaussian = Family(
    name="gaussian",
    links=("identity",),
    parameters=(Parameter("sigma", positive, _sigma, "residual standard deviation"),),
    check=_check,
    log_density=_log_density,
    constant=no_constant,
    first_mean=lambda response: response.values,
    variance=lambda mean, values, trials: np.full_like(mean, values["sigma"] ** 2),
    simulate=lambda random, mean, values, trials: random.normal(mean, values["sigma"]),
    is_log_concave=True,
)

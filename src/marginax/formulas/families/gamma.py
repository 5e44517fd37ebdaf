r"""Positive amounts: y ~ Gamma with variance mean^2 / shape, log mean = eta.

log p(y) = k log(k y) - k eta - k y exp(-eta) - log y - log G(k),   k the shape
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, no_trials
from marginax.formulas.responses import Response
from marginax.model.transforms import positive

__all__ = ["gamma"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "gamma")
    bad = np.flatnonzero(response.values <= 0)
    if len(bad):
        raise ValueError(
            f"The response {response.name!r} is {response.values[bad[0]]:g} in row {bad[0] + 1} of "
            'those used; the family "gamma" is of positive amounts. For any numbers take '
            '"gaussian", for counts "poisson".'
        )
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    shape = values["shape"]
    away = jnp.log(y) - eta
    return shape * (jnp.log(shape) + away - jnp.exp(away)) - gammaln(shape)


def _shape(response: Response, mean: np.ndarray) -> Any:
    spread = float(np.mean((response.values / mean - 1) ** 2))
    return float(np.clip(1 / max(spread, 1e-6), 0.1, 1e6))


gamma = Family(
    name="gamma",
    links=("log",),
    parameters=(Parameter("shape", positive, _shape, "variance is mean^2 / shape"),),
    check=_check,
    log_density=_log_density,
    constant=lambda y, trials: -np.log(y),
    first_mean=lambda response: response.values,
    variance=lambda mean, values, trials: mean**2 / values["shape"],
    simulate=lambda random, mean, values, trials: random.gamma(
        values["shape"], mean / values["shape"]
    ),
    is_log_concave=True,
)

r"""Numbers with outliers: y = eta + sigma t, t from Student's distribution with `df` degrees.

log p(y) = log G((d + 1) / 2) - log G(d / 2) - log(pi d) / 2 - log s
           - (d + 1) / 2 log(1 + ((y - eta) / s)^2 / d)
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, no_constant, no_trials
from marginax.formulas.responses import Response
from marginax.model.transforms import lower_bound, positive

__all__ = ["student"]


def _check(response: Response, weights: np.ndarray | None) -> Response:
    no_trials(response, "student")
    return response


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    sigma, df = values["sigma"], values["df"]
    z = (y - eta) / sigma
    ways = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * jnp.log(np.pi * df) - jnp.log(sigma)
    return ways - (df + 1) / 2 * jnp.log1p(z**2 / df)


def _sigma(response: Response, mean: np.ndarray) -> Any:
    away = np.abs(response.values - mean)
    return float(1.4826 * np.median(away) or np.std(away))


def _variance(mean: np.ndarray, values: Values, trials: np.ndarray) -> np.ndarray:
    """Of the residuals' bulk where the variance itself is infinite."""
    df = float(values["df"])
    factor = df / (df - 2) if df > 2 else 1.0
    return np.full_like(mean, float(values["sigma"]) ** 2 * factor)


student = Family(
    name="student",
    links=("identity",),
    parameters=(
        Parameter("sigma", positive, _sigma, "scale of the residuals"),
        Parameter("df", lower_bound(0.5), lambda response, mean: 5.0, "degrees of freedom"),
    ),
    check=_check,
    log_density=_log_density,
    constant=no_constant,
    first_mean=lambda response: response.values,
    variance=_variance,
    simulate=lambda random, mean, values, trials: (
        mean + values["sigma"] * random.standard_t(values["df"], len(mean))
    ),
    is_log_concave=False,
)

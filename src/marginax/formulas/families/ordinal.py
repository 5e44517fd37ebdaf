r"""Ordered categories: P(y <= k) = F(cut_k - eta), the cumulative logit or probit model.

    log p(y = k) = log(F(cut_k - eta) - F(cut_(k-1) - eta))

Cut points take the place of the intercept. A positive effect makes higher categories more likely.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, no_constant, softplus
from marginax.formulas.links import LINKS
from marginax.formulas.responses import Response
from marginax.model.transforms import ordered

__all__ = ["ordinal"]

FAR = 50.0  # as good as infinity for a cut point, on the scale of eta
MOST = 30  # categories


def _check(response: Response, weights: np.ndarray | None) -> Response:
    if response.trials is not None:
        raise ValueError(
            f"The response {response.name!r} is of successes and trials, which only the family "
            '"binomial" has.'
        )
    labels, codes = np.unique(response.values, return_inverse=True)
    if not 3 <= len(labels) <= MOST:
        raise ValueError(
            f"The response {response.name!r} has {len(labels)} different values; the family "
            f'"ordinal" needs 3 to {MOST} ordered categories. For two take "binomial", for numbers '
            '"gaussian".'
        )
    if response.categories is None:
        names = tuple(f"{label:g}" for label in labels)
    else:
        names = tuple(response.categories[int(label)] for label in labels)
    return response._replace(values=codes.astype(float), categories=names)


def _log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
    cuts = values["cut"]
    far = jnp.asarray([FAR], cuts.dtype)
    cuts = jnp.concatenate([-far + cuts[:1] - FAR, cuts, far + cuts[-1:] + FAR])
    k = y.astype(int)
    upper, lower = cuts[k + 1] - eta, cuts[k] - eta
    # On the side where both chances are small, so that their difference keeps its digits.
    flip = upper + lower > 0
    high, low = jnp.where(flip, -lower, upper), jnp.where(flip, -upper, lower)
    if link == "logit":
        one, other = -softplus(-high), -softplus(-low)
    else:
        one, other = log_ndtr(high), log_ndtr(low)
    return one + jnp.log(-jnp.expm1(jnp.minimum(other - one, -1e-12)))


def _cuts(response: Response, mean: np.ndarray) -> Any:
    counts = np.bincount(response.values.astype(int)) + 0.5
    below = np.cumsum(counts)[:-1] / counts.sum()
    return LINKS["logit"].forward(below)


def _chances(link: str, eta: np.ndarray, values: Values) -> np.ndarray:
    """Of every category: [rows, categories]."""
    below = LINKS[link].mean(np.asarray(values["cut"])[None, :] - eta[:, None])
    edges = np.column_stack([np.zeros(len(eta)), below, np.ones(len(eta))])
    return np.diff(edges, axis=1)


def _variance(mean: np.ndarray, values: Values, trials: np.ndarray) -> np.ndarray:
    places = np.arange(mean.shape[1])
    return mean @ places**2 - (mean @ places) ** 2


def _simulate(
    random: np.random.Generator, mean: np.ndarray, values: Values, trials: np.ndarray
) -> np.ndarray:
    return np.sum(random.uniform(size=len(mean))[:, None] > np.cumsum(mean, axis=1)[:, :-1], axis=1)


ordinal = Family(
    name="ordinal",
    links=("logit", "probit"),
    parameters=(Parameter("cut", ordered, _cuts, "cut points between the categories"),),
    check=_check,
    log_density=_log_density,
    constant=no_constant,
    first_mean=lambda response: np.full(len(response.values), 0.5),
    variance=_variance,
    simulate=_simulate,
    is_log_concave=True,
    has_intercept=False,
    mean=_chances,
)

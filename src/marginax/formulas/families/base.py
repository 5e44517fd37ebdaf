"""What a family is: the log density of one row, links, parameters, and starts from the data.

To add one, write a file beside this one that makes a `Family`, add it to the list in `__init__`,
and to the table of `tests/formulas/test_families.py`, which holds every family to one contract.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.formulas.responses import Response
from marginax.model.transforms import Transform

__all__ = [
    "Family",
    "Parameter",
    "Values",
    "check_whole",
    "log_factorial",
    "no_constant",
    "no_parameters",
    "no_trials",
    "softplus",
]

FAR = 36.0  # where log(1 + exp x) is x in double precision
Values = Mapping[str, Any]  # of the family's parameters, by name


class Parameter(NamedTuple):
    """A number, or a vector, of a family beside the mean: a dispersion, cut points.

    Attributes:
        name: in tables.
        transform: from the reals.
        start: `start(response, mean)`, a guess from the data and the means of a first fit.
        says: what it is, in words.
    """

    name: str
    transform: Transform
    start: Callable[[Response, np.ndarray], Any]
    says: str


class Family(NamedTuple):
    """The distribution of a response given its linear predictor.

    Attributes:
        name: as the user says it.
        links: their names, the usual one first.
        parameters: beside the mean.
        check: `check(response, weights)`, the response as numbers that the family can have, or a
            sentence.
        log_density: `log_density(link, y, eta, values, trials)`, of every row, in JAX, without
            `constant`.
        constant: `constant(y, trials)`, what of it depends on the data alone; computed once.
        first_mean: `first_mean(response)`, means from which a first fit starts, inside of what
            means may be.
        variance: `variance(mean, values, trials)`, of the response.
        simulate: `simulate(random, mean, values, trials)`, new responses.
        is_log_concave: in eta, whatever the data: posteriors then have one mode.
        has_intercept: whether the linear predictor may have one; cut points take its place.
        mean: `mean(link, eta, values)` where it is not the link's; None where it is.
    """

    name: str
    links: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    check: Callable[[Response, np.ndarray | None], Response]
    log_density: Callable[[str, Array, Array, Values, Array], Array]
    constant: Callable[[np.ndarray, np.ndarray], np.ndarray]
    first_mean: Callable[[Response], np.ndarray]
    variance: Callable[[np.ndarray, Values, np.ndarray], np.ndarray]
    simulate: Callable[[np.random.Generator, np.ndarray, Values, np.ndarray], np.ndarray]
    is_log_concave: bool
    has_intercept: bool = True
    mean: Callable[[str, np.ndarray, Values], np.ndarray] | None = None


def no_parameters() -> tuple[Parameter, ...]:
    """Of families that the mean says everything of."""
    return ()


def no_constant(y: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """Of families all of whose log density depends on parameters."""
    return np.zeros(len(y))


def softplus(x: Array) -> Array:
    """log(1 + exp x), without a derivative rule of its own: models of one trace share programs."""
    return jnp.where(x > FAR, x, jnp.log1p(jnp.exp(jnp.minimum(x, FAR))))


def log_factorial(x: np.ndarray) -> np.ndarray:
    """log x!"""
    from scipy.special import gammaln  # slow to import

    return np.asarray(gammaln(x + 1))


def no_trials(response: Response, family: str) -> None:
    """Refuses successes out of trials, and categories, where a family has numbers."""
    if response.trials is not None:
        raise ValueError(
            f"The response {response.name!r} is of successes and trials, which only the family "
            f'"binomial" has; the family is "{family}".'
        )
    if response.categories is not None:
        raise ValueError(
            f"The response {response.name!r} is text ({', '.join(response.categories[:4])}, ...), "
            f'but the family "{family}" needs numbers. For categories take "binomial" (two) or '
            '"ordinal".'
        )


def check_whole(response: Response, family: str) -> None:
    """Refuses what cannot be a count."""
    y = response.values
    bad = np.flatnonzero((y < 0) | (y != np.round(y)))
    if len(bad):
        value = y[bad[0]]
        kind = "negative" if value < 0 else "not a whole number"
        raise ValueError(
            f"The response {response.name!r} is {value:g} in row {bad[0] + 1} of those used, which "
            f'is {kind}; the family "{family}" is of counts 0, 1, 2, ... For positive amounts '
            'take "gamma", for any numbers "gaussian".'
        )
    if not np.any(y > 0):
        raise ValueError(
            f"The response {response.name!r} is 0 in every row: its mean is 0 and its logarithm "
            "nowhere. There is nothing to fit."
        )

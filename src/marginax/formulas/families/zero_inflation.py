r"""Counts with more zeros than their distribution has.

p(y) = (1 - z) f(y) + z [y = 0],   z the probability of an extra zero
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.formulas.families.base import Family, Parameter, Values, softplus
from marginax.formulas.links import LINKS
from marginax.formulas.responses import Response
from marginax.model.transforms import unit_interval

__all__ = ["with_extra_zeros"]

NAME = "zero_probability"
COUNTS = ("poisson", "negative_binomial")


def with_extra_zeros(family: Family) -> Family:
    """The same family with a probability of extra zeros, the same for all rows."""
    if family.name not in COUNTS:
        raise ValueError(
            f"zero_inflation=True is for counts, the families {' and '.join(COUNTS)}; the family "
            f'is "{family.name}".'
        )

    def log_density(link: str, y: Array, eta: Array, values: Values, trials: Array) -> Array:
        # The constant of a zero is 0, so that it may be added after the mixture.
        own = family.log_density(link, y, eta, values, trials)
        extra = values[NAME]
        counted = jnp.log1p(-extra) + own
        more = counted + softplus(jnp.log(extra) - counted)  # log(extra + exp(counted))
        return jnp.where(y == 0, more, counted)

    def start(response: Response, mean: np.ndarray) -> Any:
        more = float(np.mean(response.values == 0) - np.mean(np.exp(-mean)))
        return float(np.clip(more, 0.05, 0.8))

    def variance(mean: np.ndarray, values: Values, trials: np.ndarray) -> np.ndarray:
        extra = float(values[NAME])
        of_counts = mean / (1 - extra)
        own = family.variance(of_counts, values, trials)
        return (1 - extra) * (own + extra * of_counts**2)

    def simulate(
        random: np.random.Generator, mean: np.ndarray, values: Values, trials: np.ndarray
    ) -> np.ndarray:
        extra = float(values[NAME])
        counts = family.simulate(random, mean / (1 - extra), values, trials)
        return np.where(random.uniform(size=len(mean)) < extra, 0, counts)

    return family._replace(
        name=f"zero-inflated {family.name}",
        parameters=(
            *family.parameters,
            Parameter(NAME, unit_interval, start, "probability of an extra zero"),
        ),
        log_density=log_density,
        variance=variance,
        simulate=simulate,
        is_log_concave=False,
        mean=lambda link, eta, values: (1 - float(values[NAME])) * LINKS[link].mean(eta),
    )

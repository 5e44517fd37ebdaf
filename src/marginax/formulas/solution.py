"""What a fitted mixed model knows, however it was fitted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.covariances import VarianceName

__all__ = ["Effects", "Number", "Solution"]


class Number(NamedTuple):
    """An estimate that is no fixed effect.

    Attributes:
        name: in tables.
        estimate: a standard deviation, a correlation, a dispersion.
        standard_error: None at a boundary, or where none is known.
        low: lower end of the 95 % interval, None likewise.
        high: upper end.
        about: the group and effects, if it is of random effects.
    """

    name: str
    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None
    about: VarianceName | None = None


class Effects(NamedTuple):
    """The random effects of one group at the estimate.

    Attributes:
        mean: of every level and effect, given the data.
        sd: likewise.
    """

    mean: np.ndarray
    sd: np.ndarray


class Solution(NamedTuple):
    """The estimate, and what is known of it.

    Attributes:
        fixed: beta.
        fixed_covariance: of beta.
        covariances: of the random effects, a matrix for every group.
        dispersion: of the family, by name.
        numbers: all estimates that are no fixed effects.
        num_parameters: how many numbers were estimated.
        log_likelihood: the restricted one for REML.
        error: of the log likelihood.
        method: how it was computed, in words.
        effects: `effects()`, of every group.
        converged: whether the climb came to its end.
        warnings: reasons to doubt, in sentences.
        notes: what else should be known.
        profile: `profile(name, quantile)`, the ends of a profile interval.
        draw: `draw(seed, count)`, draws of the random effects: of every group [count, levels,
            effects].
        details: of the likelihood, whatever its method has.
    """

    fixed: np.ndarray
    fixed_covariance: np.ndarray
    covariances: tuple[np.ndarray, ...]
    dispersion: dict[str, np.ndarray]
    numbers: tuple[Number, ...]
    num_parameters: int
    log_likelihood: float
    error: float
    method: str
    effects: Callable[[], tuple[Effects, ...]]
    converged: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    profile: Callable[[str, float], tuple[float, float]]
    draw: Callable[[int, int], list[np.ndarray]]
    details: Any = None

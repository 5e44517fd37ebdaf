"""What a fitted mixed model expects: linear predictors, means, residuals, new responses."""

import warnings
from typing import Any

import numpy as np

from marginax.formulas.design import Columns, Design
from marginax.formulas.families import Family
from marginax.formulas.links import LINKS
from marginax.formulas.responses import Response
from marginax.formulas.solution import Solution

__all__ = [
    "linear_predictor",
    "mean_of",
    "pearson_residuals",
    "simulated",
    "square_root",
    "trials_of",
    "warn_of_new_levels",
]


def linear_predictor(
    columns: Columns, solution: Solution, effects: list[np.ndarray] | None
) -> np.ndarray:
    """eta of every row.

    Args:
        columns: of the rows.
        solution: with beta.
        effects: of every group [levels, effects], or None to leave them out. A level that was not
            seen has effects of 0.
    """
    eta = columns.fixed @ solution.fixed + columns.offset
    for group, b in zip(columns.groups, effects or [], strict=False):
        known = group.codes >= 0
        own = np.sum(group.columns * b[np.where(known, group.codes, 0)], axis=1)
        eta = eta + np.where(known, own, 0.0)
    return eta


def mean_of(family: Family, link: str, eta: np.ndarray, solution: Solution) -> np.ndarray:
    """The mean of the response; of an ordinal one the chances of every category."""
    if family.mean is not None:
        return family.mean(link, eta, solution.dispersion)
    return LINKS[link].mean(eta)


def warn_of_new_levels(columns: Columns) -> None:
    """Says which groups have levels that were not seen."""
    for group in columns.groups:
        count = int(np.sum(group.codes < 0))
        if count:
            warnings.warn(
                f"{count} of {len(group.codes)} rows have a level of {group.name!r} that was not "
                "seen, or none: their prediction is that of an average level, with effects of 0.",
                stacklevel=3,
            )


def trials_of(response: Response) -> np.ndarray:
    """Of binomial responses; 1 of all others."""
    return np.ones(len(response.values)) if response.trials is None else response.trials


def pearson_residuals(
    design: Design, family: Family, mean: np.ndarray, solution: Solution
) -> tuple[np.ndarray, np.ndarray]:
    """The residuals, and what to divide them by for unit variance."""
    response = design.response
    trials = trials_of(response)
    observed = response.values / trials
    # Of categories the expected place.
    expected = mean @ np.arange(mean.shape[1]) if mean.ndim == 2 else mean
    variance = family.variance(mean, solution.dispersion, trials)
    if design.weights is not None and family.name != "binomial":
        variance = variance / design.weights
    return observed - expected, np.sqrt(np.maximum(variance, 1e-300))


def simulated(
    design: Design, family: Family, link: str, solution: Solution, random: Any, new: bool
) -> np.ndarray:
    """A new response from the fitted model.

    Args:
        design: of the rows.
        family: of the response.
        link: its name.
        solution: the estimate.
        random: a NumPy generator.
        new: draw new random effects; otherwise those of the fit.
    """
    if new:
        effects = [
            random.standard_normal((group.num_levels, len(group.effects)))
            @ square_root(covariance).T
            for group, covariance in zip(design.columns.groups, solution.covariances, strict=True)
        ]
    else:
        effects = [one.mean for one in solution.effects()]
    eta = linear_predictor(design.columns, solution, effects)
    mean = mean_of(family, link, eta, solution)
    if design.weights is not None and family.name == "gaussian":
        sigma = float(solution.dispersion["sigma"]) / np.sqrt(design.weights)
        return np.asarray(random.normal(mean, sigma))
    trials = trials_of(design.response)
    return np.asarray(family.simulate(random, mean, solution.dispersion, trials), float)


def square_root(covariance: np.ndarray) -> np.ndarray:
    """R with R R' the covariance, which may be singular."""
    w, v = np.linalg.eigh(covariance)
    return v * np.sqrt(np.maximum(w, 0.0))

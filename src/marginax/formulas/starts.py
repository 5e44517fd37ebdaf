"""Where a climb starts: a fit without random effects, and variances from what it leaves.

A few steps of iteratively weighted least squares, with a little of the prior that coefficients are
not huge, so that separation does not carry them away. Units do not matter: the columns have been
scaled before.
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.families import Family
from marginax.formulas.links import LINKS
from marginax.formulas.random_terms import Group
from marginax.formulas.responses import Response

__all__ = ["Start", "first_fit"]

STEPS = 8
LEAST_SD, MOST_SD = 0.1, 3.0  # of a random effect, on the scale of eta or of the residual
LARGEST = 12.0  # |eta| of links that saturate


class Start(NamedTuple):
    """A first guess.

    Attributes:
        fixed: beta.
        sds: of the random effects, an array for every group.
        values: of the family's parameters.
    """

    fixed: np.ndarray
    sds: tuple[np.ndarray, ...]
    values: dict[str, Any]


def first_fit(
    family: Family,
    link: str,
    response: Response,
    fixed: np.ndarray,
    offset: np.ndarray,
    groups: tuple[Group, ...],
) -> Start:
    """A guess from the data.

    Args:
        family: of the response.
        link: its name.
        response: checked.
        fixed: X, with columns of about unit size.
        offset: of every row.
        groups: with Z, likewise.
    """
    if family.name == "ordinal":
        values = {one.name: one.start(response, np.zeros(0)) for one in family.parameters}
        sds = tuple(np.full(group.columns.shape[1], 0.7) for group in groups)
        return Start(np.zeros(fixed.shape[1]), sds, values)
    beta, eta, left, weight = _least_squares(family, link, response, fixed, offset)
    mean = LINKS[link].mean(eta)
    values = {one.name: one.start(response, mean) for one in family.parameters}
    unit = float(np.sqrt(np.average(left**2, weights=weight))) if link == "identity" else 1.0
    sds = tuple(_spread(group, left, weight, unit) for group in groups)
    return Start(beta, sds, values)


def _least_squares(
    family: Family, link: str, response: Response, fixed: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """beta, eta, the working residuals and their weights."""
    functions = LINKS[link]
    trials = np.ones(len(offset)) if response.trials is None else response.trials
    observed = response.values / trials
    eta = functions.forward(family.first_mean(response))
    # Beyond what the data have, a step of least squares may go anywhere.
    within = (-LARGEST, LARGEST) if link != "log" else (eta.min() - 1, eta.max() + 1)
    nothing = {one.name: np.array(1.0) for one in family.parameters}
    beta = np.zeros(fixed.shape[1])
    ridge = 1e-3 * np.eye(fixed.shape[1]) if link != "identity" else 0.0
    for _ in range(STEPS if link != "identity" else 1):
        if link != "identity":
            eta = np.clip(eta, *within)
        mean, slope = functions.mean(eta), np.maximum(functions.slope(eta), 1e-8)
        variance = np.maximum(_variance(family, mean, nothing, trials), 1e-10)
        weight = slope**2 / variance
        target = eta + (observed - mean) / slope - offset
        gram = (fixed * weight[:, None]).T @ fixed + ridge * max(float(weight.mean()), 1e-300)
        step = np.linalg.lstsq(gram, (fixed * weight[:, None]).T @ target)[0]
        there = offset + fixed @ step
        if link == "log" and not np.all((there >= within[0]) & (there <= within[1])):
            break
        beta, eta = step, there
    eta = offset + fixed @ beta
    eta = eta if link == "identity" else np.clip(eta, *within)
    mean, slope = functions.mean(eta), np.maximum(functions.slope(eta), 1e-8)
    variance = np.maximum(_variance(family, mean, nothing, trials), 1e-10)
    return beta, eta, (observed - mean) / slope, slope**2 / variance


def _variance(
    family: Family, mean: np.ndarray, values: dict[str, Any], trials: np.ndarray
) -> np.ndarray:
    """Without the dispersion, which only the weights of rows relative to each other would see."""
    if family.name.endswith(("poisson", "negative_binomial")):
        return mean
    if family.name == "student":
        return np.ones_like(mean)
    return family.variance(mean, values, trials)


def _spread(group: Group, left: np.ndarray, weight: np.ndarray, unit: float) -> np.ndarray:
    """The standard deviation of the levels' means, less what their rows explain."""
    total = np.bincount(group.codes, weight, group.num_levels)
    means = np.bincount(group.codes, weight * left, group.num_levels) / np.maximum(total, 1e-300)
    raw = float(np.average((means - np.average(means, weights=total)) ** 2, weights=total))
    noise = float(np.average(unit**2 / np.maximum(total, 1e-300), weights=total))
    sd = np.sqrt(max(raw - noise, 0.0)) / unit
    sd = float(np.clip(sd, LEAST_SD, MOST_SD)) * unit
    return np.full(group.columns.shape[1], sd / np.sqrt(group.columns.shape[1]))

"""Tables of a fitted mixed model as plain columns: fixed effects, variances, random effects."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from marginax._core.checks import check_level
from marginax.formulas.random_terms import Group
from marginax.formulas.solution import Effects, Number, Solution

__all__ = [
    "check_group",
    "fixed_columns",
    "fixed_rows",
    "random_effect_columns",
    "variance_columns",
]


def fixed_rows(names: Sequence[str], solution: Solution, level: float) -> list[tuple[Any, ...]]:
    """Of every fixed effect: name, estimate, standard error, z, p, low, high.

    Args:
        names: of the fixed effects.
        solution: with beta.
        level: of the intervals.
    """
    check_level(level)
    half = NormalDist().inv_cdf(0.5 + level / 2)
    errors = np.sqrt(np.diag(solution.fixed_covariance))
    rows = []
    for name, x, error in zip(names, solution.fixed, errors, strict=True):
        z = float(x / error) if error > 0 and np.isfinite(error) else math.nan
        p = math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else math.nan
        rows.append((name, float(x), float(error), z, p, x - half * error, x + half * error))
    return rows


def fixed_columns(
    names: Sequence[str], solution: Solution, link: str, *, exp: bool, level: float
) -> dict[str, list[Any]]:
    """The fixed effects, or their exponentials.

    Args:
        names: of the fixed effects.
        solution: with beta.
        link: its name, which says whether an exponential is a ratio.
        exp: exponentials, with standard errors by the delta method.
        level: of the intervals.
    """
    if exp and link not in ("logit", "log", "cloglog"):
        raise ValueError(
            f"exp=True is for the links logit, log and cloglog; with {link} the "
            "exponential of an effect is no ratio."
        )
    columns: dict[str, list[Any]] = {
        name: [] for name in ("term", "estimate", "std_error", "z", "p", "low", "high")
    }
    for name, x, error, z, p, low, high in fixed_rows(names, solution, level):
        if exp:
            x, error, low, high = np.exp(x), np.exp(x) * error, np.exp(low), np.exp(high)
        for key, value in zip(columns, (name, x, error, z, p, low, high), strict=True):
            columns[key].append(value if isinstance(value, str) else float(value))
    return columns


def variance_columns(numbers: Sequence[Number]) -> dict[str, list[Any]]:
    """Standard deviations, correlations, dispersion."""
    return {
        "parameter": [one.name for one in numbers],
        "group": ["" if one.about is None else one.about.group for one in numbers],
        "estimate": [one.estimate for one in numbers],
        "std_error": [_or_nan(one.standard_error) for one in numbers],
        "low": [_or_nan(one.low) for one in numbers],
        "high": [_or_nan(one.high) for one in numbers],
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def random_effect_columns(
    groups: Sequence[Group], effects: Sequence[Effects], group: str | None, level: float
) -> dict[str, np.ndarray]:
    """Means, standard deviations and intervals of the random effects given the data.

    Args:
        groups: all of them.
        effects: of each.
        group: one grouping factor, or None for all of them.
        level: of the intervals.
    """
    half = NormalDist().inv_cdf(0.5 + level / 2)
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("group", "level", "effect", "mean", "sd", "low", "high")
    }
    for one, found in zip(groups, effects, strict=True):
        if group not in (None, one.name):
            continue
        size = len(one.effects)
        mean, sd = found.mean.ravel(), found.sd.ravel()
        columns["group"].append(np.full(mean.size, one.name, object))
        labels = np.array([str(label) for label in one.levels], object)
        columns["level"].append(np.repeat(labels, size))
        columns["effect"].append(np.tile(np.array(one.effects, object), one.num_levels))
        for name, values in zip(
            ("mean", "sd", "low", "high"),
            (mean, sd, mean - half * sd, mean + half * sd),
            strict=True,
        ):
            columns[name].append(values)
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def check_group(groups: Sequence[Group], group: str | None) -> None:
    """Refuses a name that is no grouping factor's."""
    names = [one.name for one in groups]
    if group is not None and group not in names:
        raise ValueError(f"There is no group {group!r}; there are {', '.join(names)}.")

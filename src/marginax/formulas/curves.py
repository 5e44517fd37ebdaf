"""What a mixed model expects along a column, with the data: a curve, and where new data would be.

Other columns are as in rows of the data, and levels are new ones, so that the curve is where the
mean of the data should be. That of an average level at average columns is elsewhere, unless the
link is the identity, and data off a curve look like a bad fit. The band knows that fixed effects
were estimated, that levels and rows differ, and how responses scatter. Of successes and of
categories it is of their chances: a band of 0 and 1 says nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.fitting.predictive import Predicted, predictions_panel
from marginax.formulas.design import Columns
from marginax.formulas.prediction import linear_predictor, mean_of, square_root, trials_of
from marginax.interop.drawing import (
    BLUE,
    COLORS,
    GREY,
    ORANGE,
    SKY,
    Panel,
    legend_above,
    readable_ticks,
    shortened,
)

__all__ = ["curve_panel", "num_simulated"]

POINTS, ROWS, DRAWS = 60, 50, 10_000  # along the column; of the data; of both and new levels
FEW = 12  # values of a column that are taken as they are
MOST_LINES = 30  # levels with a line each
MOST_VALUES = 4_000_000  # simulated, in all


class Curve(NamedTuple):
    """Expected responses along a column.

    Attributes:
        name: of the column.
        at: its values, or the places of its levels.
        levels: their names; empty for numbers.
        expected: [points], or [points, categories].
        low: where 95 % begin.
        high: where they end.
        band: what the 95 % are of, in words.
        lines: of every level of the first group, [levels, points]; none if they are many.
    """

    name: str
    at: np.ndarray
    levels: tuple[str, ...]
    expected: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band: str
    lines: np.ndarray


def curve_panel(fit: Any, x: str | None) -> Panel:
    """The data along a column; of a model without columns, their distribution."""
    columns = _columns(fit)
    if x is not None and x not in columns:
        there = ", ".join(columns) or "none"
        raise ValueError(f"There is no column {x!r} among the fixed effects; there are {there}.")
    x = x or _first(fit, columns)
    response = fit.design.response
    if x is None:
        group = fit.design.columns.groups[0].codes
        made = fit.simulate(num_simulated(fit), seed=0)
        return predictions_panel(
            Predicted(made, response.values, None, group, (response.name, "x"))
        )
    curve = _curve(fit, x)
    title = f"{shortened(response.name, 30)} along {shortened(x)}"
    return Panel(title, 3.6, lambda part: _draw(fit, curve, part))


def num_simulated(fit: Any) -> int:
    """How many data sets to simulate: fewer of very many rows, for the memory's sake."""
    return int(np.clip(MOST_VALUES // fit.num_observations, 50, 400))


def _columns(fit: Any) -> list[str]:
    """The columns of the fixed effects, in the order in which the formula names them."""
    names = [name for name, use in fit.design.uses.items() if use == "fixed effects"]
    return sorted(names, key=fit.formula.find)


def _first(fit: Any, columns: list[str]) -> str | None:
    """The first column of numbers, or else the first."""
    frame, coding = fit.design.table.frame, fit.design.coding
    numbers = [name for name in columns if name not in coding and frame[name].nunique() > 2]
    return next(iter([*numbers, *columns]), None)


def _curve(fit: Any, x: str) -> Curve:
    design = fit.design
    frame, levels = design.table.frame, design.coding.get(x, ())
    if levels:
        values, at = np.array(levels, object), np.arange(len(levels), dtype=float)
    else:
        at = np.unique(np.asarray(frame[x], float))
        is_code = f"C({x}" in fit.formula.replace(" ", "")  # there is nothing between levels
        at = at if is_code or len(at) <= FEW else np.linspace(at[0], at[-1], POINTS)
        values = at
    random = np.random.default_rng(0)  # the same numbers every time
    columns, count = _with_rows(fit, x, values, random)
    mean, made = _drawn(fit, columns, count, random)
    low, high = np.quantile(made, [0.025, 0.975], axis=1)
    words = "95 % of new data" if made is not mean else "95 % of new levels"
    lines = _lines(fit, columns, count) if mean.ndim == 2 else np.empty((0, len(at)))
    return Curve(x, at, tuple(levels), mean.mean(axis=1), low, high, words, lines)


def _with_rows(fit: Any, x: str, values: np.ndarray, random: Any) -> tuple[Columns, int]:
    """Rows of the data with every value in turn, and how many rows: 1 if they are all alike."""
    design = fit.design
    grouping = {name for term in design.formula.random for name in term.factors}
    others = [name for name in design.uses if name != x and name not in grouping]
    frame = design.table.frame
    count = min(ROWS, len(frame)) if others else 1
    rows = frame.iloc[np.sort(random.permutation(len(frame))[:count])][others]
    table = rows.iloc[np.tile(np.arange(count), len(values))].reset_index(drop=True)
    table[x] = np.repeat(values, count)
    return design.columns_of(table)[0], count


def _drawn(fit: Any, columns: Columns, count: int, random: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means, and new data where a band of these says something: [values, draws, ...].

    Each normal number is taken with both signs, so that linear models have their own line.
    """
    solution, family, draws = fit.solution, fit.family, DRAWS // count // 2

    def normal(covariance: np.ndarray) -> np.ndarray:
        known = np.where(np.isfinite(covariance), covariance, 0.0)
        half = random.standard_normal((draws, len(known))) @ square_root(known).T
        return np.concatenate([half, -half])

    beta = solution.fixed + normal(solution.fixed_covariance)
    eta = columns.fixed @ beta.T + columns.offset[:, None]  # [values * rows, draws]
    for group, covariance in zip(columns.groups, solution.covariances, strict=True):
        eta = eta + group.columns @ normal(covariance).T
    mean = mean_of(family, fit.link, eta.ravel(), solution)
    shape = (len(eta) // count, count * 2 * draws, *mean.shape[1:])
    if mean.ndim == 2 or fit.design.response.trials is not None:
        mean = mean.reshape(shape)
        return mean, mean
    made = family.simulate(random, mean, solution.dispersion, np.ones(len(mean)))
    return mean.reshape(shape), np.asarray(made, float).reshape(shape)


def _lines(fit: Any, columns: Columns, count: int) -> np.ndarray:
    """Along the column, with the random effects of every level of the first group."""
    first = columns.groups[0]
    if first.num_levels > MOST_LINES:
        return np.empty((0, len(columns.offset) // count))
    own = fit._effects[0].mean @ first.columns.T  # [levels, values * rows]
    eta = linear_predictor(columns, fit.solution, None) + own
    flat = np.asarray(mean_of(fit.family, fit.link, eta.ravel(), fit.solution))
    return flat.reshape(len(own), -1, count).mean(axis=2)


def _draw(fit: Any, curve: Curve, part: Any) -> None:
    ax = part.subplots()
    if curve.expected.ndim == 2:
        _draw_categories(ax, fit, curve)
    else:
        _draw_curve(ax, fit, curve)
    if curve.levels:
        ax.set_xticks(curve.at, [shortened(level, 14) for level in curve.levels])
        ax.set_xlim(-0.5, len(curve.levels) - 0.5)
    elif len(curve.at) == 2:
        ax.set_xticks(curve.at)
    else:
        readable_ticks(ax.xaxis)
    ax.set_xlabel(curve.name)
    readable_ticks(ax.yaxis)
    legend_above(ax)


def _draw_curve(ax: Any, fit: Any, curve: Curve) -> None:
    at = curve.at
    if curve.levels or len(at) == 2:
        wide = 0.5 * float(at[1] - at[0])
        ax.use_sticky_edges = False  # or a band that begins below 0 would touch the edge
        heights = curve.high - curve.low
        ax.bar(at, heights, wide, curve.low, color=SKY, alpha=0.4, label=curve.band)
        ends = (at - wide / 2, at + wide / 2)
        ax.hlines(curve.expected, *ends, color=BLUE, linewidth=2.2, label="mean", zorder=3)
    else:
        band = {"color": SKY, "alpha": 0.35, "linewidth": 0, "label": curve.band}
        ax.fill_between(at, curve.low, curve.high, **band)
        for i, line in enumerate(curve.lines):
            name = fit.design.columns.groups[0].name if i == 0 else None
            ax.plot(at, line, color=GREY, linewidth=0.6, alpha=0.5, label=name)
        ax.plot(at, curve.expected, color=BLUE, linewidth=2.2, label="mean")
    response = fit.design.response
    trials = trials_of(response)
    x, y = _places(fit, curve), response.values / trials
    label = response.name
    if response.trials is not None and np.all(trials == 1):
        x, y = _shares(x, y)
        label = f"share of {response.name}"
    elif curve.levels or len(at) == 2:  # beside each other: they would hide each other
        x = x + 0.15 * (at[1] - at[0]) * np.random.default_rng(0).uniform(-1, 1, len(x))
    faint = float(np.clip(200 / len(x), 0.15, 0.8))
    ax.plot(x, y, "o", color=ORANGE, markersize=4, alpha=faint, mew=0, label="observed")
    ax.set_ylabel(shortened(label, 30))


def _draw_categories(ax: Any, fit: Any, curve: Curve) -> None:
    """The chance of every category, and its share among the data."""
    response, x = fit.design.response, _places(fit, curve)
    for k, name in enumerate(response.categories or ()):
        color = COLORS[k % len(COLORS)]
        if not curve.levels:
            ends = (curve.low[:, k], curve.high[:, k])
            ax.fill_between(curve.at, *ends, color=color, alpha=0.12, linewidth=0)
        dash = "o" if curve.levels else "-"
        ax.plot(curve.at, curve.expected[:, k], dash, color=color, label=shortened(name, 12))
        at, share = _shares(x, (response.values == k).astype(float))
        ax.plot(at, share, "x" if curve.levels else "o", color=color, markersize=5)
    ax.set(ylabel="chance (marks: share)", ylim=(-0.03, 1.03))


def _places(fit: Any, curve: Curve) -> np.ndarray:
    """Where the rows stand along the column."""
    column = fit.design.table.frame[curve.name]
    if not curve.levels:
        return np.asarray(column, float)
    place = {level: i for i, level in enumerate(curve.levels)}
    return np.array([place[str(value)] for value in column], float)


def _shares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of 0/1 data the share of 1 at every value, or of neighbours where they are many."""
    distinct = np.unique(x)
    if len(distinct) <= FEW:
        parts = [np.flatnonzero(x == one) for one in distinct]
    else:
        parts = np.array_split(np.argsort(x, kind="stable"), FEW)
    return np.array([x[part].mean() for part in parts]), np.array(
        [y[part].mean() for part in parts]
    )

"""Charts of plain numbers, which figures of every fit are made of: intervals, effects, residuals.

Each is a `Panel`: what it shows, how high it must be, and how it is drawn.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marginax.interop.drawing import (
    BLUE,
    GREY,
    ORANGE,
    PALE,
    SKY,
    Panel,
    readable,
    readable_ticks,
    shortened,
)

__all__ = ["Interval", "effects_panel", "estimates_panel", "residuals_panel", "series_panel"]

SHARE, EMPTY = 20, 0.5  # of an axis: the shortest interval, and the longest part with nothing on it
NEAR = 2.0  # widths of an interval: a reference that is further away is not drawn for its sake
MOST_ROWS, MOST_TEXTS = 60, 20  # of estimates; with their numbers in words
MOST_LEVELS = 40  # of random effects with labels; of more, the lowest and the highest
ROW, AXIS, HEAD = 0.27, 0.5, 0.35  # inches


class Interval(NamedTuple):
    """An estimate with its interval.

    Attributes:
        name: of the parameter.
        estimate: a number.
        low: lower end; NaN where there is none, infinite where the data say nothing.
        high: upper end.
        reference: what no effect would be: 0, or 1 of a ratio; None if there is no such number.
        is_ratio: whether to draw it on a logarithmic axis.
    """

    name: str
    estimate: float
    low: float
    high: float
    reference: float | None = None
    is_ratio: bool = False


def estimates_panel(rows: Sequence[Interval], title: str = "Estimates") -> Panel:
    """Estimates with intervals in their own units: what differs in scale has an axis of its own."""
    shown = rows[:MOST_ROWS]
    more = f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    groups = share_an_axis(shown)
    heights = [AXIS + ROW * len(group) for group in groups]

    def draw(part: Any) -> None:
        grid = part.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
        for group, ax in zip(groups, grid[:, 0], strict=True):
            _draw_intervals(ax, group, with_text=len(shown) <= MOST_TEXTS)

    return Panel(f"{title}{more}", HEAD + sum(heights), draw)


def share_an_axis(rows: Sequence[Interval]) -> list[list[Interval]]:
    """Rows that can be read on one axis, together; the others on further ones."""
    groups: list[list[Interval]] = []
    for row in rows:
        for group in groups:
            if _fit_together([*group, row]):
                group.append(row)
                break
        else:
            groups.append([row])
    return groups


def _fit_together(rows: Sequence[Interval]) -> bool:
    if len({row.is_ratio for row in rows}) > 1:
        return False
    if all(low == high for low, high in map(_ends, rows)):  # no intervals at all
        sizes = [abs(row.estimate) for row in rows]
        return bool(max(sizes) <= SHARE * min(sizes))
    reaches = sorted(_reach(row) for row in rows)
    ends = np.maximum.accumulate([high for _, high in reaches])
    axis = float(ends[-1]) - reaches[0][0]
    gaps = [low - end for (low, _), end in zip(reaches[1:], ends, strict=False)]
    widths = [high - low for low, high in map(_ends, rows)]
    readable_all = all(width >= axis / SHARE for width in widths if width > 0)
    return bool(readable_all and max(gaps, default=0.0) <= EMPTY * axis)


def _ends(row: Interval) -> tuple[float, float]:
    """The finite part of an interval, on the scale of its axis."""
    ends = [x for x in (row.low, row.estimate, row.high) if math.isfinite(x)] or [0.0]
    ends = [math.log(x) for x in ends if x > 0] or [0.0] if row.is_ratio else ends
    return min(ends), max(ends)


def _reach(row: Interval) -> tuple[float, float]:
    """What the axis must show of a row: its ends, and its reference if that is near."""
    low, high = _ends(row)
    if row.reference is None:
        return low, high
    at = math.log(row.reference) if row.is_ratio else row.reference
    near = low - NEAR * (high - low) <= at <= high + NEAR * (high - low)
    return (min(low, at), max(high, at)) if near else (low, high)


def _draw_intervals(ax: Any, rows: Sequence[Interval], with_text: bool) -> None:
    if rows[0].is_ratio:
        ax.set_xscale("log")
    reaches = [_reach(row) for row in rows]
    low, high = min(one for one, _ in reaches), max(one for _, one in reaches)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    limits = low - margin, high + margin
    ax.set_xlim(*map(math.exp, limits) if rows[0].is_ratio else limits)
    for reference in {row.reference for row in rows} - {None}:
        if ax.get_xlim()[0] < reference < ax.get_xlim()[1]:
            ax.axvline(reference, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for place, row in enumerate(rows):
        _draw_interval(ax, place, row)
        if with_text:
            at = (1.02, place)
            ax.annotate(
                _words(row), at, xycoords=("axes fraction", "data"), va="center", fontsize=8.5
            )
    ax.set_yticks(range(len(rows)), [shortened(row.name) for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.spines["left"].set_visible(False)
    readable_ticks(ax.xaxis, 5, room=30)


def _draw_interval(ax: Any, place: int, row: Interval) -> None:
    left, right = ax.get_xlim()
    if math.isnan(row.low) or math.isnan(row.high):
        ax.plot([row.estimate], [place], "o", mfc="white", mec=ORANGE, mew=1.5, markersize=6)
        return
    ends = [max(row.low, left), min(row.high, right)]
    ax.plot(ends, [place, place], color=PALE, linewidth=4, zorder=1)
    ax.plot([row.estimate], [place], "o", color=BLUE, markersize=6, zorder=2)


def _words(row: Interval) -> str:
    """The numbers, with as many digits as the interval can tell apart."""
    if math.isnan(row.low) or math.isnan(row.high):
        return readable(row.estimate)
    if math.isinf(row.high - row.low):
        return f"{readable(row.estimate)}, unbounded"
    width, size = row.high - row.low, max(abs(row.low), abs(row.high))
    digits = 3 if width <= 0 else min(max(3, math.ceil(math.log10(size / width)) + 2), 9)
    x, low, high = (readable(x, digits) for x in (row.estimate, row.low, row.high))
    return f"{x} [{low}, {high}]"


def effects_panel(
    title: str,
    labels: Sequence[Any] | np.ndarray | None,
    values: Sequence[np.ndarray],
    what: str = "95 % interval",
) -> Panel:
    """Effects in the order of their means, with intervals, labels and a line at 0.

    Args:
        title: whose they are.
        labels: of the levels; by default their numbers.
        values: means, lower and upper ends.
        what: the ends are of.
    """
    mean, low, high = values
    order, count = np.argsort(mean, kind="stable"), len(mean)
    if count > MOST_LEVELS:
        half = MOST_LEVELS // 2
        order = np.concatenate([order[:half], order[-half:]])
        what += f"; the {half} lowest and {half} highest of {count:,}"
    names = np.arange(count) if labels is None else np.asarray(labels, object)

    def draw(part: Any) -> None:
        ax = part.subplots()
        places = np.arange(len(order))
        ax.hlines(places, low[order], high[order], color=PALE, linewidth=3)
        ax.plot(mean[order], places, "o", color=BLUE, markersize=4)
        if low[order].min() <= 0 <= high[order].max():
            ax.axvline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        if len(order) < count:
            ax.axhline(half - 0.5, color=GREY, linewidth=0.8, linestyle=":")
        size = 9 if len(order) <= 20 else 7.5
        ax.set_yticks(places, [shortened(names[i]) for i in order], fontsize=size)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(-0.8, len(order) - 0.2)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(f"mean and {what}")
        readable_ticks(ax.xaxis, 6)

    per_level = 0.2 if len(order) <= 20 else 0.15
    return Panel(title, 1.1 + per_level * len(order), draw)


def residuals_panel(
    at: np.ndarray, residuals: np.ndarray, kind: str, where: str, with_mean: bool = False
) -> Panel:
    """Residuals against a covariate, or what was expected.

    Args:
        at: of every row.
        residuals: in units of a standard deviation.
        kind: of residuals, in words.
        where: the horizontal axis, in words.
        with_mean: draw the mean of those beside each other. Not against fitted values: shrunken
            effects make it rise there though nothing is wrong.
    """

    def draw(part: Any) -> None:
        ax = part.subplots()
        for line, dash in ((0.0, "-"), (-1.96, (0, (4, 3))), (1.96, (0, (4, 3)))):
            ax.axhline(line, color=GREY, linewidth=0.8, linestyle=dash, zorder=0)
        faint = float(np.clip(300 / len(at), 0.15, 0.8))
        ax.plot(at, residuals, "o", color=BLUE, markersize=3.5, alpha=faint, mew=0)
        if with_mean and len(at) >= 60 and len(np.unique(at)) > 2:
            middle, means = _means_nearby(at, residuals)
            ax.plot(middle, means, color=ORANGE, label="mean nearby")
            ax.legend(loc="upper right")
        reach = 1.15 * max(2.5, float(np.max(np.abs(residuals), initial=0.0)))
        ax.set(xlabel=where, ylabel=f"{kind} residual", ylim=(-reach, reach))
        readable_ticks(ax.xaxis)

    return Panel("Residuals", 3.3, draw)


def _means_nearby(at: np.ndarray, values: np.ndarray) -> tuple[list[float], list[float]]:
    distinct = np.unique(at)
    if len(distinct) <= 12:
        parts = [np.flatnonzero(at == one) for one in distinct]
    else:
        parts = np.array_split(np.argsort(at, kind="stable"), 12)
    return [float(np.mean(at[part])) for part in parts], [
        float(np.mean(values[part])) for part in parts
    ]


def series_panel(title: str, values: Sequence[np.ndarray], what: str) -> Panel:
    """Very many latents without labels, in their own order: a line with its band."""
    mean, low, high = values

    def draw(part: Any) -> None:
        ax = part.subplots()
        places = np.arange(len(mean))
        ax.fill_between(places, low, high, color=SKY, alpha=0.4, linewidth=0, label=what)
        ax.plot(places, mean, color=BLUE, linewidth=1, label="mean")
        ax.set(xlabel="place in the latent", xlim=(0, max(len(mean) - 1, 1)))
        readable_ticks(ax.xaxis)
        readable_ticks(ax.yaxis)
        ax.legend(ncols=2, loc="upper right")

    return Panel(title, 3.0, draw)

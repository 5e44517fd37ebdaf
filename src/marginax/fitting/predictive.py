"""Predictions beside the data: what suits numbers, counts and 0/1, along a covariate or without.

    along x       bands of predictions with the data in them; of 0/1 data shares of 1
    0/1           how many 1 a group has, predicted and seen
    counts        how often each number is predicted, and how often it was seen
    numbers       the density of predicted data sets, and that of the data

Padding and what was not observed are left out by a mask. There is no chart of 0/1 data against
predicted chances: a chance that the value itself had a part in is nearer to the middle than what
is seen, so that such a chart looks wrong where nothing is.
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.fitting.charts import residuals_panel
from marginax.interop.drawing import BLUE, ORANGE, SKY, Panel, legend_above, readable_ticks

__all__ = ["Predicted", "predicted_from", "predictions_panel", "predictive_residuals"]

MOST_PLACES = 25  # along x; of more, neighbours together
MOST_COUNTS = 30  # a bar for each
BANDS = ((0.025, 0.975, 0.3, "95 % of predictions"), (0.25, 0.75, 0.45, "50 %"))


class Predicted(NamedTuple):
    """Predictions of what is not masked.

    Attributes:
        draws: [draws, values].
        observed: of every value, or None.
        x: of every value, or None.
        group: of every value, the place on the first axis of what was given.
        names: of the predicted values and of x, for the axes.
    """

    draws: np.ndarray
    observed: np.ndarray | None
    x: np.ndarray | None
    group: np.ndarray
    names: tuple[str, str] = ("value", "x")

    @property
    def is_binary(self) -> bool:
        """Whether the data (or, without them, the predictions) are 0 and 1."""
        return bool(np.isin(self._values, (0, 1)).all())

    @property
    def is_count(self) -> bool:
        """Whether they are whole numbers, few enough for a bar each."""
        values = self._values
        whole = np.all(values == np.round(values)) and values.min() >= 0
        return bool(whole and max(values.max(), self.draws.max()) <= MOST_COUNTS)

    @property
    def _values(self) -> np.ndarray:
        return self.draws if self.observed is None else self.observed


def predicted_from(
    draws: Any, observed: Any, x: Any, mask: Any, names: tuple[str, str] = ("value", "x")
) -> Predicted:
    """What is given, flat and without what is masked or missing; refuses other shapes.

    Args:
        draws: [draws, ...].
        observed: [...], or None.
        x: [...], or None.
        mask: [...], 0 where nothing was observed, or None.
        names: for the axes.
    """
    draws = np.asarray(draws, float)
    shape = draws.shape[1:]
    flat: list[np.ndarray | None] = []
    for name, given in (("observed", observed), ("x", x), ("mask", mask)):
        values = None if given is None else np.asarray(given, float)
        if values is not None and values.shape != shape:
            raise ValueError(
                f"{name} has shape {values.shape}, but one draw of the predictions has {shape}. "
                "They must be of the same values, in the same order."
            )
        flat.append(None if values is None else values.ravel())
    seen, along, kept = flat
    keep = np.ones(int(np.prod(shape)), bool) if kept is None else kept > 0
    for one in (seen, along):
        keep &= True if one is None else np.isfinite(one)
    if not keep.any():
        raise ValueError("There is nothing to draw: every value is masked or missing.")
    rows = draws.reshape(len(draws), -1)[:, keep]
    seen, along = (None if one is None else one[keep] for one in (seen, along))
    first = np.indices(shape)[0].ravel() if shape else np.zeros(1, int)
    return Predicted(rows, seen, along, first[keep], names)


def predictions_panel(given: Predicted) -> Panel:
    """The chart that suits the data."""
    if given.x is not None:
        draw = _shares_along if given.is_binary else _bands_along
    elif given.is_binary and len(given.group) > len(np.unique(given.group)):
        given, draw = _totals(given), _counts
    else:
        draw = _counts if given.is_count else _densities
    return Panel("Predictions", 3.5, lambda part: draw(part.subplots(), given))


def predictive_residuals(given: Predicted) -> Panel:
    """Residuals that are standard normal if the model is right, for numbers, counts and 0/1.

    The place of a value among its predictions, as a normal quantile; ties are broken at random, by
    the same numbers every time.
    """
    if given.observed is None:
        raise ValueError("Residuals need what was observed.")
    values = quantile_residuals(given.draws, given.observed)
    if given.x is not None:
        return residuals_panel(given.x, values, "quantile", given.names[1], with_mean=True)
    return residuals_panel(given.draws.mean(axis=0), values, "quantile", "mean prediction")


def quantile_residuals(draws: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Normal quantiles of the places of values among their draws, [values]."""
    from scipy.special import ndtri  # slow to import

    below, equal = np.mean(draws < observed, axis=0), np.mean(draws == observed, axis=0)
    if np.isin(observed, (0, 1)).all():  # the draws may be chances, too
        chance = draws.mean(axis=0)
        below = np.where(observed > 0, 1 - chance, 0.0)
        equal = np.where(observed > 0, chance, 1 - chance)
    place = below + np.random.default_rng(0).uniform(size=len(observed)) * equal
    edge = 0.5 / len(draws)
    return np.asarray(ndtri(np.clip(place, edge, 1 - edge)))


def _places(x: np.ndarray) -> list[np.ndarray]:
    """Values that stand at one place along x: equal ones, or neighbours where they are many."""
    distinct, which = np.unique(x, return_inverse=True)
    if len(distinct) <= MOST_PLACES:
        return [np.flatnonzero(which == k) for k in range(len(distinct))]
    return [np.asarray(one) for one in np.array_split(np.argsort(x, kind="stable"), MOST_PLACES)]


def _bands_along(ax: Any, given: Predicted) -> None:
    x = np.asarray(given.x)
    places = _places(x)
    at = np.array([x[place].mean() for place in places])
    for low, high, strength, words in BANDS:
        ends = np.array([np.quantile(given.draws[:, place], [low, high]) for place in places])
        ax.fill_between(at, *ends.T, color=SKY, alpha=strength, linewidth=0, label=words)
    middle = [np.median(given.draws[:, place]) for place in places]
    ax.plot(at, middle, color=BLUE, label="median")
    if given.observed is not None:
        faint = float(np.clip(300 / len(x), 0.2, 0.9))
        ax.plot(
            *(x, given.observed, "o"),
            color=ORANGE,
            markersize=3.5,
            alpha=faint,
            mew=0,
            label="observed",
        )
    _finish(ax, given.names[1], given.names[0])


def _shares_along(ax: Any, given: Predicted) -> None:
    """0/1 data as shares of 1, since points at 0 and at 1 show nothing."""
    x = np.asarray(given.x)
    places = _places(x)
    at = np.array([x[place].mean() for place in places])
    shares = np.array([given.draws[:, place].mean(axis=1) for place in places])
    _draw_shares(ax, at, shares, given.observed, places)
    ax.set_ylim(-0.03, 1.03)
    _finish(ax, given.names[1], f"share of {given.names[0]} = 1")


def _totals(given: Predicted) -> Predicted:
    """0/1 data by group: how many 1 each has."""
    groups, which = np.unique(given.group, return_inverse=True)

    def add(values: np.ndarray) -> np.ndarray:
        return np.bincount(which, values, len(groups))

    draws = np.array([add(row) for row in given.draws])
    observed = None if given.observed is None else add(given.observed)
    name = f"number of {given.names[0]} = 1 in a group"
    return Predicted(draws, observed, None, groups, (name, "x"))


def _draw_shares(
    ax: Any,
    at: np.ndarray,
    shares: np.ndarray,
    observed: np.ndarray | None,
    places: list[np.ndarray],
) -> None:
    low, high = np.quantile(shares, [0.025, 0.975], axis=1)
    if len(at) > 2:
        ax.fill_between(at, low, high, color=SKY, alpha=0.4, linewidth=0, label=BANDS[0][3])
        ax.plot(at, shares.mean(axis=1), color=BLUE, label="mean")
    else:  # two arms of a trial are no curve
        ax.vlines(at, low, high, color=SKY, linewidth=8, alpha=0.6, label=BANDS[0][3])
    if observed is not None:
        seen = [observed[place].mean() for place in places]
        ax.plot(at, seen, "o", color=ORANGE, markersize=6, label="observed")


def _counts(ax: Any, given: Predicted) -> None:
    most = int(max(given.draws.max(), given._values.max()))
    every = -(-(most + 1) // MOST_COUNTS)  # totals of large groups: some numbers to a bar
    given = given._replace(
        draws=given.draws // every * every,
        observed=None if given.observed is None else given.observed // every * every,
    )
    numbers = np.arange(0, most + 1, every)
    often = np.array([np.mean(given.draws == k, axis=1) for k in numbers])
    low, high = np.quantile(often, [0.025, 0.975], axis=1)
    ax.bar(numbers, often.mean(axis=1), color=SKY, alpha=0.5, width=0.8 * every, label="mean")
    ax.vlines(numbers, low, high, color=BLUE, linewidth=2, label=BANDS[0][3])
    if given.observed is not None:
        seen = [np.mean(given.observed == k) for k in numbers]
        ax.plot(numbers, seen, "o", color=ORANGE, markersize=5, label="observed")
    _finish(ax, given.names[0], "share of groups" if "in a group" in given.names[0] else "share")


def _densities(ax: Any, given: Predicted) -> None:
    """Of single predicted data sets, with that of the data."""
    pooled = np.concatenate([given.draws.ravel(), np.ravel(given._values)])
    low, high = np.quantile(pooled, [0.001, 0.999])
    size = given.draws.shape[1]
    bins = np.linspace(low, high, int(np.clip(2 * size ** (1 / 3), 8, 40)) + 1)
    middle = (bins[1:] + bins[:-1]) / 2
    made = np.array([np.histogram(row, bins, density=True)[0] for row in given.draws])
    low, high = np.quantile(made, [0.025, 0.975], axis=0)
    ax.fill_between(middle, low, high, color=SKY, alpha=0.4, linewidth=0, label=BANDS[0][3])
    ax.plot(middle, made.mean(axis=0), color=BLUE, label="mean")
    if given.observed is not None:
        density = np.histogram(given.observed, bins, density=True)[0]
        ax.plot(middle, density, "--", color=ORANGE, label="observed")
    _finish(ax, given.names[0], "density")


def _finish(ax: Any, horizontal: str, vertical: str) -> None:
    ax.set(xlabel=horizontal, ylabel=vertical)
    readable_ticks(ax.xaxis)
    readable_ticks(ax.yaxis)
    ax.margins(x=0.03)
    legend_above(ax)

"""Charts of plain numbers: estimates in their own units, effects in order, residuals."""

import math

import numpy as np
import pytest

from marginax.fitting.charts import (
    MOST_LEVELS,
    Interval,
    effects_panel,
    estimates_panel,
    residuals_panel,
    series_panel,
)
from marginax.interop.drawing import figure_of

pytest.importorskip("matplotlib")


def axes_of(panel):
    figure = figure_of([panel])
    figure.canvas.draw()
    return figure.axes


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def vertical_lines(ax):
    return [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1]


def test_estimates_are_drawn_in_their_own_units():
    # They were in units of standard errors, and so all alike.
    rows = [
        Interval("intercept", 251.0, 238.0, 264.0, 0.0),
        Interval("days", 10.5, 7.5, 13.4, 0.0),
        Interval("sd", 5.7, 3.8, 8.6),
        Interval("rate", 2e-6, 1e-6, 3e-6, 0.0),
    ]
    far, near, tiny = axes_of(estimates_panel(rows))
    assert ticks(far.yaxis) == ["intercept"]
    assert ticks(near.yaxis) == ["days", "sd"]
    left, right = far.get_xlim()
    assert 230 < left < 238 < 264 < right < 270
    assert 0 in vertical_lines(near)  # near enough to be looked for
    assert 0 not in vertical_lines(far)
    assert tiny.get_xlim()[1] < 4e-6
    texts = [text.get_text() for text in near.texts]
    assert texts == ["10.5 [7.5, 13.4]", "5.7 [3.8, 8.6]"]


def test_neighbours_share_an_axis():
    rows = [Interval(f"item {i}", x, x - 0.2, x + 0.2, 0.0) for i, x in enumerate((-1.0, 0.0, 1.0))]
    (ax,) = axes_of(estimates_panel(rows))
    assert ticks(ax.yaxis) == ["item 0", "item 1", "item 2"]


def test_ratios_are_on_a_logarithmic_axis_beside_1_and_apart_from_others():
    rows = [
        Interval("odds", 0.5, 0.4, 0.7, 1.0, is_ratio=True),
        Interval("sd", 0.8, 0.5, 1.1),
    ]
    ratio, sd = axes_of(estimates_panel(rows))
    assert (ratio.get_xscale(), sd.get_xscale()) == ("log", "linear")
    assert 1 in vertical_lines(ratio)


def test_what_has_no_interval_is_a_ring_and_what_is_unbounded_is_said():
    rows = [
        Interval("at 0", 0.0, math.nan, math.nan),
        Interval("flat", 1.0, -math.inf, math.inf, 0.0),
        Interval("known", 1.0, 0.5, 1.5, 0.0),
    ]
    axes = axes_of(estimates_panel(rows))
    words = [text.get_text() for ax in axes for text in ax.texts]
    assert sorted(words) == ["0", "1 [0.5, 1.5]", "1, unbounded"]
    rings = [line for ax in axes for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert len(rings) == 1


def test_numbers_have_the_digits_that_intervals_tell_apart():
    # A correlation of 0.99999 was "1 [1, 1]".
    (ax,) = axes_of(estimates_panel([Interval("rho", 0.99999, 0.9999, 0.999999)]))
    assert [text.get_text() for text in ax.texts] == ["0.99999 [0.9999, 0.999999]"]
    left, right = ax.get_xlim()
    shown = zip(ax.get_xticks(), ticks(ax.xaxis), strict=True)
    words = [word for at, word in shown if left <= at <= right]
    assert sum(map(len, words)) + 2 * len(words) <= 32  # which do not overlap


def test_without_standard_errors_estimates_of_a_size_share_an_axis():
    nan = math.nan
    rows = [Interval(f"p{x}", x, nan, nan) for x in (1.0, 2.0, 5.0)]
    (ax,) = axes_of(estimates_panel(rows))
    assert len(ticks(ax.yaxis)) == 3


def test_effects_are_sorted_with_labels_and_a_line_at_0():
    mean = np.array([1.0, -1.0, 0.2])
    panel = effects_panel("Intercept | site", ["a", "b", "c"], (mean, mean - 0.5, mean + 0.5))
    (ax,) = axes_of(panel)
    assert ticks(ax.yaxis) == ["b", "c", "a"]
    assert 0 in vertical_lines(ax)
    (ax,) = axes_of(effects_panel("positive", None, (mean + 9, mean + 8.5, mean + 9.5)))
    assert 0 not in vertical_lines(ax)


def test_of_very_many_effects_the_ends_are_shown_and_that_is_said():
    mean = np.linspace(-1.0, 1.0, 1000)
    (ax,) = axes_of(effects_panel("g", np.arange(1000), (mean, mean - 1, mean + 1)))
    names = ticks(ax.yaxis)
    assert len(names) == MOST_LEVELS
    assert (names[0], names[-1]) == ("0", "999")
    assert "the 20 lowest and 20 highest of 1,000" in ax.get_xlabel()


def test_residuals_have_a_mean_only_where_it_would_be_0():
    at, values = np.repeat(np.arange(10.0), 20), np.tile([-1.0, 1.0], 100)
    (plain,) = axes_of(residuals_panel(at, values, "Pearson", "fitted"))
    (along,) = axes_of(residuals_panel(at, values, "quantile", "x", with_mean=True))
    assert plain.get_legend() is None
    line = next(line for line in along.lines if line.get_label() == "mean nearby")
    np.testing.assert_allclose(line.get_ydata(), 0.0)
    np.testing.assert_allclose(line.get_xdata(), np.arange(10.0))


def test_a_long_series_stays_in_its_order():
    mean = np.sin(np.arange(500.0) / 20)
    (ax,) = axes_of(series_panel("h", (mean, mean - 1, mean + 1), "95 % interval"))
    line = next(line for line in ax.lines if line.get_label() == "mean")
    np.testing.assert_array_equal(line.get_ydata(), mean)

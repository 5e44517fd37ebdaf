"""Predictions beside the data: masks, 0/1, counts, numbers, and residuals that are normal."""

import numpy as np
import pytest

from marginax.fitting.predictive import (
    predicted_from,
    predictions_panel,
    predictive_residuals,
    quantile_residuals,
)
from marginax.interop.drawing import figure_of

pytest.importorskip("matplotlib")
RANDOM = np.random.default_rng(0)
MASK = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])


def axes_of(panel):
    figure = figure_of([panel])
    figure.canvas.draw()
    (ax,) = figure.axes
    return ax


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_padding_is_not_drawn():
    # The second group has one observation and two of padding, far away.
    y = np.array([[1.0, 2.0, 3.0], [2.0, 900.0, 900.0]])
    draws = y + RANDOM.normal(size=(50, 2, 3))
    given = predicted_from(draws, y, None, MASK)
    assert given.draws.shape == (50, 4)
    assert given.observed.max() == 3.0
    assert given.group.tolist() == [0, 0, 0, 1]
    assert axes_of(predictions_panel(given)).get_xlim()[1] < 20
    along = predicted_from(draws, y, np.tile([0.0, 1.0, 2.0], (2, 1)), MASK)
    assert max(line(axes_of(predictions_panel(along)), "observed").get_ydata()) == 3.0


def test_what_is_missing_is_not_drawn():
    y = np.array([1.0, np.nan, 3.0])
    assert predicted_from(np.zeros((5, 3)), y, None, None).observed.tolist() == [1.0, 3.0]
    with pytest.raises(ValueError, match="every value is masked or missing"):
        predicted_from(np.zeros((5, 3)), np.full(3, np.nan), None, None)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"observed has shape \(2,\), but one draw .* \(3,\)"):
        predicted_from(np.zeros((5, 3)), np.zeros(2), None, None)


def test_binary_data_along_x_are_shares():
    # Points at 0 and at 1 say nothing.
    x = np.repeat([0.0, 1.0, 2.0], 4)
    y = np.array([0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1], float)
    draws = (RANDOM.uniform(size=(200, 12)) < 0.5).astype(float)
    ax = axes_of(predictions_panel(predicted_from(draws, y, x, None, ("event", "dose"))))
    np.testing.assert_allclose(line(ax, "observed").get_ydata(), [0.25, 0.5, 0.75])
    np.testing.assert_allclose(line(ax, "mean").get_ydata(), draws.reshape(200, 3, 4).mean((0, 2)))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dose", "share of event = 1")


def test_binary_data_in_groups_are_counted_by_group():
    y = np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    ax = axes_of(predictions_panel(predicted_from(np.ones((9, 2, 3)), y, None, MASK)))
    # One 1 in the second group, of which there is one value; two in the first.
    np.testing.assert_allclose(line(ax, "observed").get_ydata(), [0.0, 0.5, 0.5, 0.0])
    assert ax.get_xlabel() == "number of value = 1 in a group"


def test_counts_have_a_bar_each_and_large_ones_a_density():
    y = RANDOM.poisson(3.0, 80).astype(float)
    draws = RANDOM.poisson(3.0, (100, 80)).astype(float)
    ax = axes_of(predictions_panel(predicted_from(draws, y, None, None)))
    seen = line(ax, "observed").get_ydata()
    np.testing.assert_allclose(seen[3], np.mean(y == 3))
    assert sum(seen) == pytest.approx(1.0)
    ax = axes_of(predictions_panel(predicted_from(100 * draws, 100 * y, None, None)))
    assert ax.get_ylabel() == "density"


def test_bands_hold_what_they_say():
    x = np.repeat(np.arange(5.0), 40)
    draws = x + RANDOM.normal(size=(400, 200))
    y = x + RANDOM.normal(size=200)
    ax = axes_of(predictions_panel(predicted_from(draws, y, x, None)))
    band = next(one for one in ax.collections if one.get_label() == "95 % of predictions")
    ends = band.get_paths()[0].vertices
    at_0 = ends[ends[:, 0] == 0.0][:, 1]
    assert at_0.min() == pytest.approx(-1.96, abs=0.1)
    assert at_0.max() == pytest.approx(1.96, abs=0.1)


@pytest.mark.parametrize("kind", ["normal", "poisson", "bernoulli"])
def test_quantile_residuals_of_a_right_model_are_standard_normal(kind):
    draw = {
        "normal": lambda size: RANDOM.normal(size=size),
        "poisson": lambda size: RANDOM.poisson(1.5, size=size),
        "bernoulli": lambda size: RANDOM.uniform(size=size) < 0.2,
    }[kind]
    values = quantile_residuals(draw((500, 2000)).astype(float), draw(2000).astype(float))
    # 2,000 values: five standard errors of a mean and of a standard deviation
    assert abs(values.mean()) < 0.11
    assert values.std() == pytest.approx(1.0, abs=0.08)


def test_residuals_are_against_x_where_there_is_one():
    y = RANDOM.normal(size=90)
    draws, x = RANDOM.normal(size=(100, 90)), np.arange(90.0)
    assert axes_of(predictive_residuals(predicted_from(draws, y, x, None))).get_xlabel() == "x"
    plain = axes_of(predictive_residuals(predicted_from(draws, y, None, None)))
    assert plain.get_xlabel() == "mean prediction"
    with pytest.raises(ValueError, match="what was observed"):
        predictive_residuals(predicted_from(draws, None, None, None))

"""Figures of mixed models: what is on them, and that curves and bands are where they should be."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import marginax as mx
from marginax.formulas import curves
from marginax.formulas.families import FAMILIES
from marginax.formulas.responses import Response
from marginax.interop.drawing import parts_of

pytest.importorskip("matplotlib")
RANDOM = np.random.default_rng(1)
G = np.repeat(np.arange(12), 8)
X = RANDOM.normal(size=96)
KIND = RANDOM.choice(["a", "b"], 96)
TABLE = pd.DataFrame(
    {
        "y": 2 + X + (KIND == "b") + RANDOM.normal(size=12)[G] + 0.5 * RANDOM.normal(size=96),
        "x": X,
        "g": [f"s{i}" for i in G],
        "kind": KIND,
    }
)


@pytest.fixture(scope="module")
def fit():
    return mx.mixed("y ~ x + kind + (1 | g)", TABLE)


def as_successes(fit, trials=1.0):
    """The same numbers as those of a logistic model: nothing need be compiled for a figure."""
    y = (TABLE.y > 2.5).to_numpy(float)
    response = Response("event", trials * y, np.full(96, trials))
    design = fit.design._replace(response=response)
    return replace(fit, design=design, family=FAMILIES["binomial"], link="logit")


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def words(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_the_figure_has_its_panels(fit):
    titles = [title for title, _ in parts_of(fit.plot())]
    assert titles == ["Estimates", "y along x", "Residuals", "Intercept | g"]


def test_estimates_are_fixed_effects_or_what_is_named(fit):
    names = [word for ax in fit.plot_estimates().axes for word in words(ax)]
    assert sorted(names) == ["Intercept", "kind[b]", "x"]
    some = [word for ax in fit.plot_estimates(["sigma", "x"]).axes for word in words(ax)]
    assert sorted(some) == ["sigma", "x"]
    with pytest.raises(ValueError, match="There is no parameter 'z'"):
        fit.plot_estimates(["z"])
    with pytest.raises(ValueError, match="exp=True is for the links"):
        fit.plot_estimates(exp=True)
    odds = as_successes(fit).plot_estimates(["x"], exp=True).axes[0]
    assert odds.get_xscale() == "log"


def test_random_effects_have_labels_in_order_and_a_line_at_0(fit):
    (ax,) = fit.plot_random_effects("g").axes
    table = fit.random_effects("g").sort_values("mean")
    assert words(ax) == table["level"].tolist()
    assert [0, 0] in [list(line.get_xdata()) for line in ax.lines]
    with pytest.raises(ValueError, match="There is no group 'h'; there are g"):
        fit.plot_random_effects("h")


def test_the_curve_of_a_linear_model_is_its_line(fit):
    (ax,) = fit.plot_predictions().axes
    mean = line(ax, "mean")
    slope = np.diff(mean.get_ydata()) / np.diff(mean.get_xdata())
    np.testing.assert_allclose(slope, fit.estimates[fit.names.index("x")], rtol=0.02)
    # The other column is as in the data, half of it "b": the line goes through the data.
    share = np.mean(KIND == "b")
    a, _, b = (fit.estimates[fit.names.index(name)] for name in ("Intercept", "x", "kind[b]"))
    at_0 = np.interp(0.0, mean.get_xdata(), mean.get_ydata())
    assert at_0 == pytest.approx(a + share * b, abs=0.2)  # 50 rows stand for 96


def test_the_band_holds_new_data(fit):
    curve = curves._curve(fit, "x")
    new = fit.simulate(200, seed=3)
    low, high = np.interp(X, curve.at, curve.low), np.interp(X, curve.at, curve.high)
    assert np.mean((new > low) & (new < high)) == pytest.approx(0.95, abs=0.02)


def test_levels_of_a_column_stand_side_by_side(fit):
    (ax,) = fit.plot_predictions("kind").axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]
    bars = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in ax.patches]
    curve = curves._curve(fit, "kind")
    np.testing.assert_allclose(bars, np.column_stack([curve.low, curve.high]))
    with pytest.raises(ValueError, match="no column 'g' among .*; there are x, kind"):
        fit.plot_predictions("g")


def test_a_coded_column_has_values_only_at_its_codes():
    # Between codes there is no coefficient: a smooth curve was an error.
    coded = TABLE.assign(week=np.arange(96) % 16)
    fit = mx.mixed("y ~ C(week) + (1 | g)", coded)
    (ax,) = fit.plot_predictions().axes
    assert len(line(ax, "mean").get_xdata()) == 16


def test_binary_data_are_shares_and_their_band_is_of_chances(fit):
    binary = as_successes(fit)
    (ax,) = binary.plot_predictions("x").axes
    shares = line(ax, "observed")
    assert len(shares.get_xdata()) == curves.FEW
    assert 0 < np.mean(shares.get_ydata()) < 1
    assert np.any((shares.get_ydata() > 0) & (shares.get_ydata() < 1))
    curve = curves._curve(binary, "x")
    assert curve.band == "95 % of new levels"
    assert np.all((curve.low > 0) & (curve.high < 1))
    assert curve.expected[0] < curve.expected[-1]


def test_residuals_of_binary_data_are_no_stripes(fit):
    (plain,) = fit.plot_residuals().axes
    assert plain.get_ylabel() == "Pearson residual"
    (ax,) = as_successes(fit).plot_residuals().axes
    assert ax.get_ylabel() == "quantile residual"


def test_without_columns_the_distribution_is_drawn():
    bare = mx.mixed("y ~ 1 + (1 | g)", TABLE)
    (ax,) = bare.plot_predictions().axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("y", "density")


def test_categories_have_a_curve_each(fit):
    codes = np.digitize(TABLE.y, [1.5, 3.0]).astype(float)
    response = Response("grade", codes, None, ("low", "middle", "high"))
    design = fit.design._replace(response=response)
    solution = fit.solution._replace(dispersion={"cut": np.array([1.5, 3.0])})
    graded = replace(
        fit, design=design, family=FAMILIES["ordinal"], link="logit", solution=solution
    )
    curve = curves._curve(graded, "x")
    assert curve.expected.shape == (curves.POINTS, 3)
    np.testing.assert_allclose(curve.expected.sum(axis=1), 1.0)
    labels = [one.get_label() for one in graded.plot_predictions().axes[0].lines]
    assert {"low", "middle", "high"} <= set(labels)

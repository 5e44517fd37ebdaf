"""What a fitted mixed model says and predicts."""

import numpy as np
import pandas as pd
import pytest

import marginax as mx

RANDOM = np.random.default_rng(1)
G = np.repeat(np.arange(12), 8)
X = RANDOM.normal(size=96)
B = RANDOM.normal(size=(12, 2)) * [1.0, 0.4]
TABLE = pd.DataFrame(
    {
        "y": 2 + X + B[G, 0] + B[G, 1] * X + 0.5 * RANDOM.normal(size=96),
        "x": X,
        "g": [f"s{i}" for i in G],
        "kind": RANDOM.choice(["a", "b"], 96),
        "n": RANDOM.poisson(np.exp(1.0 + 0.3 * X + 0.5 * B[G, 0] + B[G, 1] * X)),
    }
)


@pytest.fixture(scope="module")
def fit():
    return mx.mixed("y ~ bs(x, df=4) + kind + (x | g)", TABLE)


@pytest.fixture(scope="module")
def counts():
    return mx.mixed("n ~ x + (x | g)", TABLE, "poisson")


def test_predictions_of_the_data_are_the_fitted_values(fit):
    # Splines and scaled columns of new data must be made as those of the data were.
    np.testing.assert_allclose(fit.predict(TABLE), fit.fitted)
    np.testing.assert_allclose(fit.predict(TABLE.iloc[40:43]), fit.fitted[40:43])
    np.testing.assert_allclose(fit.fitted + fit.residuals("response"), TABLE.y)
    sigma = fit.solution.dispersion["sigma"]
    np.testing.assert_allclose(fit.residuals() * sigma, fit.residuals("response"))


def test_new_levels_are_average_ones_and_said(fit):
    new = TABLE.iloc[:2].assign(g=["s0", "somebody else"])
    with pytest.warns(UserWarning, match="1 of 2 rows have a level of 'g' that was not seen"):
        found = fit.predict(new)
    population = fit.predict(new, random=False)
    assert found[0] == pytest.approx(fit.fitted[0])
    assert found[1] == population[1]
    np.testing.assert_allclose(fit.predict(new.drop(columns="g"), random=False), population)


def test_new_levels_of_a_fixed_effect_are_refused(fit):
    with pytest.raises(
        ValueError, match="'z' in the column 'kind', a fixed effect with the levels"
    ):
        fit.predict(TABLE.iloc[:2].assign(kind=["a", "z"]))
    with pytest.raises(ValueError, match="no column 'x'"):
        fit.predict(TABLE.drop(columns="x"))


def test_the_summary_has_what_lme4_has(fit):
    text = str(fit)
    for words in (
        "Linear mixed model fitted by maximum likelihood",
        "Random effects:",
        "Std.Dev.",
        "Corr",
        "Residual",
        "Number of observations: 96; groups: g 12",
        "Fixed effects:",
        "Pr(>|z|)",
        "logLik",
        "Coding: kind has the levels a, b; the first is the reference.",
        "CONVERGED.",
    ):
        assert words in text
    with pytest.raises(ValueError, match="by maximum likelihood"):
        _ = fit.reml_criterion


def test_anova_knows_the_boundary(fit):
    smaller = mx.mixed("y ~ bs(x, df=4) + kind + (1 | g)", TABLE)
    test = fit.anova(smaller)
    assert test.degrees == 2
    assert test.statistic == pytest.approx(2 * (fit.log_likelihood - smaller.log_likelihood))
    assert "sets a variance to 0" in test.note
    assert "Chisq" in str(test)
    without = mx.mixed("y ~ bs(x, df=4) + (x | g)", TABLE)
    assert smaller.anova(fit) == test
    assert fit.anova(without).note == ""


def test_anova_refuses_what_cannot_be_compared(fit):
    with pytest.raises(ValueError, match="a likelihood-ratio test needs one inside"):
        fit.anova(fit)
    with pytest.raises(ValueError, match="reml=False"):
        fit.anova(mx.mixed("y ~ x + (1 | g)", TABLE, reml=True))
    with pytest.raises(ValueError, match="number of rows"):
        fit.anova(mx.mixed("y ~ x + (1 | g)", TABLE.iloc[:80]))


def test_simulated_data_come_from_the_model():
    fit = mx.mixed("y ~ x + (1 | g)", TABLE)
    new = fit.simulate(300, seed=0)
    assert new.shape == (300, 96)
    np.testing.assert_array_equal(new, fit.simulate(300, seed=0))
    sd, sigma = (one.estimate for one in fit.solution.numbers)
    assert np.var(new, axis=0).mean() == pytest.approx(sd**2 + sigma**2, rel=0.1)
    same_group = np.mean((new[:, 0] - new[:, 0].mean()) * (new[:, 1] - new[:, 1].mean()))
    assert same_group == pytest.approx(sd**2, rel=0.35)
    kept = fit.simulate(300, seed=0, new_effects=False)
    np.testing.assert_allclose(kept.mean(axis=0), fit.fitted, atol=6 * sigma / np.sqrt(300))


@pytest.mark.slow
def test_bootstrap_agrees_with_standard_errors():
    fit = mx.mixed("y ~ x + (1 | g)", TABLE)
    found = fit.bootstrap(100, seed=0).intervals()
    errors = [row[2] for row in fit.fixed_rows()]
    np.testing.assert_allclose(found["std_error"][:2], errors, rtol=0.35)  # 5 sd of such an error
    assert list(found["parameter"]) == list(fit.names)


def test_tables_of_ratios_are_for_ratios(fit):
    with pytest.raises(ValueError, match="exp=True is for the links"):
        fit.table(exp=True)


@pytest.mark.slow
def test_counts_with_slopes(counts):
    assert counts.ok
    plain, ratios = counts.table(), counts.table(exp=True)
    np.testing.assert_allclose(ratios["estimate"], np.exp(plain["estimate"]))
    np.testing.assert_allclose(ratios["low"], np.exp(plain["low"]))
    np.testing.assert_allclose(counts.predict(kind="link"), np.log(counts.fitted))
    effects = counts.random_effects()
    assert len(effects) == 24
    low, high = counts.profile_interval("sd(Intercept | g)")
    assert low < counts.solution.numbers[0].estimate < high
    with pytest.raises(ValueError, match="There is no parameter"):
        counts.profile_interval("sd")


@pytest.mark.slow
def test_draws_have_the_moments_of_the_random_effects(counts):
    # Moments by nodes beside moments of draws, correlated within a level.
    draws, effects = counts.draws(2000, seed=0)["g"], counts.solution.effects()[0]
    assert draws.shape == (2000, 12, 2)
    np.testing.assert_allclose(draws.mean(axis=0), effects.mean, atol=0.2 * effects.sd.max())
    np.testing.assert_allclose(draws.std(axis=0), effects.sd, rtol=0.15)


@pytest.mark.slow
def test_inference_data(fit):
    data = fit.to_arviz(50, seed=0)
    assert data.posterior["g"].shape == (1, 50, 12, 2)
    assert list(data.posterior["g_level"].values[:2]) == ["s0", "s1"]


@pytest.mark.slow
def test_crossed_counts_beside_a_dense_grid():
    # Two levels of h: integrated over a plane, and over a line for every level of g.
    random = np.random.default_rng(2)
    g, h = np.repeat(np.arange(10), 6), random.integers(0, 2, 60)
    y = random.poisson(np.exp(0.5 + 0.6 * random.normal(size=10)[g] + np.array([0.4, -0.4])[h]))
    fit = mx.mixed("y ~ 1 + (1 | g) + (1 | h)", {"y": y, "g": g, "h": h}, "poisson")
    mean, first, second = fit.estimates
    t, v = np.linspace(-8, 8, 201), np.linspace(-7, 7, 81)
    total = np.zeros((81, 81))
    for k in range(10):
        terms = 0.0
        for one in (0, 1):
            rows = (g == k) & (h == one)
            eta = mean + first * t[:, None] + second * v[None, :]
            part = y[rows].sum() * eta - rows.sum() * np.exp(eta)
            terms = terms + (part[:, :, None] if one == 0 else part[:, None, :])
        inside = np.exp(terms - 0.5 * t[:, None, None] ** 2).sum(axis=0)
        total += np.log(inside * (t[1] - t[0]) / np.sqrt(2 * np.pi))
    outer = np.exp(-0.5 * v**2) * (v[1] - v[0]) / np.sqrt(2 * np.pi)
    factorials = sum(np.sum(np.log(np.arange(1, n + 1))) for n in y)
    expected = np.log(np.sum(np.exp(total) * outer[:, None] * outer[None, :])) - factorials
    assert fit.log_likelihood == pytest.approx(expected, abs=max(0.01, 4 * fit.solution.error))
    assert fit.solution.error < 0.05
    assert "Laplace's" in fit.solution.method

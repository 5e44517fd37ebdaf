"""Linear models beside full covariance matrices."""

import numpy as np
import pandas as pd
import pytest
from mixed_oracles import (
    gaussian_covariance,
    gaussian_log_likelihood,
    restricted_log_likelihood,
)

import marginax as mx
from marginax.formulas import linear_products
from marginax.formulas.borders import dense_border, sparse_border


def crossed_table(seed=0, rows=160):
    random = np.random.default_rng(seed)
    g, h = random.integers(0, 25, rows), random.integers(0, 9, rows)
    x = random.normal(size=rows)
    b = random.normal(size=(25, 2)) @ np.array([[1.0, 0.0], [0.4, 0.5]]).T
    y = 3 + 2 * x + b[g, 0] + b[g, 1] * x + 0.8 * random.normal(size=9)[h]
    y = y + random.normal(size=rows)
    weights = random.uniform(0.5, 2.0, rows)
    return pd.DataFrame(
        {"y": y, "x": x, "g": g, "h": h, "w": weights, "t": random.normal(size=rows)}
    )


def oracle(fit, table, weights=None):
    """V at the estimate, and X."""
    x = np.column_stack([np.ones(len(table)), table.x])
    z = [x, np.ones((len(table), 1))]
    groups = list(zip((table.g, table.h), z, fit.solution.covariances, strict=True))
    sigma = float(fit.solution.dispersion["sigma"])
    return x, gaussian_covariance(groups, len(table), sigma, weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_crossed_effects_beside_their_covariance_matrix(weighted):
    table = crossed_table()
    weights = table.w.to_numpy() if weighted else None
    formula = "y ~ x + offset(t) + (x | g) + (1 | h)"
    fit = mx.mixed(formula, table, weights="w" if weighted else None)
    y = table.y - table.t
    x, v = oracle(fit, table, weights)
    expected = gaussian_log_likelihood(y, x, fit.solution.fixed, v)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-8)
    inverse = np.linalg.inv(v)
    covariance = np.linalg.inv(x.T @ inverse @ x)
    np.testing.assert_allclose(fit.solution.fixed_covariance, covariance, rtol=1e-8)
    np.testing.assert_allclose(fit.solution.fixed, covariance @ x.T @ inverse @ y, rtol=1e-8)


def test_restricted_likelihood_beside_its_definition():
    table = crossed_table(1)
    fit = mx.mixed("y ~ x + (x | g) + (1 | h)", table, reml=True)
    x, v = oracle(fit, table)
    expected = restricted_log_likelihood(table.y.to_numpy(), x, v)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
def test_the_estimate_is_a_maximum_with_the_curvature_of_its_standard_errors():
    table = crossed_table(2)
    fit = mx.mixed("y ~ x + (1 | g) + (1 | h)", table)
    x, ones = np.column_stack([np.ones(len(table)), table.x]), np.ones((len(table), 1))

    def value(logs):
        sds = np.exp(logs)
        groups = [
            (table.g, ones, sds[:1] ** 2 * np.eye(1)),
            (table.h, ones, sds[1:2] ** 2 * np.eye(1)),
        ]
        v = gaussian_covariance(groups, len(table), sds[2])
        inverse = np.linalg.inv(v)
        beta = np.linalg.solve(x.T @ inverse @ x, x.T @ inverse @ table.y)
        return gaussian_log_likelihood(table.y, x, beta, v)

    numbers = fit.solution.numbers
    at, step = np.log([one.estimate for one in numbers]), 1e-3 * np.eye(3)
    slope = [(value(at + h) - value(at - h)) / 2e-3 for h in step]
    np.testing.assert_allclose(slope, 0.0, atol=5e-4)  # differences are off by 1.6e-4
    hessian = np.array(
        [
            [
                (value(at + h + k) - value(at + h - k) - value(at - h + k) + value(at - h - k))
                / 4e-6
                for k in step
            ]
            for h in step
        ]
    )
    errors = np.sqrt(np.diag(np.linalg.inv(-hessian))) * np.exp(at)
    np.testing.assert_allclose([one.standard_error for one in numbers], errors, rtol=1e-3)


def test_random_effects_are_the_conditional_moments():
    table = crossed_table(3)
    fit = mx.mixed("y ~ x + (x | g) + (1 | h)", table)
    x, v = oracle(fit, table)
    inverse = np.linalg.inv(v)
    left = inverse @ (table.y - x @ fit.solution.fixed)
    ones, covariance = np.column_stack([np.ones(len(table)), table.x]), fit.solution.covariances[0]
    for level in (0, 7):
        z = ones * (table.g == level).to_numpy()[:, None]
        mean = covariance @ z.T @ left
        spread = covariance - covariance @ z.T @ inverse @ z @ covariance
        effects = fit.solution.effects()[0]
        np.testing.assert_allclose(effects.mean[level], mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(effects.sd[level], np.sqrt(np.diag(spread)), rtol=1e-6)
    draws = fit.draws(4000, seed=0)["g"]
    np.testing.assert_allclose(draws.mean(axis=0), effects.mean, atol=6 * effects.sd.max() / 63)
    np.testing.assert_allclose(draws.std(axis=0), effects.sd, rtol=0.08)


def test_units_and_shifts_do_not_matter():
    # Products of columns lost all digits where a column was years, or y millions.
    table = crossed_table(4)
    fit = mx.mixed("y ~ x + (1 | g)", table)
    moved = table.assign(y=1e6 + 1e-3 * table.y, x=2000 + 1e-2 * table.x)
    other = mx.mixed("y ~ x + (1 | g)", moved)
    np.testing.assert_allclose(other.solution.fixed[1], fit.solution.fixed[1] * 0.1, rtol=1e-6)
    for one, same in zip(other.solution.numbers, fit.solution.numbers, strict=True):
        np.testing.assert_allclose(one.estimate, 1e-3 * same.estimate, rtol=1e-5)


def test_a_border_is_the_same_by_its_pattern(monkeypatch):
    table = crossed_table(5)
    usual = mx.mixed("y ~ x + (1 | g) + (1 | h)", table, reml=True)
    monkeypatch.setattr(linear_products, "LARGEST_DENSE", 0)
    sparse = mx.mixed("y ~ x + (1 | g) + (1 | h)", table, reml=True)
    assert dense_border is not sparse_border
    np.testing.assert_allclose(sparse.estimates, usual.estimates, rtol=1e-6)
    np.testing.assert_allclose(
        sparse.solution.effects()[1].sd, usual.solution.effects()[1].sd, rtol=1e-6
    )


def test_a_correlation_of_one_is_a_note():
    random = np.random.default_rng(3)
    g = np.repeat(np.arange(12), 6)
    x = np.tile(np.arange(6.0), 12)
    b = random.normal(size=12)
    y = b[g] * (1 + 0.5 * x) + 0.8 * random.normal(size=72)
    fit = mx.mixed("y ~ x + (x | g)", {"y": y, "x": x, "g": g})
    assert fit.ok
    corr = fit.solution.numbers[2]
    assert corr.estimate == pytest.approx(1.0, abs=1e-6)
    assert corr.standard_error is None
    assert any("an end of its range" in note for note in fit.notes)
    assert fit.solution.numbers[0].standard_error > 0


@pytest.mark.parametrize("seed", range(12))
def test_a_shift_of_the_slope_changes_nothing(seed):
    # With a bound at 0 for Lambda's diagonal a climb ended there, 0.6 too low, where the way on was
    # through 0: the models with x and with x - 3 are the same.
    random = np.random.default_rng(seed)
    g, x = random.integers(0, 6, 60), random.normal(size=60)
    y = 1 + random.normal(size=6)[g] * (seed % 3) * x + random.normal(size=60)
    fits = [mx.mixed("y ~ x + (x | g)", {"y": y, "x": x - c, "g": g}) for c in (0.0, 3.0)]
    assert fits[0].log_likelihood == pytest.approx(fits[1].log_likelihood, abs=1e-5)

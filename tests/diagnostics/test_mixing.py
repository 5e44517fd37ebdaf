"""R-hat and effective draws: what is known of chains whose autocorrelation is known."""

import numpy as np
import pytest

from marginax.diagnostics.mixing import effective_draws, mixing, rhat


def autoregressive(correlation, shape=(20, 4000, 3), seed=0):
    random = np.random.default_rng(seed)
    steps = random.normal(size=shape)
    draws = np.empty(shape)
    draws[:, 0] = steps[:, 0]
    for t in range(1, shape[1]):
        draws[:, t] = correlation * draws[:, t - 1] + np.sqrt(1 - correlation**2) * steps[:, t]
    return draws


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression(correlation):
    """Closed form: n (1 - r) / (1 + r)."""
    draws = autoregressive(correlation)
    exact = draws.shape[0] * draws.shape[1] * (1 - correlation) / (1 + correlation)
    np.testing.assert_allclose(effective_draws(draws), exact, rtol=0.08)
    assert mixing(draws).rhat < 1.01


@pytest.mark.slow
def test_the_same_as_blackjax():
    diagnostics = pytest.importorskip("blackjax.diagnostics")
    draws = autoregressive(0.7, (6, 300, 4)) + 0.3 * np.arange(6)[:, None, None]
    halves = np.concatenate([draws[:, :150], draws[:, 150:]])
    np.testing.assert_allclose(rhat(draws), diagnostics.potential_scale_reduction(halves))
    theirs = diagnostics.effective_sample_size(draws)
    np.testing.assert_allclose(effective_draws(draws), theirs, rtol=0.02)


def test_chains_that_drift_alike_have_not_mixed():
    """Whole chains agree with each other all the way: only their halves tell."""
    still = np.random.default_rng(0).normal(size=(8, 200, 1))
    drifting = still + np.linspace(-2, 2, 200)[:, None]
    assert rhat(still)[0] < 1.02
    assert rhat(drifting)[0] > 1.3


def test_the_worst_coordinate_counts():
    draws = autoregressive(0.0, (8, 200, 5))
    draws[:4, :, 3] += 2
    assert mixing(draws).rhat > 1.2
    draws[:, :, 1] = 1.0  # never moved
    assert mixing(draws) == (float("inf"), 0.0)

"""Weighted draws and their sums, and chains of them, where all follows by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import latents_by_hand as by_hand
import numpy as np
import pytest
from latents_by_hand import COLS, ROWS, K, Y, latents
from scipy.special import logsumexp

from marginax.likelihood import weighted_draws
from marginax.likelihood.best_gaussian import Gaussian
from marginax.likelihood.importance_weights import pareto_k
from marginax.likelihood.weighted_draws import Weights, weigh

pytestmark = pytest.mark.slow

THETA = jnp.asarray([0.3, 0.4])
TAU = np.exp(0.4)
# The posterior of counts = 0 is Gaussian: its gradient is Y - tau K (x - mu).
EXACT = Gaussian(
    jnp.asarray(0.3 + np.linalg.solve(TAU * K, Y)),
    jnp.asarray(TAU * K[ROWS, COLS]),
    jnp.asarray(TAU * K[ROWS, COLS]),
)


def exact_value():
    log_root = np.linalg.slogdet(TAU * K)[1] / 2
    tilted = Y.sum() * 0.3 + Y @ np.linalg.solve(K, Y) / (2 * TAU)
    return tilted + 1.5 * np.log(2 * np.pi) - log_root + 1.5 * 0.4


def test_of_a_gaussian_posterior_every_draw_has_the_value_and_the_score():
    found = weigh(latents(0.0), THETA, EXACT, 6, 1)
    np.testing.assert_allclose(found.logs, np.full(6, exact_value()), rtol=1e-10)
    assert found.log_likelihood == pytest.approx(exact_value(), rel=1e-10)
    assert found.error < 1e-10
    score = [Y.sum(), -Y @ np.linalg.solve(K, Y) / (2 * TAU)]  # in log tau what K does not cancel
    np.testing.assert_allclose(found.score, score, rtol=1e-9)
    np.testing.assert_allclose(found.score_covariance, np.zeros((2, 2)), atol=1e-15)
    assert found.effective_draws == pytest.approx(6)
    np.testing.assert_allclose(found.mean, EXACT.mean, rtol=1e-9)  # of mirror images
    assert found.num_undefined == 0


def near():
    """A Gaussian that is near to the posterior of counts."""
    mode = np.array([0.1, -0.2, 0.7])
    precision = jnp.asarray(by_hand.hessian_x(THETA, mode)[ROWS, COLS])
    return Gaussian(jnp.asarray(mode), precision, precision)


@pytest.fixture(scope="module")
def on_a_grid():
    axis = np.linspace(-4, 4, 81)
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    logs = by_hand.log_joint(THETA, points)
    value = logsumexp(logs) + 3 * np.log(0.1)
    share = np.exp(logs - logsumexp(logs))
    mean = share @ points
    sd = np.sqrt(share @ (points - mean) ** 2)
    return value, share @ by_hand.score_theta(THETA, points), mean, sd


def test_what_draws_say_of_counts_is_what_a_grid_says(on_a_grid):
    """To four standard errors each, of six numbers: budget 4e-4."""
    value, score, mean, sd = on_a_grid
    found = weigh(latents(), THETA, near(), 1000, 3)
    assert abs(found.log_likelihood - value) < 4 * found.error
    assert 0 < found.error < 0.02
    errors = np.sqrt(np.diag(found.score_covariance))
    np.testing.assert_array_less(np.abs(found.score - score), 4 * errors)
    assert np.all(errors < 0.05)
    np.testing.assert_array_less(np.abs(found.mean - mean), 4 * sd / np.sqrt(1000))
    np.testing.assert_allclose(found.sd, sd, rtol=0.1)


def sizes(found):
    return [len(chunk.logs) for chunk in found.chunks]


def test_draws_come_in_chunks_that_are_held_at_a_time(monkeypatch):
    own = latents(0.0)
    assert sizes(weigh(own, THETA, EXACT, 7, 1)) == [6, 6]  # pairs
    assert sizes(weigh(own, THETA, EXACT, 1, 1)) == [2]
    monkeypatch.setattr(weighted_draws, "NUMBERS", 15)
    assert sizes(weigh(own, THETA, EXACT, 8, 1)) == [4, 4]
    monkeypatch.setattr(weighted_draws, "NUMBERS", 1)
    assert sizes(weigh(own, THETA, EXACT, 4, 1)) == [2, 2]


def test_more_draws_go_on_from_those_that_there_are(monkeypatch):
    own, asked, plain = latents(), [], weighted_draws.even_paths

    def watched(latents, theta, gaussian, begin, kicks):
        asked.append((kicks, *(np.asarray(part) for part in begin)))
        away, logs, _ = plain(latents, theta, gaussian, begin, 2)
        return away, logs, 10 + len(asked)

    monkeypatch.setattr(weighted_draws, "even_paths", watched)
    first = weigh(own, THETA, near(), 4, 1)
    second = weigh(own, THETA, near(), 12, 1, first.chunks)
    assert sizes(second) == [4, 4, 4]
    # Each begins with the kicks of the last.
    assert [row[0] for row in asked] == [weighted_draws.KICKS, 11, 12]
    third = weigh(own, THETA, near(), 16, 1, second.chunks)
    assert asked[3][0] == 13
    assert [chunk.kicks for chunk in third.chunks] == [11, 12, 13, 14]
    for chunk, before in zip(third.chunks, second.chunks, strict=False):
        assert chunk is before
    for _, u, v in asked:  # mirror images, and all others are others
        np.testing.assert_array_equal(u[:2], -u[2:])
        np.testing.assert_array_equal(v[:2], -v[2:])
        assert not np.allclose(u, v)
    assert len({row[1][0, 0] for row in asked}) == 4
    again = weigh(own, THETA, near(), 4, 1)
    np.testing.assert_array_equal(asked[4][1], asked[0][1])
    assert sizes(again) == [4]
    weigh(own, THETA, near(), 4, 2)
    assert not np.allclose(asked[5][1], asked[0][1])


def test_chunks_have_the_size_of_the_first():
    chunk = weighted_draws._chunk(np.zeros(2), np.zeros((2, 2)), np.zeros(3), jnp.zeros((2, 3)), 8)
    larger = chunk._replace(logs=np.zeros(4), scores=np.zeros((4, 2)), kicks=3)
    found = weigh(latents(0.0), THETA, EXACT, 7, 1, (chunk, larger))
    assert sizes(found) == [2, 4, 2]


def test_a_chunk_has_the_moments_of_its_latents_by_its_weights():
    logs = np.array([-700.0, -701.0, np.nan, -702.5])
    scores = np.array([[1.0, 2.0], [np.nan, 3.0], [np.inf, 4.0], [5.0, 6.0]])
    away = np.random.default_rng(0).normal(size=(4, 3)) * [0.1, 1.0, 3.0]
    center = np.array([5.0, -6.0, 7.0])
    found = weighted_draws._chunk(logs, scores, center, jnp.asarray(away), 8)
    weights = np.exp(np.array([0.0, -1.0, -np.inf, -2.5]))
    mean = np.average(away, axis=0, weights=weights)
    np.testing.assert_allclose(found.mean, center + mean, rtol=1e-12)
    expected = np.average((away - mean) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(found.variance, expected, rtol=1e-10)
    np.testing.assert_array_equal(found.logs, [-700.0, -701.0, -np.inf, -702.5])
    np.testing.assert_array_equal(found.scores, [[1.0, 2.0], [0.0, 3.0], [0.0, 4.0], [5.0, 6.0]])
    assert (found.num_undefined, found.kicks) == (1, 8)


@pytest.mark.parametrize("log", [np.nan, -np.inf])
def test_a_chunk_without_weights_says_nothing(log):
    center = np.array([5.0, -6.0, 7.0])
    given = np.full(2, log), np.zeros((2, 1)), center, jnp.ones((2, 3)), 8
    found = weighted_draws._chunk(*given)
    np.testing.assert_array_equal(found.mean, center)
    np.testing.assert_array_equal(found.variance, np.zeros(3))


def test_a_variance_of_rounding_is_none():
    away = jnp.asarray([[0.1, 0.3, 0.7]] * 2)
    found = weighted_draws._chunk(np.zeros(2), np.zeros((2, 1)), np.zeros(3), away, 8)
    assert np.all(found.variance >= 0)
    np.testing.assert_allclose(found.variance, np.zeros(3), atol=1e-15)


def test_variances_that_rounding_makes_negative_are_none():
    row = np.random.default_rng(0).normal(size=300)
    away = jnp.asarray(np.tile(row, (6, 1)))
    logs = np.array([0.0, -0.3, -1.1, -0.2, -0.7, -2.9])
    found = weighted_draws._chunk(logs, np.zeros((6, 1)), np.zeros(300), away, 8)
    share = np.exp(logs) / np.exp(logs).sum()
    assert np.any(share @ np.asarray(away) ** 2 < (share @ np.asarray(away)) ** 2)
    assert np.all(found.variance >= 0)
    assert np.all(np.isfinite(weighted_draws._summed((found,)).sd))


def chunks():
    rng = np.random.default_rng(1)
    found = []
    for count, level in ((4, -500.0), (6, -500.5)):
        logs, away = level + rng.normal(size=count), rng.normal(size=(count, 3))
        scores = rng.normal(size=(count, 2)) + [10.0, -3.0]
        found.append((logs, scores, away))
    return found


def test_sums_over_chunks_are_those_over_all_draws():
    parts = chunks()
    made = tuple(
        weighted_draws._chunk(logs, scores, np.ones(3), jnp.asarray(away), 8)
        for logs, scores, away in parts
    )
    made = (made[0], made[1]._replace(num_undefined=2))
    found = weighted_draws._summed(made)
    logs, scores, away = (np.concatenate(part) for part in zip(*parts, strict=True))
    share = np.exp(logs - logsumexp(logs))
    assert found.log_likelihood == pytest.approx(logsumexp(logs) - np.log(10), rel=1e-12)
    np.testing.assert_array_equal(found.logs, logs)
    np.testing.assert_allclose(found.score, share @ scores, rtol=1e-10)
    mean = share @ away
    np.testing.assert_allclose(found.mean, 1.0 + mean, rtol=1e-10)
    np.testing.assert_allclose(found.sd, np.sqrt(share @ (away - mean) ** 2), rtol=1e-10)
    assert found.num_undefined == 2
    assert found.chunks is made
    # A draw and its mirror image are one: the first half of a chunk and the second.
    pairs = [(0, 2), (1, 3), (4, 7), (5, 8), (6, 9)]
    weights = np.array([share[i] + share[j] for i, j in pairs])
    expected = np.std(weights) / np.mean(weights) / np.sqrt(5)
    assert found.error == pytest.approx(expected, rel=1e-10)
    off = share[:, None] * (scores - share @ scores)
    of_pairs = np.array([off[i] + off[j] for i, j in pairs])
    np.testing.assert_allclose(found.score_covariance, of_pairs.T @ of_pairs, rtol=1e-9)


def weights_of(logs):
    rest = [None] * 8
    return Weights(np.asarray(logs), *rest)


def test_effective_draws_and_the_tail_of_weights():
    assert weights_of(np.full(7, -900.0)).effective_draws == pytest.approx(7)
    assert weights_of(np.log([3.0, 1.0])).effective_draws == pytest.approx(16 / 10)
    assert weights_of(np.log([3.0, 1.0]) + 900).effective_draws == pytest.approx(16 / 10)
    assert weights_of(np.full(100, -900.0)).pareto_k is None
    logs = np.random.default_rng(0).normal(size=100)
    assert weights_of(logs).pareto_k == pareto_k(logs)


def test_a_chain_goes_to_a_proposal_as_metropolis_has_it(monkeypatch):
    monkeypatch.setattr(weighted_draws, "TO_CHOOSE_FROM", 2)
    logs = np.array([9.0, 0.0, -1.0, 1.0, -np.inf, 0.5])
    uniform = np.array([0.0, 0.0, 0.5, 0.9, 1e-9, 0.55])
    # From 0 of weight 1: e^-1 < 0.5; e > 0.9; 0; e^-0.5 = 0.607 > 0.55.
    np.testing.assert_array_equal(weighted_draws._accepted(logs, 1, uniform), [1, 1, 1, 3, 3, 5])


def test_the_first_proposal_after_those_to_choose_from_is_one(monkeypatch):
    monkeypatch.setattr(weighted_draws, "TO_CHOOSE_FROM", 2)
    logs, uniform = np.array([9.0, 0.0, 5.0, 0.0]), np.full(4, 0.5)
    np.testing.assert_array_equal(weighted_draws._accepted(logs, 1, uniform), [1, 1, 2, 2])


@pytest.fixture
def proposals(monkeypatch):
    """Paths that end where they began, and what they were asked for."""
    asked = SimpleNamespace(kicks=[], u=[])

    def even(latents, theta, gaussian, begin, kicks):
        u, v = (np.asarray(part) for part in begin)
        assert u.shape == v.shape
        assert not np.allclose(u, v)
        asked.kicks.append(kicks)
        asked.u.append(u)
        logs = np.where(u[:, 0] > 1.5, np.nan, np.sum(u**2, axis=1) / 2)
        return jnp.asarray(u), logs, kicks + 1

    monkeypatch.setattr(weighted_draws, "even_paths", even)
    return asked


def test_resampled_draws_are_of_the_posterior(proposals):
    """Of half the width in the second latent, and nowhere where the weight is NaN."""
    center = jnp.asarray([10.0, 20.0, 30.0])

    def values(theta, x, data):
        away = np.asarray(x) - np.asarray(center)
        return jnp.asarray(-0.5 * np.sum((away * [1.0, 2.0, 1.0]) ** 2, axis=1))

    own, gaussian = latents(values=values), EXACT._replace(mean=center)
    draws = weighted_draws.resampled(own, THETA, gaussian, jax.random.key(0), 3000)
    assert draws.shape == (3000, 3)
    away = draws - np.asarray(center)
    assert away[:, 0].max() <= 1.5
    ends = np.concatenate(proposals.u)
    assert len(ends) == 3000 + weighted_draws.TO_CHOOSE_FROM
    assert {tuple(row) for row in away.round(9)} <= {tuple(row) for row in ends.round(9)}
    assert abs(away[:, 1].std() - 0.5) < 0.05
    assert abs(away[:, 1].mean()) < 0.05
    assert abs(away[:, 2].std() - 1.0) < 0.1
    assert proposals.kicks == [weighted_draws.KICKS]


def test_proposals_are_made_some_at_a_time(proposals, monkeypatch):
    own = latents(values=lambda theta, x, data: jnp.zeros(len(x)))
    monkeypatch.setattr(weighted_draws, "NUMBERS", 13)
    draws = weighted_draws.resampled(own, THETA, EXACT, jax.random.key(0), 8)
    assert [len(u) for u in proposals.u] == [4] * 6
    first = weighted_draws.KICKS
    assert proposals.kicks == list(range(first, first + 6))
    assert draws.shape == (8, 3)
    proposals.u.clear()
    monkeypatch.setattr(weighted_draws, "NUMBERS", 1)
    assert weighted_draws.resampled(own, THETA, EXACT, jax.random.key(0), 1).shape == (1, 3)
    assert [len(u) for u in proposals.u] == [1] * 17


def test_the_chain_begins_with_one_of_the_first_by_their_weights(proposals):
    """Of sixteen, whose weights are all but 0 but for one, which is found wherever it is."""
    for place in (0, 7, 15):
        heavy = np.where(np.arange(17) == place, 0.0, -500.0)
        heavy[16] = -1e9  # a proposal that is never taken
        own = latents(
            values=lambda theta, x, data, heavy=heavy: jnp.asarray(
                heavy - np.sum((np.asarray(x) - np.asarray(EXACT.mean)) ** 2, axis=1) / 2
            )
        )
        proposals.u.clear()
        draws = weighted_draws.resampled(own, THETA, EXACT, jax.random.key(place), 1)
        expected = np.asarray(EXACT.mean) + proposals.u[0][place]
        if proposals.u[0][place, 0] <= 1.5:
            np.testing.assert_allclose(draws[0], expected)
    chosen = set()
    own = latents(
        values=lambda theta, x, data: jnp.asarray(
            np.where(np.arange(17) < 16, 0.0, -1e9)
            - np.sum((np.asarray(x) - np.asarray(EXACT.mean)) ** 2, axis=1) / 2
        )
    )
    for seed in range(12):
        proposals.u.clear()
        draws = weighted_draws.resampled(own, THETA, EXACT, jax.random.key(seed), 1)
        away = proposals.u[0] - (draws[0] - np.asarray(EXACT.mean))
        chosen.add(int(np.argmin(np.abs(away).sum(axis=1))))
    assert len(chosen) > 4  # by chance: of equal weights any


def test_every_proposal_keeps_its_own_weight_whatever_the_chunks(proposals, monkeypatch):
    """Of a posterior on one side of its middle only, made four at a time."""
    center = np.asarray(EXACT.mean)

    def values(theta, x, data):
        away = np.asarray(x) - center
        return jnp.asarray(np.where(away[:, 1] > 0, 0.0, -1e9) - np.sum(away**2, axis=1) / 2)

    monkeypatch.setattr(weighted_draws, "NUMBERS", 13)
    draws = weighted_draws.resampled(latents(values=values), THETA, EXACT, jax.random.key(3), 24)
    assert len(proposals.u) == 10
    assert np.all(draws[:, 1] > center[1])
    assert len(np.unique(draws[:, 1])) > 4


def test_the_chain_begins_with_each_of_the_first_as_often_as_its_weight_says(proposals):
    """One of sixteen has as much weight as all others together: half of the time."""
    weights = np.where(np.arange(17) == 5, np.log(15.0), 0.0)
    weights[16] = -1e9  # a proposal that is never taken
    center = np.asarray(EXACT.mean)

    def values(theta, x, data):
        return jnp.asarray(weights - np.sum((np.asarray(x) - center) ** 2, axis=1) / 2)

    own, heavy, there = latents(values=values), 0, 0
    for seed in range(60):
        proposals.u.clear()
        draws = weighted_draws.resampled(own, THETA, EXACT, jax.random.key(seed), 1)
        there += proposals.u[0][5, 0] <= 1.5
        heavy += np.allclose(draws[0], center + proposals.u[0][5])
    assert 0.3 < heavy / there < 0.7  # by a standard error of 0.07

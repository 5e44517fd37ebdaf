"""The Gaussian nearest to a posterior: by hand for a step, and at rest what it promises to be."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import marginax as mx
from marginax.likelihood import best_gaussian as module
from marginax.likelihood.best_gaussian import Gaussian, _change, best_gaussian, fitting_draws
from marginax.likelihood.blocks import as_blocks
from marginax.likelihood.laplace import find_mode
from marginax.likelihood.structured import _Asked, _latents

pytestmark = pytest.mark.slow

SIZE = 5
THETA = np.array([0.3])
Y = np.array([2.0, 0.0, 1.0, 5.0, 3.0])
WALK = 4 * np.eye(SIZE) - 2 * (np.eye(SIZE, k=1) + np.eye(SIZE, k=-1))  # its precision
NOISE = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
Z = fitting_draws(SIZE)


def prior(x):
    """A Gaussian chain."""
    return -2.0 * jnp.sum(x**2) + 2.0 * jnp.sum(x[1:] * x[:-1])


def of_counts(theta, x, y):
    return prior(x) + jnp.sum(y * (x + theta) - jnp.exp(x + theta))


def of_measurements(theta, x, y):
    return prior(x) - 0.5 * jnp.sum(NOISE * (y - x - theta) ** 2)


def latents_of(log_joint):
    blocks = as_blocks(mx.Problem(log_joint, 0.0, jnp.zeros(SIZE), jnp.asarray(Y)))
    found = _latents(_Asked(blocks, THETA, None))
    return found._replace(data=blocks.data, start=blocks.start[0])


@pytest.fixture(scope="module")
def counts():
    return latents_of(of_counts)


@pytest.fixture(scope="module")
def measurements():
    return latents_of(of_measurements)


def dense(latents, entries):
    """The symmetric matrix of entries on and below the diagonal."""
    pattern = latents.structure.pattern
    lower = np.zeros((SIZE, SIZE))
    lower[pattern.rows, pattern.cols] = entries
    return lower + np.tril(lower, -1).T


def gaussian(latents, mean, precision):
    pattern = latents.structure.pattern
    entries = jnp.asarray(np.asarray(precision, float)[pattern.rows, pattern.cols])
    lifted = latents.lift(entries, jnp.zeros(()))
    return Gaussian(jnp.asarray(mean, float), lifted.values, lifted.factor)


def averages(mean, precision, log_joint="counts"):
    """Of score and negative Hessian over draws of a Gaussian, by its dense root."""
    lower = np.linalg.cholesky(precision)
    x = mean + np.linalg.solve(lower.T, np.asarray(Z).T).T
    if log_joint == "counts":
        rate = np.exp(x + THETA[0])
        score, noise = Y - rate - x @ WALK, rate.mean(axis=0)
    else:
        score, noise = NOISE * (Y - x - THETA[0]) - x @ WALK, NOISE
    return score.mean(axis=0), WALK + np.diag(noise)


def test_draws_are_normal_always_the_same_and_their_own_mirror_images():
    assert Z.shape == (128, SIZE)
    np.testing.assert_array_equal(Z[:64], -Z[64:])
    np.testing.assert_array_equal(Z, fitting_draws(SIZE))
    assert kstest(np.ravel(Z[:64]), "norm").pvalue > 1e-3
    assert len(np.unique(np.abs(Z))) == 64 * SIZE


def test_one_round_goes_half_the_way(counts, monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 1)
    mean, precision = np.linspace(-0.5, 0.5, SIZE), WALK + 3 * np.eye(SIZE)
    found = best_gaussian(counts, jnp.asarray(THETA), gaussian(counts, mean, precision), Z)
    score, average = averages(mean, precision)
    np.testing.assert_allclose(found.mean, mean + np.linalg.solve(average, score) / 2, rtol=1e-9)
    np.testing.assert_allclose(dense(counts, found.entries), (precision + average) / 2, rtol=1e-9)
    # The factor is that of the new precision.
    b = np.arange(1.0, 1.0 + SIZE)
    solved = counts.structure.factors.solve(found.factor, jnp.asarray(b))
    np.testing.assert_allclose(solved, np.linalg.solve((precision + average) / 2, b), rtol=1e-9)


def test_at_rest_the_mean_score_is_zero_and_the_mean_curvature_the_precision(counts):
    theta = jnp.asarray(THETA)
    mode = find_mode(counts, theta, counts.start)
    ends = [
        best_gaussian(counts, theta, start, Z)
        for start in (mode, gaussian(counts, np.full(SIZE, 0.8), WALK + np.eye(SIZE)))
    ]
    for found in ends:
        precision = dense(counts, found.entries)
        score, average = averages(np.asarray(found.mean), precision)
        errors = np.sqrt(np.diag(np.linalg.inv(precision)))
        np.testing.assert_allclose(score * errors, 0.0, atol=1e-3)
        np.testing.assert_allclose(average, precision, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(ends[0].mean, ends[1].mean, atol=1e-3)
    # Without draws: E exp(x) is exp(m + v / 2), and the means of these are near it.
    mean, precision = np.asarray(ends[0].mean), dense(counts, ends[0].entries)
    rate = np.exp(mean + np.diag(np.linalg.inv(precision)) / 2 + THETA[0])
    np.testing.assert_allclose(rate, np.diag(precision - WALK), rtol=0.05)
    assert np.max(np.abs(mean - np.asarray(mode.x))) > 0.02  # which the mode is not


def test_a_gaussian_posterior_is_found_itself(measurements):
    start = gaussian(measurements, np.full(SIZE, 30.0), 5 * np.eye(SIZE))
    found = best_gaussian(measurements, jnp.asarray(THETA), start, Z)
    precision = WALK + np.diag(NOISE)
    mean = np.linalg.solve(precision, NOISE * (Y - THETA[0]))
    np.testing.assert_allclose(found.mean, mean, atol=1e-3)
    np.testing.assert_allclose(dense(measurements, found.entries), precision, atol=1e-3)


def counted(latents):
    """The same, and a list that grows with every round."""
    rounds = []

    def means(*arguments):
        rounds.append(1)
        return latents.means(*arguments)

    return latents._replace(means=means), rounds


@pytest.mark.parametrize("at_rest", [1e-8, 1e-4, None])
def test_it_rests_when_a_round_moves_it_by_next_to_nothing(measurements, at_rest, monkeypatch):
    """Of a Gaussian every round halves the way that is left, in m and in P."""
    precision = WALK + np.diag(NOISE)
    mean = np.linalg.solve(precision, NOISE * (Y - THETA[0]))
    away, units = np.array([1.0, 0.0, -2.0, 0.0, 0.5]), np.sqrt(np.diag(precision))
    if at_rest is None:  # a little less than the first round of what follows
        at_rest = away @ precision @ away / 4 / SIZE / 1.2
    monkeypatch.setattr(module, "AT_REST", at_rest)
    for move, wider in ((0.0 * away, 0.0), (away, 0.0), (0.0 * away, 0.5)):
        start = gaussian(measurements, mean + move, precision + wider * np.diag(units**2))
        again, rounds = counted(measurements)
        best_gaussian(again, jnp.asarray(THETA), start, Z)
        far, left, expected = move @ precision @ move, wider, 0
        while True:
            expected += 1
            new = 1 + left / 2  # of the diagonal of P, in its last units
            moved = far / 4 + SIZE * (left / 2 / new) ** 2
            if moved < at_rest * SIZE:
                break
            far, left = far / 4, left / 2
        assert len(rounds) == expected


def test_it_gives_up_after_so_many_rounds(measurements, monkeypatch):
    monkeypatch.setattr(module, "AT_REST", 0.0)
    again, rounds = counted(measurements)
    start = gaussian(measurements, np.full(SIZE, 30.0), 5 * np.eye(SIZE))
    best_gaussian(again, jnp.asarray(THETA), start, Z)
    assert len(rounds) == module.ROUNDS


def test_where_numbers_end_it_stays_where_it_was(counts):
    start = gaussian(counts, np.full(SIZE, 2000.0), WALK + np.eye(SIZE))
    found = best_gaussian(counts, jnp.asarray(THETA), start, Z)
    np.testing.assert_array_equal(found.mean, start.mean)
    np.testing.assert_array_equal(found.entries, start.entries)


@pytest.mark.parametrize("units", [1.0, 1e6])
def test_a_change_is_told_in_units_of_the_diagonal(counts, units):
    old = WALK + np.diag(np.arange(1.0, 6.0))
    new = old + 0.3 * np.diag(np.arange(5.0)) + 0.1 * np.eye(SIZE, k=1) + 0.1 * np.eye(SIZE, k=-1)
    pattern = counts.structure.pattern
    parts = [units * jnp.asarray(m[pattern.rows, pattern.cols]) for m in (new, old)]
    scale = np.sqrt(np.diag(new))
    expected = np.sum(np.tril((new - old) / np.outer(scale, scale)) ** 2)
    assert _change(counts, *parts) == pytest.approx(expected)

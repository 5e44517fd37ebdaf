"""Paths from a Gaussian into the posterior: rotations, kicks, and weights that are right."""

import jax.numpy as jnp
import latents_by_hand as by_hand
import numpy as np
import pytest
from latents_by_hand import COLS, ROWS, latents

from marginax.likelihood import annealed_paths
from marginax.likelihood.annealed_paths import even_paths
from marginax.likelihood.best_gaussian import Gaussian

THETA = jnp.asarray([0.3, 0.4])
MEAN = np.array([0.2, -0.1, 0.5])
PRECISION = np.array([[4.0, 0.5, 0.0], [0.5, 3.0, -0.3], [0.0, -0.3, 5.0]])
ENTRIES = jnp.asarray(PRECISION[ROWS, COLS])
GAUSSIAN = Gaussian(jnp.asarray(MEAN), ENTRIES, ENTRIES)


def begins(count=5, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(part) for part in rng.normal(size=(2, count, 3)))


def test_a_rotation_is_one_of_every_pair_of_numbers():
    u, v = (np.asarray(part) for part in begins())
    angle = 0.7
    found = annealed_paths._rotated(jnp.asarray(u), jnp.asarray(v), angle)
    turned = (u - 1j * v) * np.exp(1j * angle)
    np.testing.assert_allclose(found[0], turned.real, rtol=1e-12)
    np.testing.assert_allclose(found[1], -turned.imag, rtol=1e-12)


def test_a_kick_is_what_the_density_adds_to_the_gaussian_and_then_there_is_a_rotation():
    u, v = (np.asarray(part) for part in begins(2))
    pull = np.array([[1.0, np.nan, 3.0], [np.inf, 0.5, -1.0]])
    found = annealed_paths._kicked(
        jnp.asarray(u), jnp.asarray(v), jnp.asarray(pull), 0.25, np.pi / 2
    )
    kicked = v + np.where(np.isfinite(pull), 0.25 * (pull + u), 0.0)
    np.testing.assert_allclose(found[0], kicked, rtol=1e-12)  # a quarter turn
    np.testing.assert_allclose(found[1], -u, rtol=1e-12)


def test_half_squares_are_those_of_each_row():
    u = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(annealed_paths._half_square(jnp.asarray(u)), [2.5, 25.0])


def as_gaussian():
    """Latents whose posterior is the Gaussian itself: no kick is anything."""
    return latents(
        pulls=lambda theta, xs, data: jnp.asarray(-(np.asarray(xs) - MEAN) @ PRECISION),
        values=lambda theta, xs, data: jnp.asarray(
            -0.5 * np.sum(((np.asarray(xs) - MEAN) @ PRECISION) * (np.asarray(xs) - MEAN), axis=1)
        ),
    )


@pytest.mark.parametrize("kicks", [1, 3, 8])
def test_once_round_leads_back_where_the_posterior_is_the_gaussian(kicks):
    u, v = begins()
    away, logs = annealed_paths._path(as_gaussian(), THETA, GAUSSIAN, u, v, kicks)
    root = np.linalg.cholesky(PRECISION)
    np.testing.assert_allclose(away, np.linalg.solve(root.T, np.asarray(u).T).T, atol=1e-12)
    np.testing.assert_allclose(logs, np.sum(np.asarray(u) ** 2, axis=1) / 2, atol=1e-12)


def reference(density, u, v, kicks):
    """The path as the reference has it, with the kicks of R by differences; ends and weights."""
    inverse = np.linalg.inv(np.linalg.cholesky(PRECISION)).T

    def slope(u):  # of R(u) = log p + |u|^2 / 2
        moves = 1e-5 * np.eye(3)
        rest = [
            (density(MEAN + inverse @ (u + m)) + (u + m) @ (u + m) / 2
             - density(MEAN + inverse @ (u - m)) - (u - m) @ (u - m) / 2) / 2e-5
            for m in moves
        ]  # fmt: skip
        return np.array(rest)

    angle = 2 * np.pi / kicks
    began = (u @ u + v @ v) / 2

    def turn(u, v, by):
        return np.cos(by) * u + np.sin(by) * v, np.cos(by) * v - np.sin(by) * u

    for k in range(1, kicks + 1):  # half a turn, the kick, and half a turn
        u, v = turn(u, v, angle / 2)
        v = v + angle * (k - 0.5) / kicks * slope(u)
        u, v = turn(u, v, angle / 2)
    return inverse @ u, began - v @ v / 2


@pytest.mark.parametrize("kicks", [1, 2, 5])
def test_a_path_is_that_of_the_formulas(kicks):
    u, v = begins(3)
    away, logs = annealed_paths._path(latents(), THETA, GAUSSIAN, u, v, kicks)

    def density(x):
        return by_hand.log_joint(THETA, x)

    for i in range(3):
        end, weight = reference(density, np.asarray(u[i]), np.asarray(v[i]), kicks)
        np.testing.assert_allclose(away[i], end, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(logs[i], weight, rtol=1e-6)


def test_weights_are_right_on_average():
    """The mean weight is the integral of the density, to four standard errors: budget 1e-4."""
    u, v = begins(4000, seed=1)
    away, logs = annealed_paths._path(latents(), THETA, GAUSSIAN, u, v, 4)
    values = by_hand.log_joint(THETA, MEAN + np.asarray(away))
    log_q = 1.5 * np.log(2 * np.pi) - np.linalg.slogdet(PRECISION)[1] / 2
    weights = np.exp(logs + values + log_q)
    axis = np.linspace(-4, 4, 81)
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    exact = np.exp(by_hand.log_joint(THETA, points)).sum() * 0.1**3
    assert abs(weights.mean() - exact) < 4 * weights.std() / np.sqrt(4000)
    assert weights.std() / weights.mean() < 1


@pytest.fixture
def paths(monkeypatch):
    """Weights whose logs have this variance by the number of kicks, and the kicks asked for."""
    asked, spreads = [], {}

    def path(latents, theta, gaussian, u, v, kicks):
        asked.append(kicks)
        return jnp.asarray(ENDS), spreads.get(kicks, 9.0) * np.array(
            [1.0, -1.0, 1.0, -1.0]
        ) + VALUES

    def values(theta, xs, data):
        np.testing.assert_allclose(xs, MEAN + ENDS)
        return jnp.asarray(-VALUES)

    monkeypatch.setattr(annealed_paths, "_path", path)
    own = latents(values=values)

    def run(kicks):
        asked.clear()
        return even_paths(own, THETA, GAUSSIAN, begins(4), kicks), asked

    return run, spreads


ENDS = np.arange(12.0).reshape(4, 3)
VALUES = np.array([100.0, -3.0, 20.0, 7.0])


@pytest.mark.parametrize(
    ("first", "spreads", "asked"),
    [
        (8, {8: 0.7}, [8]),  # a variance of 0.49
        (8, {8: 0.71, 16: 0.0}, [8, 16]),  # of more than a half
        (4, {24: 0.0, 16: 0.0}, [4, 8, 16]),
        (8, {}, [8, 16, 32, 64]),
        (64, {}, [64]),
        (40, {}, [40, 80]),
    ],
)
def test_kicks_are_doubled_until_weights_are_even_or_they_are_very_many(
    paths, first, spreads, asked
):
    run, known = paths
    known.update(spreads)
    (away, logs, kicks), tried = run(first)
    assert tried == asked
    assert kicks == asked[-1]
    np.testing.assert_array_equal(away, ENDS)
    expected = known.get(kicks, 9.0) * np.array([1.0, -1.0, 1.0, -1.0]) + VALUES
    np.testing.assert_allclose(logs, expected)


@pytest.mark.parametrize(("logs", "kicks"), [([np.nan, 0.0, 0.1, -np.inf], 8),
                                            ([np.nan] * 4, 8),
                                            ([np.nan, 0.0, 9.0, 0.0], 64)])  # fmt: skip
def test_weights_that_are_not_finite_do_not_count(monkeypatch, logs, kicks):
    monkeypatch.setattr(annealed_paths, "_path", lambda *given: (jnp.asarray(ENDS), np.array(logs)))
    own = latents(values=lambda theta, xs, data: jnp.zeros(4))
    assert even_paths(own, THETA, GAUSSIAN, begins(4), 8)[2] == kicks

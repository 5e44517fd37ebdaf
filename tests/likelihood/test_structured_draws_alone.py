"""The maximum and the value by draws: Newton's steps, and how many draws they are worth."""

from types import SimpleNamespace

import jax.numpy as jnp
import latents_by_hand as by_hand
import numpy as np
import pytest

from marginax.likelihood import structured_draws
from marginax.likelihood.best_gaussian import Gaussian
from marginax.likelihood.laplace import Mode
from marginax.likelihood.structured_draws import maximum_by_draws, value_by_draws

MODE = Mode(jnp.zeros(3), 0.0, jnp.zeros(6), None, True)
FITTING = jnp.zeros((2, 3))
INFORMATION = np.array([[4.0, 1.0], [1.0, 9.0]])
LATENTS = by_hand.latents()


class Weights(SimpleNamespace):
    """As those of `weighted_draws`, with what a test wants."""


@pytest.fixture
def world(monkeypatch):
    """Weights with the score of a quadratic with its top at `top`, off by `noise`."""
    at = SimpleNamespace(
        top=np.array([1.0, -2.0]), asked=[], gaussians=[], covariance=np.zeros((2, 2)), more=None
    )

    def weigh(latents, theta, gaussian, num_draws, seed, before=()):
        at.asked.append((np.asarray(theta), gaussian, num_draws, seed, before))
        score = INFORMATION @ (at.top - np.asarray(theta))
        if before and at.more is not None:
            score = score + at.more
        return Weights(score=score, score_covariance=at.covariance, chunks=("chunks", num_draws))

    def best_gaussian(latents, theta, start, fitting):
        assert fitting is FITTING
        entries = jnp.asarray([*theta, len(at.gaussians)])
        at.gaussians.append((np.asarray(theta), start, Gaussian(jnp.zeros(3), entries, None)))
        return at.gaussians[-1][-1]

    monkeypatch.setattr(structured_draws, "weigh", weigh)
    monkeypatch.setattr(structured_draws, "best_gaussian", best_gaussian)
    return at


def climbed(theta):
    return maximum_by_draws(LATENTS, np.asarray(theta), -INFORMATION, MODE, FITTING)


def test_from_far_away_steps_are_one_standard_error_long(world):
    found = climbed([1.0, -1.0])  # 3 standard errors of the second
    ways = [row[0] for row in world.asked if not row[4]]
    np.testing.assert_allclose(ways[1], [1.0, -1.0 - 1 / 3], rtol=1e-9)
    # 3 errors, 2, all but exactly 1, and there; once more where nothing moves.
    np.testing.assert_allclose(found.theta, world.top, atol=1e-9)
    assert found.num_draws == 1000
    assert {row[3] for row in world.asked} == {1}


def test_a_gaussian_is_fitted_to_every_theta_from_the_one_before(world):
    found = climbed([1.0, -2.2])  # 0.6 standard errors
    assert world.gaussians[0][1] is MODE
    np.testing.assert_array_equal(world.gaussians[0][0], [1.0, -2.2])
    for (_, _, before), (_, start, _) in zip(world.gaussians, world.gaussians[1:], strict=False):
        assert start is before
    np.testing.assert_allclose(world.gaussians[1][0], world.top, rtol=1e-9)
    assert found.gaussian is world.gaussians[-1][2]
    # One step to the top, and one more that shows it: two thetas, and the chunks go on.
    assert [row[2:] for row in world.asked] == [
        (1000, 1, ()), (1000, 1, ("chunks", 1000)), (1000, 1, ()), (1000, 1, ("chunks", 1000)),
    ]  # fmt: skip
    assert world.asked[0][1] is world.gaussians[0][2]


@pytest.mark.parametrize(("away", "times"), [(1.5, 1.0), (0.9, 1.0), (3.0, 1 / 3)])
def test_a_step_is_newtons_unless_it_is_too_long(world, away, times):
    start = world.top - np.array([0.0, away / 3])
    climbed(start)
    expected = start + (world.top - start) * (1 / away if away > 1 else 1.0)
    np.testing.assert_allclose(world.gaussians[1][0], expected, rtol=1e-9)


def test_near_enough_the_noise_tells_how_many_draws_there_are(world):
    # The error of the estimate, by this noise, is 0.03 standard errors: four times as many draws.
    world.covariance = 0.0299**2 * INFORMATION
    found = climbed(world.top + [0.0, 0.5])  # one standard error and a half, for which they are not
    assert [row[2] for row in world.asked[:3]] == [1000, 1000, 4000]
    assert found.num_draws == 4000 * 4
    # With more draws still, where these are as noisy; 16,000 at most.
    world.asked.clear()
    world.covariance = 1e6 * INFORMATION
    assert climbed(world.top).num_draws == 16_000


def test_with_more_draws_the_step_is_another(world):
    world.more = INFORMATION @ np.array([0.0, 0.05])
    climbed(world.top)
    np.testing.assert_allclose(world.gaussians[1][0], world.top + [0.0, 0.05], atol=1e-12)
    # That is 0.15 standard errors, so that it goes on; and the next step is none.
    assert len(world.gaussians) == 3


@pytest.mark.parametrize(("off", "rounds"), [(0.009, 1), (0.011, 2)])
def test_the_last_step_is_much_less_than_draws_can_tell(world, off, rounds):
    climbed(world.top + [0.0, off / 3])
    assert len(world.gaussians) == 1 + rounds


def test_without_a_finite_score_it_stays_where_it_is(world):
    world.top = np.array([np.nan, 0.0])
    found = climbed([3.0, 4.0])
    np.testing.assert_array_equal(found.theta, [3.0, 4.0])
    assert found.gaussian is world.gaussians[0][2]
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    ("share", "num_draws", "expected"),
    [
        (0.0, 1000, 1000),
        (0.0149, 1000, 1000),
        (0.0151, 1000, 2000),
        (0.0299, 1000, 4000),
        (0.0301, 1000, 5000),
        (9.0, 1000, 16_000),
        (9.0, 3000, 15_000),
        (9.0, 20_000, 20_000),
        (np.nan, 1000, 1000),
    ],
)
@pytest.mark.parametrize("units", [1.0, 1e3, 1e-3])
def test_draws_that_make_the_error_small_beside_standard_errors(share, num_draws, expected, units):
    """The variance of the estimate's error is C^-1 N C^-1, a share of its own."""
    information = units * INFORMATION
    found = structured_draws._enough(-information, share**2 * information, num_draws)
    assert found == expected


def test_a_parameter_without_information_asks_for_no_draws():
    flat, noise = np.diag([4.0, 0.0]), np.diag([4 * 0.0299**2, 1.0])
    assert structured_draws._enough(-flat, noise, 1000) == 4000


def drawn_with(error):
    def weigh(latents, theta, gaussian, num_draws, seed, before=()):
        asked.append((num_draws, seed, before))
        logs = np.zeros(num_draws)
        return Weights(
            log_likelihood=-3.0 - len(asked), error=error, mean=np.arange(3.0), sd=np.ones(3),
            num_undefined=5, logs=logs, effective_draws=77.0, pareto_k=0.5,
            score_covariance=np.array([[3.0]]), chunks=("chunks",),
        )  # fmt: skip

    asked = []
    return weigh, asked


@pytest.mark.parametrize(
    ("error", "num_draws"),
    [(0.01, 2000), (0.02, 2000), (0.021, 4000), (0.039, 8000), (0.05, 14_000), (1.0, 32_000)],
)
def test_a_value_has_draws_until_its_error_is_small(monkeypatch, error, num_draws):
    weigh, asked = drawn_with(error)
    monkeypatch.setattr(structured_draws, "weigh", weigh)
    gaussian = Gaussian(jnp.zeros(3), jnp.zeros(6), None)
    found = value_by_draws(LATENTS, np.zeros(2), gaussian, -4.5, 500)
    expected = [(2000, 2, ())] + ([] if num_draws == 2000 else [(num_draws, 2, ("chunks",))])
    assert asked == expected
    assert found.log_likelihood == -3.0 - len(asked)
    assert found.error == error
    np.testing.assert_array_equal(found.mean, [[0.0, 1.0, 2.0]])
    np.testing.assert_array_equal(found.sd, [[1.0, 1.0, 1.0]])
    assert found.undefined == 5 / num_draws
    assert found.structure == "3 latents"
    assert found.laplace == -4.5
    assert (found.num_draws, found.effective_draws, found.pareto_k) == (num_draws, 77.0, 0.5)
    # Of 500 draws, whose variance is as many times larger.
    np.testing.assert_allclose(found.score_covariance, [[3.0 * num_draws / 500]])

"""Few groups are climbed first, and lead to where those of all begin, or not at all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.fitting import rough_climbs
from marginax.fitting.rough_climbs import few_groups, rough_tops
from marginax.likelihood.methods import choose_likelihood

pytestmark = pytest.mark.usefixtures("as_users_write")


def log_joint(theta, x, y):
    """y_i ~ N(x, 1), x ~ N(mean, sd^2), of one group."""
    prior = -0.5 * ((x - theta["mean"]) / theta["sd"]) ** 2 - jnp.log(theta["sd"])
    return prior - 0.5 * jnp.sum((y - x) ** 2)


def problem_of(y):
    return mx.Problem.grouped(
        log_joint,
        y,
        theta={"mean": 0.0, "sd": 1.0},
        latent=0.0,
        theta_transforms={"sd": mx.transforms.positive},
    )


def data(sd, num_groups=120):
    random = np.random.default_rng(1)
    return 2 + sd * random.normal(size=(num_groups, 1)) + random.normal(size=(num_groups, 4))


@pytest.fixture
def a_hundred_are_many(monkeypatch):
    monkeypatch.setattr(rough_climbs, "MANY", 100)
    monkeypatch.setattr(rough_climbs, "FEW", 40)


def tops_of(y, thetas):
    with jax.enable_x64(True):
        problem = problem_of(y)
        few = few_groups(problem)
        assert few.num_groups == 40
        return rough_tops(choose_likelihood(few, thetas[0]), thetas, np.array([True, False]))


THETAS = np.array([[0.0, 0.0], [1.0, -1.0], [5.0, 0.5]])


@pytest.mark.usefixtures("a_hundred_are_many")
def test_starts_that_lead_to_one_place_share_it():
    begin = tops_of(data(1.0), THETAS)
    assert begin.of_start == [0, 0, 0]
    assert begin.thetas.shape == (1, 2)
    assert abs(begin.thetas[0, 0] - 2) < 0.6


@pytest.mark.usefixtures("a_hundred_are_many")
def test_a_boundary_of_few_groups_is_no_place_to_begin():
    # The bug this would be: 40 groups say that the variance is 0, and from log 0 no climb returns.
    y = data(0.0)
    y -= 0.95 * (y.mean(axis=1, keepdims=True) - y.mean())
    begin = tops_of(y, THETAS)
    np.testing.assert_array_equal(begin.thetas[begin.of_start], THETAS)


@pytest.mark.slow
@pytest.mark.usefixtures("a_hundred_are_many")
def test_the_estimate_is_that_of_all_groups():
    y = data(0.8)
    fit = mx.fit(problem_of(y), draw_posterior=False)
    assert fit.ok, str(fit)
    assert fit.num_agreeing == fit.num_starts == 3
    means = y.mean(axis=1)
    np.testing.assert_allclose(fit.theta["mean"], means.mean(), atol=1e-6)
    np.testing.assert_allclose(fit.theta["sd"] ** 2, means.var() - 0.25, rtol=1e-5)


def test_few_groups_are_not_taken_apart_needlessly():
    assert few_groups(problem_of(data(1.0))) is None

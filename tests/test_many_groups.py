"""Very many groups: a sample, batches and few steps on all lead to the estimate of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import marginax as mx
from marginax import many_groups
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.newton import climb

NUM_GROUPS, NUM_OBSERVATIONS = 3_000, 4


def log_joint(theta, x, y):
    """y_i ~ N(x, 1), x ~ N(mean, sd^2), of one group."""
    prior = -0.5 * ((x - theta["mean"]) / theta["sd"]) ** 2 - jnp.log(theta["sd"])
    return prior - 0.5 * jnp.sum((y - x) ** 2)


@pytest.fixture
def y():
    random = np.random.default_rng(0)
    level = 2 + 0.7 * random.normal(size=(NUM_GROUPS, 1))
    return jnp.asarray(level + random.normal(size=(NUM_GROUPS, NUM_OBSERVATIONS)))


def problem_of(y):
    return mx.Problem.grouped(
        log_joint,
        y,
        theta={"mean": 0.0, "sd": 1.0},
        latent=0.0,
        constrain_theta={"sd": mx.bijections.positive},
    )


@pytest.fixture
def thousands_are_many(monkeypatch):
    monkeypatch.setattr(many_groups, "MANY", 1_000)
    monkeypatch.setattr(many_groups, "SAMPLE", 100)
    monkeypatch.setattr(many_groups, "BATCH", 400)


@pytest.mark.slow
@pytest.mark.usefixtures("thousands_are_many", "as_users_write")
def test_the_estimate_and_the_particles_of_all_groups(y):
    fit = mx.fit(problem_of(y), key=jax.random.key(0), num_particles=16)
    assert fit.converged, str(fit)
    means = np.asarray(y).mean(axis=1)

    def negative(theta):
        v = np.exp(2 * theta[1]) + 1 / NUM_OBSERVATIONS
        return np.sum(0.5 * (means - theta[0]) ** 2 / v + 0.5 * np.log(v))

    exact = minimize(negative, [0.0, 0.0], tol=1e-12).x
    errors = fit.standard_errors()
    found = np.array([fit.theta["mean"], fit.theta["sd"]])
    assert np.all(np.abs(found - [exact[0], np.exp(exact[1])]) < 0.002 * errors)
    # Every group's particles, those of the last batch as those of the first, are its posterior.
    sd = np.exp(exact[1])
    precision = 1 / sd**2 + NUM_OBSERVATIONS
    posterior_means = (exact[0] / sd**2 + NUM_OBSERVATIONS * means) / precision
    cloud = np.asarray(fit.run.particles)[0]
    assert cloud.shape == (16, NUM_GROUPS)
    assert np.abs(cloud.mean(axis=0) - posterior_means).max() < 0.02 / precision**0.5
    np.testing.assert_allclose(cloud.var(axis=0) * precision, 1, atol=0.05)
    assert "in batches" in str(fit)
    assert any("no posterior draws" in note for note in fit.notes)


def test_the_sample_is_of_different_groups(y):
    few = many_groups.sample_of(problem_of(y), jax.random.key(0))
    assert few.num_groups == 2_000
    rows = {tuple(row) for row in np.asarray(few.data).tolist()}
    assert len(rows) == 2_000
    assert rows <= {tuple(row) for row in np.asarray(y).tolist()}


def test_only_groups_that_can_be_taken_apart_are_taken_in_batches(y, monkeypatch):
    assert not many_groups.has_many_groups(problem_of(y))
    monkeypatch.setattr(many_groups, "MANY", 1_000)
    assert many_groups.has_many_groups(problem_of(y))
    together = mx.Problem.grouped(
        lambda theta, x, y: -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x[:, None]) ** 2, axis=1),
        y,
        theta=0.0,
        latent=0.0,
        num_groups=NUM_GROUPS,
    )
    assert not many_groups.has_many_groups(together)


@pytest.mark.slow
def test_few_nodes_place_the_maximum_and_all_of_them_say_how_high_it_is():
    """Binary data: small errors of few nodes in thousands of groups made a doubt of every fit."""
    random = np.random.default_rng(1)
    x = 1.5 * random.normal(size=(NUM_GROUPS, 1))
    y = random.uniform(size=(NUM_GROUPS, 6)) < 1 / (1 + np.exp(-x))

    def binary(theta, x, y):
        prior = -0.5 * (x / jnp.exp(theta)) ** 2 - theta
        return prior + jnp.sum(y * x - jax.nn.softplus(x))

    problem = mx.Problem.grouped(binary, jnp.asarray(y, float), theta=0.0, latent=0.0)
    few = problem.with_data(problem.data[:300])
    usual = quadrature_likelihood(few)
    top = climb(usual.evaluate, np.zeros(1), usual.start)
    likelihood = many_groups.likelihood_of_all(problem, few, top)
    found = climb(likelihood.evaluate, top.theta, likelihood.start)
    exact = quadrature_likelihood(problem, order=41)
    best = climb(exact.evaluate, found.theta, exact.start)
    error = 1 / np.sqrt(-best.local.hessian[0, 0])
    assert abs(found.theta[0] - best.theta[0]) < 0.02 * error
    said = likelihood.describe(found.theta, found.local.extra)
    coarse = quadrature_likelihood(problem, order=9).describe(found.theta, found.local.extra)
    assert coarse.error * many_groups.MANY / NUM_GROUPS > 0.05 > 100 * said.error  # the doubts'
    np.testing.assert_allclose(said.log_likelihood, best.local.value, atol=0.01)

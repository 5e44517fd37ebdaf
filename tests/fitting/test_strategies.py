"""Very many groups: a sample, batches and few steps on all lead to the estimate of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import marginax as mx
from marginax.fitting import strategies
from marginax.fitting.plan import make_plan
from marginax.likelihood.methods import likelihood_of_all
from marginax.likelihood.newton import climb
from marginax.likelihood.quadrature import quadrature_likelihood

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
        theta_transforms={"sd": mx.transforms.positive},
    )


@pytest.fixture
def thousands_are_many(monkeypatch):
    monkeypatch.setattr(strategies, "MANY_STARTS", 1_000)
    monkeypatch.setattr(strategies, "MANY", 1_000)
    monkeypatch.setattr(strategies, "SAMPLE", 100)
    monkeypatch.setattr(strategies, "BATCH", 400)


@pytest.mark.slow
@pytest.mark.usefixtures("thousands_are_many", "as_users_write")
def test_the_estimate_and_the_particles_of_all_groups(y):
    fit = mx.fit(problem_of(y), key=jax.random.key(0), num_particles=16)
    assert fit.ok, str(fit)
    means = np.asarray(y).mean(axis=1)

    def negative(theta):
        v = np.exp(2 * theta[1]) + 1 / NUM_OBSERVATIONS
        return np.sum(0.5 * (means - theta[0]) ** 2 / v + 0.5 * np.log(v))

    exact = minimize(negative, [0.0, 0.0], tol=1e-12).x
    errors = fit.standard_errors
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
    few = strategies.sample_of(problem_of(y), jax.random.key(0))
    assert few.num_groups == 2_000
    rows = {tuple(row) for row in np.asarray(few.data).tolist()}
    assert len(rows) == 2_000
    assert rows <= {tuple(row) for row in np.asarray(y).tolist()}


def strategy_of(problem, mesh=None, **given):
    plan = make_plan(problem, **given)
    return strategies.choose_strategy(problem, plan, jax.random.key(0), mesh)


def test_only_groups_that_can_be_taken_apart_are_sampled_and_taken_in_batches(y, monkeypatch):
    monkeypatch.setattr(strategies, "SAMPLE", 100)
    at_once = strategy_of(problem_of(y))
    assert at_once.sample is None
    assert at_once.follow is None
    monkeypatch.setattr(strategies, "MANY_STARTS", 500)
    # Below the number for batches too, so that there is no cliff there.
    assert strategy_of(problem_of(y)).sample.num_groups == 100
    assert strategy_of(problem_of(y)).follow is None
    monkeypatch.setattr(strategies, "MANY", 1_000)
    assert strategy_of(problem_of(y)).follow is not None
    together = mx.Problem.grouped(
        lambda theta, x, y: -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x[:, None]) ** 2, axis=1),
        y,
        theta=0.0,
        latent=0.0,
        num_groups=NUM_GROUPS,
    )
    assert strategy_of(together).sample is None
    assert strategy_of(together).follow is None


@pytest.mark.usefixtures("thousands_are_many")
def test_a_kernel_or_an_algorithm_keeps_the_batches_and_a_mesh_says_that_it_does_not(y):
    # The bug: with any of the three, all groups moved at once, and nothing said so.
    problem = problem_of(y)
    kernel = mx.kernels.blockwise(mx.kernels.linear())
    method = mx.ipla(problem.unconstrained_log_joint, 0.1)
    for given in ({"kernel": kernel}, {"algorithm": method}):
        strategy = strategy_of(problem, **given)
        assert strategy.follow is not None
        assert strategy.words == ", in batches"
    assert make_plan(problem, algorithm=method).in_batches is method
    mesh = jax.make_mesh((1,), ("groups",))
    spread = strategy_of(problem, mesh)
    assert spread.follow is None
    assert spread.words == ", all groups at once on 1 device"
    assert spread.sample.num_groups == 100


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_starts_on_a_sample_lead_to_the_estimate_of_all(y, monkeypatch):
    settings = {"key": jax.random.key(0), "num_particles": 8, "draw_posterior": False}
    whole = mx.fit(problem_of(y[:1_000]), **settings)
    monkeypatch.setattr(strategies, "MANY_STARTS", 500)
    monkeypatch.setattr(strategies, "SAMPLE", 100)
    sampled = mx.fit(problem_of(y[:1_000]), **settings)
    assert sampled.ok, str(sampled)
    assert sampled.num_agreeing == sampled.num_starts == 3
    away = np.abs(sampled.estimates - whole.estimates)
    assert np.all(away < 0.02 * whole.standard_errors)
    np.testing.assert_allclose(sampled.log_likelihood, whole.log_likelihood, atol=1e-3)


@pytest.mark.slow
def test_few_nodes_place_the_maximum_and_all_of_them_say_how_high_it_is():
    """Binary data: small errors of few nodes in thousands of groups made a warning of every fit."""
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
    likelihood = likelihood_of_all(problem, few, top)
    found = climb(likelihood.evaluate, top.theta, likelihood.start)
    exact = quadrature_likelihood(problem, order=41)
    best = climb(exact.evaluate, found.theta, exact.start)
    error = 1 / np.sqrt(-best.local.hessian[0, 0])
    assert abs(found.theta[0] - best.theta[0]) < 0.02 * error
    said = likelihood.describe(found.theta, found.local.extra)
    coarse = quadrature_likelihood(problem, order=9).describe(found.theta, found.local.extra)
    assert coarse.error * strategies.MANY / NUM_GROUPS > 0.05 > 100 * said.error
    np.testing.assert_allclose(said.log_likelihood, best.local.value, atol=0.01)

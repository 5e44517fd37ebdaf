"""Likelihoods, draws, Louis' information, profiles and climbs against closed forms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_intercepts import GROUPS, THETA, N, intercepts, log_marginal, maximum, whole
from scipy.optimize import brentq
from scipy.stats import chi2

from marginax.likelihood.blocks import as_blocks, finite_values, flat_latents, to_latent
from marginax.likelihood.climbs import climb_from_starts, maximum_from
from marginax.likelihood.from_draws import (
    climb_by_draws,
    likelihood_from_draws,
    louis_climb,
    louis_moments,
)
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.importance import importance_likelihood
from marginax.likelihood.newton import Climb, Local, climb
from marginax.likelihood.posterior import Posterior, posterior_sampler
from marginax.likelihood.profile import profile_interval
from marginax.likelihood.quadrature import quadrature_likelihood

pytestmark = pytest.mark.usefixtures("as_users_write")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quadrature", "importance", "importance, fine"])
def test_likelihoods_are_exact_for_gaussians(kind):
    problem = intercepts()
    likelihood = (
        quadrature_likelihood(problem)
        if kind == "quadrature"
        else importance_likelihood(whole(problem), THETA)
    )
    evaluate = likelihood.evaluate if kind != "importance, fine" else likelihood.evaluate_finely
    here = evaluate(THETA, likelihood.start)
    exact = partial(log_marginal, y=problem.data)
    np.testing.assert_allclose(here.value, exact(THETA), rtol=1e-9)
    np.testing.assert_allclose(here.gradient, jax.grad(exact)(THETA), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(here.hessian, jax.hessian(exact)(THETA), rtol=1e-3, atol=1e-3)
    value = likelihood.describe(THETA, here.extra)
    np.testing.assert_allclose(value.log_likelihood, exact(THETA), rtol=1e-9)
    s2 = np.exp(2 * THETA[1])
    variance = 1 / (1 / s2 + N)
    mean = variance * (THETA[0] / s2 + N * problem.data.mean(axis=1))
    np.testing.assert_allclose(value.mean.ravel(), mean, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(value.sd, variance**0.5, rtol=2e-2)


@pytest.mark.parametrize("with_groups", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_refreshed_draws_have_the_exact_moments(with_groups, key):
    problem = intercepts() if with_groups else whole(intercepts())
    cloud = jnp.tile(as_blocks(problem).start, (20, 1, 1))
    found = posterior_sampler(problem)(THETA, cloud, key)
    assert ("grid" if with_groups else "NUTS") in found.sampler
    assert found.rhat < 1.02
    assert found.effective_draws > 1000
    draws = found.draws.reshape(-1, GROUPS)
    s2 = np.exp(2 * THETA[1])
    variance = 1 / (1 / s2 + N)
    mean = variance * (THETA[0] / s2 + N * problem.data.mean(axis=1))
    error = np.sqrt(variance / found.effective_draws)
    assert np.max(np.abs(draws.mean(axis=0) - mean)) < 4.5 * error  # 12 comparisons: 1e-4
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.12)


def independent_draws(problem, key, chains=20, draws=250):
    s2 = np.exp(2 * THETA[1])
    variance = 1 / (1 / s2 + N)
    mean = variance * (THETA[0] / s2 + N * np.asarray(problem.data).mean(axis=1))
    z = np.asarray(jax.random.normal(key, (chains, draws, GROUPS, 1)))
    return Posterior(mean[:, None] + variance**0.5 * z, "exact", 1.0, chains * draws, 1.0)


def test_louis_information_from_draws(key):
    problem = intercepts()
    moments = louis_moments(as_blocks(problem))(THETA, independent_draws(problem, key))
    exact = partial(log_marginal, y=problem.data)
    information = -np.asarray(jax.hessian(exact)(THETA))
    np.testing.assert_allclose(moments.information, information, atol=0.06 * information.max())
    error = np.sqrt(np.diag(moments.score_covariance))
    assert np.all(np.abs(moments.score - jax.grad(exact)(THETA)) < 4.5 * error)
    assert np.all(error < 0.2)


def test_likelihood_from_draws(key):
    problem = intercepts()
    found = likelihood_from_draws(problem, THETA, independent_draws(problem, key).draws)
    assert found.pareto_k < 0.7
    exact = float(log_marginal(THETA, problem.data))
    assert abs(found.log_likelihood - exact) < max(4 * found.error, 1e-3)


@pytest.mark.slow
def test_climbing_by_draws_alone_finds_the_maximum(key):
    problem = intercepts()
    cloud = jnp.tile(as_blocks(problem).start, (20, 1, 1))
    found = climb_by_draws(problem, np.array([0.0, 0.0]), cloud, key)
    assert found.settled
    exact = maximum(problem.data)
    covariance = np.linalg.inv(found.moments.information)
    error = np.sqrt(np.diag(covariance @ found.moments.score_covariance @ covariance))
    assert np.all(np.abs(found.theta - exact) < 6 * error)
    assert np.all(error < 0.1 * np.sqrt(np.diag(covariance)))


def test_climbing_by_draws_refuses_chains_that_do_not_mix():
    problem = intercepts()
    stuck = Posterior(np.ones((4, 10, GROUPS, 1)), "stuck", np.inf, 0.0, 0.0)
    assert louis_climb(lambda theta, step: stuck, as_blocks(problem), THETA) is None


def test_a_profile_interval_solves_the_likelihood_equation():
    problem = intercepts()
    likelihood = quadrature_likelihood(problem)
    best = climb(likelihood.evaluate, THETA, likelihood.start)
    low, high = profile_interval(likelihood, best.theta, best.local, 1, 0.3, 1.959964)
    y = np.asarray(problem.data)

    def fallen(log_s):  # m's own maximum is the mean of the means whatever s
        drop = log_marginal(best.theta, y) - log_marginal(np.array([y.mean(), log_s]), y)
        return 2 * float(drop) - chi2.ppf(0.95, 1)

    expected = brentq(fallen, best.theta[1] - 3, best.theta[1]), brentq(fallen, best.theta[1], 3)
    np.testing.assert_allclose([low, high], expected, atol=1e-3)


def test_a_profile_that_never_falls_is_unbounded():
    y = np.random.default_rng(1).normal(size=(GROUPS, N))
    problem = intercepts().with_data(y - y.mean(axis=1, keepdims=True))  # s = 0 is best
    likelihood = quadrature_likelihood(problem)
    best = climb(likelihood.evaluate, np.array([0.0, -5.0]), likelihood.start)
    low, high = profile_interval(likelihood, best.theta, best.local, 1, np.nan, 1.96)
    assert low == -np.inf
    assert np.isfinite(high)


def test_a_climb_leaves_a_plateau():
    """On a log scale a standard deviation of e^-18 looks like a maximum."""
    problem = intercepts()
    likelihood = quadrature_likelihood(problem)
    start = np.array([1.0, -18.0])
    assert climb(likelihood.evaluate, start, likelihood.start).theta[1] < -8
    found = climb_from_starts(likelihood, start[None]).climbs[0]
    np.testing.assert_allclose(found.theta, maximum(problem.data), atol=1e-5)


def test_a_climb_from_where_nothing_is_finite_says_so():
    nowhere = Local(np.nan, np.zeros(2), np.full((2, 2), np.nan), None)
    found = climb(lambda theta, extra: nowhere, THETA, None)
    assert not found.settled
    assert found.local.value == -np.inf


def test_points_outside_the_support_count_as_zero_density():
    def log_densities(x):
        return jnp.sum(jnp.where(x > 0, -x, -jnp.inf) + 0 * jnp.sqrt(x), axis=1)

    points = jnp.array([[1.0, 1.0], [2.0, 1.0], [-1.0, 1.0]])[..., None]  # two blocks

    def total(shift):
        values, undefined = finite_values(
            lambda x: log_densities(x + shift), points, jnp.ones((2, 1)), jnp.zeros((3, 2))
        )
        return jax.nn.logsumexp(values[:, 0]), undefined

    (value, undefined), slope = jax.value_and_grad(total, has_aux=True)(0.0)
    np.testing.assert_allclose(value, np.log(np.exp(-1) + np.exp(-2)), rtol=1e-6)
    assert np.isfinite(slope)
    assert undefined.sum(axis=0).tolist() == [1, 0]


def test_latents_go_flat_and_back(key):
    for problem in (intercepts(), whole(intercepts())):
        latent = jax.random.normal(key, (GROUPS,))
        flat = flat_latents(problem, latent)
        assert flat.shape == as_blocks(problem).start.shape
        np.testing.assert_array_equal(to_latent(problem, flat), latent)


def test_a_lower_maximum_is_told_by_the_rule_that_found_it():
    """The last steps shift every value; what that shifts is no disagreement."""

    def at(theta, value):
        return Climb(np.array([theta]), Local(value, np.zeros(1), -np.eye(1), 0), 1, True)

    def rule_with_top(place, value):
        def evaluate(theta, extra):
            away = theta - place
            return Local(value - 0.5 * float(away[0] ** 2), -away, -np.eye(1), 0)

        return evaluate

    coarse, fine = rule_with_top(0.2, -10.0), rule_with_top(0.0, -9.5)
    rule = LikelihoodFunction(jnp.zeros(1), coarse, lambda theta, extra: None, fine)
    same = maximum_from(rule, np.zeros((1, 1)), [at(0.2, -10.0), at(0.2, -10.001)])
    assert same.lower == ()
    assert same.agreeing == 2
    other = maximum_from(rule, np.zeros((1, 1)), [at(0.2, -10.0), at(5.0, -12.0)])
    np.testing.assert_allclose(other.lower, [2.0])
    assert other.agreeing == 1

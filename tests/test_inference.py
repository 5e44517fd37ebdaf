"""The parts of `fit` alone: likelihoods, draws, Louis' information, profiles, climbs."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.optimize import brentq, minimize
from scipy.stats import chi2

import marginax as mx
from marginax import stages
from marginax.bijections import positive
from marginax.inference.blocks import as_blocks, finite_values, flat_latents, place, to_latent
from marginax.inference.by_importance import importance_likelihood
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.by_weights import evidence_from_draws
from marginax.inference.doubts import doubts
from marginax.inference.findings import Findings
from marginax.inference.information import delta_method, inverse_information
from marginax.inference.likelihood import Likelihood
from marginax.inference.louis import LouisClimb, Moments, louis_climb, louis_moments
from marginax.inference.newton import Climb, Local, climb
from marginax.inference.polish import by_draws, polish, search
from marginax.inference.profile import profile_interval
from marginax.inference.refresh import Posterior, sampler
from marginax.latents import latent_summary
from marginax.progress import stage
from marginax.result import Run

pytestmark = pytest.mark.usefixtures("as_users_write")
GROUPS, N = 12, 3


def intercepts(seed=0):
    """y_gi ~ N(x_g, 1), x_g ~ N(m, s^2); the group means are N(m, s^2 + 1 / n)."""
    random = np.random.default_rng(seed)
    y = 1 + 1.5 * random.normal(size=(GROUPS, 1)) + random.normal(size=(GROUPS, N))

    def log_joint(theta, x, y):
        return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))

    return mx.Problem.grouped(
        log_joint,
        y,
        theta={"m": 0.0, "s": 1.0},
        latent=0.0,
        constrain_theta={"s": positive},
    )


def whole(problem):
    """The same model as one block, which takes importance sampling and NUTS."""

    def log_joint(theta, x, y):
        return problem.log_joint(theta, x, y)

    return mx.Problem(
        log_joint,
        theta=problem.theta,
        latent=jnp.zeros(GROUPS),
        data=problem.data,
        constrain_theta={"s": positive},
    )


def log_marginal(theta, y):
    """In closed form; theta = (m, log s)."""
    means, s2 = jnp.mean(y, axis=1), jnp.exp(2 * theta[1])
    within = jnp.sum((y - means[:, None]) ** 2)
    of_means = jnp.sum(norm.logpdf(means, theta[0], jnp.sqrt(s2 + 1 / N)))
    constant = -0.5 * GROUPS * ((N - 1) * jnp.log(2 * jnp.pi) + jnp.log(N))
    return of_means - 0.5 * within + constant


def maximum(y):
    found = minimize(lambda t: -float(log_marginal(t, y)), np.zeros(2), method="Nelder-Mead")
    found = minimize(lambda t: -float(log_marginal(t, y)), found.x, tol=1e-12)
    return found.x


THETA = np.array([0.7, -0.4])


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
    evidence = likelihood.describe(THETA, here.extra)
    np.testing.assert_allclose(evidence.log_likelihood, exact(THETA), rtol=1e-9)
    s2 = np.exp(2 * THETA[1])
    variance = 1 / (1 / s2 + N)
    mean = variance * (THETA[0] / s2 + N * problem.data.mean(axis=1))
    np.testing.assert_allclose(evidence.mean.ravel(), mean, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(evidence.sd, variance**0.5, rtol=2e-2)


def draws_at_theta(problem, key, num_draws=None):
    blocks = as_blocks(problem)
    theta = jnp.asarray(THETA)
    at = jax.jit(partial(place, blocks))(theta, blocks.start, blocks.data)
    cloud = jnp.tile(blocks.start, (20, 1, 1))
    return blocks, sampler(blocks, num_draws)(theta, at, cloud, key)


@pytest.mark.parametrize("with_groups", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_refreshed_draws_have_the_exact_moments(with_groups, key):
    problem = intercepts() if with_groups else whole(intercepts())
    _, found = draws_at_theta(problem, key)
    assert ("MALA" if with_groups else "NUTS") in found.sampler
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


def test_evidence_from_draws(key):
    problem = intercepts()
    found = evidence_from_draws(problem, THETA, independent_draws(problem, key).draws)
    assert found.pareto_k < 0.7
    exact = float(log_marginal(THETA, problem.data))
    assert abs(found.log_likelihood - exact) < max(4 * found.error, 1e-3)


@pytest.mark.slow
def test_climbing_by_draws_alone_finds_the_maximum(key):
    problem = intercepts()
    cloud = jnp.tile(as_blocks(problem).start, (20, 1, 1))
    found = by_draws(problem, np.array([0.0, 0.0]), cloud, key)
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
    (found,) = search(likelihood, start[None])
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
            lambda x: log_densities(x + shift), points, jnp.ones((2, 1))
        )
        return jax.nn.logsumexp(values[:, 0]), undefined

    (value, undefined), slope = jax.value_and_grad(total, has_aux=True)(0.0)
    np.testing.assert_allclose(value, np.log(np.exp(-1) + np.exp(-2)), rtol=1e-6)
    assert np.isfinite(slope)
    assert undefined.tolist() == [1, 0]


def test_latents_go_flat_and_back(key):
    for problem in (intercepts(), whole(intercepts())):
        latent = jax.random.normal(key, (GROUPS,))
        flat = flat_latents(problem, latent)
        assert flat.shape == as_blocks(problem).start.shape
        np.testing.assert_array_equal(to_latent(problem, flat), latent)


def test_starts_that_disagree_without_a_likelihood_are_reported():
    moments = Moments(np.zeros(2), np.diag([100.0, 4.0]), np.zeros((2, 2)))
    draws = Posterior(np.zeros((2, 3, 1, 1)), "exact", 1.0, 1000.0, 1.0)
    climbed = LouisClimb(THETA, moments, draws, 1, True)
    found = Findings(THETA, 0).climbed_by(climbed, None)

    def said(ends):
        words = ("converged",) * len(ends)
        theta = jnp.asarray(ends)
        ran = Run(theta, None, None, None, "converged", "", 1, {}, words, words, (1,) * len(ends))
        return doubts(intercepts(), ran, found, {})

    assert said([THETA, THETA + np.array([0.1, 0.5])]) == ()
    (doubt,) = said([THETA, THETA + np.array([0.5, 0.0])])  # five standard errors
    assert "1 of 2 starts ended 5.0 standard errors" in doubt


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
    rule = Likelihood("two rules", jnp.zeros(1), coarse, lambda theta, extra: None, fine)
    same = polish(rule, np.zeros((1, 1)), [at(0.2, -10.0), at(0.2, -10.001)])
    assert same.lower == ()
    assert same.agreeing == 2
    other = polish(rule, np.zeros((1, 1)), [at(0.2, -10.0), at(5.0, -12.0)])
    np.testing.assert_allclose(other.lower, [2.0])
    assert other.agreeing == 1


def test_parameters_at_an_edge_or_without_information():
    information = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    covariance = inverse_information(information, edges=(1,))
    assert covariance[0, 0] == 0.25  # with the second one fixed, not 1 / 3
    assert np.isnan(covariance[1, 1])
    assert np.isinf(covariance[2, 2])
    mapped = delta_method(np.array([[1.0, 0, 0], [1, 0, 1]]), covariance)
    assert mapped[0, 0] == 0.25
    assert np.isinf(mapped[1, 1])


def test_ctrl_c_keeps_what_is_known(monkeypatch):
    """During Newton's last steps the highest top found before; during draws, all but the draws."""
    low, top = (
        Climb(np.array([at]), Local(value, np.zeros(1), -2 * np.eye(1), 0), 1, True)
        for at, value in ((0.0, -5.0), (1.0, -3.0))
    )

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "climb_from_ends", interrupt)
    rule = quadrature_likelihood(intercepts())
    found = stages.polish(rule, np.zeros((1, 1)), [low, top], Findings(np.zeros(1), 0))
    np.testing.assert_array_equal(found.theta, [1.0])
    np.testing.assert_array_equal(found.information, [[2.0]])
    np.testing.assert_array_equal(found.score_covariance, [[0.0]])
    assert "Ctrl-C during Newton's last steps" in found.interrupted

    monkeypatch.setattr(stages, "_with_draws", interrupt)
    before = Findings(THETA, 0, information=np.eye(2))
    words = ("converged",)
    ran = Run(jnp.asarray(THETA)[None], None, None, None, *words, "", 1, {}, words, words, (1,))
    after = stages.refresh(intercepts(), ran, before, jax.random.key(0), with_polish=True)
    np.testing.assert_array_equal(after.theta, before.theta)
    assert doubts(intercepts(), ran, after, {}) == (
        "Ctrl-C during the posterior draws: there are none.",
    )


def test_stages_are_told_where_a_bar_would_be(capsys):
    timings = {}
    with stage(True, "Climbing", timings, "start"):
        pass
    with stage(None, "Not on a terminal", timings, "polish"):
        pass
    assert re.fullmatch(r"Climbing \.\.\. 0\.\d s\n", capsys.readouterr().err)
    assert set(timings) == {"start", "polish"}


def test_standard_deviations_of_free_latents_are_those_of_the_evidence():
    """In single precision too, where differences of near numbers would lose them."""
    problem = intercepts()
    rule = quadrature_likelihood(problem)
    found = rule.describe(THETA, rule.start)
    far = found._replace(mean=found.mean + 300.0, sd=np.full_like(found.sd, 1e-3))
    narrow = replace(problem, theta=jax.tree.map(jnp.float32, problem.theta))
    narrow = replace(narrow, latent=jnp.float32(0), data=narrow.data.astype(jnp.float32))
    summary = latent_summary(narrow, far, None, 0.95)
    assert summary.sd.dtype == jnp.float32
    np.testing.assert_allclose(summary.sd, 1e-3, rtol=1e-6)

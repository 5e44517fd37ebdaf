"""Importance sampling that follows theta, against draws that NumPy weighs at modes by SciPy."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

import marginax as mx
from marginax.likelihood import blocks as blocks_module
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.functions import FineStart
from marginax.likelihood.importance import (
    GROUP_DRAWS,
    JOINT_DRAWS,
    _follow,
    _Known,
    _Parts,
    _with_draws,
    arrays_of,
    importance_likelihood,
    in_words,
    value_fields,
)
from marginax.likelihood.importance_weights import Weighed, standard_draws
from marginax.likelihood.modes import Laplace

pytestmark = pytest.mark.slow

THETA = np.array([0.3, -0.2])
COUNTS = np.array([0.0, 6.0])
FEW = GROUP_DRAWS // 8


def counts_log_joint(theta, x, y):
    """A count whose logarithm has a Gaussian: a posterior that is nearly one."""
    away = (x - theta[0]) / jnp.exp(theta[1])
    return y * x - jnp.exp(x) - 0.5 * away**2 - theta[1] - 0.5 * np.log(2 * np.pi)


def counts():
    return mx.Problem.grouped(counts_log_joint, jnp.asarray(COUNTS), theta=jnp.zeros(2), latent=0.0)


def whole_log_joint(theta, x, y):
    return counts_log_joint(theta, x[0], y[0]) + counts_log_joint(theta, x[1], y[1])


def whole():
    return mx.Problem(whole_log_joint, jnp.zeros(2), jnp.zeros(2), jnp.asarray(COUNTS))


@lru_cache
def drawn(num, seed=0, degrees=12.0):
    draws = standard_draws(1, GROUP_DRAWS, degrees, seed)
    return draws.z[:num, 0], draws.log_density[:num]


def log_weights(theta, y, num, seed=0, degrees=12.0):
    """Of draws around the mode, as wide as the curvature there says; and the draws."""
    variance = np.exp(2 * theta[1])
    mode = brentq(lambda x: y - np.exp(x) - (x - theta[0]) / variance, -20, 20, xtol=1e-14)
    sd = (np.exp(mode) + 1 / variance) ** -0.5
    z, log_q = drawn(num, seed, degrees)
    x = mode + sd * z
    log_prior = norm.logpdf(x, theta[0], np.exp(theta[1]))
    return y * x - np.exp(x) + log_prior - log_q + np.log(sd), x


def value(theta, num=FEW, seed=0):
    each = [logsumexp(log_weights(theta, y, num, seed)[0]) - np.log(num) for y in COUNTS]
    return np.sum(each)


def slope(theta, num=FEW, seed=0, step=1e-4):
    moves = step * np.eye(2)
    ends = [[value(theta + s * m, num, seed) for m in moves] for s in (1, -1)]
    return (np.array(ends[0]) - np.array(ends[1])) / (2 * step)


def bend(theta, num=FEW, seed=0, step=1e-3):
    moves = step * np.eye(2)
    rows = [slope(theta + m, num, seed) - slope(theta - m, num, seed) for m in moves]
    return np.array(rows) / (2 * step)


def fewest(degrees):
    """Effective draws of the worse group."""
    each = [log_weights(THETA, y, GROUP_DRAWS, degrees=degrees)[0] for y in COUNTS]
    return min(np.exp(2 * logsumexp(logs) - logsumexp(2 * logs)) for logs in each)


@pytest.fixture(scope="module")
def function():
    return importance_likelihood(counts(), THETA)


@pytest.fixture(scope="module")
def here(function):
    return function.evaluate(THETA, function.start)


def test_value_and_derivatives_are_those_of_the_weights_of_draws_that_follow_theta(here, function):
    np.testing.assert_allclose(here.value, value(THETA), rtol=1e-10)
    np.testing.assert_allclose(here.gradient, slope(THETA), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(here.hessian, bend(THETA), rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(here.hessian, here.hessian.T)
    assert here.extra.shape == (1, 2, 1)
    assert function.value(THETA, function.start) == pytest.approx(here.value, rel=1e-12)
    assert function.other_modes is not None


def test_the_last_steps_use_all_draws_and_know_the_curvature(function, here):
    fine = function.evaluate_finely(THETA, here.extra)
    np.testing.assert_allclose(fine.value, value(THETA, GROUP_DRAWS), rtol=1e-10)
    np.testing.assert_allclose(fine.gradient, slope(THETA, GROUP_DRAWS), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fine.hessian, bend(THETA, GROUP_DRAWS), rtol=2e-3, atol=2e-3)
    assert isinstance(fine.extra, FineStart)
    errors = 1 / np.sqrt(-np.diag(fine.hessian))
    near = function.evaluate_finely(THETA + 0.019 * errors, fine.extra)
    assert near.extra.curvature is fine.extra.curvature
    assert near.hessian is fine.hessian
    np.testing.assert_allclose(near.value, value(THETA + 0.019 * errors, GROUP_DRAWS), rtol=1e-10)
    theta = THETA + np.array([0.0, 0.5])
    far = function.evaluate_finely(theta, fine.extra)
    np.testing.assert_allclose(far.hessian, bend(theta, GROUP_DRAWS), rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(far.extra.curvature.theta, theta)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_curvature_is_known_within_a_fiftieth_of_a_standard_error(side):
    known = _Known(np.array([1.0, 5.0]), np.array([[-4.0, 3.0], [3.0, -100.0]]))
    for i, error in enumerate((0.5, 0.1)):
        move = side * error * np.eye(2)[i]
        assert not known.is_far(known.theta + 0.019 * move)
        assert known.is_far(known.theta + 0.021 * move)
    assert not known.is_far(known.theta)


def test_what_is_described(function, here):
    found = function.describe(THETA, here.extra)
    each = [log_weights(THETA, y, GROUP_DRAWS) for y in COUNTS]
    by_group = [logsumexp(logs) - np.log(GROUP_DRAWS) for logs, _ in each]
    np.testing.assert_allclose(found.by_group, by_group, rtol=1e-10)
    np.testing.assert_allclose(found.log_likelihood, np.sum(by_group), rtol=1e-10)
    for g, (logs, x) in enumerate(each):
        share = np.exp(logs - logsumexp(logs))
        np.testing.assert_allclose(found.mean[g, 0], share @ x, rtol=1e-9)
        spread = np.sqrt(share @ (x - share @ x) ** 2)
        np.testing.assert_allclose(found.sd[g, 0], spread, rtol=1e-9)
    np.testing.assert_allclose(found.effective_draws, fewest(12.0), rtol=1e-9)
    assert fewest(12.0) > max(fewest(np.inf), fewest(5.0))  # which is why these were drawn
    assert found.undefined == 0
    assert found.num_modes == 1
    assert found.proposal == "t (12 degrees of freedom)"
    assert found.num_draws == GROUP_DRAWS
    # Four other sets of draws, and these.
    values = [value(THETA, GROUP_DRAWS, seed) for seed in range(5)]
    np.testing.assert_allclose(found.error, np.std(values, ddof=1), rtol=1e-6)
    slopes = np.array([slope(THETA, GROUP_DRAWS, seed) for seed in range(5)])
    expected = np.cov(slopes.T)
    np.testing.assert_allclose(found.score_covariance, expected, rtol=2e-2, atol=1e-12)


def test_the_answer_is_the_integral_within_its_error(function, here):
    def integral(y):
        def term(x):
            return np.exp(y * x - np.exp(x)) * norm.pdf(x, THETA[0], np.exp(THETA[1]))

        return quad(term, -8, 6, epsrel=1e-11)[0]

    found = function.describe(THETA, here.extra)
    exact = np.sum([np.log(integral(y)) for y in COUNTS])
    assert 1e-12 < found.error < 1e-2
    assert abs(found.log_likelihood - exact) < 5 * found.error


def test_groups_in_chunks_are_the_same_likelihood(function, here, monkeypatch):
    monkeypatch.setattr(blocks_module, "MOST_POINTS", 4)  # one at a time
    again = function.evaluate(THETA, function.start)
    np.testing.assert_allclose(again.value, here.value, rtol=1e-10)
    np.testing.assert_allclose(again.gradient, here.gradient, rtol=1e-8)
    np.testing.assert_allclose(again.extra, here.extra, rtol=1e-9)
    values, spread = function.describe(THETA, here.extra), here.value
    assert values.mean.shape == (2, 1)
    assert function.value(THETA, here.extra) == pytest.approx(spread, rel=1e-10)


def test_without_groups_more_draws_are_of_the_whole():
    problem = whole()
    function = importance_likelihood(problem, THETA)
    here = function.evaluate(THETA, function.start)
    found = function.describe(THETA, here.extra)
    assert found.num_draws == JOINT_DRAWS
    assert found.by_group is None
    assert found.mean.shape == (1, 2)
    np.testing.assert_allclose(here.value, value(THETA, GROUP_DRAWS), atol=5e-3)
    np.testing.assert_allclose(here.gradient, slope(THETA, GROUP_DRAWS), atol=2e-2)


def test_a_gaussian_is_exact_in_any_units_of_theta():
    """x ~ N(0, 1), and y ~ N(x + c theta, 1): N(c theta, 2)."""

    def log_joint(theta, x, y):
        log_prior = -0.5 * x**2
        return log_prior - 0.5 * (y["y"] - x - y["c"] * theta) ** 2 - np.log(2 * np.pi)

    for c in (1e-6, 1.0, 1e6):
        data = {"y": jnp.asarray([1.0, 2.0, -4.0]), "c": jnp.full(3, c)}
        problem = mx.Problem.grouped(log_joint, data, theta=0.0, latent=0.0)
        theta = np.array([3.0 / c])
        function = importance_likelihood(problem, theta)
        here = function.evaluate(theta, function.start)
        away = np.asarray(data["y"]) - 3.0
        np.testing.assert_allclose(here.value, norm.logpdf(away, scale=np.sqrt(2)).sum())
        np.testing.assert_allclose(here.gradient, [c * away.sum() / 2], rtol=1e-7)
        np.testing.assert_allclose(here.hessian, [[-3 * c**2 / 2]], rtol=1e-5)
        found = function.describe(theta, here.extra)
        assert found.pareto_k is None
        assert found.error < 1e-9


def test_draws_suit_the_posterior_where_they_are_asked_for():
    """At theta = 0 it is a Gaussian, and at 1 its tails are heavy."""

    def log_joint(theta, x, y):
        return jnp.where(theta < 0.5, -0.5 * (x - y) ** 2, -2.0 * jnp.log1p((x - y) ** 2))

    problem = mx.Problem.grouped(log_joint, jnp.asarray([0.0, 3.0]), theta=0.0, latent=0.0)
    light, heavy = np.zeros(1), np.ones(1)
    function = importance_likelihood(problem, light)
    start = function.evaluate(light, function.start).extra
    assert function.describe(light, start).proposal == "Gaussian"
    adapted = function.adapt(heavy, start)
    told = adapted.describe(heavy, start)
    assert told.proposal == "t (5 degrees of freedom)"
    np.testing.assert_allclose(told.log_likelihood, 2 * np.log(np.pi / 2), atol=1e-2)
    assert adapted.adapt(light, start).describe(light, start).proposal == "Gaussian"


def test_draws_around_two_modes_follow_both():
    """Of shares that theta has: the sum is 1 whatever it is, and both places move."""

    def log_joint(theta, x, y):
        away = [x + 20.0 - theta[1], x - y - theta[1]]
        parts = [-0.5 * (away[0] / 2.0) ** 2 - np.log(2.0), -0.5 * away[1] ** 2 + theta[0]]
        return jnp.logaddexp(*parts) - 0.5 * np.log(2 * np.pi)

    problem = mx.Problem.grouped(
        log_joint, jnp.asarray([20.0, 30.0]), theta=jnp.zeros(2), latent=0.0
    )
    theta = np.array([np.log(3.0), 0.5])
    starts = jnp.asarray([[[-20.0], [-20.0]], [[20.0], [30.0]]])
    function = importance_likelihood(problem, theta)
    here = function.evaluate(theta, starts)
    # log(1 + e^theta_0) for each of two groups
    np.testing.assert_allclose(here.value, 2 * np.log(4.0), rtol=1e-6)
    np.testing.assert_allclose(here.gradient, [1.5, 0.0], atol=1e-5)
    np.testing.assert_allclose(here.hessian, [[2 * 3 / 16, 0.0], [0.0, 0.0]], atol=1e-3)
    np.testing.assert_allclose(here.extra[:, :, 0], [[-19.5, -19.5], [20.5, 30.5]], rtol=1e-5)
    found = function.describe(theta, here.extra)
    assert found.num_modes == 2
    np.testing.assert_allclose(
        found.mean[:, 0], [(-19.5 + 61.5) / 4, (-19.5 + 91.5) / 4], atol=0.05
    )


def test_center_and_root_follow_a_gaussian_to_first_order():
    """Of two blocks whose mean and covariance theta moves; the roots are no symmetric matrices."""
    random = np.random.default_rng(0)
    roots = random.normal(size=(2, 2, 2)) + 2 * np.eye(2)
    precision = np.linalg.inv(roots @ np.swapaxes(roots, 1, 2))
    bent = random.normal(size=(2, 2))
    bent = bent + bent.T  # how the precision changes
    mean, pull = random.normal(size=(2, 2)), np.array([2.0, -1.0])

    def log_densities(theta, x, data):
        away = x - mean - theta[0] * pull[None]
        tight = precision + theta[0] * bent[None]
        return -0.5 * jnp.einsum("bp,bpq,bq->b", away, tight, away)

    blocks = Blocks(log_densities, None, jnp.zeros((2, 2)), divisible=False)
    log_root = np.log(np.abs(np.linalg.det(roots)))
    at = Laplace(*(jnp.asarray(part) for part in (mean, roots, log_root)))

    def parts(theta):
        found = _follow(blocks, theta, at, None)
        covariance = jnp.einsum("bpq,brq->bpr", found.root, found.root)
        return found, covariance

    jvp = jax.jit(lambda theta: jax.jvp(parts, (theta,), (jnp.ones(1),)))
    (found, covariance), (slope, spread) = jvp(jnp.zeros(1))
    for one, same in zip(found, at, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-10)
    inverse = np.linalg.inv(precision)
    np.testing.assert_allclose(covariance, inverse, rtol=1e-10)
    np.testing.assert_allclose(slope.mode, np.tile(pull, (2, 1)), rtol=1e-9)
    np.testing.assert_allclose(spread, -inverse @ bent @ inverse, rtol=1e-9)
    narrower = -0.5 * np.trace(inverse @ bent, axis1=1, axis2=2)
    np.testing.assert_allclose(slope.log_root, narrower, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("slope", [-0.5, 1e-9, 0.5])
def test_second_derivatives_are_from_steps_of_a_hundredth_of_a_length(unit, slope):
    """A length is the standard error where the latents are known, or along which one gains 1."""
    asked = []

    def value_and_gradient(theta, proposal, data, draws):
        asked.append(np.asarray(theta))
        z = theta / unit
        return -jnp.sum(jnp.logaddexp(z, -z)), -jnp.tanh(z) / unit

    known = jnp.asarray([unit**-2, unit**-2, 0.0])
    blocks = Blocks(lambda theta, x, data: x[:, 0], None, jnp.zeros((1, 1)), divisible=False)
    parts = _Parts(
        blocks,
        lambda theta, modes, points: [(slice(0, 1), None, modes)],
        value_and_gradient,
        lambda theta, modes, data: known,
        None,
    )
    problem = mx.Problem(lambda theta, x, y: x, theta=0.0, latent=0.0)
    function = _with_draws(problem, parts, standard_draws(1, 8))
    theta = -np.array([np.arctanh(slope), np.arctanh(-slope), 0.5]) * unit
    found = function.evaluate(theta, blocks.start)
    expected = np.diag(-((np.cosh(theta / unit) * unit) ** -2))
    np.testing.assert_allclose(found.hessian, expected, rtol=1e-3, atol=1e-9 / unit**2)
    moves = np.max(np.abs(np.array(asked) - theta), axis=0)
    lengths = np.array([unit, unit, unit / np.tanh(0.5)])
    assert np.all((lengths / 1000 < moves) & (moves < lengths * 0.0101))


def test_values_by_the_names_of_results():
    weighed = Weighed(
        np.array([-1.0, -2.5]), np.zeros((2, 1)), np.ones((2, 1)), np.array([90.0, 70.0]),
        np.array([-np.inf, 0.4]), np.array([0.0, 0.5]),
    )  # fmt: skip
    found = value_fields(counts(), weighed, 100, 5.0)
    assert found["log_likelihood"] == -3.5
    np.testing.assert_array_equal(found["by_group"], [-1.0, -2.5])
    assert found["undefined"] == 0.25
    assert (found["num_draws"], found["proposal"]) == (100, "t (5 degrees of freedom)")
    assert found["effective_draws"] == 70.0
    assert found["pareto_k"] == 0.4
    assert found["mean"] is weighed.mean
    assert found["sd"] is weighed.sd
    even = weighed._replace(pareto_k=np.full(2, -np.inf))
    assert value_fields(counts(), even, 100, np.inf)["pareto_k"] is None
    assert value_fields(whole(), even, 100, np.inf)["by_group"] is None


def test_the_shape_of_a_proposal_in_words():
    assert in_words(np.inf) == "Gaussian"
    assert in_words(12.0) == "t (12 degrees of freedom)"
    assert in_words(2.5) == "t (2.5 degrees of freedom)"


def test_draws_on_the_device_are_the_same():
    draws = standard_draws(2, 8, 5.0)
    found = arrays_of(draws)
    np.testing.assert_array_equal(found.z, draws.z)
    np.testing.assert_array_equal(found.log_density, draws.log_density)
    assert found.degrees == 5.0

"""Profile intervals of a fit: names and scales, ends that are found, and ends that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.optimize import brentq
from scipy.stats import chi2, multivariate_normal

import marginax as mx
from marginax.likelihood import profile
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.model import parameter_table
from marginax.model.transforms import correlation_cholesky, interval, positive

GROUPS, N = 12, 3


def by_function(log_likelihood):
    """A likelihood of this function, with derivatives by JAX."""
    gradient, hessian = jax.grad(log_likelihood), jax.hessian(log_likelihood)

    def evaluate(theta, extra):
        theta = jnp.asarray(theta)
        parts = (np.asarray(part(theta)) for part in (gradient, hessian))
        return Local(float(log_likelihood(theta)), *parts, None)

    return LikelihoodFunction(None, evaluate, None)


def interval_of(log_likelihood, theta, index=0, error=1.0):
    likelihood = by_function(log_likelihood)
    theta = np.asarray(theta, float)
    best = likelihood.evaluate(theta, None)
    return profile.profile_interval(likelihood, theta, best, index, error, 2.0)


@pytest.mark.slow
def test_the_interval_of_a_standard_deviation_solves_the_likelihood_equation(key):
    """On its own scale, beside a leaf whose numbers hang together."""
    random = np.random.default_rng(2)
    y = 1.0 + random.normal(size=(GROUPS, 1)) + random.normal(size=(GROUPS, N))

    def log_joint(theta, x, y):
        return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))

    problem = mx.Problem.grouped(
        log_joint,
        jnp.asarray(y),
        theta={"m": 0.0, "s": 1.0},
        latent=0.0,
        theta_transforms={"s": positive},
    )
    fit = mx.fit(problem, key=key, num_starts=1, draw_posterior=False, max_steps=20)

    def fallen(s):  # m's own maximum is the mean of the means whatever s
        def value(m, s):
            return multivariate_normal(np.full(N, m), np.eye(N) + s**2).logpdf(y).sum()

        top = value(float(fit.theta["m"]), float(fit.theta["s"]))
        return 2 * (top - value(y.mean(), s)) - chi2.ppf(0.9, 1)

    s = float(fit.theta["s"])
    expected = brentq(fallen, 0.1 * s, s), brentq(fallen, s, 5 * s)
    found = fit.profile_interval("s", 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    with pytest.raises(ValueError, match=r"There is no parameter 'sd'; there are m, s\."):
        fit.profile_interval("sd")
    with pytest.raises(ValueError, match=r"level is 95.0, but it must be between 0 and 1"):
        fit.confidence_intervals(95.0)


def problem_of(theta, constrain):
    def log_joint(theta, x, y):
        return -0.5 * x**2 + sum(jnp.sum(leaf) for leaf in jax.tree.leaves(theta))

    return mx.Problem(log_joint, theta=theta, latent=0.0, theta_transforms=constrain)


def maximum_of(log_likelihood, theta):
    likelihood = by_function(log_likelihood)
    best = Climb(theta, likelihood.evaluate(theta, None), 1, True)
    return Maximum(best, 0, 1, (), likelihood, None)


@pytest.mark.slow
def test_only_a_number_that_is_free_alone_is_profiled():
    """Of three correlations a partial one was profiled; a leaf of them refused all others."""
    model = problem_of(
        {"L": jnp.eye(3), "p": jnp.array([0.5, 0.5]), "r": jnp.eye(2)},
        {"L": correlation_cholesky(3), "p": interval(0.0, 1.0), "r": correlation_cholesky(2)},
    )
    assert parameter_table.sole_coordinates(model) == (None, None, None, 3, 4, 5)
    theta = np.zeros(6)
    maximum = maximum_of(lambda t: -0.5 * jnp.sum(t**2), theta)
    for name, expected in (("p[1]", [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))]), ("r[1,0]", None)):
        found = profile.profile_of(model, maximum, theta, np.eye(6), name, 2.0)
        expected = np.tanh([-2.0, 2.0]) if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    with pytest.raises(ValueError, match="hangs together with others"):
        profile.profile_of(model, maximum, theta, np.eye(6), "L[2,1]", 2.0)


def test_a_first_trial_outside_of_all_numbers_is_no_infinite_end():
    """It was taken for a likelihood that never falls."""

    def only_near(t):  # finite within 3 only; down by 2 at 2
        return jnp.where(jnp.abs(t[0]) < 3, -0.5 * t[0] ** 2, jnp.nan)

    np.testing.assert_allclose(interval_of(only_near, [0.0], error=5.0), [-2.0, 2.0], rtol=1e-4)


def test_a_likelihood_that_never_falls_has_infinite_ends():
    def flat_below(t):
        return -0.5 * jnp.where(t[0] > 0, t[0], 0.0) ** 2

    low, high = interval_of(flat_below, [0.0])
    assert low == -np.inf
    np.testing.assert_allclose(high, 2.0, rtol=1e-4)


def test_the_ends_of_a_very_crooked_profile_are_found():
    """Plain regula falsi keeps one end for ever, and its last guess was returned as found."""
    found = interval_of(lambda t: -0.5 * (jnp.expm1(3 * t[0])) ** 2, [0.0], error=3.0)
    np.testing.assert_allclose(found[1], np.log(3) / 3, rtol=1e-3)


def test_an_end_that_was_not_found_is_nan_and_said_so():
    """A jump over the value asked for: no distance has it."""

    def jump(t):
        return -0.5 * t[0] ** 2 - jnp.where(t[0] < -1, 50.0, 0.0)

    low, high = interval_of(jump, [0.0])
    assert np.isnan(low)
    np.testing.assert_allclose(high, 2.0, rtol=1e-4)
    model = problem_of({"s": 1.0}, {"s": positive})
    with pytest.warns(UserWarning, match="lower end of the profile interval of s was not found"):
        found = profile.profile_of(
            model, maximum_of(jump, np.zeros(1)), np.zeros(1), np.eye(1), "s", 2.0
        )
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], np.exp(2.0), rtol=1e-3)


def test_climbs_that_do_not_come_to_rest_find_no_end():
    def evaluate(theta, extra):  # the second coordinate's gradient is wrong
        gradient = np.array([-theta[0], 1.0])
        return Local(-0.5 * float(theta @ theta), gradient, -np.eye(2), None)

    likelihood = LikelihoodFunction(None, evaluate, None)
    ends = profile.profile_interval(
        likelihood, np.zeros(2), evaluate(np.zeros(2), None), 0, 1.0, 2.0
    )
    assert np.all(np.isnan(ends))

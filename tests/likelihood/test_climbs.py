"""Climbs where they once came to rest, or went wrong, far from the maximum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_likelihood import closed_likelihood
from jax.scipy.special import gammaln
from jax.scipy.stats import norm, poisson, t

from marginax.likelihood.climbs import climb_from_starts, gaps_below, maximum_from
from marginax.likelihood.modes import climb_blocks
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.plateaus import is_rounding
from marginax.likelihood.results import QuadratureLikelihood

pytestmark = pytest.mark.usefixtures("as_users_write")


def test_a_mode_is_found_from_the_end_of_a_long_slope():
    """A latent of (0, 1), on the reals: at -555 the curvature is 1e-241, and the search stayed."""

    def log_densities(x):
        u = jax.nn.log_sigmoid(x[:, 0])
        return u + jax.nn.log_sigmoid(-x[:, 0]) - 0.5 * ((jnp.exp(u) - 0.7) / 0.1) ** 2

    starts = jnp.array([[-555.0], [-30.0], [0.0], [700.0]])
    top = jax.jit(lambda x: climb_blocks(log_densities, x))(starts)
    np.testing.assert_allclose(top.at.mode, jnp.full((4, 1), top.at.mode[2, 0]), rtol=1e-6)
    assert np.all(np.asarray(top.rise) < 0)


@pytest.mark.slow
def test_a_search_that_is_stuck_on_a_slope_says_so():
    """Its width was that of the curvature there, 1e120, across which the density falls."""
    top = climb_blocks(lambda x: -jnp.abs(x[:, 0]), jnp.array([[-555.0]]), max_steps=0)
    assert top.rise[0] > 0.01
    assert top.at.root[0, 0, 0] < 10.0


def test_a_class_without_members_is_left():
    """At p = 0 the place of the class is flat: neither alone leads out, and 160 were missing."""
    random = np.random.default_rng(0)
    y = np.concatenate([random.normal(0, 1, 80), random.normal(6, 1, 20)])

    def log_likelihood(theta):
        low, log_gap, logit = theta
        first = jax.nn.log_sigmoid(-logit) + norm.logpdf(y, low, 1.0)
        second = jax.nn.log_sigmoid(logit) + norm.logpdf(y, low + jnp.exp(log_gap), 1.0)
        return jnp.sum(jnp.logaddexp(first, second))

    function = closed_likelihood(log_likelihood)
    (top,) = climb_from_starts(function, np.array([[1.0, 5.0, -25.0]])).climbs
    np.testing.assert_allclose(top.theta, [0, np.log(6), np.log(0.25)], atol=0.3)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_heavy_tails_far_away_tell_the_units_by_their_slope(unit):
    """Steps of 1 were taken in a parameter of 3e10, until the climb gave up."""
    y = unit * (30.0 + np.random.default_rng(0).standard_t(4.0, 300))

    def log_likelihood(theta):
        return jnp.sum(t.logpdf(y, 4.0, theta[0], jnp.exp(theta[1])))

    start = np.array([[10.0 * unit, np.log(0.3 * unit)]])
    (top,) = climb_from_starts(closed_likelihood(log_likelihood), start).climbs
    assert top.settled
    np.testing.assert_allclose(top.theta[0] / unit, np.median(y) / unit, atol=0.2)


def test_second_derivatives_that_overflow_come_from_values():
    """At far nodes second derivatives were infinite, and the climb was given up as -inf."""
    function = closed_likelihood(lambda theta: -jnp.sum((theta - 3.0) ** 2))

    def evaluate(theta, extra):
        here = function.evaluate(theta, extra)
        return Local(here.value, here.gradient, np.full((2, 2), np.inf), extra)

    start = np.zeros((1, 2))
    (top,) = climb_from_starts(function._replace(evaluate=evaluate), start).climbs
    np.testing.assert_allclose(top.theta, 3.0, atol=1e-3)


@pytest.mark.parametrize("is_higher", [True, False])
def test_an_estimate_that_a_finer_rule_would_move_is_warned_of(is_higher):
    """0.1 standard errors off, and believed: the rules agreed on the value.

    With a kink at a node gradients of two rules differ by anything, which says nothing.
    """
    function = closed_likelihood(lambda theta: -0.5 * jnp.sum((theta / 2) ** 2))

    def describe(theta, start):
        finer = -0.5 * float(np.sum(((theta - 0.4 * is_higher) / 2) ** 2))
        zeros, score_error = np.zeros((1, 1)), np.full(1, 0.1)  # of the finer rule's maximum at 0.4
        return QuadratureLikelihood(
            finer, 1e-9, np.zeros(1), zeros, zeros, 0.0, 1025, score_error=score_error
        )

    function = function._replace(describe=describe)
    climbs = climb_from_starts(function, np.zeros((1, 1))).climbs
    found = maximum_from(function, np.zeros((1, 1)), climbs).likelihood
    assert found.estimate_error == pytest.approx(0.2 * is_higher)
    assert any("standard errors in the estimate" in one for one in found.warnings()) == is_higher


@pytest.mark.slow
def test_rounding_is_no_higher_ground():
    """Counts without overdispersion: at k = 1e16 log Gamma functions cancel to + 3,000."""
    y = np.random.default_rng(0).binomial(20, 0.4, 60).astype(float)

    def log_likelihood(theta):
        log_k, eta = theta
        k, total = jnp.exp(log_k), jnp.logaddexp(log_k, eta)
        counts = gammaln(y + k) - gammaln(k) - gammaln(y + 1)
        return jnp.sum(counts + k * (log_k - total) + y * (eta - total))

    function = closed_likelihood(log_likelihood)._replace(describe=lambda *_: None)
    (top,) = climb_from_starts(function, np.array([[1.0, 0.0]])).climbs
    limit = float(poisson.logpmf(y, y.mean()).sum())
    assert top.local.value == pytest.approx(limit, abs=1e-3)
    # Nor is it a place to go on from, for particles in float32.
    found = maximum_from(function, np.array([[37.0, np.log(y.mean())]]), [top])
    assert found.best.local.value == pytest.approx(limit, abs=1e-3)


def test_nor_is_it_with_several_flat_coordinates():
    """Nothing was truly higher, and the climb went on from the highest there was: rounding."""

    def log_likelihood(theta):
        noise = 300 * jnp.sin(1e17 * theta[0])
        return -(theta[2] ** 2) + jnp.where(theta[0] > 8.0, noise, -jnp.exp(-theta[0] - 20.0))

    (top,) = climb_from_starts(closed_likelihood(log_likelihood), np.zeros((1, 3))).climbs
    assert abs(top.local.value) < 1e-3


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e12])
def test_a_smooth_likelihood_is_not_rounding_in_any_units(unit):
    function = closed_likelihood(lambda theta: -0.5 * jnp.sum((theta / unit - 3.0) ** 2))
    for away in (0.0, 3.0, 30.0):
        assert not is_rounding(function, np.full(2, away * unit), None)


@pytest.mark.parametrize(("dips", "gaps"), [(True, 1), (False, 0)])
def test_a_lower_top_is_a_maximum_if_the_way_up_leads_down_first(dips, gaps):
    """A climb that rested on a slope was said to be another maximum."""

    def log_likelihood(theta):
        hill = -0.5 * theta[0] ** 2
        return jnp.logaddexp(hill, -0.5 * (theta[0] - 8) ** 2 - 1.0) if dips else hill

    function = closed_likelihood(log_likelihood)
    best, lower = (
        Climb(np.array([place]), function.evaluate(np.array([place]), None), 3, True)
        for place in (0.0, 8.0)
    )
    assert len(gaps_below(function, best, [best, lower])) == gaps

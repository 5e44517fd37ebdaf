"""The stages of a fit alone: what they say, and what Ctrl-C leaves."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_intercepts import THETA, intercepts

import marginax as mx
from marginax.fitting import stages
from marginax.fitting.fit_state import FitState
from marginax.fitting.latents import random_effects
from marginax.fitting.stages import Starts
from marginax.fitting.strategies import Strategy
from marginax.fitting.warnings import has_converged, warnings_of
from marginax.likelihood.from_draws import LouisClimb, Moments
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.quadrature import quadrature_likelihood
from marginax.running.result import Run

pytestmark = pytest.mark.usefixtures("as_users_write")


def test_starts_that_disagree_without_a_likelihood_are_reported():
    moments = Moments(np.zeros(2), np.diag([100.0, 4.0]), np.zeros((2, 2)), np.eye(2))
    draws = Posterior(np.zeros((2, 3, 1, 1)), "exact", 1.0, 1000.0, 1.0)
    climbed = LouisClimb(THETA, moments, draws, 1, True)
    state = FitState(THETA, 0).by_draws(climbed, None)

    def said(ends):
        words = ("converged",) * len(ends)
        theta = jnp.asarray(ends)
        ran = Run(theta, None, None, None, "converged", "", 1, {}, words, words, (1,) * len(ends))
        return warnings_of(intercepts(), ran, state)

    assert said([THETA, THETA + np.array([0.1, 0.5])]) == ()
    (warning,) = said([THETA, THETA + np.array([0.5, 0.0])])  # five standard errors
    assert "2 starts ended up to 5.0 standard errors from each other" in warning


def test_ctrl_c_keeps_what_is_known(monkeypatch):
    """During Newton's last steps the highest top found before; during draws, all but the draws."""
    low, top = (
        Climb(np.array([at]), Local(value, np.zeros(1), -2 * np.eye(1), 0), 1, True)
        for at, value in ((0.0, -5.0), (1.0, -3.0))
    )

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    def ran_to(theta):
        words = ("converged",)
        return Run(
            jnp.asarray(theta)[None], None, None, None, *words, "", 1, {}, words, words, (1,)
        )

    problem, everything = intercepts(), Strategy(None, interrupt)
    monkeypatch.setattr(stages, "highest_from", interrupt)
    starts = Starts(np.zeros((2, 1)), quadrature_likelihood(problem), (low, top))
    state = stages.maximize(problem, everything, starts, ran_to(np.zeros(1)), None)
    np.testing.assert_array_equal(state.theta, [1.0])
    np.testing.assert_array_equal(state.information, [[2.0]])
    np.testing.assert_array_equal(state.score_covariance, [[0.0]])
    assert "Ctrl-C during Newton's last steps" in state.interrupted
    assert not has_converged(ran_to(np.zeros(1)), state)

    monkeypatch.setattr(stages, "_with_draws", interrupt)
    before, ran = FitState(THETA, 0, information=np.eye(2)), ran_to(THETA)
    after = stages.draw_posterior(problem, ran, before, jax.random.key(0), True)
    np.testing.assert_array_equal(after.theta, before.theta)
    assert warnings_of(problem, ran, after) == (
        "Ctrl-C during the posterior draws: there are none.",
    )


def test_standard_deviations_of_latents_on_the_reals_are_those_of_the_likelihood():
    """In single precision too, where differences of near numbers would lose them."""
    problem = intercepts()
    rule = quadrature_likelihood(problem)
    found = rule.describe(THETA, rule.start)
    far = replace(found, mean=found.mean + 300.0, sd=np.full_like(found.sd, 1e-3))
    narrow = replace(problem, theta=jax.tree.map(jnp.float32, problem.theta))
    narrow = replace(narrow, latent=jnp.float32(0), data=narrow.data.astype(jnp.float32))
    summary = random_effects(narrow, far, None, 0.95)
    assert summary.sd.dtype == jnp.float32
    np.testing.assert_allclose(summary.sd, 1e-3, rtol=1e-6)


def test_latents_too_many_for_draws_are_told(key):
    problem = mx.Problem(
        lambda theta, x, y: -0.5 * jnp.sum((x - theta) ** 2), theta=0.0, latent=jnp.zeros(100_001)
    )
    ran = Run(*(None,) * 4, "converged", "", 1, {}, ("converged",), ("",), (1,))
    state = stages.draw_posterior(problem, ran, FitState(np.zeros(1), 0), key, may_climb=True)
    assert "100001 latents are too many" in state.no_draws

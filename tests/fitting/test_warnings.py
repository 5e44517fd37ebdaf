"""Warnings of a fit that are told from its climbs and runs alone, without fitting anything."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.diagnostics.mixing import mixing
from marginax.fitting import stages, warnings
from marginax.fitting.boundaries import find_ends
from marginax.fitting.fit_state import FitState
from marginax.fitting.strategies import Strategy
from marginax.fitting.warnings import has_converged, notes_on, warnings_of
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import DrawsLikelihood, ImportanceLikelihood, QuadratureLikelihood
from marginax.model.transforms import positive
from marginax.running.result import Run, agreement

AT_ONCE = Strategy(None, None)


def problem():
    def log_joint(theta, x, y):
        return -0.5 * (x - jnp.log(theta)) ** 2

    return mx.Problem(log_joint, theta=1.0, latent=0.0, theta_transforms=positive)


def at(theta, value, settled=True):
    return Climb(np.array([theta]), Local(value, np.zeros(1), -np.eye(1), 0), 1, settled)


@pytest.mark.parametrize(("sign", "end"), [(1, "infinity"), (-1, "0")])
def test_the_end_that_a_positive_parameter_runs_to_is_named(sign, end):
    """Degrees of freedom, or the size of a negative binomial, that run to infinity, not to 0."""

    def evaluate(theta, extra):  # rises to 0 on one side, and for ever
        value = -float(np.exp(-sign * theta[0]))
        return Local(value, np.array([-sign * value]), np.array([[value]]), None)

    theta = np.array([sign * 12.0])
    best = Climb(theta, evaluate(theta, None), 9, True)
    likelihood = LikelihoodFunction(None, evaluate, None)
    found = FitState(theta, 0, maximum=Maximum(best, 0, 1, (), likelihood, None))
    (said,) = find_ends(problem(), found).sentences.values()
    assert f"theta is at the boundary: the likelihood is as high at {end}." in said


def test_a_wide_but_inner_maximum_is_at_no_boundary():
    def evaluate(theta, extra):
        away = theta[0] / 3
        return Local(-0.5 * away**2, np.array([-away / 3]), np.array([[-1 / 9]]), None)

    best = Climb(np.zeros(1), evaluate(np.zeros(1), None), 9, True)
    likelihood = LikelihoodFunction(None, evaluate, None)
    found = FitState(np.zeros(1), 0, maximum=Maximum(best, 0, 1, (), likelihood, None))
    assert find_ends(problem(), found).sentences == {}


def ran_to(ends):
    statuses = ("converged",) * len(ends)
    agree, reason = agreement(ends, statuses, 1e-2)
    theta = jnp.asarray(ends)[:, 0]
    words = (*("converged", reason), 1, {}, statuses, statuses, (1,) * len(ends))
    return Run(theta, None, None, None, *words, starts_agree=agree)


def test_runs_that_disagree_are_warned_of_without_a_likelihood():
    """Every start had converged, so that nothing was said and all were counted as agreeing."""
    ends = np.array([[1.0], [1.01], [-1.0]])
    ran = ran_to(ends)
    found = stages.first_ending(ran, AT_ONCE)
    assert found.agreeing == 2
    assert any("DISAGREE" in warning for warning in warnings_of(problem(), ran, found))
    same = np.array([[1.0], [1.01], [1.0]])
    found = stages.first_ending(ran_to(same), AT_ONCE)
    assert found.agreeing == 3
    assert not any("DISAGREE" in warning for warning in warnings_of(problem(), ran_to(same), found))


def test_other_maxima_of_a_sample_of_the_groups_are_warned_of(monkeypatch):
    """They were said to have led nowhere."""
    climbs = [at(0.0, -10.0), at(5.0, -12.5), at(9.0, -11.0, settled=False)]
    of_all = Maximum(at(0.0, -100.0), 0, 0, (), None, QUADRATURE)
    monkeypatch.setattr(stages, "likelihood_of_all", lambda *args: "of all")
    monkeypatch.setattr(stages, "maximum_from", lambda function, ends, known: of_all)
    ran = ran_to(np.zeros((1, 1)))
    low = LikelihoodFunction(None, lambda theta, start: at(float(theta[0]), -20.0).local, None)
    starts = stages.Starts(np.zeros((3, 1)), low, tuple(climbs))  # low ground between the tops
    state = stages.maximize(problem(), Strategy(problem(), None), starts, ran, None)
    assert state.agreeing == 1
    assert state.lower_in_sample == (2.5,)
    (warning,) = warnings_of(problem(), ran, state)
    assert "sample of the groups, and at other maxima its log likelihood is lower by 2.5" in warning
    assert has_converged(ran, state)


QUADRATURE = QuadratureLikelihood(-100.0, 0.0, np.zeros(1), np.zeros(1), np.ones(1), 0.0, 29)


def test_a_parameter_at_its_boundary_is_a_note_and_no_warning():
    # A variance that is estimated as 0 is a finding: the fit has converged, and nothing is wrong.
    resting = Maximum(at(-9.0, -100.0, settled=False), 0, 3, (), None, QUADRATURE)
    state = FitState(np.array([-9.0]), 0, boundaries={0: "theta is at the boundary."})
    state = state.at_maximum(resting)
    ran = ran_to(np.array([[-9.0]]))
    assert warnings_of(problem(), ran, state) == ()
    assert "theta is at the boundary." in notes_on(problem(), ran, state)
    assert has_converged(ran, state)
    elsewhere = state._replace(boundaries={})
    assert not has_converged(ran, elsewhere)
    assert any("no higher point" in one for one in warnings_of(problem(), ran, elsewhere))
    rising = elsewhere._replace(rises=True)
    assert any("still rises" in one for one in warnings_of(problem(), ran, rising))


def weighed(pareto_k, effective_draws=5000.0):
    sides = {"by_group": None, "mean": np.zeros(1), "sd": np.ones(1), "undefined": 0.0}
    counts = {"num_draws": 8192, "proposal": "Gaussian", "effective_draws": effective_draws}
    return {"log_likelihood": -3.0, "error": 0.1, "pareto_k": pareto_k} | sides | counts


def test_equal_weights_have_no_tail_to_speak_of():
    # They printed "Pareto k -inf".
    value = ImportanceLikelihood(**weighed(None), score_covariance=np.zeros((1, 1)))
    assert value.is_reliable
    assert value.quality == "5000 effective draws, equal weights"
    assert value.warnings() == []


@pytest.mark.parametrize(("pareto_k", "effective"), [(0.9, 5000.0), (0.1, 50.0), (None, 50.0)])
def test_weights_that_cannot_be_believed_are_warned_of_by_what_computed_them(pareto_k, effective):
    by_modes = ImportanceLikelihood(
        **weighed(pareto_k, effective), score_covariance=np.zeros((1, 1))
    )
    from_draws = DrawsLikelihood(**weighed(pareto_k, effective))
    for value, what in ((by_modes, "Importance sampling"), (from_draws, "The log likelihood")):
        assert not value.is_reliable
        (warning,) = value.warnings()
        assert warning.startswith(f"{what} cannot be believed")
        assert f"{effective:.0f} effective draws" in warning
        assert ("Pareto k" in warning) == (pareto_k is not None)


def test_quadrature_warns_of_its_own_error_and_of_nan():
    rough = replace(QUADRATURE, error=0.2, undefined=0.1)
    assert rough.is_reliable
    first, second = rough.warnings()
    assert "differ by 0.2 in the log likelihood" in first
    assert "NaN at 10.0% of the points" in second


def test_the_worst_of_very_many_latents_may_look_bad_by_chance():
    # The bug: 98,000 latents with 8 chains of 50 good draws were said not to have mixed.
    random = np.random.default_rng(0)
    draws = random.normal(size=(8, 50, 40_000, 1)).astype(np.float32)
    for i in range(1, 50):  # half as good as independent ones
        draws[:, i] = 0.33 * draws[:, i - 1] + np.sqrt(1 - 0.33**2) * draws[:, i]
    many = Posterior(draws, "", *mixing(draws), 0.9)
    assert many.rhat > 1.1
    assert warnings._have_mixed(many)
    draws[0, :, 17] += 3  # one chain of one latent is elsewhere
    assert not warnings._have_mixed(Posterior(draws, "", *mixing(draws), 0.9))
    few = Posterior(draws[:, :, :10], "", 1.12, 200.0, 0.9)
    assert not warnings._have_mixed(few._replace(rhat=1.25))

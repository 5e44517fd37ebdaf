"""Doubts of a fit that are told from its climbs and runs alone, without fitting anything."""

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import stages
from marginax.bijections import positive
from marginax.inference.boundaries import edges
from marginax.inference.doubts import doubts
from marginax.inference.findings import Findings
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb, Local
from marginax.inference.polish import Polished
from marginax.result import Run, agreement


def problem():
    def log_joint(theta, x, y):
        return -0.5 * (x - jnp.log(theta)) ** 2

    return mx.Problem(log_joint, theta=1.0, latent=0.0, constrain_theta=positive)


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
    likelihood = Likelihood("a function", None, evaluate, None)
    found = Findings(theta, 0, polished=Polished(best, 0, 1, (), likelihood, None))
    (said,) = edges(problem(), found).values()
    assert f"theta is at the boundary: the likelihood is as high at {end}." in said


def test_a_wide_but_inner_maximum_is_at_no_edge():
    def evaluate(theta, extra):
        away = theta[0] / 3
        return Local(-0.5 * away**2, np.array([-away / 3]), np.array([[-1 / 9]]), None)

    best = Climb(np.zeros(1), evaluate(np.zeros(1), None), 9, True)
    likelihood = Likelihood("a function", None, evaluate, None)
    found = Findings(np.zeros(1), 0, polished=Polished(best, 0, 1, (), likelihood, None))
    assert edges(problem(), found) == {}


def ran_to(ends):
    statuses = ("converged",) * len(ends)
    agree, reason = agreement(ends, statuses, 1e-2)
    theta = jnp.asarray(ends)[:, 0]
    words = (*("converged", reason), 1, {}, statuses, statuses, (1,) * len(ends))
    return Run(theta, None, None, None, *words, starts_agree=agree)


def test_runs_that_disagree_are_doubted_without_a_likelihood():
    """Every start had converged, so that nothing was said and all were counted as agreeing."""
    ends = np.array([[1.0], [1.01], [-1.0]])
    ran = ran_to(ends)
    found = stages.first_ending(ran, ends)
    assert found.agreeing == 2
    assert any("DISAGREE" in doubt for doubt in doubts(problem(), ran, found, {}))
    same = np.array([[1.0], [1.01], [1.0]])
    found = stages.first_ending(ran_to(same), same)
    assert found.agreeing == 3
    assert not any("DISAGREE" in doubt for doubt in doubts(problem(), ran_to(same), found, {}))


def test_other_maxima_of_a_sample_of_the_groups_are_doubted(monkeypatch):
    """They were said to have led nowhere."""
    climbs = [at(0.0, -10.0), at(5.0, -12.5), at(9.0, -11.0, settled=False)]
    monkeypatch.setattr(stages, "likelihood_of_all", lambda *args: "of all")
    monkeypatch.setattr(
        stages,
        "polish",
        lambda likelihood, ends, known, found: found._replace(information=np.eye(1)),
    )
    ends = np.zeros((1, 1))
    found = stages.polish_all(problem(), problem(), ends, climbs, Findings(np.zeros(1), 0))
    assert found.agreeing == 1
    assert found.lower_in_sample == (2.5,)
    (doubt,) = doubts(problem(), ran_to(ends), found, {})
    assert "sample of the groups, and at other maxima its log likelihood is lower by 2.50" in doubt

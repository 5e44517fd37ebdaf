"""Every sentence that `fitting/warnings` can say, whole, and just when it is said."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.diagnostics.cloud import CloudCheck
from marginax.fitting import warnings
from marginax.fitting.fit_state import FitState
from marginax.fitting.warnings import (
    has_converged,
    notes_on,
    notes_without_particles,
    warnings_of,
)
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.from_draws import LouisClimb, Moments
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import DrawsLikelihood, QuadratureLikelihood
from marginax.running.result import Run

ONE = QuadratureLikelihood(-100.0, 0.0, np.zeros(1), np.zeros(1), np.ones(1), 0.0, 29)
NARROW = CloudCheck(("A narrow cloud.",), 0.1, 0.1, 0.1, 0.0, 1.0, 0.0)
WHOLE = DrawsLikelihood(
    -100.0, 0.0, by_group=None, mean=np.zeros(1), sd=np.ones(1), undefined=0.0, num_draws=9,
    proposal="", effective_draws=9.0, pareto_k=0.0,
)  # fmt: skip
GOOD = Posterior(np.zeros((20, 250, 1, 1)), "exact", 1.0, 4000.0, 1.0)


def problem(size=1):
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta) ** 2)

    return mx.Problem(log_joint, theta=jnp.zeros(size), latent=0.0)


def with_groups(num_groups):
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta) ** 2) - 0.5 * (y - x) ** 2

    data = np.arange(float(num_groups))
    return mx.Problem.grouped(log_joint, data, theta=jnp.zeros(1), latent=0.0)


def ran_to(*ends, statuses=None, reason="It is at rest.", agree=True, steps=1, check=None):
    statuses = statuses or ("converged",) * len(ends)
    status = statuses[0] if len(set(statuses)) == 1 else "max_steps"
    theta = jnp.asarray(ends, float).reshape(len(ends), -1)
    ran = Run(
        theta, None, None, None, status, reason, steps, {}, statuses, statuses,
        (steps,) * len(ends), starts_agree=agree,
    )  # fmt: skip
    return ran if check is None else replace(ran, cloud_checks=(check,))


def at_maximum(settled=True, promised=0.0, precision=1.0, **more):
    local = Local(-100.0, np.zeros(1), -precision * np.eye(1), 0)
    best = Climb(np.zeros(1), local, 1, settled)
    best = best._replace(promised=promised)
    state = FitState(np.zeros(1), 0, draws=GOOD).at_maximum(Maximum(best, 0, 1, (), None, ONE))
    return state._replace(**more)


def by_draws(settled=True, precision=4.0, **more):
    moments = Moments(np.zeros(1), precision * np.eye(1), np.zeros((1, 1)), 8 * np.eye(1))
    climbed = LouisClimb(np.zeros(1), moments, GOOD, 7, settled)
    return FitState(np.zeros(1), 0).by_draws(climbed, None)._replace(**more)


def test_nothing_is_said_of_a_good_fit():
    assert warnings_of(problem(), ran_to([0.0]), at_maximum()) == ()
    assert notes_on(problem(), ran_to([0.0]), at_maximum()) == ()
    assert warnings_of(problem(), ran_to([0.0]), by_draws()) == ()
    assert has_converged(ran_to([0.0]), at_maximum())


@pytest.mark.parametrize(
    ("ran", "state", "converged"),
    [
        (None, at_maximum(), True),
        (None, at_maximum(settled=False), False),
        (None, at_maximum(settled=False, boundaries={0: "at 0."}), True),
        (ran_to([0.0], statuses=("max_steps",)), at_maximum(), True),
        (ran_to([0.0]), at_maximum(interrupted="Stopped."), False),
        (ran_to([0.0]), by_draws(settled=False), False),
        (None, FitState(np.zeros(1), 0), False),
        (ran_to([0.0]), FitState(np.zeros(1), 0), True),
        (ran_to([0.0], agree=False), FitState(np.zeros(1), 0), False),
        (ran_to([0.0], statuses=("max_steps",)), FitState(np.zeros(1), 0), False),
    ],
)
def test_what_counts_as_converged(ran, state, converged):
    assert has_converged(ran, state) is converged


def test_what_was_interrupted_comes_first():
    state = at_maximum(interrupted="Stopped.", lower=(1.0,))
    assert warnings_of(problem(), ran_to([0.0]), state)[0] == "Stopped."


def test_groups_that_depend_on_each_other():
    grouped = with_groups(8)
    (said,) = warnings_of(grouped, ran_to([0.0]), by_draws(interacting_groups=3))
    assert said == (
        "The log joint of 3 of 8 groups depends on the latent of another group where the particles "
        "are: the likelihood group by group is wrong. Fit without groups, `Problem(log_joint, "
        "...)`."
    )


def test_signs_that_the_likelihood_does_not_see():
    state = at_maximum(blind_to_sign=("a", "b"))
    (said,) = warnings_of(problem(), ran_to([0.0]), state)
    assert said == (
        "The likelihood is the same for the other sign of a, b, which is negative here: constrain "
        "it (`theta_transforms={...: transforms.positive}`), as for a standard deviation."
    )


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (ran_to([0.0], statuses=("max_steps",)), ["The particles did not come to rest: It is at "
                                                 "rest."]),
        (ran_to([0.0], agree=False), ["Starts disagree, and nothing tells which is best: It is at "
                                      "rest."]),
        (ran_to([0.0], agree=False, statuses=("max_steps",)),
         ["The particles did not come to rest: It is at rest."]),
        (ran_to([0.0], check=NARROW), ["A narrow cloud."]),
        (ran_to([0.0]), []),
    ],
)  # fmt: skip
def test_particles_alone(ran, said):
    bare = FitState(np.zeros(1), 0)
    last = "There are no standard errors: the likelihood itself was not computed."
    assert warnings_of(problem(), ran, bare) == (*said, last)
    known = bare._replace(no_errors="Because.")
    assert warnings_of(problem(), ran, known) == (*said, "Because.")


def test_without_particles_and_information_there_is_the_posterior_alone():
    bare = FitState(np.zeros(1), 0, draws=GOOD._replace(rhat=2.0))
    (said,) = warnings_of(problem(), None, bare)
    assert said.startswith("The posterior draws of the latents have not mixed (R-hat 2.00, 4000 ")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            at_maximum(settled=False, promised=0.123),
            "Newton's method found no higher point though its quadratic promises 0.12 more in the "
            "log likelihood: this is not known to be the maximum.",
        ),
        (
            at_maximum(settled=False, promised=0.123, rises=True),
            "The likelihood still rises where Newton's method gave up, and on and on in that "
            "direction: the maximum is at infinity (separation, or a parameter the data say "
            "nothing about).",
        ),
        (
            by_draws(settled=False),
            "The last Newton steps, from posterior draws, still moved by more than their Monte "
            "Carlo error.",
        ),
        (
            at_maximum(lower=(1.234, 5.0)),
            "Starts disagree: at other maxima the log likelihood is lower by 1.23, 5.00. The best "
            "is reported; there may be a better one still.",
        ),
        (
            at_maximum(lower_in_sample=(1.234, 5.0)),
            "Starts disagree: they were climbed with a sample of the groups, and at other maxima "
            "its log likelihood is lower by 1.23, 5.00. All groups were climbed from the best; "
            "there may be a better one still.",
        ),
    ],
)
def test_climbs_and_starts(state, said):
    assert warnings_of(problem(), ran_to([0.0]), state) == (said,)


@pytest.mark.parametrize(("end", "is_said"), [(1.4, False), (1.5, False), (1.6, True)])
def test_particles_that_ended_apart_by_three_standard_errors(end, is_said):
    said = warnings_of(problem(), ran_to([0.0], [0.0], [end]), by_draws())
    expected = (
        "Starts disagree: the particles of 3 starts ended up to 3.2 standard errors from each "
        "other, and nothing tells which is best."
    )
    assert said == ((expected,) if is_said else ())


def test_with_a_likelihood_its_climbs_tell_starts_apart_and_not_their_particles():
    assert warnings_of(problem(), ran_to([0.0], [5.0]), at_maximum()) == ()
    assert warnings_of(problem(), None, at_maximum()) == ()


def test_directions_without_information():
    two = problem(2)
    flat = by_draws()._replace(theta=np.zeros(2), information=np.diag([1.0, 0.0]))
    ran = ran_to([0.0, 0.0])
    (said,) = warnings_of(two, ran, flat)
    assert said == (
        "The likelihood is flat in theta[1]: the data do not determine it, or the maximum is at "
        "infinity (separation, or a variance of 0 on a log scale). The standard errors are "
        "unbounded."
    )
    (said,) = warnings_of(two, ran, flat._replace(information=np.zeros((2, 2))))
    assert said.startswith("The likelihood is flat in theta[0], theta[1]: the data do not determine"
                           " them, or")  # fmt: skip
    assert warnings_of(two, ran, flat._replace(boundaries={1: "at 0."})) == ()


@pytest.mark.parametrize(("end", "is_said"), [(0.4, False), (0.5, False), (0.6, True)])
def test_a_cloud_away_from_the_estimate(end, is_said):
    for state, where in (
        (at_maximum(precision=4.0), "maximum"),
        (by_draws(precision=4.0), "estimate by draws"),
    ):
        said = warnings._of_the_cloud(ran_to([end]), state)
        sentence = (
            f"The particles came to rest 1.2 standard errors from the {where}: their cloud is not "
            "to be used for inference on its own."
        )
        assert said == ([sentence] if is_said else [])
    assert warnings._of_the_cloud(ran_to([end]), FitState(np.zeros(1), 0)) == []
    unknown = by_draws()._replace(information=None)
    assert warnings._of_the_cloud(ran_to([end]), unknown) == []


def test_of_several_starts_the_nearest_cloud_counts():
    assert warnings._of_the_cloud(ran_to([5.0], [0.1]), by_draws()) == []
    (said,) = warnings._of_the_cloud(ran_to([5.0], [2.0]), by_draws())
    assert "4.0 standard errors" in said
    (said,) = warnings._of_the_cloud(ran_to([5.0], [0.1]), at_maximum())
    assert "5.0 standard errors" in said  # of the start that the maximum was climbed from
    elsewhere = by_draws()._replace(theta=np.array([7.0]))
    assert warnings._of_the_cloud(ran_to([7.1]), elsewhere) == []


def test_notes():
    ran = ran_to([0.0], [0.0], [0.0], statuses=("diverged", "converged", "nonfinite"))
    (said,) = notes_on(problem(), ran, at_maximum())
    assert said == (
        "2 of 3 runs of the particles ended as diverged and nonfinite; Newton's method went on "
        "from their last good point."
    )
    assert notes_on(problem(), ran, FitState(np.zeros(1), 0, draws=GOOD)) == ()
    (said,) = notes_on(problem(), ran_to([0.0]), by_draws())
    assert said == (
        "The likelihood could not be climbed itself; the estimate and its information come from "
        "posterior draws (Louis), in 7 steps."
    )
    (said,) = notes_on(problem(), ran_to([0.0], statuses=("interrupted",), steps=12), at_maximum())
    assert said == "The particles were stopped after 12 steps, before they came to rest."


def test_why_there_are_no_draws(monkeypatch):
    ran, without = ran_to([0.0]), at_maximum()._replace(draws=None)
    assert notes_on(problem(), ran, without) == (warnings.NOT_ASKED,)
    monkeypatch.setattr(warnings, "can_draw", lambda size: False)
    assert notes_on(problem(), ran, without) == (warnings.NOT_INSTALLED,)
    assert notes_on(problem(), ran, without._replace(no_draws="Too many.")) == ("Too many.",)
    assert notes_on(problem(), ran, without._replace(interrupted="Stopped.")) == ()


@pytest.mark.parametrize(("empty", "shown"), [(1, "0"), (5, "0, 1, 2, 3, 4"),
                                              (6, "0, 1, 2, 3, 4, ...")])  # fmt: skip
def test_groups_without_data(empty, shown):
    by_group = np.where(np.arange(9) < empty, 0.0, -1.0)
    state = at_maximum(likelihood=replace(ONE, by_group=by_group))
    (said,) = notes_without_particles(with_groups(9), state)
    assert said == (
        f"{empty} of 9 groups ({shown}) say nothing: their likelihood is 1 whatever their latents, "
        "as without data. These follow the prior."
    )
    assert notes_without_particles(problem(), state) == []
    unknown = state._replace(likelihood=WHOLE)
    assert notes_without_particles(with_groups(9), unknown) == []
    assert notes_without_particles(with_groups(9), FitState(np.zeros(1), 0)) == []


@pytest.mark.parametrize(("size", "is_empty"), [(0.5e-8, True), (1.5e-8, False), (-1.5e-8, False)])
def test_a_log_likelihood_of_nothing(size, is_empty):
    by_group = np.array([-1.0, size])
    state = at_maximum(likelihood=replace(ONE, by_group=by_group))
    assert len(notes_without_particles(with_groups(2), state)) == is_empty


@pytest.mark.parametrize(
    ("shape", "rhat", "effective", "mixed"),
    [
        ((20, 250), 1.04, 150.0, True),
        ((20, 250), 1.04, 100.0, True),
        ((20, 250), 1.04, 99.0, False),
        ((20, 250), 1.05, 150.0, True),
        ((20, 250), 1.2, 150.0, False),
        ((8, 100), 1.05, 80.0, True),
        ((8, 100), 1.05, 79.0, False),
        ((20, 100), 1.3, 150.0, False),
        ((20, 100), 1.08, 150.0, False),
        ((20, 99), 1.08, 150.0, True),
        ((8, 50), 1.1, 60.0, True),
        ((8, 50), 1.5, 60.0, False),
    ],
)
def test_when_draws_have_mixed(shape, rhat, effective, mixed):
    draws = Posterior(np.zeros((*shape, 1, 1)), "exact", rhat, effective, 1.0)
    assert warnings._have_mixed(draws) == mixed


def test_what_the_worst_of_many_may_be_by_chance():
    # The largest of F / n among halves, at 1 % over all coordinates, three times as it may be.
    from scipy.stats import f

    draws = Posterior(np.zeros((8, 50, 30, 2)), "exact", 1.0, 100.0, 1.0)
    largest = f.ppf(1 - 0.01 / 60, 15, 16 * 24)
    assert warnings._by_chance(draws) == pytest.approx(np.sqrt(24 / 25 + 3 * largest / 25))


def test_draws_that_have_not_mixed():
    bad = GOOD._replace(rhat=1.5, effective_draws=33.3)
    (said,) = warnings_of(problem(), ran_to([0.0]), at_maximum()._replace(draws=bad))
    head = (
        "The posterior draws of the latents have not mixed (R-hat 1.50, 33 effective draws of the "
        "worst latent): "
    )
    end = "chains ended in different places, and intervals of latents are not right."
    assert said == head + end
    stuck = Posterior(np.zeros((4, 250, 3, 1)), "exact", 1.5, 33.3, 1.0, num_stuck=2)
    (said,) = warnings_of(problem(), ran_to([0.0]), at_maximum()._replace(draws=stuck))
    assert said == head + "2 of 12 chains hardly moved, so that R-hat says nothing."


@pytest.mark.parametrize(
    ("length", "rhat", "mixed"),
    [(99, 1.1, True), (99, 1.11, False), (100, 1.05, True), (100, 1.06, False), (150, 1.06, False)],
)
def test_short_chains_may_differ_by_more(monkeypatch, length, rhat, mixed):
    monkeypatch.setattr(warnings, "_by_chance", lambda draws: 1.0)
    draws = Posterior(np.zeros((20, length, 1, 1)), "exact", rhat, 1000.0, 1.0)
    assert warnings._have_mixed(draws) == mixed

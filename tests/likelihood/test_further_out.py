"""A look far from where climbs ended: at what, how far, and what becomes of a higher maximum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_likelihood import closed_likelihood

from marginax.likelihood import further_out
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.further_out import highest_from
from marginax.likelihood.newton import Climb, Local


def hill_and_plateau(height):
    """A hill of height 0 at (0, 0), a valley, and a plateau where x > 4, highest at y = 1."""

    def log_likelihood(theta):
        x, y = theta
        plateau = height + jax.nn.log_sigmoid(4.0 * (x - 3.0))
        return jnp.logaddexp(-0.5 * (x**2 + y**2), plateau - 0.5 * (y - 1.0) ** 2)

    described = closed_likelihood(log_likelihood)
    return described._replace(describe=lambda theta, extra: None)


def top_at(function, *theta):
    return Climb(np.array(theta), function.evaluate(np.array(theta), None), 9, True)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_plateau_beyond_a_valley_is_found_from_starts_that_agree(sign):
    one = hill_and_plateau(0.5)

    def flipped(theta, extra):
        there = one.evaluate(theta * [sign, 1.0], extra)
        hessian = there.hessian * np.array([[1.0, sign], [sign, 1.0]])
        return there._replace(gradient=there.gradient * [sign, 1.0], hessian=hessian)

    function = one._replace(evaluate=flipped)
    known = [top_at(function, 0.0, 0.0)] * 3
    ends = np.array([[np.nan, 1.0], [-3.0 * sign, 1.0], [0.0, 1.0]])
    maximum = highest_from(function, ends, known)
    assert maximum.best.local.value == pytest.approx(0.5, abs=1e-3)
    assert maximum.best.theta * [sign, 1.0] == pytest.approx([8.0, 1.0], abs=1.0)
    assert maximum.lower == pytest.approx((0.5,), abs=2e-3)  # the hill, once
    assert maximum.start == 2  # of the ends that were given, the nearest


@pytest.mark.parametrize("height", [-1.0, -3.0])
def test_a_lower_plateau_changes_nothing(height):
    function = hill_and_plateau(height)
    known = [top_at(function, 0.0, 0.0)]
    maximum = highest_from(function, np.array([[0.0, 0.0]]), known)
    assert maximum.best.theta == pytest.approx([0.0, 0.0], abs=1e-3)
    assert (maximum.start, maximum.agreeing, maximum.lower) == (0, 1, ())


def test_a_lower_hill_is_told_of():
    """Starts agreed on the best; another hill that they did not see is lower by 1."""

    def log_likelihood(theta):
        return jnp.logaddexp(-0.5 * theta[0] ** 2, -1.0 - 0.5 * (theta[0] - 6.0) ** 2)

    function = closed_likelihood(log_likelihood)._replace(describe=lambda theta, extra: None)
    maximum = highest_from(function, np.zeros((1, 1)), [top_at(function, 0.0)])
    assert maximum.best.theta == pytest.approx([0.0], abs=1e-4)
    assert maximum.lower == pytest.approx((1.0,), abs=1e-4)
    assert maximum.agreeing == 1


class Asked:
    """-z' A z / 2, but `far` with a slope outwards wherever one looks."""

    def __init__(self, information, far, slope=1.0):
        self.information, self.far, self.slope = np.asarray(information, float), far, slope
        self.valued, self.evaluated = [], []

    def value(self, theta, extra):
        self.valued.append(theta.tolist())
        return self.far

    def evaluate(self, theta, extra):
        self.evaluated.append(theta.tolist())
        gradient = self.slope * np.sign(theta - 10.0)
        return Local(self.far, gradient, -self.information, extra)

    def maximum(self, **more):
        more = {"value": self.value, **more}
        function = LikelihoodFunction(None, self.evaluate, None, **more)
        theta = np.full(len(self.information), 10.0)
        local = Local(0.0, 0 * theta, -self.information, "extra")
        return Maximum(Climb(theta, local, 1, True), 0, 1, (), function, None)


def test_it_looks_four_standard_errors_out_with_the_others_where_they_are():
    asked = Asked([[4.0, 1.0], [1.0, 1.0]], far=-3.99)
    rising = further_out._rising_far_out(asked.maximum())
    first, second = 4.0 * (1 / 3.0) ** 0.5, 4.0 * (4 / 3.0) ** 0.5  # of the inverse
    out = [[10 - first, 10], [10 + first, 10], [10, 10 - second], [10, 10 + second]]
    np.testing.assert_allclose(asked.valued, out)
    np.testing.assert_allclose(rising, out)
    np.testing.assert_allclose(asked.evaluated, out)
    again = Asked(asked.information, far=-3.99)
    np.testing.assert_allclose(further_out._rising_far_out(again.maximum(value=None)), out)
    assert again.valued == []


@pytest.mark.parametrize("far", [-4.0, -9.0, np.nan, -np.inf])
def test_where_the_likelihood_has_fallen_nothing_is_evaluated(far):
    asked = Asked(np.eye(1), far)
    assert further_out._rising_far_out(asked.maximum()) == []
    assert len(asked.valued) == 2
    assert asked.evaluated == []
    assert further_out._rising_far_out(asked.maximum(value=None)) == []


@pytest.mark.parametrize(
    ("far", "slope", "is_climbed"),
    [
        (0.0, -1.0, False),
        (0.0, 0.0, False),
        (0.0, np.nan, False),
        (0.0, 1e-9, False),  # rounding, of a plateau
        (0.0, 1e-7, True),  # times a standard error of 100
        (1e-3, -1.0, False),
        (2e-3, -1.0, True),  # higher, and its top nearer
    ],
)
def test_where_it_leads_back_nothing_is_climbed(far, slope, is_climbed):
    asked = Asked(np.eye(1) / 100**2, far, slope)
    rising = further_out._rising_far_out(asked.maximum(lengths=np.array([100.0])))
    assert len(rising) == (2 if is_climbed else 0)
    assert len(asked.evaluated) == 2
    assert further_out._rising_far_out(Asked(np.eye(1), 0.0, slope=1e-6).maximum()) == []


@pytest.mark.parametrize("parameters", [8, 9])
def test_of_many_parameters_values_are_of_a_program_of_their_own(parameters):
    """Of 26 loadings and errors the look took longer than all climbs, by Hessians."""
    asked = Asked(np.eye(parameters), far=-9.0)
    more = {"value": None, "value_alone": lambda: asked.value}
    assert further_out._rising_far_out(asked.maximum(**more)) == []
    counts = len(asked.valued), len(asked.evaluated)
    assert counts == ((0, 16) if parameters == 8 else (18, 0))
    has_its_own = Asked(np.eye(parameters), far=-9.0)
    further_out._rising_far_out(has_its_own.maximum(value_alone=lambda: asked.value))
    assert len(has_its_own.valued) == 2 * parameters
    without = Asked(np.eye(parameters), far=-9.0)
    further_out._rising_far_out(without.maximum(value=None))
    assert len(without.evaluated) == 2 * parameters


def test_loose_parameters_and_draws_are_left_alone():
    asked = Asked(np.diag([0.25, 0.26]), far=0.0)
    further_out._rising_far_out(asked.maximum())
    assert [theta[0] for theta in asked.valued] == [10.0, 10.0]  # its error is two lengths
    assert [theta[1] for theta in asked.valued] != [10.0, 10.0]
    lengths = np.array([1.1, 0.9])
    asked.valued.clear()
    further_out._rising_far_out(asked.maximum(lengths=lengths))
    assert [theta[1] for theta in asked.valued] == [10.0, 10.0]
    asked.valued.clear()
    assert further_out._rising_far_out(asked.maximum(evaluate_finely=asked.evaluate)) == []
    assert asked.valued == []
    flat = Asked(np.diag([0.0, 1.0]), far=0.0)
    further_out._rising_far_out(flat.maximum())
    assert [theta[0] for theta in flat.valued] == [10.0, 10.0]


@pytest.mark.parametrize(
    ("before", "now", "which"),
    [
        (50.0, 50.0 - 1e-2, "first"),
        (1e-3, 0.0, "first"),
        (50.0, 50.0 - 9e-4, "lower"),
        (1e-3, 2e-3, "lower"),
        (50.0, 50.0 + 1.1e-3, "second"),
        (50.0, np.nan, "first"),
    ],
)
def test_a_second_look_has_to_be_higher_by_the_same_rule(monkeypatch, before, now, which):
    asked, finer = Asked(np.eye(1), far=0.0), Asked(np.eye(1), far=before)
    first = asked.maximum()
    local = first.best.local._replace(value=now)
    best = first.best._replace(local=local)
    second = first._replace(best=best, start=7, lower=(3.0,), function=finer.maximum().function)
    calls = []

    def maximum_from(function, ends, known, is_lost):
        calls.append((np.asarray(ends).tolist(), is_lost))
        return first if len(calls) == 1 else second

    monkeypatch.setattr(further_out, "maximum_from", maximum_from)
    ends = np.array([[9.0], [10.5]])
    got = highest_from(first.function, ends, [], [True, False])
    assert (got is first) == (which == "first")
    assert (got.best is best) == (which == "second")
    assert got.lower == (() if which == "first" else (3.0,))
    assert got.start == (1 if which == "second" else 0)
    assert finer.valued == [[10.0]]
    assert calls[0] == ([[9.0], [10.5]], [True, False])
    assert calls[1] == ([[9.0], [10.5], [6.0], [14.0]], [True, False, False, False])


def test_nowhere_finite_is_no_maximum(monkeypatch):
    monkeypatch.setattr(further_out, "maximum_from", lambda *_: None)
    asked = Asked(np.eye(1), far=0.0)
    first = asked.maximum()
    assert highest_from(first.function, np.zeros((1, 1)), []) is None
    found, lost = iter([first, None]), []
    monkeypatch.setattr(
        further_out, "maximum_from", lambda *given: lost.append(given[3]) or next(found)
    )
    assert highest_from(first.function, np.zeros((1, 1)), []) is first
    assert lost == [None, [False] * 3]


def test_nothing_is_climbed_again_without_a_reason(monkeypatch):
    first = Asked(np.eye(1), far=-9.0).maximum()
    found = iter([first])
    monkeypatch.setattr(further_out, "maximum_from", lambda *_: next(found))
    assert highest_from(first.function, np.zeros((1, 1)), []) is first

"""Climbs of parabolas: which are looked at again, by which rule, and what is said of the best."""

import numpy as np
import pytest

from marginax.likelihood import climbs
from marginax.likelihood.climbs import (
    Climbs,
    as_high,
    climb_from_starts,
    distance,
    gaps_below,
    is_near,
    maximum_from,
)
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.mode_search import ModeSearch
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.results import ImportanceLikelihood, QuadratureLikelihood

CURVED = np.diag([-4.0, -0.25])


def ended(place, value=0.0, hessian=None, settled=True, **more):
    theta = np.atleast_1d(np.asarray(place, float))
    hessian = -np.eye(len(theta)) if hessian is None else np.asarray(hessian, float)
    return Climb(theta, Local(value, 0 * theta, hessian, "extra"), 1, settled, **more)


def quadrature(theta=0.0, error=0.0, value=0.0, score_error=0.0):
    nothing = np.zeros((1, 1))
    score_error = np.full(1, score_error)
    return QuadratureLikelihood(
        value, error, np.zeros(1), nothing, nothing, 0.0, 9, score_error=score_error
    )


class Parabola:
    """-(theta - top)^2 / 2 + height, by a Hessian that may be wrong; what was asked of it."""

    def __init__(self, top=0.0, height=0.0, said=1.0, error=None):
        self.top, self.height, self.said, self.error = top, height, said, error
        self.asked, self.described = [], []

    def value(self, theta):
        return self.height - float(np.sum((theta - self.top) ** 2)) / 2

    def evaluate(self, theta, extra):
        self.asked.append((theta.tolist(), extra))
        hessian = np.diag(np.full(len(theta), -self.said))
        return Local(self.value(theta), self.top - theta, hessian, extra)

    def describe(self, theta, extra):
        self.described.append((theta.tolist(), extra))
        return None if self.error is None else quadrature(error=self.error, value=self.value(theta))

    def function(self, **more):
        return LikelihoodFunction("start", self.evaluate, self.describe, **more)


# Near, and as high


def test_distances_are_in_standard_errors():
    top = ended([1.0, 2.0], hessian=[[-4.0, 1.0], [1.0, -0.25]])
    assert distance(np.array([2.0, 2.0]), top) == pytest.approx(2.0)
    assert distance(np.array([1.0, 4.0]), top) == pytest.approx(1.0)
    assert distance(np.array([2.0, 3.0]), top) == pytest.approx(2.25**0.5)
    assert distance(np.array([2.0, 2.0]), ended([1.0, 2.0], hessian=-CURVED)) == pytest.approx(2.0)
    assert is_near(np.array([1.024, 2.0]), top)
    assert not is_near(np.array([1.026, 2.0]), top)


def test_what_is_as_high():
    best = ended(0.0, -100.0)
    for place, value, is_so in (
        (0.01, -105.0, True),
        (3.0, -100.009, True),
        (3.0, -100.011, False),
        (3.0, -99.0, True),
        (0.06, -101.0, False),
    ):
        assert as_high(ended(place, value), best) == is_so
    assert not as_high(ended(3.0, -0.01), ended(0.0, 0.0))
    assert not is_near(np.array([0.05]), best)


def test_ends_without_a_likelihood_do_not_count():
    all_of_them = [ended(0.0, value) for value in (1.0, np.nan, np.inf, -np.inf, -2.0)]
    assert climbs._finite(all_of_them) == [all_of_them[0], all_of_them[-1]]


@pytest.mark.parametrize(
    ("one", "best", "bends"),
    [
        ([-1e-5, 0.0], [-1.0, -1.0], True),
        ([0.0, -1e-5], [-1.0, -1.0], True),
        ([-1e-7, -1e-7], [-1.0, -1.0], False),
        ([-1e-7, -1e-7], [-0.01, -1.0], True),
        ([5.0, 0.0], [-1.0, -1.0], False),
        ([0.0, 0.0], [0.0, 9.0], False),
    ],
)
def test_a_plateau_does_not_bend(one, best, bends):
    assert climbs._bends(ended([0, 0], 0, np.diag(one)), ended([0, 0], 0, np.diag(best))) == bends


# Lower tops


@pytest.mark.parametrize("share", [1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4, None])
@pytest.mark.parametrize(("depth", "is_apart"), [(9e-4, False), (1e-3, True), (np.nan, True)])
def test_a_lower_top_is_apart_if_the_way_leads_down_somewhere(share, depth, is_apart):
    one, best = ended(64.0, -5.0), ended(-64.0, 0.0)
    asked = []

    def value(theta, extra):
        asked.append((float(theta[0]), extra))
        dips = share is not None and theta[0] == 64.0 - 128.0 * share
        return -5.0 - depth if dips else -5.0

    function = LikelihoodFunction(None, None, None, value=value)
    assert climbs._is_apart(function, one, best) == (is_apart and share is not None)
    assert asked == [(place, "extra") for place in (62.0, 56.0, 32.0, 0.0, -32.0)]


def test_gaps_are_told_of_lower_maxima_alone():
    best = ended(0.0, -100.0)
    lower = [ended(5.0, -101.5), ended(9.0, -107.0), ended(5.01, -101.5), ended(9.01, -107.0)]
    others = [
        best,
        ended(5.0, -101.5, settled=False),
        ended(3.0, -100.001),
        ended(7.0, -103.0, hessian=[[0.0]]),
    ]
    valley = LikelihoodFunction(None, None, None, value=lambda theta, extra: -200.0)
    assert gaps_below(valley, best, [*others, *lower]) == (1.5, 7.0)
    ridge = LikelihoodFunction(None, None, None, value=lambda theta, extra: -100.0)
    assert gaps_below(ridge, best, [*others, *lower]) == ()


def test_of_climbs_that_are_one_any_may_be_the_one_that_is_apart():
    best, flat = ended(0.0, -100.0), [[-1e-5]]
    far, near = ended(9.0, -103.0, flat), ended(5.0, -103.0, flat)

    def value(theta, extra):  # a dip that three quarters of the way from 9 does not reach
        return -200.0 if 0.5 < theta[0] < 2.0 else -100.0

    function = LikelihoodFunction(None, None, None, value=value)
    assert gaps_below(function, best, [far, near]) == pytest.approx((3.0,))
    assert gaps_below(function, best, [near, far]) == pytest.approx((3.0,))
    assert gaps_below(function, best, [far]) == ()


@pytest.mark.parametrize(
    ("other", "is_one"),
    [
        (ended(0.01, 0.009), True),
        (ended(0.01, -0.009), True),
        (ended(0.01, 0.01), False),
        (ended(0.01, 0.011), False),
        (ended(0.01, -0.011), False),
        (ended(0.06, 0.0), False),
        (ended(0.01, 0.0, settled=False), False),
        (ended(0.01, 0.0, hessian=[[-1e4]]), False),
    ],
)
def test_two_climbs_are_one_if_they_ended_alike(other, is_one):
    assert climbs._are_one(ended(0.0), other) == is_one
    assert climbs._are_one(other, ended(0.0)) == is_one
    assert climbs._are_one(ended(0.0, -100.0), ended(0.01, -100.0))


def test_climbs_that_are_one_go_on_once():
    gone = []

    def go_on(top):
        gone.append(float(top.theta[0]))
        return ended(top.theta + 100.0)

    new = climbs._each_once(go_on, [ended(0.0), ended(5.0), ended(0.01), ended(5.01)])
    assert gone == [0.0, 5.0]
    assert [float(one.theta[0]) for one in new] == [100.0, 105.0, 100.0, 105.0]


def test_going_on_begins_at_the_top():
    hill = Parabola(top=1.0)
    top = ended(0.5, modes_complete=False)
    again = climbs._again(hill.function(), top)
    assert hill.asked[0] == ([0.5], "extra")
    assert again.theta[0] == pytest.approx(1.0)
    assert not again.modes_complete
    nowhere = ended(0.5, -np.inf)
    assert climbs._again(hill.function(), nowhere) is nowhere


# One climb


def test_a_climb_is_as_the_likelihood_wants_it():
    hill = Parabola()
    quick = hill.function(first_radius=1.0, rough_gain=5.0, lengths=np.ones(1))
    found = climbs._climb(quick, np.array([10.0]), "modes")
    assert hill.asked == [([10.0], "modes"), ([9.0], "modes"), ([7.0], "modes"), ([3.0], "modes")]
    assert found.settled  # what is left is 4.5
    hill = Parabola()
    found = climbs._climb(hill.function(lengths=np.ones(1)), np.array([10.0]), "modes", 2)
    assert [place for place, _ in hill.asked] == [[10.0], [8.0], [4.0]]
    assert not found.settled


def test_second_derivatives_that_are_not_finite_come_from_values():
    hill = Parabola(said=np.inf)
    found = climbs._climb(hill.function(), np.array([1.0, 1.0]), "modes")
    np.testing.assert_allclose(found.theta, 0.0, atol=1e-6)
    assert found.local.value == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(found.local.hessian, -np.eye(2), atol=1e-6)


def test_without_a_value_or_a_gradient_there_is_no_climb():
    for parts in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)):
        asked = []

        def evaluate(theta, extra, parts=parts, asked=asked):
            asked.append(theta)
            value, slope = parts
            return Local(value, np.full(1, slope), np.full((1, 1), np.inf), extra)

        function = LikelihoodFunction(None, evaluate, None)
        found = climbs._climb(function, np.zeros(1), None)
        assert found.local.value == -np.inf
        assert found.num_steps == 0
        assert len(asked) <= 2


# Modes that were not integrated over


class Searches:
    """Finds so many new modes each time."""

    def __init__(self, *news):
        self.news, self.asked = list(news), []

    def __call__(self, theta, modes):
        self.asked.append((theta.tolist(), modes))
        new = self.news.pop(0)
        return ModeSearch(f"modes {len(self.asked)}", new, is_complete=new == 0)


@pytest.mark.parametrize(
    ("news", "looks", "complete"), [([0], 1, True), ([2, 0], 2, True), ([1, 1, 1, 0], 3, False)]
)
def test_one_looks_for_modes_until_there_are_no_new_ones_or_three_times(news, looks, complete):
    hill, searches = Parabola(), Searches(*news)
    function = hill.function(other_modes=searches, lengths=np.ones(1))
    top = climbs._over_all_modes(function, ended(0.5), 9)
    assert len(searches.asked) == looks
    assert searches.asked[0] == ([0.5], "extra")
    assert top.modes_complete == complete
    news = [f"modes {k}" for k in range(1, looks + 1)]
    climbed_with = [extra for _, extra in hill.asked]
    assert list(dict.fromkeys(climbed_with)) == (news[:-1] if complete else news)
    assert [modes for _, modes in searches.asked[1:]] == news[: looks - 1]
    if looks > 1:
        assert top.theta[0] == pytest.approx(0.0, abs=1e-9)


def test_one_does_not_look_where_there_is_nothing_to_look_for():
    searches = Searches()
    nowhere = ended(0.0, -np.inf)
    function = Parabola().function(other_modes=searches)
    assert climbs._over_all_modes(function, nowhere, 9) is nowhere
    top = ended(0.0)
    assert climbs._over_all_modes(Parabola().function(), top, 9) is top


def test_steps_over_all_modes_are_as_many_as_asked():
    hill = Parabola()
    function = hill.function(other_modes=Searches(1, 0), lengths=np.ones(1))
    climbs._over_all_modes(function, ended(10.0), 1)
    assert [place for place, _ in hill.asked] == [[10.0], [8.0]]


# Climbs from starts


def test_a_climb_from_every_start():
    hill, searches = Parabola(), Searches(3, 0, 0)
    function = hill.function(other_modes=searches)
    found = climb_from_starts(function, np.array([[1.0], [-1.0], [1.5]]))
    assert [float(top.theta[0]) for top in found.climbs] == pytest.approx([0.0] * 3, abs=1e-9)
    # At the first start, and at the top that all three led to, whose search ended.
    assert [place for place, _ in searches.asked] == [[1.0], [pytest.approx(0.0, abs=1e-9)]]
    assert searches.asked[0][1] == "start"
    assert {extra for place, extra in hill.asked if place == [-1.0]} == {"modes 1"}
    assert all(top.modes_complete for top in found.climbs)
    assert found.function.lengths.tolist() == [1.0]


def test_a_search_that_did_not_end_is_remembered_of_every_climb_to_the_place(monkeypatch):
    monkeypatch.setattr(climbs, "_finely_enough", Climbs)
    function = Parabola().function(other_modes=Searches(0, 1, 1, 1))
    found = climb_from_starts(function, np.array([[1.0], [-1.0]]))
    assert [top.modes_complete for top in found.climbs] == [False, False]


def test_lengths_are_those_of_the_first_start_unless_they_are_known():
    wide = Parabola(said=1e-4)
    wide.value = lambda theta: -float(np.sum(theta**2)) / 2e4
    wide.evaluate = lambda theta, extra: Local(
        wide.value(theta), -theta / 1e4, -np.eye(len(theta)) / 1e4, extra
    )
    found = climb_from_starts(wide.function(), np.array([[300.0], [1.0]]))
    np.testing.assert_allclose(found.function.lengths, [100.0])
    found = climb_from_starts(wide.function(lengths=np.array([7.0])), np.array([[300.0]]))
    assert found.function.lengths.tolist() == [7.0]


def test_first_climbs_have_as_many_steps_as_asked():
    hill = Parabola()
    climb_from_starts(hill.function(lengths=np.ones(1)), np.array([[10.0]]), 1)
    places = [place for place, _ in hill.asked]
    assert places[:2] == [[10.0], [8.0]]
    assert [4.0] not in places[:5]  # where a second would go; it is climbed on from 8


def test_a_plateau_is_left():
    class Plateau(Parabola):
        def evaluate(self, theta, extra):
            here = super().evaluate(theta, extra)
            if theta[0] > -5.0:
                return here
            return Local(-50.0, np.zeros(1), np.zeros((1, 1)), extra)

    found = climb_from_starts(Plateau().function(lengths=np.ones(1)), np.array([[-9.0]]))
    assert found.climbs[0].theta[0] == pytest.approx(0.0, abs=1e-9)


def test_what_is_asked_at_the_first_start_is_asked_there(monkeypatch):
    """Lengths, whether the rule is fine enough, and what a plateau's home is."""
    asked = []

    def lengths(evaluate, theta, extra):
        asked.append(("lengths", theta.tolist(), extra))
        return np.ones(1)

    def begin(function, theta, modes):
        asked.append(("begin", theta.tolist(), modes))
        return function

    def leave(function, top, home, climb_from):
        asked.append(("home", home.tolist()))
        return top

    monkeypatch.setattr(climbs, "typical_lengths", lengths)
    monkeypatch.setattr(climbs, "_fine_enough_to_begin", begin)
    monkeypatch.setattr(climbs, "off_plateau", leave)
    climb_from_starts(Parabola().function(), np.array([[2.0], [3.0]]))
    expected = [("lengths", [2.0], "start"), ("begin", [2.0], "start")]
    assert asked == [*expected, ("home", [2.0]), ("home", [2.0])]


def test_a_climb_has_sixty_steps_unless_told(monkeypatch):
    asked = []

    def line(theta, extra):
        asked.append(theta)
        return Local(float(theta[0]), np.ones(1), -np.eye(1), extra)

    function = LikelihoodFunction(None, line, None, lengths=np.ones(1))
    assert climbs._climb(function, np.zeros(1), None).num_steps == 60

    def climb_up(function, theta, modes, max_steps):
        asked.append(max_steps)
        return ended(theta)

    monkeypatch.setattr(climbs, "_climb", climb_up)
    monkeypatch.setattr(climbs, "_finely_enough", Climbs)
    asked.clear()
    climb_from_starts(function, np.zeros((1, 1)))
    assert asked == [60]


def test_a_climb_is_as_long_as_its_lengths_allow():
    flat = LikelihoodFunction(
        None,
        lambda theta, extra: Local(float(theta[0]), np.ones(1), np.zeros((1, 1)), extra),
        None,
        lengths=np.array([50.0]),
    )
    assert climbs._climb(flat, np.zeros(1), None, 1).theta[0] == 100.0


# Rules


def rules(*errors, tops=None):
    """A chain of finer rules of so large errors, each with its own top."""
    hills = [
        Parabola(top, error=error)
        for error, top in zip(errors, tops or range(len(errors)), strict=True)
    ]
    functions = [hill.function() for hill in hills]
    for k in reversed(range(len(hills) - 1)):
        functions[k] = functions[k]._replace(finer=lambda k=k: functions[k + 1])
    return hills, functions


def test_a_finer_rule_has_the_same_lengths():
    _, functions = rules(1.0, 0.0)
    finer = climbs._finer(functions[0]._replace(lengths=np.array([3.0])))
    assert finer.evaluate == functions[1].evaluate
    assert finer.lengths.tolist() == [3.0]
    assert climbs._finer(functions[1]).evaluate == functions[1].evaluate


def test_rules_are_compared_by_their_errors():
    hill = Parabola(error=1e-3)
    assert not climbs._is_accurate(hill.function(), ended(0.5))
    assert hill.described == [([0.5], "extra")]
    assert climbs._is_accurate(hill.function(), ended(0.5), 100.0)
    assert climbs._is_accurate(Parabola(error=1e-5).function(), ended(0.5))
    assert not climbs._is_accurate(Parabola(error=3e-5).function(), ended(0.5))
    assert climbs._is_accurate(Parabola().function(), ended(0.5))  # without rules


def test_one_goes_on_with_finer_rules_until_one_is_fine_enough():
    hills, functions = rules(1.0, 1e-3, 1e-9, 0.0)
    found = climbs._finely_enough(functions[0], [ended(0.1), ended(4.0, -2.0)])
    assert isinstance(found, Climbs)
    assert found.function.evaluate == functions[2].evaluate
    assert [float(top.theta[0]) for top in found.climbs] == pytest.approx([2.0, 2.0])
    assert hills[3].asked == []
    last, only = rules(1.0)
    found = climbs._finely_enough(only[0], [ended(0.1)])
    assert found.function.evaluate == only[0].evaluate
    nowhere = [ended(0.0, -np.inf)]
    assert climbs._finely_enough(functions[0], nowhere) == (functions[0], nowhere)


def test_the_best_climb_says_whether_a_rule_is_fine_enough():
    hill = Parabola(error=0.0)
    climbs._finely_enough(hill.function(finer=lambda: None), [ended(3.0, -9.0), ended(0.0, 0.0)])
    assert hill.described[0] == ([0.0], "extra")


@pytest.mark.parametrize(("errors", "chosen"), [([1.0, 0.0], 1), ([0.009, 0.0], 0),
                                                ([1.0, 0.5, 0.0], 2), ([1.0], 0)])  # fmt: skip
def test_a_climb_begins_with_a_rule_that_is_not_nonsense(errors, chosen):
    hills, functions = rules(*errors)
    found = climbs._fine_enough_to_begin(functions[0], np.array([0.3]), "modes")
    assert found.evaluate == functions[chosen].evaluate
    if len(errors) > 1:
        assert hills[0].asked == [([0.3], "modes")]
    known = functions[0]._replace(rule_is_known=True)
    assert climbs._fine_enough_to_begin(known, np.array([0.3]), "modes") is known


def test_where_nothing_is_finite_no_rule_is_finer():
    hills, functions = rules(1.0, 0.0)
    hills[0].height = np.nan
    assert climbs._fine_enough_to_begin(functions[0], np.zeros(1), None) is functions[0]


# Lower tops, looked at again


def test_a_top_that_is_as_high_is_not_looked_at_again():
    hill = Parabola(error=1.0)
    top, best = ended(0.0, 0.0), ended(0.01, 0.0)
    assert climbs._surely(hill.function(finer=lambda: None), top, best) is top
    nowhere = ended(9.0, -np.inf)
    assert climbs._surely(hill.function(finer=lambda: None), nowhere, best) is nowhere
    assert hill.asked == hill.described == []


def test_a_lower_top_is_looked_at_by_finer_rules_until_it_is_as_high():
    hills, functions = rules(1.0, 1.0, 0.0, tops=[9.0, 9.0, 9.0])
    hills[1].height = -5.0
    found = climbs._surely(functions[0], ended(9.1, -5.0), ended(0.0))
    assert found.theta[0] == pytest.approx(9.0)
    assert found.local.value == pytest.approx(0.0)
    assert len(hills[1].described) == 1
    assert hills[2].described == []  # as high by now
    hills, functions = rules(0.0, 0.0, tops=[9.0, 9.0])
    top = ended(9.0, -5.0)
    assert climbs._surely(functions[0], top, ended(0.0)) is top
    assert hills[1].asked == []


@pytest.mark.parametrize("noisy", [True, False])
def test_a_lower_top_of_wrong_derivatives_is_climbed_by_differences(noisy):
    hill = Parabola(said=4.0)
    function = hill.function(evaluate_finely=hill.evaluate if noisy else None)
    top = ended(0.01, hill.value(0.01), hessian=[[-4.0]])
    found = climbs._surely(function, top, ended(50.0, 9.0))
    assert (found is top) == noisy
    if not noisy:
        assert found.theta[0] == pytest.approx(0.0, abs=1e-5)
    lower = Parabola(said=4.0, height=-9.0).function()  # what it is climbed with then
    top = ended(0.01, -0.1, [[-4.0]])
    assert climbs._surely(lower, top, ended(50.0, 9.0)) is top


def test_a_lower_top_from_which_nothing_leads_higher_is_left_as_it_was():
    hill = Parabola(said=4.0)
    top = ended(0.0, 0.0, hessian=[[-4.0]])
    assert climbs._surely(hill.function(), top, ended(50.0, 9.0)) is top
    assert len(hill.asked) > 2  # it was looked at


@pytest.mark.parametrize("settled", [True, False])
def test_a_lower_top_of_right_derivatives_is_climbed_again_if_it_did_not_settle(settled):
    hill = Parabola()
    top = ended(0.3, hill.value(0.3), settled=settled)
    found = climbs._surely(hill.function(), top, ended(50.0, 9.0))
    assert (found is top) == settled
    # As high as the best, but it did not come to rest either.
    found = climbs._surely(hill.function(), top, ended(50.0, hill.value(0.3)))
    assert (found is top) == settled


def test_new_climbs_are_compared_with_all_that_is_known(monkeypatch):
    seen = []
    monkeypatch.setattr(climbs, "_surely", lambda f, one, best: seen.append(best) or one)
    low, high = ended(0.0, -1.0), ended(5.0, 3.0)
    assert climbs._sure(Parabola().function(), [low], [high]) == [low]
    assert climbs._sure(Parabola().function(), [high, low], []) == [high, low]
    assert climbs._sure(Parabola().function(), [low], [ended(9.0, -2.0)]) == [low]
    assert climbs._sure(Parabola().function(), [], []) == []
    assert [best.local.value for best in seen] == [3.0, 3.0, 3.0, -1.0]


# The maximum


def test_ends_where_a_climb_ended_are_not_climbed_from():
    hill, top = Parabola(), ended(0.0)
    assert not climbs._is_worth_a_climb(hill.function(), np.array([0.04]), [ended(9.0), top])
    assert climbs._is_worth_a_climb(hill.function(), np.array([0.06]), [top])
    extras = []
    noise = LikelihoodFunction(
        None, None, None, value=lambda theta, extra: extras.append(extra) or 1e20 * theta[0]
    )
    assert not climbs._is_worth_a_climb(noise, np.ones(1), [top])
    assert climbs._is_worth_a_climb(noise, np.ones(1), [])
    other = top._replace(local=top.local._replace(extra="first"))
    assert not climbs._is_worth_a_climb(noise, np.ones(1), [other, top])
    assert extras == ["extra", "extra", "first", "first"]


def test_the_highest_of_all_climbs_is_the_maximum():
    hill = Parabola(top=2.0)
    known = [ended(7.0, -12.5), ended(2.0, 0.0), ended(2.01, 0.0), ended(9.0, np.nan)]
    ends = np.array([[np.nan], [7.0], [2.02], [2.3]])
    found = maximum_from(hill.function(), ends, known)
    assert found.best.theta[0] == pytest.approx(2.0)
    assert (found.start, found.agreeing) == (2, 2)
    assert found.lower == ()  # the way up from 7 does not lead down
    assert found.likelihood is None
    assert found.function.evaluate == hill.evaluate


def test_without_any_likelihood_there_is_no_maximum():
    hill = Parabola(height=np.nan)
    assert maximum_from(hill.function(), np.array([[np.nan]]), []) is None
    assert maximum_from(hill.function(), np.array([[1.0]]), [ended(0.0, -np.inf)]) is None


@pytest.mark.parametrize(
    ("known", "lost", "climbs_made"),
    [([], None, 1), ([], [True], 1), ([5.0], [True], 0), ([5.0], [False], 1), ([5.0], None, 1)],
)
def test_what_diverged_counts_if_nothing_else_is_known(monkeypatch, known, lost, climbs_made):
    hill, made = Parabola(), []

    def from_starts(function, thetas):
        made.append(thetas.tolist())
        return Climbs(function, [ended(0.0)])

    monkeypatch.setattr(climbs, "climb_from_starts", from_starts)
    known = [ended(place, -12.5) for place in known]
    found = maximum_from(hill.function(), np.array([[1.0]]), known, lost)
    assert made == [[[1.0]]] * climbs_made
    assert found.best.theta[0] == (0.0 if climbs_made else pytest.approx(5.0))
    assert found.agreeing == (0 if climbs_made else 1)


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_an_end_of_which_any_part_is_not_finite_is_left_out(monkeypatch, lost):
    hill, made = Parabola(), []

    def from_starts(function, thetas):
        made.append(thetas.tolist())
        return Climbs(function, [ended([0.0, 0.0])])

    monkeypatch.setattr(climbs, "climb_from_starts", from_starts)
    ends = np.array([[lost, 1.0], [2.0, 3.0], [4.0, lost]])
    assert maximum_from(hill.function(), ends, []).start == 1
    assert made == [[[2.0, 3.0]]]


def test_what_is_known_is_climbed_again_if_a_climb_took_a_finer_rule(monkeypatch):
    coarse, fine = Parabola(top=1.0, height=50.0), Parabola(top=3.0)

    def from_starts(function, thetas):
        return Climbs(fine.function(), [ended(thetas[0], fine.value(thetas[0]))])

    monkeypatch.setattr(climbs, "climb_from_starts", from_starts)
    found = maximum_from(coarse.function(), np.array([[3.5]]), [ended(1.0, 50.0)])
    assert found.best.theta[0] == pytest.approx(3.0)
    assert found.best.local.value == pytest.approx(0.0)
    assert found.agreeing == 1
    assert found.function.evaluate == fine.evaluate


@pytest.mark.parametrize("complete", [True, False])
def test_a_likelihood_says_whether_all_modes_are_known(complete):
    known = [ended(0.0, modes_complete=complete)]
    function = Parabola(error=0.0).function()
    assert maximum_from(function, np.zeros((1, 1)), known).likelihood.modes_complete == complete
    drawn = ImportanceLikelihood(
        0.0, 0.0, None, np.zeros((1, 1)), np.zeros((1, 1)), 0.0, 9, "t", 9.0, None, np.eye(1)
    )
    function = function._replace(describe=lambda theta, extra: drawn)
    assert maximum_from(function, np.zeros((1, 1)), known).likelihood.modes_complete == complete


@pytest.mark.parametrize(
    ("score", "rise", "error", "place"),
    [
        # With a standard error of 2: 0.1 moves the estimate by 0.4, which is 0.2 standard errors.
        (0.02, 9.0, 0.04, None),
        (0.1, 0.0101, 0.2, 0.4),
        (0.1, 0.0099, 0.0, 0.4),
        (0.1, -1.0, 0.0, 0.4),
        (2.0, 0.26, 4.0, 2.0),  # one standard error on the way
        (2.0, 0.24, 0.0, 2.0),
    ],
)
def test_how_far_a_finer_rule_moves_the_estimate_where_it_is_higher(score, rise, error, place):
    asked = []

    def describe(theta, extra):
        asked.append((float(theta[0]), extra))
        return quadrature(value=rise - 7.0)

    function = LikelihoodFunction(None, None, describe)
    best = ended(3.0, hessian=[[-0.25]])
    value = quadrature(score_error=score, value=-7.0)
    assert climbs._estimate_error(function, best, value) == pytest.approx(error)
    assert asked == ([] if place is None else [(pytest.approx(3.0 + place), "extra")])


def test_the_estimates_error_is_told_unless_derivatives_were_taken_anew():
    for said, error in ((1.0, 0.2), (4.0, 0.0)):
        hill = Parabola(said=said)

        def describe(theta, extra):
            return quadrature(score_error=0.2, value=float(theta[0]))

        function = hill.function()._replace(describe=describe)
        top = ended(0.0, hessian=[[-said]])
        told = maximum_from(function, np.zeros((1, 1)), [top]).likelihood
        assert told.estimate_error == pytest.approx(error)


# The last steps


def test_a_top_whose_hessian_is_right_is_left():
    hill, best = Parabola(), ended(0.0)
    function = hill.function()
    assert climbs._last_steps(function, best) == (function, best)


@pytest.mark.parametrize("settled", [True, False])
def test_a_top_whose_hessian_is_wrong_is_climbed_by_differences(settled):
    hill = Parabola(said=4.0)
    best = ended(0.01, hill.value(0.01), hessian=[[-4.0]], settled=settled)
    function, again = climbs._last_steps(hill.function(), best)
    assert function.evaluate != hill.evaluate
    assert again.theta[0] == pytest.approx(0.0, abs=1e-5)
    assert again.local.hessian[0, 0] == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("value", "settled", "was_settled", "is_taken"),
    [
        (0.0, True, True, True),
        (0.0, True, False, True),
        (0.0, False, True, True),
        (0.0, False, False, False),
        (np.nan, True, True, False),
    ],
)
def test_what_differences_led_to_is_taken_if_it_is_a_top(
    monkeypatch, value, settled, was_settled, is_taken
):
    again = ended(0.7, value, settled=settled)
    monkeypatch.setattr(climbs, "curvature_agrees", lambda function, top: False)
    monkeypatch.setattr(climbs, "_again", lambda function, top: again)
    function, best = Parabola().function(), ended(0.0, settled=was_settled)
    other, found = climbs._last_steps(function, best)
    assert found is (again if is_taken else best)
    assert (other.evaluate is function.evaluate) != is_taken


@pytest.mark.parametrize(("top", "start"), [(None, 9.0), (np.array([40.0]), 40.0)])
def test_draws_that_suit_the_best_make_the_last_steps(top, start):
    fine, adapted = Parabola(top=0.0), []

    def adapt(theta, extra):
        adapted.append((theta.tolist(), extra))
        return Parabola().function(evaluate_finely=fine.evaluate, top=top, negligible=0.5)

    function = Parabola().function(adapt=adapt, lengths=np.array([3.0]))
    best = ended(9.0, -40.5, modes_complete=False)
    other, found = climbs._last_steps(function, best)
    assert adapted == [([9.0], "extra")]
    assert other.lengths.tolist() == [3.0]
    assert fine.asked[0] == ([start], "extra")
    assert not found.modes_complete
    assert found.theta[0] == pytest.approx(0.0, abs=1e-9)
    nowhere = Parabola(height=np.nan).evaluate
    function = Parabola().function(evaluate_finely=nowhere)
    assert climbs._last_steps(function, best) == (function, best)


def test_the_last_steps_are_eight_and_short_ones_are_not_taken():
    line = lambda theta, extra: Local(float(theta[0]), np.ones(1), -np.eye(1), extra)  # noqa: E731
    function = Parabola().function(evaluate_finely=line)
    assert climbs._last_steps(function, ended(0.0))[1].theta[0] == 8.0
    function = function._replace(negligible=0.6)
    assert climbs._last_steps(function, ended(0.0))[1].theta[0] == 0.0
    flat = lambda theta, extra: Local(float(theta[0]), np.ones(1), np.zeros((1, 1)), extra)  # noqa: E731
    function = Parabola().function(evaluate_finely=flat, lengths=np.array([5.0]))
    assert climbs._last_steps(function, ended(0.0))[1].theta[0] > 9.0 * 5

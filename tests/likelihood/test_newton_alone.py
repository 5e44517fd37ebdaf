"""Newton's method, step by step, on parabolas and lines whose steps follow by hand."""

import numpy as np
import pytest

from marginax.likelihood.newton import (
    Climb,
    Local,
    _scales,
    _step,
    climb,
    is_finite,
    restricted,
    typical_lengths,
    with_some,
)


class Line:
    """A likelihood of one coordinate from its value, slope and curvature; what was asked of it."""

    def __init__(self, value, slope, curvature):
        self.parts = value, slope, curvature
        self.visits, self.extras = [], []

    def __call__(self, theta, extra):
        x = float(theta[0])
        self.visits.append(x)
        self.extras.append(extra)
        value, slope, curvature = (float(part(x)) for part in self.parts)
        return Local(value, np.array([slope]), np.array([[curvature]]), extra + 1)


def parabola(unit=1.0, share=1.0, top=0.0):
    """-x^2 / 2 in some unit; its values tell only a share of what its derivatives promise."""
    return Line(
        lambda x: top - share * (x / unit) ** 2 / 2, lambda x: -x / unit**2, lambda x: -(unit**-2)
    )


def never_higher(slope=1.0, elsewhere=-1.0):
    return Line(lambda x: elsewhere if x else 0.0, lambda x: slope, lambda x: -1.0)


def local(gradient, hessian):
    return Local(0.0, np.asarray(gradient, float), np.asarray(hessian, float), None)


# A step


def test_a_typical_length_is_the_standard_error_if_that_is_not_too_long():
    here = local(np.zeros(4), np.diag([-4.0, 4.0, -0.01, 0.0]))
    np.testing.assert_allclose(_scales(here, np.ones(4)), [0.5, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(_scales(here, np.full(4, 3.0)), [0.5, 0.5, 3.0, 3.0])
    np.testing.assert_allclose(_scales(here, np.full(4, 20.0)), [0.5, 0.5, 10.0, 20.0])


@pytest.mark.parametrize("units", [[1.0, 1.0], [1e-6, 1e6]])
def test_a_short_step_leads_to_the_top_of_a_quadratic_and_promises_what_is_there(units):
    scale = np.diag(units)
    precision = np.array([[4.0, 3.0], [3.0, 9.0]])
    away = np.array([0.3, -0.2])
    here = local(np.linalg.solve(scale, precision @ away),
                 -np.linalg.solve(scale, np.linalg.solve(scale, precision).T))  # fmt: skip
    step, gain = _step(here, 2.0, np.full(2, 1e9))
    np.testing.assert_allclose(step, scale @ away, rtol=1e-9)
    assert gain == pytest.approx(away @ precision @ away / 2)
    shorter, less = _step(here, 0.1, np.full(2, 1e9))
    np.testing.assert_allclose(shorter / step, np.full(2, shorter[0] / step[0]), rtol=1e-9)
    lengths = scale @ (1 / np.sqrt(np.diag(precision)))
    assert np.linalg.norm(shorter / lengths) == pytest.approx(0.1)
    assert less == pytest.approx(here.gradient @ shorter / 2)


def test_a_step_goes_uphill_where_the_curvature_is_of_a_minimum_or_a_saddle():
    step, gain = _step(local([2.0, 2.0], np.diag([4.0, -4.0])), 9.0, np.ones(2))
    np.testing.assert_allclose(step, [0.5, 0.5])
    assert gain == pytest.approx(1.0)
    step, gain = _step(local([3.0, -1.0], [[0.0, 2.0], [2.0, 0.0]]), 1e9, np.full(2, 1.0))
    np.testing.assert_allclose(step, [1.5, -0.5])  # the curvature's size is 2 in all directions
    assert gain == pytest.approx(2.5)


def test_of_a_hessian_the_symmetric_part_counts():
    twisted = _step(local([0.3, 0.1], [[-4.0, 1.0], [-1.0, -9.0]]), 9.0, np.ones(2))
    np.testing.assert_allclose(twisted[0], [0.3 / 4, 0.1 / 9])


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_on_a_plateau_no_step_is_longer_than_two_lengths(slope):
    step, gain = _step(local([slope], [[0.0]]), 100.0, np.array([3.0]))
    assert step[0] == 6.0 * slope
    assert gain == 3.0
    step, gain = _step(local([slope / 16], [[0.0]]), 100.0, np.array([3.0]))
    assert step[0] == 6.0 * slope
    assert gain == 3.0 / 16
    # Beside a standard error that is as long as it may be, that of a quadratic is as long as it is.
    assert _step(local([50.0], [[-1.0]]), 100.0, np.ones(1))[0][0] == pytest.approx(50.0)
    assert _step(local([9.0], [[-0.15]]), 100.0, np.array([3.0]))[0][0] == pytest.approx(60.0)
    assert _step(local([9.0], [[-0.15]]), 100.0, np.array([2.0]))[0][0] == pytest.approx(4.0)


@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
def test_the_step_stays_as_it_was_if_the_shorter_one_leads_down(size):
    here = local([size, -size], [[-0.5, 0.7], [0.7, -1.0]])
    step, gain = _step(here, 1000.0, np.ones(2))
    np.testing.assert_allclose(step, [30.0 * size, 20.0 * size])  # (2, 20 size) goes downhill
    assert gain == pytest.approx(5.0 * size**2)


def test_almost_no_slope_is_no_reason_for_a_long_step():
    assert _step(local([1e-14], [[0.0]]), 2.0, np.ones(1))[0][0] == pytest.approx(0.1)


# A climb


@pytest.mark.parametrize(("unit", "lengths"), [(1.0, None), (0.1, None), (10.0, np.array([20.0]))])
def test_a_step_that_held_its_promise_is_followed_by_one_twice_as_long(unit, lengths):
    line = parabola(unit)
    found = climb(line, np.array([10 * unit]), 0, lengths=lengths)
    np.testing.assert_allclose(np.array(line.visits) / unit, [10, 8, 4, 0], atol=1e-12)
    assert (found.num_steps, found.settled) == (3, True)
    assert found.promised < 1e-20
    assert found.modes_complete
    assert found.theta[0] == pytest.approx(0.0, abs=1e-12)
    assert line.extras == [0, 1, 2, 3]
    assert found.local.extra == 4


def test_without_lengths_a_flat_parabola_is_climbed_in_steps_of_two():
    line = parabola(100.0)
    climb(line, np.array([10.0]), 0, max_steps=1)
    np.testing.assert_allclose(line.visits, [10.0, 8.0])


@pytest.mark.parametrize(("share", "visits"), [(0.25, [10, 8, 6, 4, 2, 0]), (0.4, [10, 8, 4, 0])])
def test_one_that_broke_its_promise_is_followed_by_one_as_long(share, visits):
    line = parabola(share=share)
    climb(line, np.array([10.0]), 0)
    np.testing.assert_allclose(line.visits, visits, atol=1e-12)


def test_half_of_the_promise_is_not_enough():
    line = Line(
        lambda x: {10: 0.0, 8: 5.0, 6: 9.0, 4: 12.0}.get(x, 20.0), lambda x: -x, lambda x: -1
    )
    climb(line, np.array([10.0]), 0, max_steps=3)
    assert line.visits == [10, 8, 6, 4]


def test_the_first_step_may_be_asked_to_be_short():
    line = parabola()
    climb(line, np.array([10.0]), 0, first_radius=1.0)
    np.testing.assert_allclose(line.visits, [10, 9, 7, 3, 0], atol=1e-12)


@pytest.mark.parametrize("elsewhere", [-1.0, -np.inf, np.inf, np.nan])
def test_a_step_that_is_refused_is_followed_by_one_of_a_quarter(elsewhere):
    line = never_higher(elsewhere=elsewhere)
    found = climb(line, np.zeros(1), 0, max_steps=3)
    np.testing.assert_allclose(line.visits, [0, 1, 0.25, 0.0625])
    assert (found.theta[0], found.num_steps, found.settled) == (0.0, 0, False)
    assert line.extras == [0, 1, 1, 1]
    assert found.promised == pytest.approx(0.5)
    line = never_higher(slope=9.0, elsewhere=elsewhere)
    climb(line, np.zeros(1), 0, max_steps=3)
    np.testing.assert_allclose(line.visits, [0, 2, 0.5, 0.125])


def test_a_step_to_the_same_height_is_taken():
    line = Line(lambda x: 3.0, lambda x: 1.0, lambda x: -1.0)
    found = climb(line, np.zeros(1), 0, max_steps=4)
    assert (found.theta[0], found.num_steps, found.settled) == (4.0, 4, False)
    assert found.promised == pytest.approx(0.5)


@pytest.mark.parametrize(("slope", "settled"), [(1.0, False), (0.08, False), (0.06, True)])
def test_a_climb_whose_steps_all_failed_settled_only_if_little_was_promised(slope, settled):
    found = climb(never_higher(slope), np.zeros(1), 0)
    assert found.settled == settled
    assert found.promised == pytest.approx(slope**2 / 2)


def test_what_is_negligible_is_not_climbed():
    line = parabola()
    found = climb(line, np.array([1.0]), 0, negligible=0.6)
    assert line.visits == [1.0]
    assert (found.num_steps, found.settled) == (0, True)
    assert found.promised == pytest.approx(0.5)
    assert climb(line, np.array([1.0]), 0, negligible=0.5).num_steps == 1


@pytest.mark.parametrize("top", [1e9, -1e9])
def test_what_rounding_of_a_large_value_hides_is_not_climbed(top):
    assert climb(parabola(top=top), np.array([1e-3]), 0).num_steps == 0
    assert climb(parabola(top=top), np.array([1e-1]), 0).num_steps == 1


def test_a_climb_gives_up_when_steps_become_too_short():
    line = never_higher(slope=1e6)
    found = climb(line, np.zeros(1), 0)
    assert len(line.visits) == 19  # 2 / 4^18 is below 1e-10, and 2 / 4^17 is not
    assert not found.settled
    assert found.promised == pytest.approx(1e6)  # of a step of 2


def test_a_climb_has_sixty_steps_unless_told():
    line = Line(lambda x: x, lambda x: 1.0, lambda x: -1.0)
    assert climb(line, np.zeros(1), 0).num_steps == 60
    assert len(line.visits) == 61


def test_without_steps_there_is_a_promise_alone():
    line = parabola()
    found = climb(line, np.array([10.0]), 0, max_steps=0)
    assert line.visits == [10.0]
    assert (found.theta[0], found.num_steps, found.settled) == (10.0, 0, False)
    assert found.promised == pytest.approx(10.0)


def test_a_start_without_a_finite_likelihood_is_no_climb():
    for hole in range(3):
        parts = [lambda x: 1.0, lambda x: 1.0, lambda x: -1.0]
        parts[hole] = lambda x: np.nan
        line = Line(*parts)
        found = climb(line, np.array([7.0]), 0)
        assert not is_finite(line(np.array([7.0]), 0))
        assert found.local.value == -np.inf
        assert (found.theta[0], found.num_steps, found.settled) == (7.0, 0, False)
        assert found.promised == 0.0


def test_where_a_climb_would_go_next():
    here = local([1.0, 0.5], np.diag([0.0, -1.0]))
    top = Climb(np.zeros(2), here, 0, True)
    assert top.modes_complete
    assert top.promised == 0.0
    assert np.linalg.norm(top.step()) == pytest.approx(2.0)
    assert top.step()[0] == pytest.approx(2.0)
    assert top.step(np.array([50.0, 1.0]))[0] == pytest.approx(100.0)


# Some coordinates


def test_some_coordinates_of_a_likelihood():
    gradient, hessian = np.arange(3.0), np.arange(9.0).reshape(3, 3)
    seen = []

    def evaluate(theta, extra):
        seen.append((theta.tolist(), extra))
        return Local(5.0, gradient, hessian, "next")

    theta, inner = np.array([10.0, 20.0, 30.0]), np.array([2, 0])
    part = restricted(evaluate, theta, inner)(np.array([-1.0, -2.0]), "first")
    assert seen == [([-2.0, 20.0, -1.0], "first")]
    assert (part.value, part.extra) == (5.0, "next")
    assert part.gradient.tolist() == [2.0, 0.0]
    assert part.hessian.tolist() == [[8.0, 6.0], [2.0, 0.0]]
    assert with_some(theta, inner, np.zeros(2)).tolist() == [0.0, 20.0, 0.0]
    assert theta.tolist() == [10.0, 20.0, 30.0]


# Typical lengths


@pytest.mark.parametrize(("unit", "length"), [(0.5, 1.0), (2.0, 1.0), (2.5, 2.5), (1e9, 1e9)])
@pytest.mark.parametrize("place", [0.0, 3.0, -3.0])
def test_a_long_standard_error_is_the_length_of_a_parabola(unit, length, place):
    line = parabola(unit)
    assert typical_lengths(line, np.array([place * unit]), 0)[0] == pytest.approx(length)
    assert set(line.extras) <= {0, 1}
    assert line.extras[0] == 0
    assert line.extras.count(0) == 1


@pytest.mark.parametrize(
    ("bend", "known"), [(0.04, False), (0.06, True), (4.5, True), (5.0, False), (5.5, False)]
)
@pytest.mark.parametrize("only", [None, 1.0, -1.0])
def test_a_standard_error_over_which_the_likelihood_bends_otherwise_is_no_length(bend, known, only):
    # Its slope would make 2, which is no long length.
    def value(x):
        bends = bend if only is None or np.sign(x) == only else 0.5
        return 0.5 * x - bends * (x / 64) ** 2

    line = Line(value, lambda x: 0.5, lambda x: -(2.0**-12))
    assert typical_lengths(line, np.zeros(1), 0)[0] == pytest.approx(64.0 if known else 1.0)


@pytest.mark.parametrize(
    ("rise", "known"),
    [
        (0.15, False),
        (0.2, False),
        (0.25, True),
        (1.0, True),
        (4.5, True),
        (5.0, False),
        (5.5, False),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("only", [None, 1.0, -1.0])
def test_without_curvature_a_slope_tells_the_length(rise, known, sign, only):
    def value(x):
        return sign * x / 64 * (rise if only is None or np.sign(x) == only else 1.0)

    line = Line(value, lambda x: sign / 64, lambda x: 0.0)
    assert typical_lengths(line, np.zeros(1), 0)[0] == pytest.approx(64.0 if known else 1.0)


@pytest.mark.parametrize(("slope", "length"), [(1.0, 1.0), (0.5, 1.0), (0.4, 2.5), (1e-6, 1e6)])
def test_a_steep_slope_has_length_1(slope, length):
    line = Line(lambda x: slope * x, lambda x: slope, lambda x: 0.0)
    assert typical_lengths(line, np.zeros(1), 0)[0] == pytest.approx(length)


def test_a_parameter_that_does_not_matter_has_length_1():
    flat = Line(lambda x: 3.0, lambda x: 0.0, lambda x: 0.0)
    assert typical_lengths(flat, np.zeros(1), 0).tolist() == [1.0]


def test_where_nothing_changes_the_length_is_1_and_nothing_far_away_is_looked_at():
    seen = []

    def evaluate(theta, extra):
        seen.append(abs(theta[0]))
        return Local(0.0 if abs(theta[0]) < 1e200 else -np.inf, np.zeros(1), np.zeros((1, 1)), None)

    assert typical_lengths(evaluate, np.zeros(1), None).tolist() == [1.0]
    assert max(seen) < 1e200


def test_each_parameter_has_its_own_length():
    units = np.array([1e3, 1.0, 7.0])

    def evaluate(theta, extra):
        z = theta / units
        return Local(-float(z @ z) / 2, -z / units, -np.diag(units**-2), extra)

    np.testing.assert_allclose(typical_lengths(evaluate, units, None), [1e3, 1.0, 7.0])


def test_where_nothing_is_finite_lengths_are_1():
    nowhere = Line(lambda x: np.nan, lambda x: 1e-9, lambda x: 0.0)
    assert typical_lengths(nowhere, np.zeros(1), 0).tolist() == [1.0]
    assert len(nowhere.visits) == 1

"""Differences, steps and doubts of `second_derivatives`, on functions whose answers are by hand."""

from functools import partial

import numpy as np
import pytest

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.second_derivatives import (
    _bends_upwards,
    _disagreement,
    _falls_as_said,
    _steps,
    by_differences,
    checked_information,
    curvature_agrees,
)

STEP = 0.2  # standard errors
START = "modes"  # what every evaluation is to be handed
FULL = np.array([[4e4, 30.0, 0.1], [30.0, 0.09, -1e-3], [0.1, -1e-3, 1e-4]])


def likelihood(value, gradient=None, hessian=None, /, **more):
    """Of functions of theta; a gradient or a Hessian that is not told is 0."""

    def evaluate(theta, start):
        assert start == START
        zero = np.zeros(len(theta))
        slope = zero if gradient is None else np.asarray(gradient(theta), float)
        bend = np.diag(zero) if hessian is None else np.asarray(hessian, float)
        return Local(float(value(theta)), slope, bend, START)

    return LikelihoodFunction(None, evaluate, None, **more)


def top_of(function, theta):
    theta = np.asarray(theta, float)
    return Climb(theta, function.evaluate(theta, START), 3, True)


def quadratic(information, theta):
    return -7.0 - 0.5 * theta @ information @ theta


def with_gradient(gradient, claimed):
    """Falls as it says; its gradient is another's."""
    claimed = np.atleast_2d(claimed)
    return likelihood(partial(quadratic, claimed), gradient, -claimed)


@pytest.mark.parametrize("units", [[1.0, 1.0], [1e3, 1e-4]])
@pytest.mark.parametrize(("correlation", "upwards"), [(0.9, False), (1.005, False), (1.015, True)])
def test_a_hessian_bends_upwards_by_more_than_rounding_in_any_units(units, correlation, upwards):
    units = np.array(units)
    hessian = np.array([[-1.0, correlation], [correlation, -1.0]]) * np.outer(units, units)
    assert _bends_upwards(hessian) == upwards


def test_what_has_no_curvature_does_not_bend_upwards():
    assert not _bends_upwards(np.zeros((2, 2)))
    assert not _bends_upwards(np.diag([-1e-30, 0.0]))
    assert _bends_upwards(np.diag([-1.0, 1e-30]))


def test_a_saddle_is_no_maximum_whatever_its_gradient():
    saddle = np.diag([1.0, -0.5])
    function = with_gradient(lambda theta: -saddle @ theta, saddle)
    assert not curvature_agrees(function, top_of(function, [0.0, 0.0]))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("wrong_by", [0.5, 1.25, 3.0])
def test_a_gradient_that_is_wrong_by_a_factor_along_every_coordinate(size, wrong_by):
    """Of a step evenly along all of them each coordinate is a part 1 / sqrt(size)."""
    claimed = np.diag([4e6, 9.0, 1e-8][:size])
    function = with_gradient(lambda theta: -wrong_by * claimed @ theta, claimed)
    off = _disagreement(function, top_of(function, np.zeros(size)), STEP)
    assert off == pytest.approx(abs(wrong_by - 1) / np.sqrt(size), rel=1e-9)


def test_a_gradient_that_misses_a_correlation():
    claimed = np.diag([4e6, 9.0, 1e-8])
    true = claimed.copy()
    true[0, 1] = true[1, 0] = 0.3 * np.sqrt(4e6 * 9.0)
    function = with_gradient(lambda theta: -true @ theta, claimed)
    off = _disagreement(function, top_of(function, np.zeros(3)), STEP)
    assert off == pytest.approx(0.3 / np.sqrt(3), rel=1e-9)


def test_coordinates_without_curvature_are_not_moved_and_have_units_of_their_own():
    claimed = np.diag([4.0, 0.0])
    function = with_gradient(lambda theta: np.array([-6.0, 3.0]) * theta[0], claimed)
    # A step of 0.1 there is one of 0.2 standard errors: gradients of 0.3 and 0.2 in place of 0.
    assert _disagreement(function, top_of(function, [0.0, 0.0]), STEP) == pytest.approx(1.5)


def test_what_has_no_curvature_at_all_is_not_doubted():
    function = with_gradient(lambda theta: np.ones(2), np.zeros((2, 2)))
    with np.errstate(all="raise"):
        assert _disagreement(function, top_of(function, [0.0, 0.0]), STEP) == 0.0


def test_a_smooth_gradient_differs_by_the_square_of_the_step():
    function = with_gradient(lambda theta: -4.0 * theta + 8.0 * theta**3, 4.0)
    top = top_of(function, [0.0])
    # (8 (s / 2)^3 / 2) / s
    assert _disagreement(function, top, 0.2) == pytest.approx(0.5 * 0.2**2)
    assert _disagreement(function, top, 0.1) == pytest.approx(0.5 * 0.1**2)


def test_a_step_along_all_coordinates_together_is_as_long_as_along_one():
    diagonal = np.array([4e6, 9.0, 1e-8])
    claimed = np.diag(diagonal)
    function = with_gradient(lambda t: -diagonal * t + diagonal**2 * t**3, claimed)
    # Each moves s / sqrt(3) of its standard errors: (s / sqrt(3))^3 / s
    off = _disagreement(function, top_of(function, np.zeros(3)), STEP)
    assert off == pytest.approx(STEP**2 / 27**0.5)


def test_coordinates_do_not_all_move_the_same_way():
    """A likelihood may not mind if all are moved by as much."""
    seen = []

    def gradient(theta):
        seen.append(np.sign(theta))
        return -theta

    function = with_gradient(gradient, np.eye(20))
    top = top_of(function, np.zeros(20))
    _disagreement(function, top, STEP)
    assert 4 < np.sum(seen[-1] > 0) < 16
    np.testing.assert_array_equal(seen[-1], -seen[-2])


def test_a_plateau_whose_gradient_is_not_flat_is_doubted():
    function = likelihood(lambda theta: -7.0, lambda theta: -2.0 * theta, [[-1.0]])
    assert not curvature_agrees(function, top_of(function, [0.0]))


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize(("other_fall", "is_seen"), [(0.05, False), (0.15, True), (1.0, True)])
def test_a_likelihood_that_falls_to_one_side_alone_is_not_doubted(side, other_fall, is_seen):
    def value(theta):
        return -(1.0 if side * theta[0] > 0 else other_fall) * abs(theta[0])

    function = likelihood(value, lambda theta: -2.0 * theta, [[-1.0]])
    off = _disagreement(function, top_of(function, [0.0]), STEP)
    assert off == pytest.approx(1.0 if is_seen else 0.0)
    assert curvature_agrees(function, top_of(function, [0.0])) != is_seen


@pytest.mark.parametrize("edge", [-np.inf, np.nan])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_nothing_is_said_at_an_edge(edge, side):
    def value(theta):
        return edge if side * theta[0] > 0.1 else -0.5 * theta[0] ** 2

    function = likelihood(value, lambda theta: -2.0 * theta, [[-1.0]])
    assert _disagreement(function, top_of(function, [0.0]), STEP) == 0.0


@pytest.mark.parametrize(("wrong_by", "agrees"), [(1.0, True), (1.02, True), (1.04, False)])
def test_a_curvature_may_be_wrong_by_three_per_cent(wrong_by, agrees):
    function = with_gradient(lambda theta: -wrong_by * theta, 1.0)
    assert curvature_agrees(function, top_of(function, [0.0])) == agrees


@pytest.mark.parametrize(("power", "agrees"), [(1.0, False), (np.log2(3.0), True), (2.0, True)])
def test_a_difference_that_falls_with_the_square_of_the_step_is_none(power, agrees):
    def gradient(theta):  # differs from the curvature by (5 |theta|)^power
        return -theta * (1 + np.abs(5 * theta) ** power)

    function = with_gradient(gradient, 1.0)
    assert _disagreement(function, top_of(function, [0.0]), STEP) == pytest.approx(1.0)
    assert curvature_agrees(function, top_of(function, [0.0])) == agrees


def test_derivatives_of_few_parameters_are_those_of_the_values():
    """At a point off the top, from steps of the top; a quadratic is exact."""
    function = likelihood(
        partial(quadratic, FULL), lambda theta: 0 * theta, -np.diag(np.diag(FULL))
    )
    again = by_differences(function, top_of(function, np.zeros(3)))
    theta = np.array([0.01, -3.0, 50.0])
    here = again.evaluate(theta, START)
    assert here.value == quadratic(FULL, theta)
    assert here.extra == START
    np.testing.assert_allclose(here.gradient, -FULL @ theta, rtol=1e-7)
    np.testing.assert_allclose(here.hessian, -FULL, rtol=1e-6)


def slanted(size):
    """Values of one likelihood, the gradient of another, which is not even a gradient."""
    jacobian = -np.eye(size) + 0.1 * np.arange(size**2).reshape(size, size)
    function = likelihood(
        partial(quadratic, 2 * np.eye(size)), lambda theta: jacobian @ theta, -2 * np.eye(size)
    )
    return by_differences(function, top_of(function, np.zeros(size))), jacobian


def test_of_eight_parameters_values_count_and_of_nine_gradients():
    theta = np.arange(8.0)
    here = slanted(8)[0].evaluate(theta, START)
    np.testing.assert_allclose(here.gradient, -2 * theta, atol=1e-9)
    np.testing.assert_allclose(here.hessian, -2 * np.eye(8), atol=1e-9)
    again, jacobian = slanted(9)
    theta = np.arange(9.0)
    here = again.evaluate(theta, START)
    np.testing.assert_array_equal(here.gradient, jacobian @ theta)
    np.testing.assert_allclose(here.hessian, (jacobian + jacobian.T) / 2, atol=1e-9)


def test_where_there_is_no_value_there_are_no_differences():
    def value(theta):
        return np.nan if theta[0] > 5 else -0.5 * theta[0] ** 2

    function = likelihood(value, lambda theta: -theta + 3.0, [[-1.0]])
    again = by_differences(function, top_of(function, [0.0]))
    here = again.evaluate(np.array([6.0]), START)
    assert here.gradient[0] == -3.0
    assert again.evaluate(np.array([4.0]), START).gradient[0] == pytest.approx(-4.0)


def test_values_alone_are_asked_for_if_they_are_cheaper():
    def cheap(theta, start):
        assert start == START
        return quadratic(3 * np.eye(1), theta)

    def by(**more):
        function = likelihood(partial(quadratic, np.eye(1)), None, [[-1.0]], **more)
        return by_differences(function, top_of(function, [0.0])).evaluate(np.zeros(1), START)

    def never():
        raise AssertionError("There is one already.")

    assert by().hessian[0, 0] == pytest.approx(-1.0)
    assert by(value=cheap).hessian[0, 0] == pytest.approx(-3.0)
    assert by(value_alone=lambda: cheap).hessian[0, 0] == pytest.approx(-3.0)
    assert by(value=cheap, value_alone=never).hessian[0, 0] == pytest.approx(-3.0)


@pytest.mark.parametrize("claimed", [25.0, 0.04])
@pytest.mark.parametrize("factor", [1.0, 3.9, 1 / 3.9])
def test_a_step_over_which_it_bends_about_as_said_stays(factor, claimed):
    function = likelihood(partial(quadratic, np.array([[claimed * factor]])), None, [[-claimed]])
    assert _steps(function, top_of(function, [0.0])) == pytest.approx(STEP / claimed**0.5)


@pytest.mark.parametrize("claimed", [-1e8, -4.1, -1 / 4.1, -1e-8, 1e-8, 0.0, np.inf, np.nan])
def test_other_steps_become_a_fifth_of_the_standard_errors_that_values_have(claimed):
    information = np.array([[1.0, 0.5], [0.5, 9.0]])
    hessian = np.diag([claimed, -9.0])
    function = likelihood(partial(quadratic, information), None, hessian)
    found = _steps(function, top_of(function, [0.0, 0.0]))
    # Without a curvature to begin with the first is just this.
    np.testing.assert_allclose(found, [STEP, STEP / 3], rtol=1e-6)


def test_the_step_of_a_kink():
    """|theta| / 4 bends over steps s as much as s / 2, which is to be 0.04."""
    function = likelihood(lambda theta: -abs(theta[0]) / 4, None, [[-1e-4]])
    (step,) = _steps(function, top_of(function, [0.0]))
    assert STEP**2 / 4 < step / 2 < 4 * STEP**2


def test_steps_on_a_plateau_grow_tenfold_in_every_round():
    function = likelihood(lambda theta: -7.0)
    np.testing.assert_allclose(_steps(function, top_of(function, [5.0])), STEP * 10.0**16)


@pytest.mark.parametrize("beyond", [-np.inf, np.nan])
@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-1.0, 1e30), (-1e30, 1.0)])
def test_steps_on_a_plateau_that_ends_stay_on_it(beyond, ends):
    def value(theta):
        return -7.0 if ends[0] < theta[1] < ends[1] else beyond

    function = likelihood(value)
    # 0.2, then 2.0, which is too long; a quarter of that, and ten times it would be too long.
    assert _steps(function, top_of(function, [0.0, 0.0]))[1] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("true", "as_said"), [(1.0, True), (1.08, True), (0.92, True), (1.12, False), (0.88, False)]
)
def test_a_likelihood_falls_as_its_hessian_says_or_not(true, as_said):
    information = np.diag([3.0, 16.0])
    function = likelihood(
        partial(quadratic, np.diag([1.0, true]) @ information), None, -information
    )
    here = top_of(function, [0.3, -1.0]).local  # also where there is a slope
    assert _falls_as_said(function, np.array([0.3, -1.0]), here, 1) == as_said
    assert _falls_as_said(function, np.array([0.3, -1.0]), here, 0)


@pytest.mark.parametrize("curvature", [0.0, -1.0])
def test_no_likelihood_falls_as_a_hessian_says_that_has_no_maximum(curvature):
    function = likelihood(partial(quadratic, curvature * np.eye(1)), None, [[-curvature]])
    with np.errstate(all="raise"):
        assert not _falls_as_said(function, np.zeros(1), top_of(function, [0.0]).local, 0)


@pytest.mark.parametrize("with_values", [True, False])
def test_information_that_is_contradicted_is_taken_from_values_of_whole_theta(with_values):
    value = partial(quadratic, FULL)
    claimed = FULL.copy()
    claimed[2, 2] *= 2
    more = {"value": lambda theta, start: value(theta)} if with_values else {}
    function = likelihood(value, lambda theta: -FULL @ theta, -claimed, **more)
    theta = np.array([0.0, 1.0, 0.0])
    local = top_of(function, theta).local
    before = local.hessian.copy()
    seen = checked_information(function, theta, local, np.array([2, 0]))
    expected = claimed.copy()
    expected[2, 2] = FULL[2, 2]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    np.testing.assert_array_equal(seen[1], claimed[1])
    np.testing.assert_array_equal(local.hessian, before)
    # Of those that are borne out nothing is computed anew.
    np.testing.assert_array_equal(
        checked_information(function, theta, local, np.array([0, 1])), claimed
    )


def test_information_stays_where_there_are_no_values_beside():
    function = likelihood(lambda theta: -7.0 if theta[0] == 0 else -np.inf, None, [[-4.0]])
    local = top_of(function, [0.0]).local
    with np.errstate(invalid="ignore"):  # a difference of -inf and -inf
        assert checked_information(function, np.zeros(1), local, np.array([0])) == 4.0

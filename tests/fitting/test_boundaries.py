"""Parameters at the end of what is allowed, and what the others know there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_likelihood import closed_likelihood, maximum_at
from jax.scipy.stats import norm

import marginax as mx
from marginax.fitting.boundaries import find_ends, with_flat_ridges, with_information_inside
from marginax.fitting.directions import runaways, with_tested_directions
from marginax.fitting.fit_state import FitState
from marginax.likelihood.second_derivatives import checked_information

pytestmark = pytest.mark.usefixtures("as_users_write")
POSITIVE, SHARE = mx.transforms.positive, mx.transforms.unit_interval


def problem(**transforms):
    """A problem with these parameters; its log joint is not looked at."""

    def log_joint(theta, x, y):
        return norm.logpdf(x) + 0.0 * sum(theta.values())

    theta = {name: 0.5 for name in transforms}
    return mx.Problem.grouped(
        log_joint, jnp.zeros((2, 1)), theta=theta, latent=0.0, theta_transforms=transforms
    )


def state_at(log_likelihood, theta):
    maximum = maximum_at(closed_likelihood(log_likelihood), np.asarray(theta, float))
    return FitState(maximum.best.theta, 0).at_maximum(maximum)


def test_the_others_follow_to_a_boundary():
    """A uniform effect on (level, level + span): moved alone, the span takes the mean with it."""

    def log_likelihood(theta):  # the mean is known well, the spread says next to nothing
        level, span = theta[0], jnp.exp(theta[1])
        return -0.5 * ((level + span / 2 - 1.0) / 0.01) ** 2 - 1e-4 * (span - 0.2) ** 2

    both = problem(a=mx.transforms.identity, b=POSITIVE)
    assert find_ends(both, state_at(log_likelihood, [0.998, np.log(0.004)])).sides == {1: -1.0}
    # Ten standard errors of the level along, the level is not what it is at the boundary.
    ends = find_ends(both, state_at(log_likelihood, [0.9, np.log(0.2)]))
    assert (ends.sides, ends.undetermined, ends.ridges) == ({}, [], [1])


def test_parameters_known_only_together_are_not_known():
    """All groups in one class: `gap is at the boundary`, and `low` had a standard error there."""

    def log_likelihood(theta):
        return -2.0 * (theta[0] + jnp.exp(theta[1]) - 2.4) ** 2 - 50.0 * (theta[2] - 1.0) ** 2

    found = state_at(log_likelihood, [2.4 - 6.6, np.log(6.6), 1.0])
    three = problem(a=mx.transforms.identity, b=POSITIVE, c=mx.transforms.identity)
    ends = find_ends(three, found)
    assert (ends.sides, ends.undetermined, ends.ridges) == ({}, [], [1])
    information = with_flat_ridges(found, ends.ridges).information
    np.testing.assert_allclose(information, np.diag([0.0, 0.0, 100.0]), atol=1e-9)


def test_a_ridge_to_infinity_leaves_neither_of_two_parameters_an_error():
    """log gap had one of 0.035, that with `low` held where it is."""

    def log_likelihood(theta):
        return -2.0 * (theta[0] + jnp.exp(theta[1]) - 2.4) ** 2 - jnp.exp(theta[0])

    found = state_at(log_likelihood, [2.4 - 14.3, np.log(14.3)])
    both = problem(a=mx.transforms.identity, b=POSITIVE)
    ends = find_ends(both, found)
    assert ends.ridges == [1]
    flat = with_flat_ridges(found, ends.ridges)
    unknown = [*runaways(both, flat), *ends.undetermined]
    assert np.all(with_tested_directions(flat.without_information(unknown)).information == 0)


def test_two_ridges_may_be_in_units_far_apart():
    units = np.array([1.0, 1e-12, 1e12])
    information = np.array([[4.0, 1.0, 1.0], [1.0, 2.0, 0.5], [1.0, 0.5, 2.0]])
    found = FitState(np.zeros(3), 0, information=information * np.outer(units, units))
    left = with_flat_ridges(found, [1, 2]).information
    np.testing.assert_allclose(left[0, 0], 4.0 - 0.8, rtol=1e-12)  # [1, 1] B^-1 [1, 1] is 2 / 2.5
    assert np.count_nonzero(left) == 1


def test_what_hardly_goes_along_with_a_ridge_keeps_what_is_known_of_it():
    information = np.array([[4.0, 3.9, 0.5], [3.9, 4.0, 0.0], [0.5, 0.0, 1.0]])
    found = FitState(np.zeros(3), 0, information=information)
    left = with_flat_ridges(found, [1]).information
    np.testing.assert_allclose(left[np.ix_([0, 2], [0, 2])], [[4 - 3.9**2 / 4, 0.5], [0.5, 1.0]])
    assert np.all(left[1] == 0)
    assert np.all(left[:, 1] == 0)
    at_an_end = found._replace(boundaries={2: "at the boundary"})
    left = with_flat_ridges(at_an_end, [1]).information
    np.testing.assert_allclose(left[2], [0.5, 0.0, 1.0])
    assert with_flat_ridges(found, []) is found


def test_a_parameter_that_falls_to_neither_side_is_not_at_a_boundary():
    """The share of a class that is where the other is: said to be at 0, and estimated as 1."""
    found = state_at(lambda theta: -0.5 * theta[0] ** 2 + 0.0 * theta[1], [0.0, 3.0])
    ends = find_ends(problem(a=mx.transforms.identity, b=SHARE), found)
    assert (ends.sides, ends.undetermined) == ({}, [1])


def test_far_out_on_a_plateau_its_boundary_is_known():
    """A span of exp(-1281): all that was looked at was as flat, and 0 was not spoken of."""
    found = state_at(lambda theta: -(theta[0] ** 2) - jnp.exp(theta[1]), [0.0, -1281.0])
    ends = find_ends(problem(a=mx.transforms.identity, b=POSITIVE), found)
    assert (ends.sides, ends.undetermined) == ({1: -1.0}, [])


@pytest.mark.parametrize("is_rounding", [False, True])
def test_where_numbers_end_is_no_lower_ground(is_rounding):
    """Beyond k = 1e9 there was rounding, or -inf: the boundary was said to be 0, not infinity."""

    def log_likelihood(theta):
        noise = 100 * jnp.sin(1e17 * theta[1]) - 200 if is_rounding else -jnp.inf
        known = -jnp.exp(-theta[1] - 12.0)
        return -(theta[0] ** 2) + jnp.where(theta[1] > 3.0, noise, known)

    found = state_at(log_likelihood, [0.0, 0.5])
    ends = find_ends(problem(a=mx.transforms.identity, b=POSITIVE), found)
    assert ends.sides == {1: 1.0}


def test_what_is_known_only_beside_a_boundary_is_not_known():
    """With all groups in one class, the place of the other had a standard error of its own."""

    def log_likelihood(theta):  # of two classes, the second with nobody in it
        share = jax.nn.sigmoid(theta[1])
        return -50.0 * (theta[0] - 1.0) ** 2 - 100.0 * share * (1 + (theta[2] - 2.0) ** 2)

    found = state_at(log_likelihood, [1.0, -14.0, 2.0])
    transforms = dict(a=mx.transforms.identity, b=SHARE, c=mx.transforms.identity)
    ends = find_ends(problem(**transforms), found)
    assert ends.sides == {1: -1.0}
    information = with_information_inside(found, ends.sides).information
    np.testing.assert_allclose(np.diag(information)[[0, 2]], [100.0, 0.0], atol=1e-6)


def test_a_sum_that_is_known_though_its_parts_run_away():
    """A class of groups without events: its log rate is -infinity, the sum with the gap known."""

    def log_likelihood(theta):
        return -500.0 * (theta[0] + theta[1]) ** 2 - jnp.exp(theta[0])

    found = state_at(log_likelihood, [-6.0, 6.0])
    free = problem(a=mx.transforms.identity, b=mx.transforms.identity)
    away = runaways(free, found)
    assert away == [0, 1]
    tested = with_tested_directions(found.without_information(away))
    assert np.all(np.diag(tested.information) == 0)


def test_parameters_that_follow_each_other_do_not_run_away():
    """Standard errors were those with the others fixed, the fall that with them following."""

    def log_likelihood(theta):
        return -50.0 * (theta[0] + theta[1]) ** 2 - 0.5 * (theta[0] - theta[1]) ** 2

    free = problem(a=mx.transforms.identity, b=mx.transforms.identity)
    assert runaways(free, state_at(log_likelihood, [0.0, 0.0])) == []


def test_information_beside_where_numbers_end():
    """A corner without a value made it infinite, and the fit crashed in a decomposition of it."""

    def log_likelihood(theta):
        return jnp.where(theta[0] + theta[1] > 0.3, -jnp.inf, -0.5 * theta @ theta)

    function = closed_likelihood(log_likelihood)
    theta = np.zeros(2)
    known = checked_information(function, theta, function.evaluate(theta, None), np.arange(2))
    np.testing.assert_allclose(known, np.eye(2), atol=1e-6)


def test_second_derivatives_off_by_a_quarter_are_found_out():
    """Beside two variances of 0 of binary data an error was 12 % too small, and believed."""
    curvature = jnp.array([[4.0, 1.0], [1.0, 2.0]])
    function = closed_likelihood(lambda theta: -0.5 * theta @ curvature @ theta)
    here = function.evaluate(np.zeros(2), None)
    wrong = here._replace(hessian=here.hessian * np.array([[1.0, 1.0], [1.0, 1.25]]))
    known = checked_information(function, np.zeros(2), wrong, np.arange(2))
    np.testing.assert_allclose(known, curvature, rtol=1e-3)

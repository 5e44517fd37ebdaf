"""Derivatives that are checked against differences: of a likelihood whose own may be wrong."""

import numpy as np
import pytest

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.second_derivatives import (
    by_differences,
    checked_information,
    curvature_agrees,
)

INFORMATION = np.array([[4e6, 300.0, 0.0], [300.0, 0.09, 0.0], [0.0, 0.0, 1e-12]])  # any units
TOP = np.array([3.0, -200.0, 1e5])


def likelihood(claimed):
    """A quadratic that says its Hessian is another."""

    def evaluate(theta, extra):
        away = theta - TOP
        value = -7.0 - 0.5 * away @ INFORMATION @ away
        return Local(value, -INFORMATION @ away, -claimed, extra)

    return LikelihoodFunction(None, evaluate, None)


def top_of(function):
    return Climb(TOP, function.evaluate(TOP, None), 3, True)


@pytest.mark.parametrize("wrong_by", [1e-20, 1e16])
def test_an_information_that_values_contradict_is_taken_from_them(wrong_by):
    """A standard error of 7e9 at a variance of 0 was believed, and one of 1e-13."""
    claimed = INFORMATION.copy()
    claimed[1, 1] *= wrong_by
    claimed[0, 1] = claimed[1, 0] = 0.0
    function = likelihood(claimed)
    inner = np.array([0, 1])
    seen = checked_information(function, TOP, top_of(function).local, inner)
    np.testing.assert_allclose(seen[:2, :2], INFORMATION[:2, :2], rtol=1e-6)
    assert seen[2, 2] == claimed[2, 2]  # at the boundary nothing is looked at


def test_an_information_that_values_bear_out_stays():
    function = likelihood(INFORMATION)
    seen = checked_information(function, TOP, top_of(function).local, np.arange(3))
    assert np.array_equal(seen, INFORMATION)


def test_a_hessian_that_the_gradient_contradicts():
    assert curvature_agrees(likelihood(INFORMATION), top_of(likelihood(INFORMATION)))
    function = likelihood(1.2 * INFORMATION)
    assert not curvature_agrees(function, top_of(function))
    seen = by_differences(function, top_of(function)).evaluate(TOP, None)
    np.testing.assert_allclose(-seen.hessian, INFORMATION, rtol=1e-6, atol=1e-7)


def test_differences_on_a_plateau_that_ends():
    """Steps grew off the plateau, were cut, and grew again: derivatives were infinite."""

    def evaluate(theta, extra):
        edge = -np.inf if theta[1] < -30 else -np.exp(theta[1])
        value = edge - 0.5 * 1e-4 * theta[0] ** 2
        return Local(value, np.zeros(2), np.diag([-1e5, 1e-7]), extra)

    function = LikelihoodFunction(None, evaluate, None)
    at = np.array([50.0, -14.0])
    top = Climb(at, evaluate(at, None), 3, True)
    seen = by_differences(function, top).evaluate(at, None)
    np.testing.assert_allclose(seen.hessian[0, 0], -1e-4, rtol=1e-3)
    np.testing.assert_allclose(seen.gradient[0], -5e-3, rtol=1e-6)
    assert np.all(np.isfinite(seen.hessian))

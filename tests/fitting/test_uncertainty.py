"""What the information says of coordinates it knows nothing of, and where a climb is at rest."""

import numpy as np

from marginax.fitting.uncertainty import delta_method, inverse_information, unbounded
from marginax.likelihood.newton import Local, climb


def test_a_flat_direction_is_found_in_any_units():
    """Shares in raw units: the coordinate with the larger numbers looked determined."""
    information = np.array([[1.0, 1e4], [1e4, 1e8]])  # theta_0 + 1e4 theta_1 alone is known
    np.testing.assert_array_equal(unbounded(information), [True, True])
    assert np.all(np.isinf(np.diag(inverse_information(information, ()))))


def test_a_coordinate_without_information_hides_no_other_flat_direction():
    information = np.zeros((4, 4))
    information[:2, :2] = 1.0
    information[3, 3] = 16.0
    np.testing.assert_array_equal(unbounded(information), [True, True, True, False])
    covariance = inverse_information(information, ())
    np.testing.assert_allclose(covariance[3], [0.0, 0.0, 0.0, 1 / 16])


def test_units_do_not_matter_to_a_covariance():
    units = np.diag([1.0, 1e5, 1e-6])
    information = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 4.0]])
    found = inverse_information(units @ information @ units, ())
    np.testing.assert_allclose(units @ found @ units, np.linalg.inv(information), rtol=1e-9)


def test_a_line_search_that_fails_is_no_rest():
    """Steps shrank until they promised nothing, and that was taken for a maximum."""

    def uphill_is_wrong(theta, extra):
        return Local(-0.5 * float(theta @ theta), 1.0 + theta, -np.eye(2), None)

    found = climb(uphill_is_wrong, np.zeros(2), None)
    assert not found.settled
    assert found.num_steps == 0


def test_rounding_at_the_top_is_rest():
    """Near a maximum values cannot tell a gain from rounding: that is no failure."""

    def rounded(theta, extra):
        value = -1e9 - 0.5 * float(theta @ theta)
        return Local(round(value, 4), -theta, -np.eye(2), None)

    found = climb(rounded, np.full(2, 1e-3), None)
    assert found.settled
    assert climb(rounded, np.full(2, 3.0), None).settled


def test_parameters_at_a_boundary_or_without_information():
    information = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    covariance = inverse_information(information, boundaries=(1,))
    assert covariance[0, 0] == 0.25  # with the second one fixed, not 1 / 3
    assert np.isnan(covariance[1, 1])
    assert np.isinf(covariance[2, 2])
    mapped = delta_method(np.array([[1.0, 0, 0], [1, 0, 1]]), covariance)
    assert mapped[0, 0] == 0.25
    assert np.isinf(mapped[1, 1])

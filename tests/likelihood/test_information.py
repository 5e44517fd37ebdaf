"""What an information says, in units however far apart."""

import numpy as np
import pytest

from marginax.likelihood.information import marginal_errors, scaled_eigen

CORRELATED = np.array([[4.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("units", [[1.0, 1.0], [1e-9, 1.0], [1e-40, 1e40]])
def test_units_are_taken_out(units):
    scale, w, v = scaled_eigen(CORRELATED * np.outer(units, units))
    np.testing.assert_allclose(scale, np.array([2.0, 1.0]) * units, rtol=1e-14)
    np.testing.assert_allclose(w, [0.5, 1.5], rtol=1e-14)
    np.testing.assert_allclose((v * w) @ v.T, [[1.0, 0.5], [0.5, 1.0]], atol=1e-14)
    errors = marginal_errors(CORRELATED * np.outer(units, units))
    np.testing.assert_allclose(errors, [(1 / 3) ** 0.5 / units[0], (4 / 3) ** 0.5 / units[1]])


def test_rounding_that_makes_it_unsymmetric_is_halved():
    _, w, _ = scaled_eigen(np.array([[1.0, 0.2], [0.0, 1.0]]))
    np.testing.assert_allclose(w, [0.9, 1.1], rtol=1e-14)


def test_where_nothing_is_known_errors_are_very_large():
    information = np.array([[0.0, 0.0], [0.0, 4.0]])
    assert scaled_eigen(information)[0][0] == pytest.approx(1e-150, rel=1e-12)
    assert marginal_errors(information) == pytest.approx([1e150 / np.finfo(float).eps ** 0.5, 0.5])
    falling = marginal_errors(np.array([[-1.0, 0.0], [0.0, 4.0]]))
    assert falling == pytest.approx([np.finfo(float).eps ** -0.5, 0.5])

"""A mode that was found elsewhere, where the density is no number here, changes nothing."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import marginax as mx
from marginax.likelihood.importance import importance_likelihood
from marginax.likelihood.quadrature import quadrature_likelihood

Y, THETA = np.array([0.0, 1.0]), np.zeros(1)
STARTS = np.array([[[0.0], [1.0]], [[8.0], [8.0]]])  # beyond x = 5 there is no density


def log_joint(theta, x, y):
    return jnp.log(jnp.sqrt(10 * theta + 5 - x)) - 0.5 * (x - y) ** 2


def expectation(function, y):
    def density(x):
        return np.sqrt(5 - x) * np.exp(-0.5 * (x - y) ** 2)

    total = quad(density, -12, 5)[0]
    return quad(lambda x: function(x) * density(x), -12, 5)[0] / total, total


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [(quadrature_likelihood, 1e-3), (lambda p: importance_likelihood(p, THETA), 2e-2)],
    ids=["quadrature", "importance"],
)
def test_value_gradient_and_moments_are_those_of_the_mode_there_is(make, tolerance):
    problem = mx.Problem.grouped(log_joint, jnp.asarray(Y), theta=0.0, latent=0.0)
    likelihood = make(problem)
    local = likelihood.evaluate(THETA, jnp.asarray(STARTS))
    said = likelihood.describe(THETA, jnp.asarray(STARTS))
    totals = [expectation(lambda x: 1.0, y)[1] for y in Y]
    means = [expectation(lambda x: x, y)[0] for y in Y]
    squares = [expectation(lambda x: x**2, y)[0] for y in Y]
    slopes = [expectation(lambda x: 5 / (5 - x), y)[0] for y in Y]
    assert local.value == pytest.approx(np.sum(np.log(totals)), abs=tolerance)
    np.testing.assert_allclose(local.gradient, [np.sum(slopes)], rtol=20 * tolerance)
    np.testing.assert_allclose(np.ravel(said.mean), means, atol=tolerance)
    np.testing.assert_allclose(
        np.ravel(said.sd), np.sqrt(np.subtract(squares, np.square(means))), atol=tolerance
    )

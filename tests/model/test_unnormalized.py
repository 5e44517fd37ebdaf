"""Priors without their constant: gradients by quadrature, and estimates of a double well."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from long_runs import compiled

import marginax as mx

WELL = mx.models.DoubleWell(0.25)
THETA = mx.models.DoubleWellTheta(jnp.asarray(0.3), jnp.asarray(0.4))
Y = np.array([1.2, -0.8, 0.9])


def energy(theta, x):
    return np.exp(theta[0]) * (x**2 - 1) ** 2 - theta[1] * x


def log_joint(well, num_rows):
    return mx.unnormalized_prior(well.energy, well.log_likelihood, num_rows=num_rows)


def log_likelihood_by_quadrature(theta, y, noise=0.25):
    """log p_theta(y) by SciPy: integrals over x of the prior and of every joint."""

    def integral(f):
        return scipy.integrate.quad(f, -6, 6, epsabs=0, epsrel=1e-11, limit=400)[0]

    constant = integral(lambda x: np.exp(-energy(theta, x)))
    root = np.sqrt(2 * np.pi * noise)
    return sum(
        np.log(
            integral(
                lambda x, one=one: np.exp(-energy(theta, x) - (one - x) ** 2 / (2 * noise)) / root
            )
            / constant
        )
        for one in y
    )


def test_marginal_of_the_double_well():
    found = WELL.log_marginal(THETA, jnp.array(Y))
    np.testing.assert_allclose(found, log_likelihood_by_quadrature((0.3, 0.4), Y), rtol=1e-9)


def test_first_derivatives_by_hand():
    density = log_joint(WELL, 3)
    x, z = np.array([0.7, -1.1, 0.2]), 0.6
    pair = mx.WithPrior(jnp.array(x), jnp.asarray(z))
    by_theta, by_pair = jax.grad(density, (0, 1))(THETA, pair, jnp.array(Y))

    def slope(x):  # of E in theta
        return np.array([np.exp(0.3) * (x**2 - 1) ** 2, -x])

    expected = -sum(slope(one) for one in x) + 3 * slope(z)  # three rows share the constant
    np.testing.assert_allclose(by_theta, expected, rtol=1e-12)
    force = -4 * np.exp(0.3) * (x**2 - 1) * x + 0.4
    np.testing.assert_allclose(by_pair.latent, force + (Y - x) / 0.25, rtol=1e-12)
    of_prior = -4 * np.exp(0.3) * (z**2 - 1) * z + 0.4  # not of the opposite sign, nor threefold
    np.testing.assert_allclose(by_pair.prior, of_prior, rtol=1e-12)


def test_values_at_one_theta_are_those_of_both_densities():
    """What adjusted moves compare: with n E instead of 0 the prior's cloud would run away."""
    density = log_joint(WELL, 3)
    x = jnp.array([0.7, -1.1, 0.2])
    values = [density(THETA, mx.WithPrior(x, jnp.asarray(z)), jnp.array(Y)) for z in (0.6, -0.9)]
    expected = energy((0.3, 0.4), 0.6) - energy((0.3, 0.4), -0.9)
    np.testing.assert_allclose(values[1] - values[0], expected, rtol=1e-12)


@pytest.mark.slow
def test_estimates_are_the_marginal_maximum(key):
    clear, theta = mx.models.DoubleWell(0.05), mx.models.DoubleWellTheta
    y = clear.simulate(jax.random.key(3), theta(-0.7, 0.3), 150)
    value = jax.jit(lambda at: -clear.log_marginal(theta(at[0], at[1]), y))
    exact = scipy.optimize.minimize(value, [0.0, 0.0], method="Nelder-Mead").x
    density, keys = log_joint(clear, 150), jax.random.split(key, 3)
    particles = mx.WithPrior(
        y[None, :] + 0.3 * jax.random.normal(keys[0], (100, 150)),
        jnp.where(jnp.arange(100) % 2 == 0, 1.0, -1.0) + 0.1 * jax.random.normal(keys[1], (100,)),
    )
    method = mx.pgd(density, 5e-4, 0.005)
    run = compiled(
        lambda: mx.trajectory(method, theta(0.0, 0.0), particles, y, 8000, key=keys[2]).history
    )
    found = np.array([leaf[4000:].mean() for leaf in run()])
    # A third of the standard errors, 0.27 and 0.09; without the prior's cloud both run away.
    assert np.all(np.abs(found - exact) < [0.09, 0.03])


def test_what_needs_more_than_gradients_refuses():
    density = log_joint(WELL, 3)
    pair = mx.WithPrior(jnp.zeros(3), jnp.zeros(()))
    m_step = mx.exact_m_step(lambda particles, data: THETA)
    for make in (
        lambda: mx.pqn(density, 0.1),
        lambda: mx.jala_em(density, 0.1, 0.1),
        lambda: mx.adjusted_pmgd(density, m_step, 0.1),
        lambda: mx.Problem(density, THETA, pair, jnp.array(Y)),
        lambda: mx.em_gradient().update(
            THETA, (), THETA, log_joint=density, particles=pair, data=jnp.array(Y)
        ),
    ):
        with pytest.raises(ValueError, match="prior whose constant is not known"):
            make()


def test_latents_that_are_no_pairs():
    density = log_joint(WELL, 3)
    with pytest.raises(TypeError, match="must be a pair"):
        density(THETA, jnp.zeros(3), jnp.array(Y))
    with pytest.raises(ValueError, match="must have 3 of these"):
        density(THETA, mx.WithPrior(jnp.zeros(4), jnp.zeros(())), jnp.array(Y))
    one = mx.unnormalized_prior(WELL.energy, lambda theta, x, y: 0.0)
    with pytest.raises(ValueError, match="must have the same"):
        one(THETA, mx.WithPrior(jnp.zeros(4), jnp.zeros(())), jnp.array(Y))

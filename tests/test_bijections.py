"""Correlations near 1: values and gradients against closed forms, in float32 too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax.bijections import correlation_cholesky

SIZES = [2, 3, 5]


@pytest.mark.slow
@pytest.mark.parametrize("u", [-40.0, -12.0, -1.0, 0.0, 0.5, 9.5, 12.0, 40.0])
def test_one_correlation_by_its_closed_form(u):
    # The bug: 1 - tanh^2 is 0 in float32 from u = 9 on, and the gradient of its root NaN.
    pair, at = correlation_cholesky(2), jnp.array([u], jnp.float32)
    tanh, sech = np.tanh(u), 1 / np.cosh(u)
    close = {"rtol": 1e-5, "atol": 1e-30}
    np.testing.assert_allclose(pair.forward(at), [[1, 0], [tanh, sech]], **close)
    slopes = jax.jacobian(pair.forward)(at)[..., 0]
    # How far 1 - tanh^2 is from 0 there depends on how the compiler writes tanh.
    np.testing.assert_allclose(slopes, [[0, 0], [sech**2, -tanh * sech]], rtol=1e-4, atol=1e-6)
    assert slopes[1, 1] == pytest.approx(-tanh * sech, rel=1e-5)
    np.testing.assert_allclose(
        pair.log_volume(at), 2 * (np.log(2) - np.logaddexp(u, -u)), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(jax.grad(pair.log_volume)(at), -2 * tanh, rtol=1e-5)
    # A log of cosh through |u| would have no curvature at 0.
    np.testing.assert_allclose(
        jax.hessian(pair.log_volume)(at)[0, 0], -2 * sech**2, rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_factor_has_rows_of_length_one_and_its_volume(size):
    bijection = correlation_cholesky(size)
    u = jnp.asarray(np.random.default_rng(size).normal(size=size * (size - 1) // 2))
    factor = bijection.forward(u)
    precise = jax.config.jax_enable_x64
    close = {"atol": 1e-12 if precise else 1e-5}
    np.testing.assert_allclose(jnp.sum(factor**2, axis=1), 1.0, **close)
    np.testing.assert_allclose(factor, jnp.tril(factor))
    np.testing.assert_allclose(bijection.inverse(factor), u, atol=1e-8 if precise else 1e-3)
    rows, columns = np.tril_indices(size, -1)
    jacobian = jax.jacobian(lambda u: bijection.forward(u)[rows, columns])(u)
    expected = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(bijection.log_volume(u), expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_gradients_near_one_are_finite(size):
    bijection = correlation_cholesky(size)
    u = jnp.full(size * (size - 1) // 2, 12.0, jnp.float32)
    assert jnp.all(jnp.isfinite(jax.jacobian(bijection.forward)(u)))
    assert jnp.all(jnp.isfinite(jax.grad(bijection.log_volume)(u)))

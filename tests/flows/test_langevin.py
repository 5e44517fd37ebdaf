"""The integrators: exactness, order, small steps in both precisions, and their stationary laws."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from marginax._core import trees
from marginax.flows import langevin

pytestmark = pytest.mark.float32
X64 = jax.config.jax_enable_x64


def exact_psi(z):
    """2z - 3 + 4 exp(-z) - exp(-2z) by 60 terms of its series, summed without rounding."""
    z = float(z)
    return math.fsum((-1) ** k * (4 - 2**k) * z**k / math.factorial(k) for k in range(3, 60))


@pytest.mark.parametrize("z", [1e-6, 1e-4, 0.004, 0.045, 0.39, 0.41, 1.0, 3.0])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64] if X64 else [jnp.float32])
def test_psi_on_both_sides_of_the_series(z, dtype):
    z = jnp.asarray(z, dtype)
    tolerance = 1e-13 if dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(langevin.psi(z), exact_psi(z), rtol=tolerance)


@pytest.mark.parametrize("h", [1e-4, 0.05, 1.0])
@pytest.mark.parametrize(("g", "e"), [(0.9, 8.0), (2.0, 1.0), (0.1, 2000.0)])
def test_coefficients_are_the_papers(h, g, e):
    c = langevin.underdamped_coefficients(h, g, e)
    a = g * e
    z = a * h
    # Written with expm1 so that the oracle itself does not cancel.
    lost = -np.expm1(-z)
    psi = exact_psi(z) if z < 1 else 2 * z - 3 + 4 * np.exp(-z) - np.exp(-2 * z)
    chi = (
        (z - lost)
        if z > 0.1
        else sum((-z) ** k / float(np.prod(range(1, k + 1))) for k in range(2, 20))
    )
    tolerance = 1e-11 if X64 else 2e-5
    pairs = [
        (c.decay, np.exp(-z)),
        (c.drift, lost / g),
        (c.position_gain, chi / (g * a)),
        (c.momentum_gain, lost / a),
        (c.momentum_noise**2, -np.expm1(-2 * z) / e),
        (c.shared_noise * c.momentum_noise, lost**2 / a),
        (c.shared_noise**2 + c.position_noise**2, psi / (g * a)),
    ]
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-30)


def matrices(c):
    """The step as (x, u) -> A (x, u) + b s + noise of covariance Q."""
    a = np.array([[1.0, c.drift], [0.0, c.decay]], float)
    b = np.array([c.position_gain, c.momentum_gain], float)
    root = np.array([[c.shared_noise, c.position_noise], [c.momentum_noise, 0.0]], float)
    return a, b, root @ root.T


@pytest.mark.parametrize("z", [1e-3, 0.3, 0.7, 5.0])
def test_two_half_steps_are_one_step(z):
    g, e = 0.9, 7.0
    h = z / (g * e)
    a, b, q = matrices(langevin.underdamped_coefficients(h, g, e))
    half_a, half_b, half_q = matrices(langevin.underdamped_coefficients(h / 2, g, e))
    tolerance = {"rtol": 1e-9 if X64 else 1e-4}
    np.testing.assert_allclose(half_a @ half_a, a, **tolerance)
    np.testing.assert_allclose(half_a @ half_b + half_b, b, **tolerance)
    np.testing.assert_allclose(half_a @ half_q @ half_a.T + half_q, q, **tolerance)


def stationary(h, g, e, curvature):
    """Covariance of (x, u) under the step with force -curvature * x."""
    a, b, q = matrices(langevin.underdamped_coefficients(h, g, e))
    a = a - np.outer(b, [curvature, 0.0])
    return scipy.linalg.solve_discrete_lyapunov(a, q)


@pytest.mark.parametrize(
    ("g", "e", "h", "curvature", "variance"),
    [
        (0.9, 200.0, 1e-2, 2.0, 0.50560),  # Lim et al.'s settings, target N(0, 1/2)
        (5.0, 100.0, 1e-2, 2.0, 0.50100),
        (0.1, 2000.0, 1e-2, 2.0, 0.55410),
        (2.0, 1.0, 0.1, 1.0, 1.02562),  # KIPLMC1, target N(0, 1)
        (1.0, 1.0, 0.1, 1.0, 1.05259),
        (1.0, 1.0, 0.01, 1.0, 1.00503),
    ],
)
def test_stationary_variance_of_the_exact_step(g, e, h, curvature, variance):
    tolerance = 6e-6 if X64 else 2e-4
    assert abs(stationary(h, g, e, curvature)[0, 0] - variance) < tolerance


def test_thermostat_keeps_the_thermal_law(key):
    # n draws at temperature T: the variance stays T within 4 standard errors (budget 6e-5).
    n, temperature = 200_000, 0.3
    first, second = jax.random.split(key)
    v = jnp.sqrt(temperature) * jax.random.normal(first, (n,))
    v = langevin.thermostat(second, v, 0.7, 0.9, temperature)
    assert abs(float(jnp.var(v)) - temperature) < 4 * temperature * np.sqrt(2 / n)


def test_temperature_zero_is_ascent(key):
    x, drift = jnp.array([1.0, 2.0]), jnp.array([0.5, -1.0])
    moved = langevin.overdamped(key, x, drift, 0.1, temperature=0.0)
    np.testing.assert_allclose(moved, x + 0.1 * drift, rtol=1e-6)
    c = langevin.underdamped_coefficients(0.1, 2.0, 3.0)
    cold = langevin.underdamped(key, x, drift, drift, c, temperature=0.0)
    frozen = langevin.underdamped(None, x, drift, drift, c)
    for actual, expected in zip(cold, frozen, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_overdamped_noise_has_variance_2hT(key):
    # 4 standard errors of a variance from n draws (budget 6e-5).
    n, h, temperature = 200_000, 0.05, 0.25
    x = jnp.zeros(n)
    moved = langevin.overdamped(key, x, x, h, temperature)
    expected = 2 * h * temperature
    assert abs(float(jnp.var(moved)) - expected) < 4 * expected * np.sqrt(2 / n)


def test_every_leaf_has_noise_of_its_own(key):
    # The bug: one key for all leaves. Budget: 4.5 standard errors of a correlation, 3.5 of a sd.
    like = {"a": jnp.zeros(2000), "b": jnp.zeros(2000), "c": jnp.zeros((2, 3), jnp.float32)}
    drawn = trees.normal_like(key, like)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), drawn) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), like
    )
    assert abs(np.corrcoef(drawn["a"], drawn["b"])[0, 1]) < 0.1
    for name in "ab":
        assert abs(np.std(drawn[name]) - 1) < 0.055
        assert abs(np.mean(drawn[name])) < 0.1

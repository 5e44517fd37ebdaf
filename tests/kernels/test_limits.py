"""Limits of a cloud's moves where one unit is one standard deviation, each by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from velocities import cloud

import marginax as mx
from marginax.kernels import moments
from marginax.kernels.base import whitened_velocity

K = mx.kernels


def velocity(kernel, x, s):
    return np.asarray(kernel.velocity(jnp.asarray(x), jnp.asarray(s)))


def limited_linear(x, s):
    """Relative to the mean no further than away from it, or than in a cloud of unit size."""
    mean_score = s.mean(axis=0)
    z = x - x.mean(axis=0)
    deviation = velocity(K.linear(), x, s) - mean_score
    in_unit_cloud = np.einsum("ni,ij,nj->n", z, np.linalg.inv(np.cov(z.T, ddof=0)), z)
    allowed = np.sqrt(np.maximum((z**2).sum(axis=1), in_unit_cloud))
    factor = (np.linalg.norm(deviation, axis=1) / allowed).max()
    return mean_score + deviation / max(1, factor), factor


@pytest.mark.parametrize(
    ("size", "strength", "is_limited"),
    [(0.02, 1, True), (0.5, 1, True), (1.5, 1, False), (3.0, 1, False), (3.0, 4, True)],
)
def test_the_linear_part_is_limited(size, strength, is_limited):
    x, s = (np.asarray(a) for a in cloud(n=9))
    x = size * (x - x.mean(axis=0)) / x.std(axis=0) + np.array([[4.0, 0.0, -2.0]])
    s = -strength * (x - x.mean(axis=0)) + 0.1 * s
    expected, factor = limited_linear(x, s)
    assert (factor > 1) == is_limited
    actual = whitened_velocity(K.linear(), jnp.asarray(x), jnp.asarray(s))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", [K.linear, lambda: K.moment_matched(K.rbf("mean"))])
@pytest.mark.parametrize("width", [0.0, 3.0])
def test_nothing_is_limited_by_a_particle_at_the_mean(make, width):
    x = 4 + width * jnp.array([[-1.0], [0.0], [1.0]])
    s = 5 - x
    actual = whitened_velocity(make(), x, s)
    np.testing.assert_allclose(actual, make().velocity(x, s), rtol=1e-12, atol=1e-12)
    assert np.all(np.isfinite(actual))


@pytest.mark.parametrize(("size", "cap"), [(1e-4, 1.0), (1e-4, 3.0), (1.0, 1.0)])
def test_the_shape_is_limited_by_the_width_of_the_cloud(monkeypatch, size, cap):
    monkeypatch.setattr(moments, "CAP", cap)
    x, s = (np.asarray(a) for a in cloud(n=9))
    x = size * x
    kernel = K.moment_matched(K.rbf(size))
    shape = velocity(kernel, x, s) - velocity(K.linear(), x, s)
    z = x - x.mean(axis=0)
    width = np.sqrt((z**2).sum(axis=1).mean())
    reach = np.linalg.norm(shape, axis=1).max() / width
    assert (reach > cap) == (size < 1)
    expected = limited_linear(x, s)[0] + shape / max(1, reach / cap)
    actual = whitened_velocity(kernel, jnp.asarray(x), jnp.asarray(s))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)

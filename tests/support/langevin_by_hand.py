"""Paths of Langevin methods by hand, with the library's own noise: what their tests share."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np

from marginax._core import trees

H = 0.05
KEYS = jax.random.split(jax.random.key(7), 3)
N = len(hand.PARTICLES)


def noise(key, like):
    return np.asarray(trees.normal_like(key, jnp.asarray(like)))


def three_steps(algorithm, init_key=None):
    init_key = jax.random.key(0) if init_key is None else init_key
    state = algorithm.init(init_key, jnp.array(hand.THETA), jnp.array(hand.PARTICLES))
    steps, step = [], jax.jit(algorithm.step)
    for key in KEYS:
        state, info = step(key, state, jnp.array(hand.DATA))
        steps.append((state, info))
    return steps


def assert_path(steps, path):
    """Against (theta, cloud, theta's gradient, scores) of every step."""
    for (state, info), expected in zip(steps, path, strict=True):
        found = (state.theta, state.particles, info.theta_score, info.scores)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def underdamped_noise(h, g, e, temperature=1.0):
    """The 2x2 covariance of (e_x, e_u), and a function from two draws to a sample of it."""
    a, w = g * e, np.exp(-g * e * h)
    var_x = temperature * (2 * h - 3 / a + 4 * w / a - w**2 / a) / g
    cov = temperature * (1 - w) ** 2 / a
    var_u = temperature * (1 - w**2) / e

    def draw(shared, own):
        along = cov / np.sqrt(var_u)
        return along * shared + np.sqrt(var_x - along**2) * own, np.sqrt(var_u) * shared

    return draw

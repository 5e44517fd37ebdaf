"""MPGD against NumPy loops: its momentum, its units, and theta with constants of its own."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from langevin_by_hand import KEYS, H, assert_path, noise, three_steps, underdamped_noise

import marginax as mx


def test_mpgd():
    g, e = 0.9, 8.0
    w = np.exp(-g * e * H)
    c1, c2, kick = (1 - w) / g, (H - (1 - w) / (g * e)) / g, (1 - w) / (g * e)
    init_key = jax.random.key(3)
    theta, x = hand.THETA, hand.PARTICLES
    m, u = np.zeros(2), noise(init_key, x) / np.sqrt(e)
    draw, path = underdamped_noise(H, g, e), []
    for key in KEYS:
        ahead = theta + c1 * m
        gradient = -hand.grad_theta(ahead, x)
        m = w * m - kick * gradient
        theta = ahead - c2 * gradient  # from the look-ahead
        s = hand.scores(theta, x)  # the new theta
        u_key, x_key = jax.random.split(key)
        e_x, e_u = draw(noise(u_key, x), noise(x_key, x))
        x, u = x + c1 * u + c2 * s + e_x, w * u + kick * s + e_u
        path.append((theta, x, -gradient, s))
    assert_path(three_steps(mx.mpgd(hand.log_joint, H, g, e), init_key), path)


@pytest.mark.parametrize("c", [0.3, np.array([0.3, 2.0])], ids=["one", "each"])
def test_mpgd_in_other_units_of_theta(c):
    """theta_scale c is the same walk of theta / c, under the log joint of c times that."""
    g, e = 0.9, 8.0
    key = jax.random.key(3)

    def in_units(phi, x, y):
        return hand.log_joint(c * phi, x, y)

    scaled = mx.mpgd(hand.log_joint, H, g, e, theta_scale=c)
    by_hand = mx.mpgd(in_units, H, g, e)
    one = scaled.init(key, jnp.array(hand.THETA), jnp.array(hand.PARTICLES))
    other = by_hand.init(key, jnp.array(hand.THETA) / c, jnp.array(hand.PARTICLES))
    for step_key in KEYS:
        one, _ = scaled.step(step_key, one, jnp.array(hand.DATA))
        other, _ = by_hand.step(step_key, other, jnp.array(hand.DATA))
        np.testing.assert_allclose(one.theta, c * other.theta, rtol=1e-12)
        np.testing.assert_allclose(one.particles, other.particles, rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({"a": 0.5}, "neither one number nor a tree"),  # scaled all of theta
        (jnp.ones((3, 2)), "neither one number nor a tree"),
        (-1.0, "positive and finite"),
        (0.0, "positive and finite"),
        (np.array([1.0, np.nan]), "positive and finite"),
    ],
)
def test_mpgd_refuses_units_that_are_none(scale, words):
    theta = {"a": jnp.zeros(2), "b": jnp.zeros(2)}
    with pytest.raises(ValueError, match=words):
        mx.mpgd(hand.log_joint, H, 0.9, 8.0, theta_scale=scale).init(
            jax.random.key(0), theta, jnp.array(hand.PARTICLES)
        )


def test_mpgd_without_gradient_moves_theta_by_its_momentum():
    method = mx.mpgd(lambda theta, x, y: -0.5 * jnp.sum(x**2), H, 0.9, 8.0)
    state = method.init(KEYS[0], jnp.array(hand.THETA), jnp.array(hand.PARTICLES))
    m = jnp.array([2.0, -3.0])
    after, _ = method.step(KEYS[1], state._replace(theta_momentum=m), None)
    c1 = (1 - np.exp(-0.9 * 8.0 * H)) / 0.9
    np.testing.assert_allclose(after.theta - state.theta, c1 * m, rtol=1e-12)


def test_mpgd_with_constants_of_its_own_for_theta():
    g, e, h_theta, g_theta, e_theta, decay = 0.9, 8.0, 0.03, 1.4, 5.0, 0.8
    draw, path = underdamped_noise(H, g, e), []
    w, w_theta = np.exp(-g * e * H), np.exp(-g_theta * e_theta * h_theta)
    c1, c2, kick = (1 - w) / g, (H - (1 - w) / (g * e)) / g, (1 - w) / (g * e)
    rate = g_theta * e_theta
    c1_theta, kick_theta = (1 - w_theta) / g_theta, (1 - w_theta) / rate
    c2_theta = (h_theta - (1 - w_theta) / rate) / g_theta
    init_key = jax.random.key(3)
    theta, x = hand.THETA, hand.PARTICLES
    m, u, squares = np.zeros(2), noise(init_key, x) / np.sqrt(e), np.zeros(2)
    for key in KEYS:
        ahead = theta + c1_theta * m
        gradient = hand.grad_theta(ahead, x)
        squares = decay * squares + (1 - decay) * gradient**2
        force = gradient / np.sqrt(squares + 1e-3)
        m = w_theta * m + kick_theta * force
        theta = ahead + c2_theta * force
        s = hand.scores(theta, x)
        u_key, x_key = jax.random.split(key)
        e_x, e_u = draw(noise(u_key, x), noise(x_key, x))
        x, u = x + c1 * u + c2 * s + e_x, w * u + kick * s + e_u
        path.append((theta, x, gradient, s))
    method = mx.mpgd(
        hand.log_joint,
        H,
        g,
        e,
        theta_step_size=h_theta,
        theta_friction=g_theta,
        theta_inverse_mass=e_theta,
        theta_preconditioner=optax.scale_by_rms(decay, 1e-3),
    )
    assert_path(three_steps(method, init_key), path)


@pytest.mark.parametrize("name", ["theta_step_size", "theta_friction", "theta_inverse_mass"])
def test_mpgd_refuses_what_is_not_positive(name):
    with pytest.raises(ValueError, match=f"{name} is -1.0"):
        mx.mpgd(hand.log_joint, H, 0.9, 8.0, **{name: -1.0})

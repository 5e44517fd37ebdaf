"""JALA-EM by hand, its likelihood on Gaussian models, and what it tells models apart by."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax._core import trees


def value(theta, x):
    a, b = theta
    prior = -0.5 * np.exp(-b) * np.sum((x - a) ** 2) - 0.5 * b * len(x)
    return prior - 0.5 * np.sum((hand.DATA - x) ** 2) - hand.QUARTIC * np.sum(x**4)


def alpha(theta, x, y, h):
    """As printed, with U = -l."""
    slope = -hand.grad_x(theta, x)
    return -value(theta, x) + 0.5 * (y - x) @ slope + h / 4 * slope @ slope


@pytest.mark.parametrize("with_density", [False, True])
def test_four_steps_by_hand(with_density):
    """With a threshold at which particles are drawn anew in some of the steps."""
    h, gamma, share = 0.1, 0.07, 0.97
    theta, x, n = hand.THETA, hand.PARTICLES, len(hand.PARTICLES)
    weights, aside, drawn = np.zeros(n), 0.0, 0

    def log_q(z):
        return -0.3 * jnp.sum(z**2)

    method = mx.jala_em(
        hand.log_joint,
        gamma,
        h,
        start_log_density=log_q if with_density else None,
        resample_below=share,
    )
    state = method.init(jax.random.key(0), jnp.asarray(theta), jnp.asarray(x))
    step = jax.jit(method.step)
    for t in range(4):
        key = jax.random.fold_in(jax.random.key(7), t)
        state, info = step(key, state, jnp.asarray(hand.DATA))
        move_key, draw_key = jax.random.split(key)
        if t == 0 and with_density:
            weights = np.array([value(theta, one) + 0.3 * np.sum(one**2) for one in x])
        noise = np.asarray(trees.normal_like(move_key, jnp.asarray(x)))
        moved = x + h * hand.scores(theta, x) + np.sqrt(2 * h) * noise
        w = np.exp(weights - weights.max())
        w /= w.sum()
        g = sum(w[i] * hand.grad_theta_one(theta, x[i]) for i in range(n))
        new = theta + gamma * g
        for i in range(n):
            weights[i] += alpha(theta, x[i], moved[i], h) - alpha(new, moved[i], x[i], h)
        w = np.exp(weights - weights.max())
        w /= w.sum()
        theta, x = new, moved
        np.testing.assert_allclose(info.theta_score, g, rtol=1e-11)
        np.testing.assert_allclose(info.effective_size, 1 / np.sum(w**2), rtol=1e-11)
        if 1 / np.sum(w**2) < share * n:
            drawn += 1
            aside += np.log(np.mean(np.exp(weights)))
            heights = (np.arange(n) + float(jax.random.uniform(draw_key))) / n
            x, weights = x[np.searchsorted(np.cumsum(w), heights)], np.zeros(n)
        np.testing.assert_allclose(state.theta, theta, rtol=1e-11)
        np.testing.assert_allclose(state.particles, x, rtol=1e-11)
        np.testing.assert_allclose(state.log_weights, weights, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            state.log_likelihood, aside + np.log(np.mean(np.exp(weights))), rtol=1e-10, atol=1e-12
        )
        assert state.num_steps == t + 1
    assert 0 < drawn < 4 or with_density


def test_particles_that_are_drawn_anew_are_all_there():
    """The last height may lie a rounding above the last sum: no place beyond the end is taken."""
    from marginax.algorithms._jala_em import _systematic

    weights = jnp.log(jnp.array([0.05, 0.6, 0.05, 0.3]))
    for seed in range(40):
        key = jax.random.key(seed)
        first = float(jax.random.uniform(key, dtype=weights.dtype))
        chosen = _systematic(key, weights)
        expected = np.searchsorted([0.05, 0.65, 0.7, 1.0], (np.arange(4) + first) / 4)
        np.testing.assert_array_equal(chosen, expected)


def gaussian(theta, x, y):
    """x ~ N(theta, 1), y ~ N(x, 1), with constants: y ~ N(theta, 2)."""
    constants = x.size * jnp.log(2 * jnp.pi)
    return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2) - constants


Y = jnp.array([1.0, 2.5, 0.3])


def exact(theta):
    return np.sum(stats.norm.logpdf(np.asarray(Y), np.asarray(theta)[..., None], np.sqrt(2)), -1)


@pytest.mark.slow
@pytest.mark.parametrize("h", [0.01, 0.03, 0.1, 0.2, 0.4])
def test_the_likelihood_ratio_is_right_at_any_step(h):
    # 100 replicas; at 4.5 standard errors of their mean it fails once in 150,000. theta follows the
    # particles, which biases by 1 / N.
    def replica(key):
        x_key, key = jax.random.split(key)
        at_zero = Y[None] / 2 + jnp.sqrt(0.5) * jax.random.normal(x_key, (400, 3))  # posterior at 0
        method = mx.jala_em(gaussian, 0.05, h)
        state = mx.trajectory(method, jnp.zeros(()), at_zero, Y, 40, key=key).state
        return state.log_likelihood, state.theta

    found, theta = jax.jit(jax.vmap(replica))(jax.random.split(jax.random.key(0), 100))
    error = np.asarray(found) - (exact(theta) - exact(0.0))
    # Logarithms of unbiased estimates are low by half their variance.
    mean, sd = error.mean() + 0.5 * error.var(), error.std()
    assert abs(mean) < 4.5 * sd / 10 + 0.01
    assert sd < 0.2


def test_the_likelihood_itself_with_the_density_of_the_start():
    def replica(key):
        x_key, key = jax.random.split(key)
        x = 2.0 * jax.random.normal(x_key, (200, 3))
        method = mx.jala_em(
            gaussian,
            0.05,
            0.1,
            start_log_density=lambda z: jnp.sum(jax.scipy.stats.norm.logpdf(z, 0.0, 2.0)),
        )
        state = mx.trajectory(method, jnp.zeros(()), x, Y, 60, key=key).state
        return state.log_likelihood, state.theta

    found, theta = jax.jit(jax.vmap(replica))(jax.random.split(jax.random.key(1), 100))
    error = np.asarray(found) - exact(theta)
    mean, sd = error.mean() + 0.5 * error.var(), error.std()
    assert abs(mean) < 4.5 * sd / 10 + 0.01


@pytest.mark.parametrize(("h", "most"), [(0.001, 0.01), (0.01, 0.1)])
def test_without_a_moving_theta_weights_stay_nearly_equal(h, most):
    x = jax.random.normal(jax.random.key(0), (500, 1))
    method = mx.jala_em(lambda theta, x, y: -0.5 * jnp.sum(x**2), 0.1, h, resample_below=0.0)
    end = mx.trajectory(method, jnp.zeros(()), x, None, 20, key=jax.random.key(1)).state
    assert 0 < float(jnp.std(end.log_weights)) < most


@pytest.mark.slow
def test_the_right_error_model_is_chosen():
    """Normal against Student's t errors, by the likelihoods that two runs end with."""
    rows, trials = 60, 100
    random = np.random.default_rng(0)
    u = random.normal(size=(rows, 1))
    noise = random.standard_t(2, size=(trials, rows))
    y = jnp.asarray(1.0 + u[:, 0] * 0.8 + noise)

    def model(density):
        def log_joint(theta, x, data):  # x: intercept and slope, N(theta, 1) each
            u, y = data
            fitted = x[0] + x[1] * u[:, 0]
            prior = jnp.sum(jax.scipy.stats.norm.logpdf(x, theta, 1.0))
            return prior + jnp.sum(density(y - fitted))

        return log_joint

    normal = model(lambda r: jax.scipy.stats.norm.logpdf(r, 0.0, 1.0))
    heavy = model(lambda r: jax.scipy.stats.t.logpdf(r, 2.0))

    def likelihood(log_joint, y, key):
        x_key, key = jax.random.split(key)
        x = jnp.array([[1.0, 0.8]]) + 0.3 * jax.random.normal(x_key, (50, 2))

        def log_q(z):
            return jnp.sum(jax.scipy.stats.norm.logpdf(z, jnp.array([1.0, 0.8]), 0.3))

        method = mx.jala_em(log_joint, 0.02, 0.005, start_log_density=log_q)
        data = (jnp.asarray(u), y)
        return mx.trajectory(method, jnp.zeros(()), x, data, 250, key=key).state.log_likelihood

    keys = jax.random.split(jax.random.key(2), trials)
    chosen = jax.jit(
        jax.vmap(lambda y, key: likelihood(heavy, y, key) > likelihood(normal, y, key))
    )(y, keys)
    assert int(jnp.sum(chosen)) >= 95


def test_shares_are_checked():
    with pytest.raises(ValueError, match="resample_below is 1.5"):
        mx.jala_em(gaussian, 0.1, 0.1, resample_below=1.5)


def test_batches_of_groups_are_refused():
    problem = mx.Problem.grouped(gaussian, jnp.arange(6.0)[:, None], theta=0.0, latent=jnp.zeros(1))
    method = mx.jala_em(problem.unconstrained_log_joint, 0.1, 0.1)
    state = method.init(jax.random.key(0), jnp.zeros(()), jnp.zeros((5, 3, 1)))
    with pytest.raises(ValueError, match="was given a batch of the groups"):
        method.step(jax.random.key(1), state, problem.data[:3])

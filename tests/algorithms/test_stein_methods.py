"""Three iterations of every Stein method against NumPy loops written from the papers."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import assert_stein_path as assert_path
from by_hand import some_steps, three_steps

import marginax as mx

GAMMA, GAMMA_X = 0.05, 0.08
KERNEL = mx.kernels.rbf(1.3)


def test_svgd_em():
    theta, x, path = hand.THETA, hand.PARTICLES, []
    for _ in range(3):
        g = hand.grad_theta(theta, x)
        theta = theta + GAMMA * g
        phi = hand.stein_velocity(theta, x)  # the new theta
        x = x + GAMMA_X * phi
        path.append((theta, x, g, phi))
    assert_path(three_steps(mx.svgd_em(hand.log_joint, GAMMA, GAMMA_X, KERNEL)), path)


def nesterov_path(alpha_theta, alpha_x, num_steps=3, step=GAMMA, step_x=GAMMA_X):
    """Algorithm 1; alpha_* map (step, alignment) to the momentum of that step."""
    theta, x = hand.THETA, hand.PARTICLES
    theta_ahead, x_ahead = theta, x
    path = []
    for t in range(num_steps):
        g = hand.grad_theta(theta_ahead, x)  # x, not x_ahead
        new_theta = theta_ahead + step * g
        alpha = alpha_theta(t, g @ (new_theta - theta))
        theta_ahead = new_theta + alpha * (new_theta - theta)
        phi = hand.stein_velocity(new_theta, x_ahead)  # new theta, not its look-ahead
        new_x = x_ahead + step_x * phi
        alpha = alpha_x(t, np.sum(phi * (new_x - x)))
        x_ahead = new_x + alpha * (new_x - x)  # from the iterates, not from x_ahead
        theta, x = new_theta, new_x
        path.append((theta, x, g, phi))
    return path


def test_m_svgd_em_algorithm_1():
    method = mx.m_svgd_em(
        hand.log_joint, GAMMA, GAMMA_X, KERNEL, theta_momentum=0.9, particle_momentum=0.7
    )
    assert_path(three_steps(method), nesterov_path(lambda t, a: 0.9, lambda t, a: 0.7))


def test_m_svgd_em_nesterov_schedule():
    rule = mx.momentum.nesterov()
    method = mx.m_svgd_em(
        hand.log_joint, GAMMA, GAMMA_X, KERNEL, theta_momentum=rule, particle_momentum=rule
    )
    schedule = [0.0, 1 / 4, 2 / 5]
    assert_path(
        three_steps(method), nesterov_path(lambda t, a: schedule[t], lambda t, a: schedule[t])
    )


def test_m_svgd_em_adaptive_restart():
    class Restart:
        k, restarts = 0, 0

        def __call__(self, t, alignment):
            self.k = 0 if alignment < 0 else self.k + 1
            self.restarts += self.k == 0
            return self.k / (self.k + 3)

    rule = mx.momentum.adaptive_restart()
    method = mx.m_svgd_em(
        hand.log_joint, 0.1, 0.15, KERNEL, theta_momentum=rule, particle_momentum=rule
    )
    num_steps = 50
    theta_rule, x_rule = Restart(), Restart()
    path = nesterov_path(theta_rule, x_rule, num_steps, 0.1, 0.15)
    assert theta_rule.restarts > 0  # the path must exercise what it tests
    assert x_rule.restarts > 0
    end = mx.trajectory(
        method,
        jnp.array(hand.THETA),
        jnp.array(hand.PARTICLES),
        jnp.array(hand.DATA),
        num_steps,
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(end.history, [theta for theta, *_ in path], rtol=1e-9, atol=1e-9)


def test_m_svgd_em_algorithm_2_adagrad():
    eta, alpha = 0.1, 0.6
    theta, x = hand.THETA, hand.PARTICLES
    theta_ahead, x_ahead = theta, x
    sum_theta, sum_x = np.zeros_like(theta), np.zeros_like(x)  # an accumulator each
    path = []
    for _ in range(3):
        g = hand.grad_theta(theta_ahead, x)
        sum_theta = sum_theta + g**2
        new_theta = theta_ahead + eta * g / np.sqrt(sum_theta)
        theta_ahead = new_theta + alpha * (new_theta - theta)
        phi = hand.stein_velocity(new_theta, x_ahead)
        sum_x = sum_x + phi**2
        new_x = x_ahead + eta * phi / np.sqrt(sum_x)
        x_ahead = new_x + alpha * (new_x - x)
        theta, x = new_theta, new_x
        path.append((theta, x, g, phi))
    adagrad = optax.adagrad(eta, initial_accumulator_value=0.0, eps=0.0)
    method = mx.m_svgd_em(
        hand.log_joint, adagrad, adagrad, KERNEL, theta_momentum=alpha, particle_momentum=alpha
    )
    assert_path(three_steps(method), path)


class Coin:
    """Coin betting for one array, from its paper."""

    def __init__(self, start, damping=0.0):
        self.start, self.current, self.damping = start, start, damping
        self.scale = np.full_like(start, 1e-8)
        self.total, self.absolute, self.reward = 3 * [np.zeros_like(start)]

    def bet(self, g):
        self.scale = np.maximum(self.scale, np.abs(g))
        self.absolute = self.absolute + np.abs(g)
        self.reward = np.maximum(self.reward + g * (self.current - self.start), 0)
        self.total = self.total + g
        against = np.maximum(self.absolute + self.scale, self.damping * self.scale)
        fraction = self.total / (self.scale * against)
        self.current = self.start + fraction * (self.scale + self.reward)
        return self.current


@pytest.mark.parametrize("damping", [0.0, 100.0])
def test_coin_em(damping):
    theta_coin, x_coin, path = Coin(hand.THETA, damping), Coin(hand.PARTICLES, damping), []
    for _ in range(3):
        g = hand.grad_theta(theta_coin.current, x_coin.current)
        phi = hand.stein_velocity(theta_coin.current, x_coin.current)  # the old theta
        path.append((theta_coin.bet(g), x_coin.bet(phi), g, phi))
    assert_path(three_steps(mx.coin_em(hand.log_joint, KERNEL, damping=damping)), path)


def test_marginal_coin_em():
    """theta at the maximum over the old cloud, and particles that see it."""

    def maximum(x, xp):
        return xp.stack([xp.mean(x), xp.log(xp.mean((x - xp.mean(x)) ** 2))])

    x_coin, theta, path = Coin(hand.PARTICLES), hand.THETA, []
    for _ in range(3):
        g = hand.grad_theta(theta, x_coin.current)
        theta = maximum(x_coin.current, np)
        phi = hand.stein_velocity(theta, x_coin.current)
        path.append((theta, x_coin.bet(phi), g, phi))
    np.testing.assert_allclose(hand.grad_theta(path[0][0], hand.PARTICLES), 0, atol=1e-12)
    m_step = mx.exact_m_step(lambda particles, data: maximum(particles, jnp))
    method = mx.coin_em(hand.log_joint, KERNEL, theta_optimizer=m_step)
    assert_path(three_steps(method), path)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [None, mx.metrics.curvature()], ids=repr)
@pytest.mark.parametrize("kernel", [KERNEL, mx.kernels.rbf("median"), mx.kernels.imq(2.0)])
def test_zero_momentum_is_svgd_em_bit_for_bit(kernel, metric):
    start = (jnp.array(hand.THETA), jnp.array(hand.PARTICLES), jnp.array(hand.DATA))
    plain = mx.svgd_em(hand.log_joint, GAMMA, GAMMA_X, kernel, particle_metric=metric)
    still = mx.m_svgd_em(
        hand.log_joint,
        GAMMA,
        GAMMA_X,
        kernel,
        theta_momentum=0.0,
        particle_momentum=0.0,
        particle_metric=metric,
    )
    ends = [mx.trajectory(method, *start, 50, key=jax.random.key(0)) for method in (plain, still)]
    np.testing.assert_allclose(ends[0].history, ends[1].history, rtol=1e-13)
    np.testing.assert_allclose(ends[0].particles, ends[1].particles, rtol=1e-12)
    # Bit for bit is a matter of the arithmetic, operation by operation; a compiler that joins them
    # may round two programs differently.
    states = [method.init(jax.random.key(0), *start[:2]) for method in (plain, still)]
    for _ in range(3):
        states = [
            method.step(jax.random.key(0), state, start[2])[0]
            for method, state in zip((plain, still), states, strict=True)
        ]
    np.testing.assert_array_equal(states[0].theta, states[1].theta)
    np.testing.assert_array_equal(states[0].particles, states[1].particles)


@pytest.mark.parametrize("bandwidth", [0.7, "median", "mean"])
def test_one_particle_is_joint_gradient_ascent(bandwidth):
    theta, x = hand.THETA, hand.PARTICLES[:1]
    for _ in range(20):
        theta = theta + GAMMA * hand.grad_theta(theta, x)
        x = x + GAMMA_X * hand.scores(theta, x)
    method = mx.svgd_em(hand.log_joint, GAMMA, GAMMA_X, mx.kernels.rbf(bandwidth))
    end = mx.trajectory(
        method,
        jnp.array(hand.THETA),
        jnp.array(hand.PARTICLES[:1]),
        jnp.array(hand.DATA),
        20,
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(end.theta, theta, rtol=1e-12)
    np.testing.assert_allclose(end.particles, x, rtol=1e-12)


def test_theta_held_fixed_is_a_sampler():
    model = mx.models.ToyHierarchical(2.0, 1.0)
    y = jnp.array([1.0, -2.0])
    particles = jax.random.normal(jax.random.key(1), (50, 2))
    method = mx.m_svgd_em(model.log_joint, optax.set_to_zero(), 0.2, mx.kernels.rbf(1.0))
    end = mx.trajectory(method, 0.5, particles, y, 2000, key=jax.random.key(0))
    assert end.theta == 0.5
    exact = model.posterior_mean(jnp.array(0.5), y)
    np.testing.assert_allclose(end.particles.mean(axis=0), exact, atol=1e-3)
    ratio = jnp.var(end.particles, axis=0) / model.posterior_variance
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)


def test_m_svgd_em_in_a_metric():
    """u = L'x, t = L^-1 s, phi = L'^-1 phi_u, H at (theta_{t+1}, mean of x~), restart in H."""
    # A start from which the momentum restarts, and once would not without H.
    particles = np.array([[-0.4, 2.5], [1.1, 0.1], [0.1, -0.1]])
    theta, x = hand.THETA, particles
    theta_ahead, x_ahead = theta, x
    path, restarts, raised, told_apart, k_theta, k_x = [], 0, 0, 0, 0, 0
    num_steps, step_x = 8, 0.9
    for _ in range(num_steps):
        g = hand.grad_theta(theta_ahead, x)
        new_theta = theta_ahead + GAMMA * g
        k_theta = 0 if g @ (new_theta - theta) < 0 else k_theta + 1
        theta_ahead = new_theta + k_theta / (k_theta + 3) * (new_theta - theta)
        h = hand.curvature_x(new_theta, x_ahead.mean(axis=0))
        s = hand.scores(new_theta, x_ahead)
        u, scaled = x_ahead * np.sqrt(h), s / np.sqrt(h)
        phi = hand.rbf_velocity(u, scaled) / np.sqrt(h)
        # Where the cloud sees more curvature than its mean, the metric is raised.
        slope = -np.linalg.lstsq(u - u.mean(axis=0), scaled - scaled.mean(axis=0), rcond=None)[0]
        stiffness = max(1.0, np.linalg.eigvalsh((slope + slope.T) / 2)[-1])
        raised += stiffness > 1
        h, phi = h * stiffness, phi / stiffness
        new_x = x_ahead + step_x * phi
        alignment = np.sum(phi * h * (new_x - x))
        told_apart += alignment * np.sum(phi * (new_x - x)) < 0  # without H it would be wrong
        k_x = 0 if alignment < 0 else k_x + 1
        restarts += k_x == 0
        x_ahead = new_x + k_x / (k_x + 3) * (new_x - x)
        theta, x = new_theta, new_x
        path.append((theta, x, g, h * phi))
    restart = mx.momentum.adaptive_restart()
    method = mx.m_svgd_em(
        hand.log_joint,
        GAMMA,
        step_x,
        KERNEL,
        theta_momentum=restart,
        particle_momentum=restart,
        particle_metric=mx.metrics.curvature(),
    )
    assert restarts > 0
    assert raised > 0
    assert told_apart > 0
    # The library's least squares have a ridge of sqrt(eps).
    assert_path(some_steps(method, num_steps, particles), path, tolerance=1e-6)

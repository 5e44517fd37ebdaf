"""Three iterations of every Langevin method against NumPy loops, with the library's own noise."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from langevin_by_hand import KEYS, H, N, assert_path, noise, three_steps, underdamped_noise

import marginax as mx


def test_pgd():
    theta, x, path = hand.THETA, hand.PARTICLES, []
    for key in KEYS:
        g, s = hand.grad_theta(theta, x), hand.scores(theta, x)  # both at the old pair
        theta, x = theta + 0.03 * g, x + H * s + np.sqrt(2 * H) * noise(key, x)
        path.append((theta, x, g, s))
    assert_path(three_steps(mx.pgd(hand.log_joint, 0.03, H)), path)


def maximizer(particles, data):
    """argmax over (a, b) of the mean log joint, in closed form."""
    a = jnp.mean(particles)
    return jnp.stack([a, jnp.log(jnp.mean((particles - a) ** 2))])


def test_pmgd_does_not_lag():
    theta, x, path = hand.THETA, hand.PARTICLES, []
    for key in KEYS:
        g, a = hand.grad_theta(theta, x), np.mean(x)
        theta = np.array([a, np.log(np.mean((x - a) ** 2))])  # of the same cloud
        np.testing.assert_allclose(hand.grad_theta(theta, x), 0, atol=1e-12)
        s = hand.scores(theta, x)
        x = x + H * s + np.sqrt(2 * H) * noise(key, x)
        path.append((theta, x, g, s))
    assert_path(three_steps(mx.pgd(hand.log_joint, mx.exact_m_step(maximizer), H)), path)


def of_the_data(particles, data):
    """A maximizer that needs both of its arguments."""
    return maximizer(particles, data) + 0.1 * data


KERNEL = mx.kernels.rbf(1.0)
WITH_A_SLOT = {  # for an optimizer of theta
    "svgd_em": lambda optimizer: mx.svgd_em(hand.log_joint, optimizer, 0.1, KERNEL),
    "m_svgd_em": lambda optimizer: mx.m_svgd_em(hand.log_joint, optimizer, 0.1, KERNEL),
    "asvgd_em": lambda optimizer: mx.asvgd_em(hand.log_joint, optimizer, 0.1, KERNEL),
    "pgd": lambda optimizer: mx.pgd(hand.log_joint, optimizer, 0.1),
    "soul": lambda optimizer: mx.soul(hand.log_joint, optimizer, 0.1),
}


@pytest.mark.parametrize("name", WITH_A_SLOT)
def test_exact_m_step_fits_every_slot_for_theta(name):
    # theta_{t+1} = theta*(x_t), whatever the look-ahead was; of SOUL's new chain, theta*(x_{t+1}).
    before = jnp.array(hand.PARTICLES)
    for state, _ in three_steps(WITH_A_SLOT[name](mx.exact_m_step(of_the_data))):
        cloud = state.particles if name == "soul" else before
        np.testing.assert_allclose(state.theta, of_the_data(cloud, hand.DATA), rtol=1e-12)
        before = state.particles


@pytest.mark.parametrize("name", WITH_A_SLOT)
def test_an_optimizer_is_given_all_it_needs_for_the_gradient(name):
    def update(updates, state, params, *, log_joint, particles, data):
        def mean(theta):
            return jnp.mean(jax.vmap(lambda x: log_joint(theta, x, data))(particles))

        return 0.05 * jax.grad(mean)(params), state

    by_itself = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    found, expected = (three_steps(WITH_A_SLOT[name](slot)) for slot in (by_itself, 0.05))
    for (state, _), (other, _) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state.theta, other.theta, rtol=1e-12)


def test_pqn():
    theta, x, path = hand.THETA, hand.PARTICLES, []
    for key in KEYS:
        g, s = hand.grad_theta(theta, x), hand.scores(theta, x)
        theta = theta - H * np.linalg.solve(hand.hessian_theta(theta, x), g)
        x = x + H * s + np.sqrt(2 * H) * noise(key, x)
        path.append((theta, x, g, s))
    assert_path(three_steps(mx.pqn(hand.log_joint, H)), path)


def test_ipla():
    theta, x, path = hand.THETA, hand.PARTICLES, []
    for key in KEYS:
        theta_key, x_key = jax.random.split(key)
        g, s = hand.grad_theta(theta, x), hand.scores(theta, x)
        theta = theta + H * g + np.sqrt(2 * H / N) * noise(theta_key, theta)
        x = x + H * s + np.sqrt(2 * H) * noise(x_key, x)
        path.append((theta, x, g, s))
    assert_path(three_steps(mx.ipla(hand.log_joint, H)), path)


def test_ipla_without_theta_noise_is_pgd():
    state = mx.ipla(hand.log_joint, H).init(
        KEYS[0], jnp.array(hand.THETA), jnp.array(hand.PARTICLES)
    )
    data = jnp.array(hand.DATA)
    theta_key, x_key = jax.random.split(KEYS[1])
    after, _ = mx.ipla(hand.log_joint, H).step(KEYS[1], state, data)
    pgd = mx.pgd(hand.log_joint, H, H)
    pgd_after, _ = pgd.step(x_key, pgd.init(KEYS[0], state.theta, state.particles), data)
    shaken = np.sqrt(2 * H / N) * noise(theta_key, hand.THETA)
    np.testing.assert_array_equal(after.particles, pgd_after.particles)
    np.testing.assert_allclose(after.theta - shaken, pgd_after.theta, rtol=1e-12)


def soul_path(num_warmup=0, bounds=None, steps=(0.03, 0.03, 0.03)):
    theta, chain, path = hand.THETA, hand.PARTICLES, []
    theta = theta if bounds is None else np.clip(theta, *bounds)  # a start outside the box too
    for t, key in enumerate(KEYS):
        x, states, scores = chain[-1], [], []
        for k in jax.random.split(key, N):
            scores.append(hand.grad_x(theta, x))
            x = x + H * scores[-1] + np.sqrt(2 * H) * noise(k, x)
            states.append(x)
        chain = np.array(states)
        g = hand.grad_theta(theta, chain)  # the new chain
        if t >= num_warmup:
            theta = theta + steps[t - num_warmup] * g
            theta = theta if bounds is None else np.clip(theta, *bounds)
        path.append((theta, chain, g, np.array(scores)))
    return path


def test_soul():
    assert_path(three_steps(mx.soul(hand.log_joint, 0.03, H)), soul_path())


def test_soul_warmup_and_box():
    method = mx.soul(hand.log_joint, 0.03, H, num_warmup=1, theta_bounds=(-0.19, 0.31))
    path = soul_path(num_warmup=1, bounds=(-0.19, 0.31))
    assert_path(three_steps(method), path)
    assert set(path[-1][0]) & {-0.19, 0.31}  # a bound was active
    lower, upper = jnp.array([-0.19, -0.19]), jnp.array([0.31, 0.31])
    method = mx.soul(hand.log_joint, 0.03, H, num_warmup=1, theta_bounds=(lower, upper))
    assert_path(three_steps(method), path)


def test_soul_weighted_average():
    # Not an exponential decay, whose weights are the same up to a factor wherever it begins.
    schedule = optax.linear_schedule(0.03, 0.0, 4)
    method = mx.soul(
        hand.log_joint, optax.sgd(schedule), H, num_warmup=1, averaging_weight=schedule
    )
    states = [state for state, _ in three_steps(method)]
    weights = np.array([0.03, 0.0225])
    path = soul_path(num_warmup=1, steps=weights)
    for state, (theta, *_) in zip(states, path, strict=True):
        # optax schedules are computed in float32, hence the tolerance.
        np.testing.assert_allclose(state.theta, theta, rtol=1e-7)
    average = weights @ np.stack([path[1][0], path[2][0]]) / weights.sum()
    np.testing.assert_allclose(states[-1].theta_average, average, rtol=1e-7)
    totals = [float(state.total_weight) for state in states]
    np.testing.assert_allclose(totals, [0, 0.03, 0.0525], rtol=1e-6)
    assert [int(state.num_steps) for state in states] == [1, 2, 3]


def test_souls_average_without_weights_yet_is_theta():
    method = mx.soul(hand.log_joint, 0.03, H, averaging_weight=lambda count: 0.0)
    for state, _ in three_steps(method):
        np.testing.assert_array_equal(state.theta_average, state.theta)


def start_of_kipla(init_key):
    theta_key, x_key = jax.random.split(init_key)
    v = noise(theta_key, hand.THETA) / np.sqrt(N)
    return hand.THETA, hand.PARTICLES, v, noise(x_key, hand.PARTICLES)


def test_kipla_exponential():
    g, init_key = 1.7, jax.random.key(3)
    psi0 = np.exp(-g * H)
    psi1 = (1 - psi0) / g
    psi2 = (H - psi1) / g
    theta, x, v, u = start_of_kipla(init_key)
    cold, warm, path = underdamped_noise(H, g, 1.0, 1 / N), underdamped_noise(H, g, 1.0), []
    for key in KEYS:
        gradient, s = -hand.grad_theta(theta, x), hand.scores(theta, x)  # both at the old pair
        theta_key, x_key = jax.random.split(key)
        e_q, e_v = cold(*(noise(k, theta) for k in jax.random.split(theta_key)))
        theta, v = theta + psi1 * v - psi2 * gradient + e_q, psi0 * v - psi1 * gradient + e_v
        e_q, e_v = warm(*(noise(k, x) for k in jax.random.split(x_key)))
        x, u = x + psi1 * u + psi2 * s + e_q, psi0 * u + psi1 * s + e_v
        path.append((theta, x, -gradient, s))
    assert_path(three_steps(mx.kipla(hand.log_joint, H, g), init_key), path)


def test_kipla_splitting():
    g, init_key = 1.7, jax.random.key(3)
    d = np.exp(-g * H / 2)
    theta, x, v, u = start_of_kipla(init_key)
    path = []
    for key in KEYS:
        keys = jax.random.split(key, 4)
        e1, e1_x, e2, e2_x = (noise(k, q) for k, q in zip(keys, (theta, x, theta, x), strict=True))
        cold, warm = np.sqrt((1 - d**2) / N), np.sqrt(1 - d**2)
        old, old_x = -hand.grad_theta(theta, x), -hand.scores(theta, x)
        theta = theta + H * (d * v + cold * e1) - H**2 / 2 * old
        x = x + H * (d * u + warm * e1_x) - H**2 / 2 * old_x
        new, new_x = -hand.grad_theta(theta, x), -hand.scores(theta, x)
        v = d**2 * v - d * H / 2 * (old + new) + cold * (d * e1 + e2)
        u = d**2 * u - d * H / 2 * (old_x + new_x) + warm * (d * e1_x + e2_x)
        path.append((theta, x, -new, -new_x))
    method = mx.kipla(hand.log_joint, H, g, discretization="kiplmc2")
    assert_path(three_steps(method, init_key), path)

"""Stein flows with momenta of their own, WAG and RAGD, against NumPy loops from the papers."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from by_hand import assert_stein_path as assert_path
from by_hand import some_steps, three_steps

import marginax as mx
from marginax.flows.accelerated import quadratic_terms

GAMMA, GAMMA_X = 0.05, 0.08
KERNEL = mx.kernels.rbf(1.3)


def test_wag():
    a, theta, x = 3.5, hand.THETA, hand.PARTICLES
    ahead, path = x, []
    for k in (1, 2, 3):
        g = hand.grad_theta(theta, x)
        theta = theta + GAMMA * g
        v = hand.stein_velocity(theta, ahead)
        new = ahead + GAMMA_X * v
        ahead = new + (k - 1) / k * (ahead - x) + (k + a - 2) / k * GAMMA_X * v
        x = new
        path.append((theta, x, g, v))
    method = mx.m_svgd_em(
        hand.log_joint,
        GAMMA,
        GAMMA_X,
        KERNEL,
        theta_momentum=0.0,
        particle_momentum=mx.momentum.wag(a),
    )
    assert_path(three_steps(method), path)


def test_wag_by_group_is_wag_as_its_factors_do_not_depend_on_the_group():
    methods = [
        mx.m_svgd_em(hand.log_joint, GAMMA, GAMMA_X, KERNEL, particle_momentum=rule)
        for rule in (mx.momentum.wag(), mx.momentum.per_group(mx.momentum.wag()))
    ]
    for (one, _), (other, _) in zip(*map(three_steps, methods), strict=True):
        np.testing.assert_allclose(one.particles, other.particles, rtol=1e-13)


def matched_by_hand(new, old):
    cost = np.sum((new[:, None] - old[None]) ** 2, axis=2)
    return old[scipy.optimize.linear_sum_assignment(cost)[1]]


def ragd_path(step, num_steps):
    """The path, and in how many steps a particle stood where another was nearer."""
    theta, x, alpha = hand.THETA, hand.PARTICLES, 0.7
    ahead, path, crossed = x, [], 0
    for _ in range(num_steps):
        g = hand.grad_theta(theta, x)
        theta = theta + GAMMA * g
        phi = hand.stein_velocity(theta, ahead)
        new = ahead + step * phi
        old = matched_by_hand(new, x)
        crossed += bool(np.any(old != x))
        ahead = new + alpha * (new - old)
        x = new
        path.append((theta, x, g, phi))
    return path, crossed


@pytest.mark.parametrize(("step", "passes"), [(GAMMA_X, False), (1.2, True)])
def test_ragd_follows_the_optimal_transport(step, passes):
    path, crossed = ragd_path(step, 5)
    assert (crossed > 0) == passes  # the long step must exercise what it tests
    rules = [0.7, mx.momentum.riemannian(0.7)]
    plain, riemannian = (
        some_steps(
            mx.m_svgd_em(
                hand.log_joint, GAMMA, step, KERNEL, theta_momentum=0.0, particle_momentum=rule
            ),
            5,
        )
        for rule in rules
    )
    assert_path(riemannian, path, 1e-11)
    same = all(
        np.allclose(a.particles, b.particles, rtol=1e-12)
        for (a, _), (b, _) in zip(plain, riemannian, strict=True)
    )
    assert same != passes


def test_matching_sees_clouds_far_from_zero():
    """Inner products of uncentred clouds lose all digits of the distances between particles."""
    x = 1e8 + np.array([[0.0], [1.0], [2.0]])
    rule = mx.momentum.riemannian(0.5)
    found = rule.match(jnp.array(x), jnp.array(x[[1, 2, 0]]))
    np.testing.assert_array_equal(found, x)


def test_theta_has_no_cloud_to_match():
    with pytest.raises(ValueError, match="matches particles with those of the step before"):
        mx.m_svgd_em(hand.log_joint, 0.1, 0.1, KERNEL, theta_momentum=mx.momentum.riemannian(0.9))


@pytest.mark.parametrize("acceleration", [3.0, -1.0, "fast"])
def test_wag_needs_more_than_three(acceleration):
    with pytest.raises(ValueError, match="a number above 3"):
        mx.momentum.wag.__wrapped__(acceleration)


def quadratic_by_hand(x, y, ridge, form, bandwidth=1.3):
    """T1, T2 and T3 of Stein and Li, one pair of particles at a time."""
    n = len(x)
    pairs = [(j, i) for j in range(n) for i in range(n)]
    k = np.zeros((n, n))
    first = np.zeros((n, n, x.shape[1]))  # gradients in the first argument, at x_j
    for j, i in pairs:
        k[j, i] = np.exp(-np.sum((x[j] - x[i]) ** 2) / (2 * bandwidth**2))
        first[j, i] = k[j, i] * (x[i] - x[j]) / bandwidth**2
    second = -first
    v = n * np.linalg.inv(k + n * ridge * np.eye(n)) @ y
    s, kv = v @ v.T, k @ v
    t1, t2, t3 = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for j, i in pairs:
        if form == "exact":
            t1[j] += v[i] * (second[j, i] @ kv[i])
            t2[j] += v[i] * (first[j, i] @ kv[j])
        else:
            t1[j] += second[j, i] * sum(s[i, m] * k[i, m] for m in range(n))
            t2[j] += first[j, i] * (s @ k.T)[i, j]
        t3[j] += k[j, i] * sum(s[i, m] * second[m, i] for m in range(n))
    return (t1 + t2 - t3) / n**2


@pytest.mark.parametrize("damping", [None, 0.6])
@pytest.mark.parametrize("quadratic", ["exact", "as_released", None])
@pytest.mark.parametrize("restart", ["speed", "particles", "gradient", None])
def test_asvgd_em(restart, quadratic, damping):
    tau = 0.3  # large enough for the cloud to slow down within the six steps
    theta, x, y = hand.THETA, hand.PARTICLES, np.zeros_like(hand.PARTICLES)
    k, last = np.zeros(len(x), int), np.zeros(len(x))
    path, counts = [], []
    for _ in range(6):
        g = hand.grad_theta(theta, x)
        theta = theta + GAMMA * g
        phi = hand.stein_velocity(theta, x)  # the new theta
        bent = 0.0 if quadratic is None else quadratic_by_hand(x, y, 0.2, quadratic)
        alpha = k / (k + 3) if damping is None else damping * (k > 0)
        y = alpha[:, None] * y + np.sqrt(tau) * (phi + bent)
        x = x + np.sqrt(tau) * y
        speed = np.sqrt(np.sum(y**2, axis=1))
        if restart != "particles":
            speed = np.full(len(x), np.sqrt(np.sum(y**2)))
        again = speed < last if restart in ("speed", "particles") else np.zeros(len(x), bool)
        if restart == "gradient":
            again = np.full(len(x), np.sum(phi * y) < 0)
        k, last = np.where(again, 0, k + 1), np.where(again, 0.0, speed)
        path.append((theta, x, g, phi))
        counts.append(k if restart == "particles" else k[0])
    options = {"quadratic": quadratic, "ridge": 0.2, "damping": damping, "restart": restart}
    method = mx.asvgd_em(hand.log_joint, GAMMA, tau, KERNEL, **options)
    steps = some_steps(method, 6)
    assert_path(steps, path)
    np.testing.assert_array_equal([state.momentum_count for state, _ in steps], counts)
    if restart is None:
        assert 0 not in np.array(counts)
    elif restart == "speed" and damping is None:
        assert 0 in np.array(counts)


@pytest.mark.parametrize("kernel", [mx.kernels.rbf(1.3), mx.kernels.imq(0.9)], ids=repr)
@pytest.mark.slow
def test_the_quadratic_terms_are_those_of_the_hamiltonian(kernel):
    """By autodiff: x' = dH/dV, V' = -dH/dx, and Y' of Y = K V / N along that."""
    x, v = jax.random.normal(jax.random.key(3), (2, 5, 3))
    n = len(x)

    def hamiltonian(x, v):
        return jnp.sum(kernel.matrices(x)[0] * (v @ v.T)) / (2 * n)

    def momenta(x, v):
        return kernel.matrices(x)[0] @ v / n

    moves = jax.grad(hamiltonian, 1)(x, v), -jax.grad(hamiltonian, 0)(x, v)
    y, expected = jax.jvp(momenta, (x, v), moves)
    np.testing.assert_allclose(y, moves[0], rtol=1e-10)
    actual = quadratic_terms(kernel, x, y, 1e-15, "exact")
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
    released = quadratic_terms(kernel, x, y, 1e-15, "as_released")
    assert float(jnp.max(jnp.abs(released - expected))) > 1e-2
    flat = quadratic_terms(kernel, x[:, :1], y[:, :1], 1e-15, "exact")
    same = quadratic_terms(kernel, x[:, :1], y[:, :1], 1e-15, "as_released")
    np.testing.assert_allclose(flat, same, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_quadratic_terms_of_blocks_are_each_their_own():
    x, y = jax.random.normal(jax.random.key(4), (2, 6, 2, 3))
    kernel = mx.kernels.rbf(1.1)
    blocks = quadratic_terms(mx.kernels.blockwise(kernel), x, y, 0.1, "exact")
    each = [quadratic_terms(kernel, x[:, i], y[:, i], 0.1, "exact") for i in range(2)]
    np.testing.assert_allclose(blocks, jnp.stack(each, axis=1), rtol=1e-10)


def test_what_asvgd_em_cannot_do_is_refused():
    with pytest.raises(ValueError, match="known for kernels of the distance alone"):
        mx.asvgd_em(hand.log_joint, 0.1, 0.1, mx.kernels.linear())
    mx.asvgd_em(hand.log_joint, 0.1, 0.1, mx.kernels.linear(), quadratic=None)
    with pytest.raises(ValueError, match="restart is .sped., but it must be 'speed'"):
        mx.asvgd_em(hand.log_joint, 0.1, 0.1, KERNEL, restart="sped")
    mx.asvgd_em(hand.log_joint, 0.1, 0.1, KERNEL, damping=0.0)
    for damping in (1.5, 1.0, -0.5):
        with pytest.raises(ValueError, match=f"damping is {damping}"):
            mx.asvgd_em(hand.log_joint, 0.1, 0.1, KERNEL, damping=damping)


@pytest.mark.slow
def test_asvgd_em_recovers_from_its_restarts():
    """On an ill-conditioned Gaussian: faster than SVGD-EM, and k grows again after a restart."""
    precision = jnp.array([100.0, 1.0])

    def log_joint(theta, x, data):
        return -0.5 * jnp.sum(precision * x**2) - 0.5 * theta**2

    start = jnp.array([[0.2, 3.0]]) + 0.1 * jax.random.normal(jax.random.key(0), (10, 2))
    kernel, tau = mx.kernels.rbf(5.0), 0.005

    def final(method, record):
        return mx.trajectory(method, 0.0, start, None, 300, record=record, key=jax.random.key(1))

    plain = final(mx.svgd_em(log_joint, 0.1, tau, kernel), lambda state, info: state.theta)
    fast = final(mx.asvgd_em(log_joint, 0.1, tau, kernel), lambda state, info: state.momentum_count)
    counts = np.asarray(fast.history)
    restarts = np.flatnonzero(counts == 0)
    assert len(restarts) > 0
    assert counts[restarts[0] :].max() > 5
    far = [float(jnp.max(jnp.abs(end.particles.mean(axis=0)))) for end in (plain, fast)]
    assert far[1] < 0.1 * far[0]

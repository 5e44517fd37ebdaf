"""The toy model with unit variances: rates of convergence and stationary laws known in closed form.

With x-bar the mean over particles and coordinates, (theta, x-bar) is a linear system for every
method: z <- A z + noise of covariance Q, so its rate is the spectral radius of A and its stationary
covariance solves P = A P A' + Q.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from long_runs import compiled

import marginax as mx

MODEL = mx.models.ToyHierarchical(1.0, 1.0)
M_STEP = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
D, N, H = 3, 2, 0.1


def linear_map(algorithm, n, d):
    """The Jacobian of one step in (theta, particles)."""
    y, key = jnp.zeros(d), jax.random.key(0)

    def flat_step(z):
        state = algorithm.init(key, z[0], z[1:].reshape(n, d))
        state, _ = algorithm.step(key, state, y)
        return jnp.concatenate([state.theta[None], state.particles.ravel()])

    return np.asarray(jax.jacobian(flat_step)(jnp.zeros(1 + n * d)))


def mean_map(algorithm, n, d):
    """Its restriction to theta and x-bar."""
    full = linear_map(algorithm, n, d)
    spread = np.zeros((1 + n * d, 2))
    spread[0, 0], spread[1:, 1] = 1, 1
    average = np.zeros((2, 1 + n * d))
    average[0, 0], average[1, 1:] = 1, 1 / (n * d)
    return average @ full @ spread


@pytest.mark.slow
def test_pgd_rate():
    h = 2 / (2 + D)
    a = mean_map(mx.pgd(MODEL.log_joint, h, h), N, D)
    np.testing.assert_allclose(a, [[1 - h * D, h * D], [h, 1 - 2 * h]], atol=1e-12)
    rate = max(abs(np.linalg.eigvals(a)))
    np.testing.assert_allclose(rate, np.sqrt(D**2 + 4) / (D + 2), rtol=1e-12)


@pytest.mark.slow
def test_pqn_rate():
    h = 2 / 3
    a = mean_map(mx.pqn(MODEL.log_joint, h), N, D)
    np.testing.assert_allclose(a, [[1 - h, h], [h, 1 - 2 * h]], atol=1e-12)
    np.testing.assert_allclose(max(abs(np.linalg.eigvals(a))), np.sqrt(5) / 3, rtol=1e-12)


def test_pmgd_rate_is_that_of_x_bar_alone():
    # theta = x-bar of the same cloud, so x-bar <- (1 - h) x-bar: with a lag the rate would differ.
    a = mean_map(mx.pgd(MODEL.log_joint, M_STEP, 0.4), N, D)
    np.testing.assert_allclose(a, [[0, 1], [0, 1 - 0.4]], atol=1e-12)


def test_em_rate_is_one_half():
    # An exact M-step, and the cloud moved to the posterior mean (y + theta) / 2: theta halves its
    # error.
    theta, y = jnp.array(5.0), jnp.array([1.0, 3.0])
    for _ in range(3):
        cloud = jnp.tile(MODEL.posterior_mean(theta, y)[None, :], (4, 1))
        new, _ = M_STEP.update(theta, M_STEP.init(theta), theta, particles=cloud, data=y)
        np.testing.assert_allclose(theta + new - 2.0, (theta - 2.0) / 2, rtol=1e-12)
        theta = theta + new


def noise_covariance(theta_noise):
    return np.diag([theta_noise, 2 * H / (N * D)])


STATIONARY = {
    "pgd": (mx.pgd(MODEL.log_joint, H, H), noise_covariance(0.0)),
    "pqn": (mx.pqn(MODEL.log_joint, H), noise_covariance(0.0)),
    "pmgd": (mx.pgd(MODEL.log_joint, M_STEP, H), noise_covariance(0.0)),
    "ipla": (mx.ipla(MODEL.log_joint, H), noise_covariance(2 * H / N)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATIONARY)
def test_stationary_variance_of_theta(name, key):
    algorithm, q = STATIONARY[name]
    exact = scipy.linalg.solve_discrete_lyapunov(mean_map(algorithm, N, D), q)[0, 0]
    replicas = 20_000
    keys = jax.random.split(key, replicas)

    def final(key):
        return mx.trajectory(algorithm, 0.0, jnp.zeros((N, D)), jnp.zeros(D), 150, key=key).theta

    variance = float(jnp.var(compiled(jax.vmap(final))(keys)))
    # 4 standard errors of a variance from independent normal replicas: budget 6e-5 per method.
    assert abs(variance - exact) < 4 * exact * np.sqrt(2 / replicas)


def test_stationary_variances_have_the_papers_limits():
    # The library's own linear maps at a tiny step, against the papers' h -> 0 limits.
    h = 1e-5
    shake = 2 * h / (N * D)
    limits = [
        (mx.pgd(MODEL.log_joint, h, h), 0.0, 1 / (N * (D + 2))),
        (mx.pqn(MODEL.log_joint, h), 0.0, 1 / (3 * N * D)),
        (mx.pgd(MODEL.log_joint, M_STEP, h), 0.0, 2 / (N * D * (2 - h))),
        (mx.ipla(MODEL.log_joint, h), 2 * h / N, 2 / (N * D)),
    ]
    for algorithm, theta_noise, limit in limits:
        covariance = np.diag([theta_noise, shake])
        p = scipy.linalg.solve_discrete_lyapunov(mean_map(algorithm, N, D), covariance)
        np.testing.assert_allclose(p[0, 0], limit, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("discretization", ["kiplmc1", "kiplmc2"])
def test_kipla_theta_is_at_temperature_one_over_n(discretization, key):
    # p_theta(y)^N with p = N(y-bar, 2/D) in theta: variance 2/(N D), plus a step-size bias of order
    # h.
    algorithm = mx.kipla(MODEL.log_joint, 0.05, 1.5, discretization=discretization)
    replicas = 4000

    def final(key):
        return mx.trajectory(algorithm, 0.0, jnp.zeros((N, D)), jnp.zeros(D), 600, key=key).theta

    variance = float(jnp.var(compiled(jax.vmap(final))(jax.random.split(key, replicas))))
    exact = 2 / (N * D)
    assert abs(variance - exact) < exact * (0.06 + 4 * np.sqrt(2 / replicas))


@pytest.mark.slow
def test_mpgd_and_soul_find_the_estimate(key):
    y = jnp.array([1.0, 2.0, 6.0])
    particles = jnp.zeros((50, 3))
    for algorithm in (
        mx.mpgd(MODEL.log_joint, 0.05, 1.0, 10.0),
        mx.soul(MODEL.log_joint, 0.05, 0.05),
    ):
        end = mx.trajectory(algorithm, 0.0, particles, y, 4000, key=key)
        assert abs(float(end.history[1000:].mean()) - 3.0) < 0.05


@pytest.mark.slow
def test_splitting_has_the_known_step_size_bias(key):
    # KIPLMC2 on N(0, 1): Var x = 1 / (1 - h^2 / 4) exactly, whatever the friction; h = 1 gives 4/3.
    n = 100_000
    algorithm = mx.kipla(
        lambda theta, x, y: -0.5 * jnp.sum(x**2), 1.0, 1.5, discretization="kiplmc2"
    )
    end = mx.trajectory(algorithm, 0.0, jnp.zeros((n, 1)), None, 60, key=key)
    variance = float(jnp.var(end.particles))
    assert abs(variance - 4 / 3) < 4 * 4 / 3 * np.sqrt(2 / n)  # 4 standard errors: budget 6e-5

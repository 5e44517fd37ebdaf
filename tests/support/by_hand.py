"""A problem small enough to differentiate by hand, in NumPy, for the oracles of the algorithms.

    l(theta, x) = -exp(-b)/2 sum_d (x_d - a)^2 - b D/2 - 1/2 sum_d (y_d - x_d)^2 - c sum_d x_d^4

theta = (a, b), D = 2, three particles. Nothing in it is Gaussian, symmetric or stationary, so that
an update taken at the wrong point, in the wrong order or with the wrong sign shows.
"""

import jax
import jax.numpy as jnp
import numpy as np

QUARTIC = 0.1
THETA = np.array([0.3, -0.2])
PARTICLES = np.array([[0.1, -0.7], [1.3, 0.4], [-0.5, 2.0]])
DATA = np.array([1.5, -0.4])


def log_joint(theta, x, y):
    a, b = theta
    prior = -0.5 * jnp.exp(-b) * jnp.sum((x - a) ** 2) - 0.5 * b * x.shape[0]
    return prior - 0.5 * jnp.sum((y - x) ** 2) - QUARTIC * jnp.sum(x**4)


def grad_theta_one(theta, x):
    a, b = theta
    precision = np.exp(-b)
    return np.array(
        [precision * np.sum(x - a), 0.5 * precision * np.sum((x - a) ** 2) - 0.5 * len(x)]
    )


def grad_theta(theta, particles):
    return sum(grad_theta_one(theta, x) for x in particles) / len(particles)


def hessian_theta(theta, particles):
    a, b = theta
    precision = np.exp(-b)
    total = np.zeros((2, 2))
    for x in particles:
        cross = -precision * np.sum(x - a)
        total += [
            [-precision * len(x), cross],
            [cross, -0.5 * precision * np.sum((x - a) ** 2)],
        ]
    return total / len(particles)


def grad_x(theta, x):
    a, b = theta
    return -np.exp(-b) * (x - a) + (DATA - x) - 4 * QUARTIC * x**3


def curvature_x(theta, x):
    """The diagonal of minus the Hessian in x; there is nothing beside it."""
    return np.exp(-theta[1]) + 1 + 12 * QUARTIC * x**2


def scores(theta, particles):
    return np.array([grad_x(theta, x) for x in particles])


def stein_velocity(theta, particles, bandwidth=1.3):
    """phi by its definition, one pair of particles at a time."""
    return rbf_velocity(particles, scores(theta, particles), bandwidth)


def rbf_velocity(particles, scores, bandwidth=1.3):
    n = len(particles)
    phi = np.zeros_like(particles)
    for i, x in enumerate(particles):
        for x_j, s_j in zip(particles, scores, strict=True):
            k = np.exp(-np.sum((x_j - x) ** 2) / (2 * bandwidth**2))
            grad_1 = k * (x - x_j) / bandwidth**2
            phi[i] += (k * s_j + grad_1) / n
    return phi


def three_steps(algorithm):
    """States and infos of steps 1, 2 and 3."""
    return some_steps(algorithm, 3)


def some_steps(algorithm, num_steps, particles=PARTICLES):
    state = algorithm.init(jax.random.key(0), jnp.array(THETA), jnp.array(particles))
    steps, step = [], jax.jit(algorithm.step)
    for _ in range(num_steps):
        state, info = step(jax.random.key(0), state, jnp.array(DATA))
        steps.append((state, info))
    return steps


def assert_stein_path(steps, path, tolerance=1e-12):
    """Against (theta, cloud, theta's gradient, velocity) of every step."""
    for (state, info), expected in zip(steps, path, strict=True):
        found = (state.theta, state.particles, info.theta_score, info.velocity)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

"""Random intercepts with a likelihood in closed form, grouped and as one block."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.optimize import minimize

import marginax as mx
from marginax.model.transforms import positive

GROUPS, N = 12, 3


def intercepts(seed=0):
    """y_gi ~ N(x_g, 1), x_g ~ N(m, s^2); the group means are N(m, s^2 + 1 / n)."""
    random = np.random.default_rng(seed)
    y = 1 + 1.5 * random.normal(size=(GROUPS, 1)) + random.normal(size=(GROUPS, N))

    def log_joint(theta, x, y):
        return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))

    return mx.Problem.grouped(
        log_joint,
        y,
        theta={"m": 0.0, "s": 1.0},
        latent=0.0,
        theta_transforms={"s": positive},
    )


def whole(problem):
    """The same model as one block, which takes importance sampling and NUTS."""

    def log_joint(theta, x, y):
        return problem.log_joint(theta, x, y)

    return mx.Problem(
        log_joint,
        theta=problem.theta,
        latent=jnp.zeros(GROUPS),
        data=problem.data,
        theta_transforms={"s": positive},
    )


def log_marginal(theta, y):
    """In closed form; theta = (m, log s)."""
    means, s2 = jnp.mean(y, axis=1), jnp.exp(2 * theta[1])
    within = jnp.sum((y - means[:, None]) ** 2)
    of_means = jnp.sum(norm.logpdf(means, theta[0], jnp.sqrt(s2 + 1 / N)))
    constant = -0.5 * GROUPS * ((N - 1) * jnp.log(2 * jnp.pi) + jnp.log(N))
    return of_means - 0.5 * within + constant


def maximum(y):
    found = minimize(lambda t: -float(log_marginal(t, y)), np.zeros(2), method="Nelder-Mead")
    found = minimize(lambda t: -float(log_marginal(t, y)), found.x, tol=1e-12)
    return found.x


THETA = np.array([0.7, -0.4])

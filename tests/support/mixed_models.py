"""Mixed models with exact answers: simulators, log joints and marginals that share no code.

The marginals are oracles: a dense Gaussian covariance for the linear model, the trapezoidal rule
over a fine grid of the random effect (which converges geometrically for such integrands) for
counts. Their maxima come from scipy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import multivariate_normal, norm
from scipy.optimize import minimize


class Grouped(NamedTuple):
    """G groups of n observations: response y, covariate t, both [G, n]."""

    y: jax.Array
    t: jax.Array


def correlated_covariance(theta):
    sd = jnp.exp(theta["log_sd"])
    rho = jnp.tanh(theta["atanh_rho"])
    off = rho * sd[0] * sd[1]
    return jnp.array([[sd[0] ** 2, off], [off, sd[1] ** 2]])


# Linear, with correlated random intercepts and slopes:
# y = (b_0 + u_0) + (b_1 + u_1) t + e.


def slopes_log_joint(theta, u, data):
    prior = jnp.sum(multivariate_normal.logpdf(u, jnp.zeros(2), correlated_covariance(theta)))
    mean = theta["b"][0] + u[:, :1] + (theta["b"][1] + u[:, 1:]) * data.t
    return prior + jnp.sum(norm.logpdf(data.y, mean, jnp.exp(theta["log_sd_noise"])))


def slopes_log_marginal(theta, data):
    def one(y, t):
        design = jnp.stack([jnp.ones_like(t), t], axis=1)
        covariance = design @ correlated_covariance(theta) @ design.T
        covariance = covariance + jnp.exp(2 * theta["log_sd_noise"]) * jnp.eye(len(t))
        return multivariate_normal.logpdf(y, design @ theta["b"], covariance)

    return jnp.sum(jax.vmap(one)(data.y, data.t))


def simulate_slopes(seed, num_groups=20, n=10, scale=1.0):
    """In units `scale` times larger; shaped like a study of reaction times over ten days."""
    random = np.random.default_rng(seed)
    rho = random.uniform(-0.6, 0.6)
    t = np.broadcast_to(np.arange(n), (num_groups, n)).astype(float)
    sd = np.array([1.0, 0.25]) * random.uniform(0.7, 1.4, 2)
    covariance = np.array([[sd[0] ** 2, rho * sd[0] * sd[1]], [rho * sd[0] * sd[1], sd[1] ** 2]])
    u = random.multivariate_normal(np.zeros(2), covariance, num_groups)
    y = 10 + u[:, :1] + (0.4 + u[:, 1:]) * t + random.normal(size=t.shape)
    return Grouped(jnp.asarray(scale * y), jnp.asarray(t))


def slopes_start(scale=1.0):
    log_scale = np.log(scale)
    return {
        "b": jnp.zeros(2),
        "log_sd": jnp.full(2, log_scale),
        "atanh_rho": jnp.zeros(()),
        "log_sd_noise": jnp.asarray(log_scale),
    }


# Counts with a random intercept per group, eta = b_0 + b_1 t + u.


def _counts_log_joint(log_likelihood):
    def log_joint(theta, u, data):
        eta = theta["b"][0] + theta["b"][1] * data.t + u[:, None]
        prior = jnp.sum(norm.logpdf(u, 0, jnp.exp(theta["log_sd"])))
        return prior + jnp.sum(log_likelihood(data.y, eta))

    return log_joint


def _counts_log_marginal(log_likelihood):
    z = jnp.linspace(-9, 9, 721)

    def log_marginal(theta, data):
        eta = theta["b"][0] + theta["b"][1] * data.t  # [G, n]
        u = jnp.exp(theta["log_sd"]) * z
        given = jnp.sum(log_likelihood(data.y[..., None], eta[..., None] + u), axis=1)  # [G, grid]
        weighted = given + norm.logpdf(z) + jnp.log(z[1] - z[0])
        return jnp.sum(jax.scipy.special.logsumexp(weighted, axis=1))

    return log_marginal


TRIALS = 6


def _poisson(y, eta):
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def _binomial(y, eta):
    choose = gammaln(TRIALS + 1) - gammaln(y + 1) - gammaln(TRIALS - y + 1)
    return choose + y * eta - TRIALS * jax.nn.softplus(eta)


poisson_log_joint, poisson_log_marginal = (
    _counts_log_joint(_poisson),
    _counts_log_marginal(_poisson),
)
binomial_log_joint = _counts_log_joint(_binomial)
binomial_log_marginal = _counts_log_marginal(_binomial)


def simulate_counts(seed, kind, num_groups=30, n=5):
    random = np.random.default_rng(seed)
    t = random.normal(size=(num_groups, n))
    u = random.uniform(0.5, 1.2) * random.normal(size=(num_groups, 1))
    eta = random.uniform(-0.5, 1.5) + random.uniform(-0.7, 0.7) * t + u
    if kind == "poisson":
        y = random.poisson(np.exp(eta))
    else:
        y = random.binomial(TRIALS, 1 / (1 + np.exp(-eta)))
    return Grouped(jnp.asarray(y, float), jnp.asarray(t))


def counts_start():
    return {"b": jnp.zeros(2), "log_sd": jnp.zeros(())}


# Crossed random effects, NOT grouped: y_ij = mean + a_i + c_j + e_ij.


def crossed_log_joint(theta, latent, y):
    rows = norm.logpdf(latent["row"], 0, jnp.exp(theta["log_sd_row"]))
    columns = norm.logpdf(latent["column"], 0, jnp.exp(theta["log_sd_column"]))
    mean = theta["mean"] + latent["row"][:, None] + latent["column"][None, :]
    noise = norm.logpdf(y, mean, jnp.exp(theta["log_sd_noise"]))
    return jnp.sum(rows) + jnp.sum(columns) + jnp.sum(noise)


def crossed_log_marginal(theta, y):
    num_rows, num_columns = y.shape
    rows = jnp.kron(jnp.eye(num_rows), jnp.ones((num_columns, num_columns)))
    columns = jnp.kron(jnp.ones((num_rows, num_rows)), jnp.eye(num_columns))
    covariance = (
        jnp.exp(2 * theta["log_sd_row"]) * rows
        + jnp.exp(2 * theta["log_sd_column"]) * columns
        + jnp.exp(2 * theta["log_sd_noise"]) * jnp.eye(y.size)
    )
    return multivariate_normal.logpdf(y.ravel(), jnp.full(y.size, theta["mean"]), covariance)


def simulate_crossed(seed, num_rows=18, num_columns=12):
    random = np.random.default_rng(seed)
    rows, columns = random.normal(size=(num_rows, 1)), 0.7 * random.normal(size=(1, num_columns))
    return jnp.asarray(2.0 + rows + columns + random.normal(size=(num_rows, num_columns)))


def crossed_start():
    return {name: jnp.zeros(()) for name in ("mean", "log_sd_row", "log_sd_column", "log_sd_noise")}


def maximum_likelihood(log_marginal, start, data):
    """The exact estimate, by scipy."""
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    value_and_grad = jax.jit(jax.value_and_grad(lambda t: -log_marginal(unravel(t), data)))

    def both(t):
        value, gradient = value_and_grad(t)
        return float(value), np.asarray(gradient)

    with jax.numpy_rank_promotion("allow"):
        first = minimize(both, np.asarray(flat), jac=True, method="BFGS")
        found = minimize(both, first.x, jac=True, method="BFGS", options={"gtol": 1e-8})
    assert np.max(np.abs(found.jac)) < 1e-4, found.message
    return unravel(jnp.asarray(found.x))


def distance(theta, exact):
    """The largest difference of any coordinate, on unconstrained scales."""
    flat = [jax.flatten_util.ravel_pytree(tree)[0] for tree in (theta, exact)]
    return float(jnp.max(jnp.abs(flat[0] - flat[1])))

"""Problems for `fit` with exact answers: each a `Case` of a problem and a log marginal likelihood.

The oracles share nothing with the library: Gaussian covariances, closed forms, the trapezoidal rule
on a fine grid, and plain importance sampling with half a million draws. theta is on the reals in
all of them, so that estimates and standard errors compare coordinate by coordinate.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mixed_models as mm
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import multivariate_normal, norm
from scipy import stats
from scipy.optimize import minimize

import marginax as mx


class Case(NamedTuple):
    problem: mx.Problem
    log_marginal: Callable[[Any], Any]  # of free theta
    error: float = 0.0  # the oracle's own, in the log likelihood


class Exact(NamedTuple):
    theta: np.ndarray
    standard_errors: np.ndarray
    log_likelihood: float


def exact(case):
    """Maximum, standard errors and log likelihood of the oracle."""
    flat, unravel = ravel_pytree(case.problem.start_theta())
    negative = lambda t: -case.log_marginal(unravel(t))  # noqa: E731
    both, hessian = jax.jit(jax.value_and_grad(negative)), jax.jit(jax.hessian(negative))

    def loss(t):
        value, gradient = both(t)
        return float(value), np.asarray(gradient)

    found = minimize(
        loss,
        np.asarray(flat),
        jac=True,
        hess=lambda t: np.asarray(hessian(t)),
        method="trust-exact",
    )
    theta = found.x - np.linalg.solve(hessian(found.x), found.jac)
    assert np.max(np.abs(both(theta)[1])) < 1e-4, found.message
    errors = np.sqrt(np.diag(np.linalg.inv(hessian(theta))))
    return Exact(theta, errors, -float(both(theta)[0]))


def one_group(log_joint):
    """A log joint of all groups at once as one of a single group."""

    def of_one(theta, x, y):
        whole = jax.tree.map(lambda leaf: leaf[None], (x, y))
        return log_joint(theta, *whole)

    return of_one


def slopes(seed):
    data = mm.simulate_slopes(seed, num_groups=25)
    problem = mx.Problem.grouped(
        one_group(mm.slopes_log_joint), data, theta=mm.slopes_start(), latent=jnp.zeros(2)
    )
    return Case(problem, lambda theta: mm.slopes_log_marginal(theta, data))


def counts(kind, seed):
    data = mm.simulate_counts(seed, kind)
    log_joint = {"binomial": mm.binomial_log_joint, "poisson": mm.poisson_log_joint}[kind]
    marginal = {"binomial": mm.binomial_log_marginal, "poisson": mm.poisson_log_marginal}[kind]
    problem = mx.Problem.grouped(
        one_group(log_joint), data, theta=mm.counts_start(), latent=jnp.zeros(())
    )
    return Case(problem, lambda theta: marginal(theta, data))


def crossed(seed):
    y = mm.simulate_crossed(seed)
    latent = {"row": jnp.zeros(y.shape[0]), "column": jnp.zeros(y.shape[1])}
    problem = mx.Problem(mm.crossed_log_joint, theta=mm.crossed_start(), latent=latent, data=y)
    return Case(problem, lambda theta: mm.crossed_log_marginal(theta, y))


def item_response(seed, persons=150, items=5):
    """2PL: y_pi ~ Bernoulli(sigmoid(exp(log_a_i) x_p - b_i)), x_p ~ N(0, 1)."""
    random = np.random.default_rng(seed)
    a, b = random.uniform(0.8, 1.8, items), random.normal(size=items)
    eta = a * random.normal(size=(persons, 1)) - b
    y = jnp.asarray((random.uniform(size=eta.shape) < 1 / (1 + np.exp(-eta))).astype(float))

    def likelihood(theta, x, y):
        eta = jnp.exp(theta["log_a"]) * x - theta["b"]
        return jnp.sum(y * eta - jax.nn.softplus(eta), axis=-1)

    problem = mx.Problem.grouped(
        lambda theta, x, y: norm.logpdf(x) + likelihood(theta, x, y),
        y,
        theta={"log_a": jnp.zeros(items), "b": jnp.zeros(items)},
        latent=0.0,
    )
    grid = jnp.linspace(-9, 9, 181)  # four times as fine changes the 14th digit

    def log_marginal(theta):
        given = jax.vmap(lambda x: likelihood(theta, x, y))(grid)  # [grid, persons]
        terms = given + (norm.logpdf(grid) + jnp.log(grid[1] - grid[0]))[:, None]
        return jnp.sum(logsumexp(terms, axis=0))

    return Case(problem, log_marginal)


def gamma_poisson(seed, groups=80, n=3):
    """A positive latent: y_gi ~ Poisson(x_g), x_g ~ Gamma(a, a / m); negative binomial marginal."""
    random = np.random.default_rng(seed)
    x = random.gamma(2.0, 1.5, size=(groups, 1))
    y = jnp.asarray(random.poisson(x * np.ones((groups, n))).astype(float))

    def log_joint(theta, x, y):
        a, rate = jnp.exp(theta["log_a"]), jnp.exp(theta["log_a"] - theta["log_m"])
        prior = a * jnp.log(rate) - gammaln(a) + (a - 1) * jnp.log(x) - rate * x
        return prior + jnp.sum(y * jnp.log(x) - x - gammaln(y + 1))

    problem = mx.Problem.grouped(
        log_joint,
        y,
        theta={"log_a": 0.0, "log_m": 0.0},
        latent=1.0,
        latent_transforms=mx.transforms.positive,
    )

    def log_marginal(theta):
        a, rate = jnp.exp(theta["log_a"]), jnp.exp(theta["log_a"] - theta["log_m"])
        total = jnp.sum(y, axis=1)
        each = gammaln(a + total) - gammaln(a) + a * jnp.log(rate)
        each = each - (a + total) * jnp.log(rate + n) - jnp.sum(gammaln(y + 1), axis=1)
        return jnp.sum(each)

    return Case(problem, log_marginal)


def one_factor(seed, rows=100, columns=5):
    """Probabilistic PCA with one component: y = w x + e, both Gaussian."""
    random = np.random.default_rng(seed)
    w = random.normal(size=columns) + 1
    y = random.normal(size=(rows, 1)) * w + 0.7 * random.normal(size=(rows, columns))
    y = jnp.asarray(y)

    def log_joint(theta, x, y):
        noise = norm.logpdf(y, theta["w"] * x, jnp.exp(theta["log_sd"]))
        return norm.logpdf(x) + jnp.sum(noise)

    problem = mx.Problem.grouped(
        log_joint, y, theta={"w": jnp.full(columns, 0.5), "log_sd": 0.0}, latent=0.0
    )

    def log_marginal(theta):
        covariance = jnp.outer(theta["w"], theta["w"]) + jnp.exp(2 * theta["log_sd"]) * jnp.eye(
            columns
        )
        return jnp.sum(multivariate_normal.logpdf(y, jnp.zeros(columns), covariance))

    return Case(problem, log_marginal)


def _log_one_plus_exp(eta):
    """Summed over the last axis; a third of the time of `np.logaddexp`."""
    return np.maximum(eta, 0).sum(1) + np.log1p(np.exp(-np.abs(eta))).sum(1)


def logistic(seed):
    """Learned prior mean and scale, nine correlated weights, not grouped."""
    data = mx.models.wisconsin(seed).train
    features, labels = np.asarray(data.features), np.asarray(data.labels, float)

    def log_joint(theta, x, data):
        eta = data.features @ x
        likelihood = jnp.sum(data.labels.astype(eta.dtype) * eta - jax.nn.softplus(eta))
        return jnp.sum(norm.logpdf(x, theta["mean"], jnp.exp(theta["log_sd"]))) + likelihood

    theta = {"mean": jnp.zeros(()), "log_sd": jnp.zeros(())}
    problem = mx.Problem(log_joint, theta=theta, latent=jnp.zeros(9), data=data)
    # A proposal that is right for a standard deviation of about one half, and heavy-tailed.
    x = np.full(9, 1.0)
    for _ in range(30):
        p = 1 / (1 + np.exp(-features @ x))
        curvature = features.T @ (features * (p * (1 - p))[:, None]) + 4 * np.eye(9)
        x = x + np.linalg.solve(curvature, features.T @ (labels - p) - 4 * (x - 1.0))
    proposal = stats.multivariate_t(x, 1.5 * np.linalg.inv(curvature), df=6, seed=1)
    draws = proposal.rvs(500_000)
    parts = np.array_split(draws, 200)
    given = [d @ (features.T @ labels) - _log_one_plus_exp(d @ features.T) for d in parts]
    fixed = jnp.asarray(np.concatenate(given) - proposal.logpdf(draws))
    # The prior of a draw needs its mean and its spread alone, and not all nine weights.
    means, spreads = jnp.asarray(draws.mean(axis=1)), jnp.asarray(9 * draws.var(axis=1))

    def log_marginal(theta):
        squares = spreads + 9 * (means - theta["mean"]) ** 2
        prior = -0.5 * squares * jnp.exp(-2 * theta["log_sd"]) - 9 * theta["log_sd"]
        return logsumexp(fixed + prior) - jnp.log(len(draws)) - 4.5 * jnp.log(2 * jnp.pi)

    return Case(problem, log_marginal, error=0.01)


CASES = {
    "slopes": slopes,
    "binomial": lambda seed: counts("binomial", seed),
    "poisson": lambda seed: counts("poisson", seed),
    "crossed": crossed,
    "item response": item_response,
    "gamma-poisson": gamma_poisson,
    "one factor": one_factor,
    "logistic": logistic,
}

"""Models of many dependent latents, with answers that share no code with the library."""

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax.scipy.stats import norm

import marginax as mx

POSITIVE = mx.transforms.positive


def crossed_data(num_first, num_second, num_rows, seed=0):
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, num_first, num_rows), rng.integers(0, num_second, num_rows)
    u, v = rng.normal(size=num_first), 0.7 * rng.normal(size=num_second)
    y = 1.0 + u[first] + v[second] + 0.5 * rng.normal(size=num_rows)
    return {"first": first, "second": second, "y": y}


def crossed_log_joint(theta, x, data):
    mean = theta["mean"] + x["u"][data["first"]] + x["v"][data["second"]]
    rows = jnp.sum(norm.logpdf(data["y"], mean, theta["noise"]))
    of_first = jnp.sum(norm.logpdf(x["u"], 0.0, theta["first"]))
    return rows + of_first + jnp.sum(norm.logpdf(x["v"], 0.0, theta["second"]))


def crossed(num_first, num_second, num_rows, seed=0):
    data = crossed_data(num_first, num_second, num_rows, seed)
    return mx.Problem(
        crossed_log_joint,
        {"mean": 0.0, "first": 1.0, "second": 1.0, "noise": 1.0},
        {"u": jnp.zeros(num_first), "v": jnp.zeros(num_second)},
        data,
        theta_transforms=dict.fromkeys(("first", "second", "noise"), POSITIVE),
    )


def crossed_log_likelihood(data, theta):
    """Of a normal with a full covariance matrix."""
    data = {name: np.asarray(leaf) for name, leaf in data.items()}
    same_first = data["first"][:, None] == data["first"][None, :]
    same_second = data["second"][:, None] == data["second"][None, :]
    covariance = theta["first"] ** 2 * same_first + theta["second"] ** 2 * same_second
    covariance = covariance + theta["noise"] ** 2 * np.eye(len(data["y"]))
    away = np.linalg.cholesky(covariance)
    z = np.linalg.solve(away, data["y"] - theta["mean"])
    log_root = np.sum(np.log(np.diag(away)))
    return -0.5 * z @ z - log_root - len(z) / 2 * np.log(2 * np.pi)


def volatility_data(length, seed=0, mean=-1.0, persistence=0.95, sd=0.3):
    rng = np.random.default_rng(seed)
    h = np.empty(length)
    h[0] = mean + sd / np.sqrt(1 - persistence**2) * rng.normal()
    for t in range(1, length):
        h[t] = mean + persistence * (h[t - 1] - mean) + sd * rng.normal()
    return np.exp(h / 2) * rng.normal(size=length)


def volatility_log_joint(theta, h, y):
    """Log-variances follow an autoregression; theta = mean, atanh of the persistence, sd."""
    persistence = jnp.tanh(theta["atanh"])
    spread = theta["sd"] / jnp.sqrt(1 - persistence**2)
    first = norm.logpdf(h[0], theta["mean"], spread)
    next_mean = theta["mean"] + persistence * (h[:-1] - theta["mean"])
    return (
        first
        + jnp.sum(norm.logpdf(h[1:], next_mean, theta["sd"]))
        + jnp.sum(norm.logpdf(y, 0.0, jnp.exp(h / 2)))
    )


def volatility(length, seed=0):
    return mx.Problem(
        volatility_log_joint,
        {"mean": 0.0, "atanh": 1.5, "sd": 0.5},
        jnp.zeros(length),
        volatility_data(length, seed),
        theta_transforms={"sd": POSITIVE},
    )


def volatility_log_likelihood(y, mean, persistence, sd, num_nodes=600):
    """By the filter on a fine grid of log-variances: the integral one time after the other."""
    spread = sd / np.sqrt(1 - persistence**2)
    h = np.linspace(mean - 8 * spread, mean + 8 * spread, num_nodes)
    step = h[1] - h[0]
    moves = scipy.stats.norm.pdf(h[None, :], mean + persistence * (h[:, None] - mean), sd) * step
    density, total = scipy.stats.norm.pdf(h, mean, spread) * step, 0.0
    for one in y:
        weighted = density * scipy.stats.norm.pdf(one, 0.0, np.exp(h / 2))
        total += np.log(weighted.sum())
        density = (weighted / weighted.sum()) @ moves
    return float(total)

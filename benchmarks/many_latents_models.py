"""Models of very many dependent latents, with likelihoods by code that shares none with ours."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import scipy.stats
from jax.scipy.stats import norm

import marginax as mx

POSITIVE = mx.transforms.positive
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def crossed_log_joint(theta: Any, x: Any, data: Any) -> Any:
    """y = mean + u[student] + v[teacher] + noise."""
    mean = theta["mean"] + x["u"][data["first"]] + x["v"][data["second"]]
    rows = jnp.sum(norm.logpdf(data["y"], mean, theta["noise"]))
    of_first = jnp.sum(norm.logpdf(x["u"], 0.0, theta["first"]))
    return rows + of_first + jnp.sum(norm.logpdf(x["v"], 0.0, theta["second"]))


def crossed(seed: int, sizes: tuple[int, int] = (3000, 1100), num_rows: int = 73_000) -> mx.Problem:
    """A crossed linear mixed model."""
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(0, size, num_rows) for size in sizes)
    u, v = rng.normal(size=sizes[0]), 0.7 * rng.normal(size=sizes[1])
    y = 1.0 + u[first] + v[second] + 0.5 * rng.normal(size=num_rows)
    return mx.Problem(
        crossed_log_joint,
        {"mean": 0.0, "first": 1.0, "second": 1.0, "noise": 1.0},
        {"u": np.zeros(sizes[0]), "v": np.zeros(sizes[1])},
        {"first": first, "second": second, "y": y},
        theta_transforms=dict.fromkeys(("first", "second", "noise"), POSITIVE),
    )


def crossed_log_likelihood(problem: mx.Problem, flat: np.ndarray) -> float:
    """By SciPy's sparse LU of the mixed-model equations; flat is log sds and the mean, by name."""
    log_first, mean, log_noise, log_second = flat
    data = {name: np.asarray(leaf) for name, leaf in problem.data.items()}
    sizes = (problem.latent["u"].size, problem.latent["v"].size)
    n = len(data["y"])
    columns = np.concatenate([data["first"], sizes[0] + data["second"]])
    z = scipy.sparse.csr_array(
        (np.ones(2 * n), (np.tile(np.arange(n), 2), columns)), shape=(n, sum(sizes))
    )
    prior = np.concatenate([np.full(sizes[0], 2 * log_first), np.full(sizes[1], 2 * log_second)])
    noise = np.exp(2 * log_noise)
    h = scipy.sparse.csc_array(z.T @ z / noise + scipy.sparse.diags_array(np.exp(-prior)))
    lu = scipy.sparse.linalg.splu(h, permc_spec="MMD_AT_PLUS_A")
    away = data["y"] - mean
    pull = z.T @ away / noise
    log_det = np.sum(np.log(np.abs(lu.U.diagonal())))
    quadratic = away @ away / noise - pull @ lu.solve(pull)
    return float(
        -0.5 * quadratic - 0.5 * (log_det + np.sum(prior)) - n * (log_noise + HALF_LOG_2PI)
    )


def volatility_log_joint(theta: Any, h: Any, y: Any) -> Any:
    """Log-variances follow an autoregression."""
    persistence = jnp.tanh(theta["atanh"])
    spread = theta["sd"] / jnp.sqrt(1 - persistence**2)
    next_mean = theta["mean"] + persistence * (h[:-1] - theta["mean"])
    return (
        norm.logpdf(h[0], theta["mean"], spread)
        + jnp.sum(norm.logpdf(h[1:], next_mean, theta["sd"]))
        + jnp.sum(norm.logpdf(y, 0.0, jnp.exp(h / 2)))
    )


def volatility(seed: int, length: int = 2000) -> mx.Problem:
    """Stochastic volatility: persistence 0.95, sd 0.3."""
    rng = np.random.default_rng(seed)
    mean, persistence, sd = -1.0, 0.95, 0.3
    h = np.empty(length)
    h[0] = mean + sd / np.sqrt(1 - persistence**2) * rng.normal()
    noise = rng.normal(size=length)
    for t in range(1, length):
        h[t] = mean + persistence * (h[t - 1] - mean) + sd * noise[t]
    return mx.Problem(
        volatility_log_joint,
        {"mean": 0.0, "atanh": 1.5, "sd": 0.5},
        np.zeros(length),
        np.exp(h / 2) * rng.normal(size=length),
        theta_transforms={"sd": POSITIVE},
    )


def volatility_log_likelihood(problem: mx.Problem, flat: np.ndarray, num_nodes: int = 500) -> float:
    """By the filter on a grid of log-variances: one integral after the other, to all digits."""
    atanh, mean, log_sd = flat
    persistence, sd = np.tanh(atanh), np.exp(log_sd)
    spread = sd / np.sqrt(1 - persistence**2)
    h = np.linspace(mean - 8 * spread, mean + 8 * spread, num_nodes)
    step = h[1] - h[0]
    moves = scipy.stats.norm.pdf(h[None, :], mean + persistence * (h[:, None] - mean), sd) * step
    density, total = scipy.stats.norm.pdf(h, mean, spread) * step, 0.0
    for one in np.asarray(problem.data):
        weighted = density * scipy.stats.norm.pdf(one, 0.0, np.exp(h / 2))
        total += np.log(weighted.sum())
        density = (weighted / weighted.sum()) @ moves
    return float(total)


def binary_log_joint(theta: Any, x: Any, data: Any) -> Any:
    """Right or wrong, by person and item."""
    eta = theta["mean"] + x["u"][data["first"]] + x["v"][data["second"]]
    rows = jnp.sum(data["y"] * eta - jnp.logaddexp(0.0, eta))
    of_first = jnp.sum(norm.logpdf(x["u"], 0.0, theta["first"]))
    return rows + of_first + jnp.sum(norm.logpdf(x["v"], 0.0, theta["second"]))


def binary(seed: int, sizes: tuple[int, int] = (100, 80), num_rows: int = 2000) -> mx.Problem:
    """A crossed binomial model."""
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(0, size, num_rows) for size in sizes)
    eta = 0.3 + 1.2 * rng.normal(size=sizes[0])[first] + 0.8 * rng.normal(size=sizes[1])[second]
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-eta))).astype(float)
    return mx.Problem(
        binary_log_joint,
        {"mean": 0.0, "first": 1.0, "second": 1.0},
        {"u": np.zeros(sizes[0]), "v": np.zeros(sizes[1])},
        {"first": first, "second": second, "y": y},
        theta_transforms=dict.fromkeys(("first", "second"), POSITIVE),
    )


def binary_log_likelihood(
    problem: mx.Problem, flat: np.ndarray, num_draws: int = 1_000_000, chunk: int = 10_000
) -> tuple[float, float]:
    """By importance sampling from a t distribution around the mode; the value and its error."""
    log_first, mean, log_second = flat
    data = {name: np.asarray(leaf) for name, leaf in problem.data.items()}
    a, b = problem.latent["u"].size, problem.latent["v"].size
    n, rows = a + b, len(data["y"])
    prior = np.concatenate(
        [np.full(a, np.exp(-2 * log_first)), np.full(b, np.exp(-2 * log_second))]
    )
    design = np.zeros((rows, n))
    design[np.arange(rows), data["first"]] = 1
    design[np.arange(rows), a + data["second"]] = 1
    x = np.zeros(n)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(mean + design @ x)))
        hessian = design.T @ ((p * (1 - p))[:, None] * design) + np.diag(prior)
        x = x + np.linalg.solve(hessian, design.T @ (data["y"] - p) - prior * x)
    root = np.linalg.cholesky(hessian)
    inverse = np.linalg.inv(root).T
    degrees = 50.0
    rng = np.random.default_rng(123)
    logs = []
    for _ in range(num_draws // chunk):
        z = rng.normal(size=(chunk, n)) / np.sqrt(rng.chisquare(degrees, (chunk, 1)) / degrees)
        draws = x + z @ inverse.T
        eta = mean + draws[:, data["first"]] + draws[:, a + data["second"]]
        value = eta @ data["y"] - np.logaddexp(0, eta).sum(axis=1)
        value += -0.5 * np.sum(prior * draws**2, axis=1) + 0.5 * np.sum(np.log(prior))
        value -= n * HALF_LOG_2PI
        proposal = scipy.stats.multivariate_t(np.zeros(n), np.eye(n), degrees).logpdf(z)
        logs.append(value - proposal - np.sum(np.log(np.diag(root))))
    log = np.concatenate(logs)
    weight = np.exp(log - log.max())
    error = weight.std() / weight.mean() / np.sqrt(len(log))
    return float(log.max() + np.log(weight.mean())), float(error)


def field_log_joint(theta: Any, x: Any, y: Any) -> Any:
    """Counts on a grid whose logs are a Gaussian field: neighbours alike, all drawn to 0."""
    square = x.reshape(y.shape)
    apart = jnp.sum(jnp.diff(square, axis=0) ** 2) + jnp.sum(jnp.diff(square, axis=1) ** 2)
    precision, draw = theta["precision"], theta["draw"]
    n, m = y.shape
    # The eigenvalues of the grid's Laplacian are known, and with them the prior's constant.
    bends = [2 - 2 * jnp.cos(jnp.pi * jnp.arange(size) / size) for size in (n, m)]
    eigenvalues = precision * (bends[0][:, None] + bends[1][None, :]) + draw
    prior = 0.5 * jnp.sum(jnp.log(eigenvalues)) - 0.5 * (precision * apart + draw * jnp.sum(x**2))
    eta = theta["mean"] + square
    return prior + jnp.sum(y * eta - jnp.exp(eta))


def field(seed: int, side: int = 60) -> mx.Problem:
    """Poisson counts on a square grid."""
    rng = np.random.default_rng(seed)
    bend = 2 - 2 * np.cos(np.pi * np.arange(side) / side)
    values = 4.0 * (bend[:, None] + bend[None, :]) + 0.1
    waves = np.cos(np.pi * np.outer(np.arange(side) + 0.5, np.arange(side)) / side)
    waves /= np.linalg.norm(waves, axis=0)
    x = waves @ (rng.normal(size=(side, side)) / np.sqrt(values)) @ waves.T
    return mx.Problem(
        field_log_joint,
        {"mean": 0.0, "precision": 1.0, "draw": 1.0},
        np.zeros(side * side),
        rng.poisson(np.exp(1.0 + x)).astype(float),
        theta_transforms={"precision": POSITIVE, "draw": POSITIVE},
    )

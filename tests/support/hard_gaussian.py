"""Hard models whose likelihood is Gaussian: variances of 0, units, bad scales, a long series.

Each is a `Hard` of `hard_models`, and `answer` finds its maximum.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from fuzz_families import Family
from fuzz_marginals import HALF_LOG_2PI
from hard_models import PLAIN, Array, Hard, Theta, of_family
from jax.scipy.stats import norm as jax_norm

import marginax as mx


def gaussian_log_marginal(theta: Theta, y: Array) -> float:
    """Of y_gi = mean + x_g + noise, balanced, by the two eigenvalues of a group's covariance."""
    groups, rows = y.shape
    within = max(theta["noise"], 1e-300) ** 2
    whole = within + rows * theta["sd"] ** 2
    means = y.mean(axis=1)
    squares = np.sum((y - means[:, None]) ** 2) / within
    squares += rows * np.sum((means - theta["mean"]) ** 2) / whole
    logs = groups * ((rows - 1) * np.log(within) + np.log(whole))
    return float(-0.5 * (squares + logs) - y.size * HALF_LOG_2PI)


def linear(y: Array, start: Theta, near: Theta, unit: float = 1.0) -> Hard:
    case = of_family(Family("normal", "normal"), {"y": y}, start, start["mean"], near)
    return case._replace(
        log_marginal=lambda theta: gaussian_log_marginal(theta, y),
        scales={"mean": unit, "sd": unit, "noise": unit},
    )


def variance_of_zero(seed: int = 0, outlier: float = 0.0, last_digits: int = 0) -> Hard:
    """20 groups of 5 whose means differ less than noise alone would make them: the best sd is 0.

    With an outlier, one number is moved by that many standard deviations. With `last_digits`, a
    seed, all numbers are changed by about 1e-14 of themselves, as another machine's rounding might.
    """
    random = np.random.default_rng(seed)
    y = random.normal(size=(20, 5))
    y = y - 0.5 * (y.mean(axis=1, keepdims=True) - y.mean())
    y[0, 0] += outlier
    if last_digits:
        y = y * (1 + 1e-14 * np.random.default_rng(last_digits).normal(size=y.shape))
    noise = float(y.std())
    return linear(y, PLAIN, {"mean": float(y.mean()), "sd": 0.3 * noise, "noise": noise})


def in_units(seed: int = 0, unit: float = 1e9, informed: bool = True) -> Hard:
    """A linear mixed model in other units; the start knows them, or is at 0, 1, 1."""
    random = np.random.default_rng(seed)
    y = unit * (3.0 + 2.0 * random.normal(size=(30, 1)) + random.normal(size=(30, 5)))
    start = {"mean": 0.0, "sd": unit, "noise": unit} if informed else PLAIN
    return linear(y, start, {"mean": 3 * unit, "sd": 2 * unit, "noise": unit}, unit)


def slopes_apart(seed: int = 0, apart: float = 1e5) -> Hard:
    """An intercept and a slope per group, whose units are `apart` by that factor."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(30, 8))
    level, slope = 1 + random.normal(size=(30, 1)), 2 + 0.5 * random.normal(size=(30, 1))
    y = level + slope * z + random.normal(size=z.shape)
    family = Family("slopes", "normal")
    near = {"mean": 1.0, "sd": 1.0, "mean_slope": 2 * apart, "sd_slope": apart / 2, "noise": 1.0}
    start = {"mean": 0.0, "sd": 1.0, "mean_slope": 0.0, "sd_slope": apart, "noise": 1.0}
    case = of_family(family, {"y": y, "z": z / apart}, start, np.zeros(2), near)

    def of_theta(theta: Theta) -> float:
        total = 0.0
        for t, one in zip(z / apart, y, strict=True):
            away = one - theta["mean"] - theta["mean_slope"] * t
            design = np.stack([np.full_like(t, theta["sd"]), theta["sd_slope"] * t], axis=1)
            covariance = design @ design.T + theta["noise"] ** 2 * np.eye(len(t))
            total -= 0.5 * (away @ np.linalg.solve(covariance, away))
            total -= 0.5 * np.linalg.slogdet(covariance)[1] + len(t) * HALF_LOG_2PI
        return float(total)

    scales = {"mean_slope": apart, "sd_slope": apart}
    return case._replace(log_marginal=of_theta, scales=scales)


def _years(theta: Any, x: Any, data: Any) -> Any:
    trend = theta["level"] + theta["year"] * data["year"] + theta["square"] * data["year"] ** 2
    rows = jax_norm.logpdf(data["y"], trend + x, theta["noise"])
    return jax_norm.logpdf(x, 0.0, theta["sd"]) + jnp.sum(rows)


def years(seed: int = 0) -> Hard:
    """Fixed effects of the year and its square, near 2000 and not centered.

    The oracle has the centered model, whose likelihood is the same: compare the log likelihood, sd
    and noise, and the trend at the years themselves.
    """
    random = np.random.default_rng(seed)
    year = np.tile(np.arange(1995.0, 2005.0), (25, 1))
    t = (year - 1999.5) / 3
    y = 2 + t - 0.4 * t**2 + random.normal(size=(25, 1)) + 0.7 * random.normal(size=t.shape)
    positive = mx.transforms.positive
    problem = mx.Problem.grouped(
        _years,
        {"y": y, "year": year},
        theta={"level": 0.0, "year": 0.0, "square": 0.0, "sd": 1.0, "noise": 1.0},
        latent=0.0,
        theta_transforms={"sd": positive, "noise": positive},
    )

    def of_theta(theta: Theta) -> float:
        away = y - theta["level"] - theta["year"] * t - theta["square"] * t**2
        return gaussian_log_marginal({**theta, "mean": 0.0}, away)

    kinds = {name: "real" for name in ("level", "square", "year")}
    kinds = {**kinds, "sd": "positive", "noise": "positive"}
    near = {"level": 2.0, "year": 1.0, "square": -0.4, "sd": 1.0, "noise": 0.7}
    return Hard(problem, of_theta, dict(sorted(kinds.items())), near)


def _series(theta: Any, x: Any, y: Any) -> Any:
    still = theta["sd"] / jnp.sqrt(1 - theta["phi"] ** 2)
    first = jax_norm.logpdf(x[0], 0.0, still)
    steps = jax_norm.logpdf(x[1:], theta["phi"] * x[:-1], theta["sd"])
    return first + jnp.sum(steps) + jnp.sum(jax_norm.logpdf(y, x, theta["noise"]))


def autoregression(seed: int = 0, size: int = 401) -> Hard:
    """A stationary AR(1) with noise, one block of 401 latents, beside the Kalman filter."""
    random = np.random.default_rng(seed)
    phi, sd, noise = 0.8, 0.6, 0.5
    x = np.empty(size)
    x[0] = sd / np.sqrt(1 - phi**2) * random.normal()
    for t in range(1, size):
        x[t] = phi * x[t - 1] + sd * random.normal()
    y = x + noise * random.normal(size=size)
    problem = mx.Problem(
        _series,
        data=y,
        theta={"phi": 0.5, "sd": 1.0, "noise": 1.0},
        latent=np.zeros(size),
        theta_transforms={
            "phi": mx.transforms.unit_interval,
            "sd": mx.transforms.positive,
            "noise": mx.transforms.positive,
        },
    )
    kinds = {"noise": "positive", "phi": "share", "sd": "positive"}
    near = {"phi": phi, "sd": sd, "noise": noise}
    return Hard(problem, lambda theta: kalman_log_marginal(theta, y), kinds, near)


def kalman_log_marginal(theta: Theta, y: Array) -> float:
    phi, step, noise = theta["phi"], theta["sd"] ** 2, theta["noise"] ** 2
    mean, variance, total = 0.0, step / (1 - phi**2), 0.0
    for one in y:
        whole = variance + noise
        total -= 0.5 * ((one - mean) ** 2 / whole + np.log(whole)) + HALF_LOG_2PI
        gain = variance / whole
        mean, variance = phi * (mean + gain * (one - mean)), phi**2 * (1 - gain) * variance + step
    return float(total)

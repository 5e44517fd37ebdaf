"""Models that are hard to integrate or to climb, each with data from a seed and an exact answer.

    case = squares(seed=0)
    fit = mx.fit(case.problem)
    answer(case)      the maximum, standard errors on the constrained scale, the log likelihood

The answers come from closed forms or from `grid_oracle`, which share no code with the library.
`hard_gaussian` has those whose answer is a Gaussian likelihood.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from fuzz_families import Family
from fuzz_families import problem as family_problem
from fuzz_marginals import (
    HALF_LOG_2PI,
    SMALLEST,
    bounds,
    constrained,
    free,
    gamma_poisson_log_marginal,
    log_marginal,
)
from grid_oracle import climb, judge_directions, log_integrals, polish
from jax.scipy.special import gammaln as jax_gammaln
from jax.scipy.stats import cauchy as jax_cauchy
from jax.scipy.stats import norm as jax_norm
from scipy.special import expit, gammaln, log_ndtr

import marginax as mx

Array = np.ndarray
Theta = dict[str, float]


class Hard(NamedTuple):
    """A problem and its log marginal likelihood.

    Attributes:
        problem: for `fit`.
        log_marginal: of constrained theta, a dict of numbers.
        kinds: of every parameter: real, positive, share.
        near: where the oracle begins to climb.
        scales: the units of parameters that are not of order one.
    """

    problem: mx.Problem
    log_marginal: Callable[[Theta], float]
    kinds: dict[str, str]
    near: Theta
    scales: dict[str, float] = {}


class Answer(NamedTuple):
    """Of the oracle, on the constrained scale; a parameter at an end has a NaN standard error."""

    theta: Theta
    standard_errors: Theta
    log_likelihood: float
    ends: tuple[str, ...]


def answer(case: Hard, *more_starts: Theta) -> Answer:
    """The maximum by climbs from near it, with wider effects, and from `more_starts`."""
    kinds, names = case.kinds, list(case.kinds)
    units = {name: case.scales.get(name, 1.0) for name in names}

    def function(at: Array) -> float:
        theta = constrained(at, kinds)
        return case.log_marginal({name: theta[name] * units[name] for name in names})

    limits = bounds(kinds)
    starts = []
    for theta in (case.near, *more_starts):
        at = np.clip(free({name: theta[name] / units[name] for name in names}, kinds), *limits)
        starts += [at, at + 0.8 * np.array([kind == "positive" for kind in kinds.values()])]
    tops = [climb(function, start, limits) for start in starts]
    top = polish(function, max(tops, key=lambda one: one.value), limits)
    directions = judge_directions(function, top, tuple(kinds.values()), limits)
    theta = constrained(top.at, kinds)
    slope = {"real": lambda _: 1.0, "positive": lambda v: v, "share": lambda v: v * (1 - v)}
    errors = {
        name: float(directions.errors[i] * slope[kinds[name]](theta[name]) * units[name])
        for i, name in enumerate(names)
    }
    theta = {name: theta[name] * units[name] for name in names}
    return Answer(theta, errors, top.value, tuple(names[i] for i in directions.ends))


def of_family(
    family: Family, data: dict[str, Array], start: Theta, latent: Any, near: Theta
) -> Hard:
    """A case of one of the fuzzer's families, in units of 1."""
    groups = len(data["y"])
    whole = {
        "mask": np.ones(data["y"].shape, bool),
        "z": np.zeros(data["y"].shape),
        "width": np.ones(groups),
        "known": np.ones(groups),
        **data,
    }
    problem = family_problem(family, whole, start, latent)
    return Hard(problem, log_marginal(family, whole), family.kinds, near)


PLAIN = {"mean": 0.0, "sd": 1.0, "noise": 1.0}

# Several modes.


def _log_squares(y: Array, mean: float, sd: float) -> Array:
    """log of the integrals of N(x; mean, sd) N(y; x^2, 1) over x, for every number of y [any]."""
    flat, sd = y.reshape(-1, 1), max(sd, SMALLEST)

    def log_integrand(v: Array) -> Array:
        return -0.5 * (((v - mean) / sd) ** 2 + (flat - v**2) ** 2) - np.log(sd) - 2 * HALF_LOG_2PI

    root = np.sqrt(np.maximum(flat, 0.0))
    width = 1 / np.maximum(2 * root, 1.0)
    centers = np.concatenate([root, -root, np.full_like(root, mean)], axis=1)
    widths = np.concatenate([width, width, np.full_like(root, sd)], axis=1)
    return log_integrals(log_integrand, centers, widths).reshape(y.shape)


@lru_cache(None)
def _squares_log_joint(free_sd: bool) -> Any:
    def log_joint(theta: Any, x: Any, y: Any) -> Any:
        sd = theta["sd"] if free_sd else 1.0
        return jnp.sum(jax_norm.logpdf(x, theta["mean"], sd) + jax_norm.logpdf(y, x**2, 1.0))

    return log_joint


def squares(
    seed: int = 0, latents: int = 1, groups: int = 50, free_sd: bool = False, whole: bool = False
) -> Hard:
    """y = x^2 + noise, x ~ N(mean, sd): two modes per latent. The mean's sign means nothing.

    `latents` per group, each with a row of its own; or `whole`, one vector and no groups.
    """
    random = np.random.default_rng(seed)
    x = 1.0 + random.normal(size=(groups, latents))
    y = x**2 + random.normal(size=x.shape)
    start = {"mean": 0.5, "sd": 1.0} if free_sd else {"mean": 0.5}
    positive = {"sd": mx.transforms.positive} if free_sd else None
    shared = {"theta": start, "theta_transforms": positive}
    if whole:
        one = np.zeros(groups * latents)
        problem = mx.Problem(_squares_log_joint(free_sd), data=y.ravel(), latent=one, **shared)
    else:
        one = np.zeros(latents) if latents > 1 else 0.0
        data = y if latents > 1 else y[:, 0]
        problem = mx.Problem.grouped(_squares_log_joint(free_sd), data, latent=one, **shared)

    def of_theta(theta: Theta) -> float:
        return float(np.sum(_log_squares(y, abs(theta["mean"]), theta.get("sd", 1.0))))

    kinds = {"mean": "real", "sd": "positive"} if free_sd else {"mean": "real"}
    return Hard(problem, of_theta, kinds, {"mean": 1.0, "sd": 1.0})


def two_classes(seed: int = 0, groups: int = 80, rows: int = 4, gap: float = 6.0) -> Hard:
    """A share p of the groups has a mean higher by the gap."""
    random = np.random.default_rng(seed)
    x = gap * (random.random((groups, 1)) < 0.3) + random.normal(size=(groups, 1))
    y = x + random.normal(size=(groups, rows))
    near = {"low": 0.0, "gap": gap, "p": 0.3, "noise": 1.0}
    start = {"low": -1.0, "gap": 1.0, "p": 0.5, "noise": 1.0}
    return of_family(Family("mixture", "normal"), {"y": y}, start, 0.0, near)


def spike_and_slab(seed: int = 0, spike: float = 0.01, groups: int = 100) -> Hard:
    """Most effects are all but 0, some are large."""
    random = np.random.default_rng(seed)
    high = random.random((groups, 1)) < 0.25
    x = np.where(high, 3.0, spike) * random.normal(size=(groups, 1))
    y = x + random.normal(size=(groups, 3))
    near = {"slab": 3.0, "p": 0.25, "noise": 1.0}
    start = {"slab": 1.0, "p": 0.5, "noise": 1.0}
    data = {"y": y, "width": np.full(groups, spike)}
    return of_family(Family("spike", "normal"), data, start, 0.0, near)


def cauchy_far_away(seed: int = 0, away: float = 100.0) -> Hard:
    """Cauchy noise, and the maximum 100 from the start."""
    random = np.random.default_rng(seed)
    y = away + random.normal(size=(40, 1)) + 0.5 * random.standard_cauchy(size=(40, 5))
    near = {"mean": away, "sd": 1.0, "noise": 0.5}
    return of_family(Family("normal", "cauchy"), {"y": y}, PLAIN, 0.0, near)


# Skewed, kinked, steep.


def binary_groups(seed: int = 0) -> Hard:
    """294 groups of 1 to 7 binary rows, random intercepts of sd 4: most groups are all 0."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 8, 294)
    mask = np.arange(7) < sizes[:, None]
    eta = -2.0 + 4.0 * random.normal(size=(294, 1))
    y = np.where(mask, random.random(mask.shape) < expit(eta), 0.0).astype(float)
    data = {"y": y, "mask": mask}
    start, near = {"mean": 0.0, "sd": 1.0}, {"mean": -2.0, "sd": 4.0}
    return of_family(Family("normal", "bernoulli"), data, start, 0.0, near)


def uniform_latent(seed: int = 0) -> Hard:
    random = np.random.default_rng(seed)
    y = 1.0 + 4.0 * random.random((60, 1)) + 0.5 * random.normal(size=(60, 4))
    near = {"level": 1.0, "span": 4.0, "noise": 0.5}
    start = {"level": 0.0, "span": 1.0, "noise": 1.0}
    return of_family(Family("uniform", "normal"), {"y": y}, start, 0.5, near)


def laplace_prior(seed: int = 0) -> Hard:
    random = np.random.default_rng(seed)
    y = 1.0 + 1.5 * random.laplace(size=(60, 1)) + random.normal(size=(60, 4))
    near = {"mean": 1.0, "sd": 1.5, "noise": 1.0}
    return of_family(Family("laplace", "normal"), {"y": y}, PLAIN, 0.0, near)


def gamma_prior(seed: int = 0, shape: float = 0.3) -> Hard:
    """Poisson rates from a gamma density that is infinite at 0; the marginal is closed."""
    random = np.random.default_rng(seed)
    x = random.gamma(shape, 2.0 / shape, size=(80, 1))
    y = random.poisson(x * np.ones((80, 3))).astype(float)
    start, near = {"mean": 1.0, "shape": 1.0}, {"mean": 2.0, "shape": shape}
    case = of_family(Family("gamma", "poisson"), {"y": y}, start, 1.0, near)
    return case._replace(log_marginal=lambda theta: gamma_poisson_log_marginal(theta, y))


def _steep(theta: Any, x: Any, data: Any) -> Any:
    above = jax_norm.logcdf((2 * data["above"] - 1) * 50.0 * (x - theta["cut"]))
    prior = jax_norm.logpdf(x, theta["mean"], theta["sd"])
    return prior + jnp.sum(above) + jax_norm.logpdf(data["y"], x, 1.0)


def steep_threshold(seed: int = 0, groups: int = 80) -> Hard:
    """A measurement of x, and whether x is above a cut: a probit of slope 50, nearly a step."""
    random = np.random.default_rng(seed)
    x = 1.0 + 1.5 * random.normal(size=groups)
    y = x + random.normal(size=groups)
    chance = np.exp(log_ndtr(50.0 * (x - 1.8)))[:, None]
    above = (random.random((groups, 2)) < chance).astype(float)
    problem = mx.Problem.grouped(
        _steep,
        {"y": y, "above": above},
        theta={"mean": 0.0, "sd": 1.0, "cut": 0.0},
        latent=0.0,
        theta_transforms={"sd": mx.transforms.positive},
    )

    def of_theta(theta: Theta) -> float:
        mean, sd, cut = theta["mean"], max(theta["sd"], SMALLEST), theta["cut"]

        def log_integrand(v: Array) -> Array:
            known = -0.5 * (((v - mean) / sd) ** 2 + (v - y[:, None]) ** 2) - np.log(sd)
            rows = log_ndtr((2 * above[:, None] - 1) * 50.0 * (v - cut)[:, :, None])
            return known + rows.sum(axis=-1) - 2 * HALF_LOG_2PI

        centers = np.stack([y, np.full_like(y, mean), np.full_like(y, cut)], axis=1)
        widths = np.broadcast_to(np.array([1.0, sd, 0.02]), centers.shape)
        return float(log_integrals(log_integrand, centers, widths).sum())

    kinds = {"cut": "real", "mean": "real", "sd": "positive"}
    return Hard(problem, of_theta, kinds, {"cut": 1.8, "mean": 1.0, "sd": 1.5})


def _cauchy_poisson(theta: Any, x: Any, y: Any) -> Any:
    rows = y * x - jnp.exp(x) - jax_gammaln(y + 1.0)
    return jax_cauchy.logpdf(x, theta["mean"], theta["scale"]) + jnp.sum(rows)


def cauchy_poisson(seed: int = 0, groups: int = 80, rows: int = 3) -> Hard:
    """A Cauchy prior of the log rate: where all counts are 0, the posterior has its heavy tail."""
    random = np.random.default_rng(seed)
    x = np.clip(0.5 + 0.5 * random.standard_cauchy(size=(groups, 1)), -50.0, 10.0)
    y = random.poisson(np.exp(x) * np.ones(rows)).astype(float)
    problem = mx.Problem.grouped(
        _cauchy_poisson,
        y,
        theta={"mean": 0.0, "scale": 1.0},
        latent=0.0,
        theta_transforms={"scale": mx.transforms.positive},
    )
    total = y.sum(axis=1, keepdims=True)
    constant = gammaln(y + 1).sum()

    def of_theta(theta: Theta) -> float:
        mean, scale = theta["mean"], max(theta["scale"], SMALLEST)

        def log_integrand(v: Array) -> Array:
            prior = -np.log1p(((v - mean) / scale) ** 2) - np.log(np.pi * scale)
            return prior + total * v - rows * np.exp(v)

        here = np.log((total + 0.5) / rows)
        centers = np.concatenate([here, np.full_like(here, mean)], axis=1)
        widths = np.concatenate([1 / np.sqrt(total + 1), np.full_like(here, scale)], axis=1)
        return float(log_integrals(log_integrand, centers, widths).sum() - constant)

    kinds = {"mean": "real", "scale": "positive"}
    return Hard(problem, of_theta, kinds, {"mean": 0.5, "scale": 0.5})

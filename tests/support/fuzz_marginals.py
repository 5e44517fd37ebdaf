"""Log marginal likelihoods of the fuzzer's families, in NumPy: the oracle's side.

Everything here is in units of 1: data sets are divided by their units before they come here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from grid_oracle import Array, log_integrals, log_integrals_2d
from scipy.special import betaln, expit, gammaln, logit

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
SMALLEST = 1e-6  # a standard deviation below it is as good as none
FREEDOM, TRIALS = 4.0, 10.0

Theta = dict[str, float]


def free(theta: Theta, kinds: dict[str, str]) -> Array:
    """theta on the reals, where the oracle climbs."""
    with np.errstate(all="ignore"):
        to = {"real": float, "positive": np.log, "share": logit}
        return np.array([to[kind](theta[name]) for name, kind in kinds.items()], float)


def constrained(at: Array, kinds: dict[str, str]) -> Theta:
    back = {"real": float, "positive": np.exp, "share": expit}
    return {name: float(back[kind](at[i])) for i, (name, kind) in enumerate(kinds.items())}


def bounds(kinds: dict[str, str]) -> tuple[Array, Array]:
    """How far the oracle looks, in units of 1: further out is as good as infinity."""
    far = {"real": (-1e3, 1e3), "positive": (-12.0, 9.0), "share": (-14.0, 14.0)}
    low, high = np.array([far[kind] for kind in kinds.values()]).T
    return low, high


def log_marginal(family: Any, data: dict[str, Array], panels: int = 48) -> Callable[[Theta], float]:
    """The log marginal likelihood of a data set as a function of constrained theta.

    Args:
        family: with `prior`, `likelihood`, `covariate`, `known` and the name of its `dispersion`.
        data: `y` and `mask` [groups, rows]; as the family needs them `z`, `width`, `known`.
        panels: of the grid; another number tells its error.
    """
    by_group = log_marginals(family, data, panels)
    return lambda theta: float(np.sum(by_group(theta)))


def log_marginals(
    family: Any, data: dict[str, Array], panels: int = 48
) -> Callable[[Theta], Array]:
    """The same, group by group."""
    rows = _rows_of(family, data)
    groups = len(data["y"])
    last: dict[str, Array] = {}

    def by_group(theta: Theta) -> Array:
        theta = {**theta}
        for name in ("sd", "sd_slope", "slab", "noise", "span", "gap"):
            if name in theta:
                theta[name] = max(theta[name], SMALLEST)
        dispersion = _dispersion(family, theta, data)
        if family.prior == "slopes":
            return _of_two(theta, data, rows, dispersion, last)

        def log_integrand(v: Array) -> Array:
            return log_joint(family, theta, v, data, rows)

        anchors = _prior_anchors(family.prior, theta, data)
        found = _data_anchors(family, theta, data, dispersion)
        centers = np.concatenate(
            [np.broadcast_to(anchors[0], (groups, len(anchors[0]))), found[0]], 1
        )
        widths = np.concatenate(
            [np.broadcast_to(anchors[1], (groups, len(anchors[1]))), found[1]], 1
        )
        limits = (0.0, 1.0) if family.prior == "uniform" else (-np.inf, np.inf)
        kink = theta["mean"] if family.prior == "laplace" else None
        return log_integrals(log_integrand, centers, widths, limits, panels, kink)

    return by_group


def log_joint(
    family: Any, theta: Theta, v: Array, data: dict[str, Array], rows: "_Rows | None" = None
) -> Array:
    """[groups, points] of one latent, positive ones by the density of their logarithm v."""
    rows = rows or _rows_of(family, data)
    shift = theta["beta"] * data["z"][:, None, :] if family.covariate else 0.0
    eta = _predictor(family, theta, v)[:, :, None] + shift
    return _log_prior(family.prior, theta, v, data) + rows.sum(
        eta, _dispersion(family, theta, data)
    )


def _rows_of(family: Any, data: dict[str, Array]) -> "_Rows":
    pooled = not (family.covariate or family.prior == "slopes")
    return _Rows(family.likelihood, data["y"], data["mask"], pooled)


def _dispersion(family: Any, theta: Theta, data: dict[str, Array]) -> Any:
    return data["known"][0] if family.known else theta.get(family.dispersion or "")


def gamma_poisson_log_marginal(theta: Theta, y: Array) -> float:
    """In closed form, of gamma rates and Poisson rows without a mask."""
    shape, rate, rows = theta["shape"], theta["shape"] / theta["mean"], y.shape[1]
    total = y.sum(axis=1)
    each = gammaln(shape + total) - gammaln(shape) + shape * np.log(rate)
    each = each - (shape + total) * np.log(rate + rows) - gammaln(y + 1).sum(axis=1)
    return float(each.sum())


def _of_two(
    theta: Theta, data: dict[str, Array], rows: "_Rows", dispersion: Any, last: dict[str, Array]
) -> Array:
    """Both latents in standard deviations from their means, so that the prior is one for all."""
    z = data["z"][:, None, :]

    def log_integrand(v: Array) -> Array:
        level = theta["mean"] + theta["sd"] * v[..., :1]
        slope = theta["mean_slope"] + theta["sd_slope"] * v[..., 1:]
        prior = -0.5 * np.sum(v**2, axis=-1) - 2 * HALF_LOG_2PI
        return prior + rows.sum(level + slope * z, dispersion)

    return log_integrals_2d(log_integrand, np.zeros((len(z), 2)), np.ones(2), last=last)


def _predictor(family: Any, theta: Theta, v: Array) -> Array:
    if family.prior == "uniform":
        return theta["level"] + theta["span"] * v
    if family.prior in ("gamma", "lognormal") and family.link == "identity":
        return np.exp(v)  # these are integrated over the logarithm
    return v


def _log_normal(x: Array, mean: Any, sd: Any) -> Array:
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - HALF_LOG_2PI


def _log_prior(prior: str, theta: Theta, v: Array, data: dict[str, Array]) -> Array:
    if prior == "normal":
        return _log_normal(v, theta["mean"], theta["sd"])
    if prior == "laplace":
        return -np.abs(v - theta["mean"]) / theta["sd"] - np.log(2 * theta["sd"])
    if prior == "student":
        constant = -betaln(0.5, 1.5) - 0.5 * np.log(3.0) - np.log(theta["sd"])
        return constant - 2.0 * np.log1p(((v - theta["mean"]) / theta["sd"]) ** 2 / 3.0)
    if prior in ("mixture", "spike"):
        width = data["width"][0]
        low, high = theta.get("low", 0.0), theta.get("low", 0.0) + theta.get("gap", 0.0)
        first = np.log1p(-theta["p"]) + _log_normal(v, low, width)
        return np.logaddexp(
            first, np.log(theta["p"]) + _log_normal(v, high, theta.get("slab", width))
        )
    if prior == "gamma":
        shape, rate = theta["shape"], theta["shape"] / theta["mean"]
        return shape * (np.log(rate) + v) - rate * np.exp(v) - gammaln(shape)
    if prior == "lognormal":
        return _log_normal(v, theta["mu"], theta["sd"])
    return np.zeros_like(v)  # uniform


def _prior_anchors(prior: str, theta: Theta, data: dict[str, Array]) -> tuple[Array, Array]:
    if prior == "mixture":
        centers, width = [theta["low"], theta["low"] + theta["gap"]], data["width"][0]
        return np.array(centers), np.array([width, width])
    if prior == "spike":
        return np.zeros(2), np.array([data["width"][0], theta["slab"]])
    if prior == "gamma":
        # To the left the density of the logarithm falls as slowly as exp(shape * v).
        center, slow = np.log(theta["mean"]), 1 / theta["shape"]
        centers = center - slow * np.array([0.0, 0.0, 2.0, 5.0, 10.0, 20.0])
        return centers, np.array([np.sqrt(slow), slow, slow, slow, slow, slow])
    if prior == "uniform":
        return np.array([0.0, 0.5, 1.0]), np.array([0.05, 0.05, 0.05])
    return np.array([theta.get("mean", theta.get("mu"))]), np.array([theta["sd"]])


def _data_anchors(
    family: Any, theta: Theta, data: dict[str, Array], dispersion: Any
) -> tuple[Array, Array]:
    """Where the rows of every group want their latent to be, and how narrowly."""
    y, mask = data["y"], data["mask"].astype(float)
    count = np.maximum(mask.sum(axis=1, keepdims=True), 1.0)
    total = np.sum(mask * y, axis=1, keepdims=True)
    effect = theta["beta"] * data["z"] if family.covariate else np.zeros_like(y)
    average = np.sum(mask * effect, axis=1, keepdims=True) / count
    link = family.link
    if link == "log":
        center = np.log((total + 0.5) / count) - average
        width = 1 / np.sqrt(total + 1.0)
        if family.likelihood == "gamma":
            center, width = np.log(total / count + 1e-9) - average, 1 / np.sqrt(count * dispersion)
    elif link == "logit":
        trials = count * (TRIALS if family.likelihood == "binomial" else 1.0)
        center = logit((total + 0.5) / (trials + 1.0)) - average
        width = 1 / np.sqrt(trials)
    elif link == "square":
        root = np.sqrt(np.maximum(total / count, 0.0))
        width = dispersion / np.sqrt(count) / np.maximum(2 * root, np.sqrt(dispersion))
        center, width = np.concatenate([root, -root], 1), np.concatenate([width, width], 1)
    elif family.likelihood == "normal":
        center, width = total / count - average, dispersion / np.sqrt(count)
    else:  # heavy tails: every row may have a mode of its own
        center = np.where(data["mask"], y - effect, total / count - average)
        width = np.broadcast_to(dispersion, center.shape) / 2
    return _to_the_latent(family, theta, center, width)


def _to_the_latent(family: Any, theta: Theta, center: Array, width: Array) -> tuple[Array, Array]:
    width = np.broadcast_to(width, center.shape)
    if family.prior == "uniform":
        center = (center - theta["level"]) / theta["span"]
        return np.clip(center, 0.0, 1.0), width / theta["span"]
    if family.prior in ("gamma", "lognormal") and family.link == "identity":
        above = np.maximum(center, width)
        return np.log(above), width / above
    return center, width


class _Rows:
    """The log likelihood of a group's rows at a predictor, by sufficient statistics where any."""

    def __init__(self, likelihood: str, y: Array, mask: Array, pooled: bool) -> None:
        self.likelihood = likelihood
        mask = mask.astype(float)
        self.count, self.total = mask[:, None, :], (mask * y)[:, None, :]
        self.y = np.where(mask > 0, y, 0.0)[:, None, :]
        self.logs = (mask * np.log(np.where((mask > 0) & (y > 0), y, 1.0)))[:, None, :]
        self.original, self.mask = np.where(mask > 0, y, 0.0), mask
        self.factorials = mask * gammaln(np.maximum(self.original, 0.0) + 1.0)
        self.squares = np.zeros_like(self.count)
        self.pooled = pooled and likelihood not in ("student", "cauchy")
        if self.pooled:
            size = self.count.sum(axis=-1, keepdims=True)
            mean = self.total.sum(axis=-1, keepdims=True) / np.maximum(size, 1.0)
            self.squares = np.sum(self.count * (self.y - mean) ** 2, axis=-1, keepdims=True)
            self.count, self.total, self.y = size, mean * size, mean
            self.logs = self.logs.sum(axis=-1, keepdims=True)

    def sum(self, eta: Array, dispersion: Any) -> Array:
        """[groups, points] of a predictor [groups, points, rows or 1]."""
        terms = getattr(self, f"_{self.likelihood}")(eta, dispersion)
        return np.sum(terms, axis=-1) + self._constant(dispersion)[:, None]

    def _normal(self, eta: Array, noise: float) -> Array:
        away = self.squares + self.count * (self.y - eta) ** 2
        return -0.5 * away / noise**2 - self.count * (np.log(noise) + HALF_LOG_2PI)

    def _square(self, eta: Array, noise: float) -> Array:
        return self._normal(eta**2, noise)

    def _cauchy(self, eta: Array, noise: float) -> Array:
        return -self.count * (np.log1p(((self.y - eta) / noise) ** 2) + np.log(np.pi * noise))

    def _student(self, eta: Array, noise: float) -> Array:
        constant = betaln(0.5, FREEDOM / 2) + 0.5 * np.log(FREEDOM) + np.log(noise)
        power = 0.5 * (FREEDOM + 1) * np.log1p(((self.y - eta) / noise) ** 2 / FREEDOM)
        return -self.count * (constant + power)

    def _poisson(self, eta: Array, _: Any) -> Array:
        return self.total * eta - self.count * np.exp(eta)

    def _bernoulli(self, eta: Array, _: Any) -> Array:
        return self.total * eta - self.count * np.logaddexp(0.0, eta)

    def _binomial(self, eta: Array, _: Any) -> Array:
        return self.total * eta - TRIALS * self.count * np.logaddexp(0.0, eta)

    def _gamma(self, eta: Array, k: float) -> Array:
        rate = k * np.exp(-eta)
        constant = self.count * (k * (np.log(k) - eta) - gammaln(k))
        return constant + (k - 1) * self.logs - rate * self.total

    def _negbin(self, eta: Array, k: float) -> Array:
        shares = np.logaddexp(np.log(k), eta)
        return (
            self.count * k * np.log(k) + self.total * eta - (self.total + k * self.count) * shares
        )

    def _constant(self, dispersion: Any) -> Array:
        if self.likelihood in ("poisson", "negbin"):
            constant = -self.factorials
            if self.likelihood == "negbin":
                ways = gammaln(self.original + dispersion) - gammaln(dispersion)
                constant = constant + self.mask * ways
            return constant.sum(axis=1)
        if self.likelihood == "binomial":
            others = gammaln(TRIALS - self.original + 1.0)
            return np.sum(self.mask * (gammaln(TRIALS + 1) - others) - self.factorials, axis=1)
        return np.zeros(len(self.mask))

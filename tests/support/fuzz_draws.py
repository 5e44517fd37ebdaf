"""Data sets for the fuzzer: a family, a shape, a truth, units and a start, all from two seeds.

    chunk(seed, number)        family, shape and dtype: what is compiled for
    draw(chunk, seed, index)   one data set of it, with the start and what undoes the units

Whatever the units, the oracle gets the data divided by them: `Draw.data_in_ones`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from fuzz_families import FREEDOM, LINKS, PRIORS, TRIALS, Family, is_sensible
from fuzz_units import Units, changes, per_latent, random_units
from scipy.special import expit

Array = np.ndarray
SHAPES = ((5, 20), (12, 8), (20, 5), (50, 4), (100, 3), (300, 2), (300, 1), (40, 10))


class Chunk(NamedTuple):
    """What the programs are compiled for.

    Attributes:
        family: of the model.
        shape: groups and rows of the padded data.
        x64: whether JAX is in float64; the data are float64 of NumPy anyway.
    """

    family: Family
    shape: tuple[int, int]
    x64: bool


@dataclass(frozen=True)
class Draw:
    """One data set.

    Attributes:
        chunk: what it is of.
        index: its number.
        data: for the library, in its units.
        data_in_ones: the same divided by them, for the oracle.
        truth: in units of 1.
        start: in units of 1, as given to the library.
        latent: where latents start, in the data's units.
        units: see there.
        words: what is special about it.
    """

    chunk: Chunk
    index: int
    data: dict[str, Array]
    data_in_ones: dict[str, Array]
    truth: dict[str, float]
    start: dict[str, float]
    latent: Any
    units: Units
    words: str

    def in_units(self, theta: dict[str, float]) -> dict[str, float]:
        """theta of units of 1 in those of the data."""
        to = changes(self.chunk.family, self.units)
        return {name: value * to[name][0] + to[name][1] for name, value in theta.items()}

    def in_ones(self, theta: dict[str, float]) -> dict[str, float]:
        """The other way round."""
        to = changes(self.chunk.family, self.units)
        return {name: (value - to[name][1]) / to[name][0] for name, value in theta.items()}

    @property
    def log_volume(self) -> float:
        """What the log likelihood in units of 1 has more than that of the data."""
        return float(self.data["mask"].sum() * np.log(self.units.rows))


def chunk(seed: int, number: int) -> Chunk:
    random = np.random.default_rng([seed, number])
    while True:
        likelihood, prior = random.choice(sorted(LINKS)), random.choice(sorted(PRIORS))
        shape = SHAPES[random.integers(len(SHAPES))]
        covariate, known = random.random() < 0.25, random.random() < 0.2 or shape[1] == 1
        family = Family(str(prior), str(likelihood), bool(covariate), bool(known))
        if family.dispersion is None:
            family = family._replace(known=False)
        binary = family.link == "logit" or family.prior == "slopes"
        if is_sensible(family) and not (binary and shape[1] < 3):
            return Chunk(family, shape, bool(random.random() < 0.5))


def draw(of: Chunk, seed: int, index: int) -> Draw:
    random = np.random.default_rng([seed, 1_000_000 + index])
    family, (groups, rows) = of.family, of.shape
    mask = _mask(random, groups, rows)
    truth = _truth(random, family)
    z = random.normal(size=of.shape)
    width = {"mixture": 1.0, "spike": float(random.choice([0.2, 0.05, 0.01]))}.get(
        family.prior, 1.0
    )
    known = truth.pop("known")
    eta = _predictor(random, family, truth, width, z)
    y = _rows(random, family.likelihood, eta, truth.get(family.dispersion or "", known))
    units = random_units(random, family)
    words = f"units {units.rows:.0e}, {units.covariate:.0e}" if units != Units() else "units 1"
    data = {
        "y": np.where(mask, y, _filler(family)) * units.rows,
        "mask": mask,
        "z": z * units.covariate,
        "width": np.full(groups, width * (per_latent(family, units))),
        "known": np.full(groups, known * (units.rows if family.dispersion == "noise" else 1.0)),
    }
    if not of.x64:  # what the library will see
        single = {name: value.astype(np.float32).astype(float) for name, value in data.items()}
        seen = {**single, "mask": mask}
    else:
        seen = data
    ones = {
        "y": seen["y"] / units.rows,
        "mask": mask,
        "z": seen["z"] / units.covariate,
        "width": seen["width"] / per_latent(family, units),
        "known": seen["known"] / (units.rows if family.dispersion == "noise" else 1.0),
    }
    start, kind = _start(random, family, truth, units)
    words = f"{words}, start {kind}, {groups} x {rows}, {'x64' if of.x64 else 'float32'}"
    made = Draw(of, index, data, ones, truth, start, None, units, words)
    object.__setattr__(made, "latent", _latent(family, made.in_units(start)))
    return made


def _mask(random: np.random.Generator, groups: int, rows: int) -> Array:
    sizes = np.full(groups, rows)
    if rows > 1 and random.random() < 0.5:
        sizes = random.integers(1, rows + 1, groups)
        sizes[0] = rows
    if random.random() < 0.3:
        sizes[-1] = 0
    return np.arange(rows) < sizes[:, None]


def _truth(random: np.random.Generator, family: Family) -> dict[str, float]:
    """Small and large effects, and none at all."""
    pick = lambda *values: float(random.choice(values))  # noqa: E731
    level, spread = {
        "identity": (pick(0, 1, -5, 30), pick(0, 0.1, 0.3, 1, 3, 10)),
        "square": (pick(0.5, 1, 3), pick(0.1, 0.5, 1, 2)),
        "log": (random.uniform(-1, 2.5), pick(0, 0.1, 0.3, 1, 1.5)),
        "logit": (pick(0, -1, 2, -4, 5), pick(0, 0.3, 1, 4)),
    }[family.link]
    away = max(spread, 0.3)
    of_prior = {
        "mixture": {"low": level - 2 * away, "gap": 4 * away, "p": random.uniform(0.1, 0.9)},
        "spike": {"slab": max(spread, 0.2), "p": random.uniform(0.05, 0.9)},
        "gamma": {"mean": np.exp(random.uniform(-1, 2)), "shape": pick(0.3, 1, 3, 30)},
        "lognormal": {"mu": random.uniform(-1, 2), "sd": min(spread, 1.5)},
        "uniform": {"level": level, "span": 3 * away},
        "slopes": {
            "mean": level,
            "sd": spread,
            "mean_slope": pick(0, 1, -0.5),
            "sd_slope": min(spread, pick(0, 0.3, 1)),
        },
    }.get(family.prior, {"mean": level, "sd": spread})
    truth = {name: float(value) for name, value in of_prior.items()}
    if family.covariate:
        truth["beta"] = pick(0, 0.5, -1) * (3.0 if family.link == "identity" else 1.0)
    dispersion = {"noise": pick(0.3, 1, 1), "k": pick(1, 3, 20)}.get(family.dispersion or "", 1.0)
    if family.dispersion is not None and not family.known:
        truth[family.dispersion] = dispersion
    return {**truth, "known": dispersion}


def _predictor(
    random: np.random.Generator, family: Family, truth: dict[str, float], width: float, z: Array
) -> Array:
    groups = len(z)
    mean, sd = truth.get("mean", truth.get("mu", 0.0)), truth.get("sd", 0.0)
    if family.prior == "slopes":
        level = mean + sd * random.normal(size=(groups, 1))
        slope = truth["mean_slope"] + truth["sd_slope"] * random.normal(size=(groups, 1))
        return _bounded(family, level + slope * z)
    if family.prior == "laplace":
        x = mean + sd * random.laplace(size=groups)
    elif family.prior == "student":
        x = mean + sd * random.standard_t(3.0, size=groups)
    elif family.prior in ("mixture", "spike"):
        high = random.random(groups) < truth["p"]
        center = truth.get("low", 0.0) + truth.get("gap", 0.0) * high
        x = center + np.where(high, truth.get("slab", width), width) * random.normal(size=groups)
    elif family.prior == "gamma":
        x = random.gamma(truth["shape"], mean / truth["shape"], size=groups)
        x = np.maximum(x, 1e-12)
    elif family.prior == "lognormal":
        x = np.exp(mean + sd * random.normal(size=groups))
    elif family.prior == "uniform":
        x = truth["level"] + truth["span"] * random.random(groups)
    else:
        x = mean + sd * random.normal(size=groups)
    if family.prior in ("gamma", "lognormal") and family.link != "identity":
        x = np.log(x)
    return _bounded(family, x[:, None] + truth.get("beta", 0.0) * z)


def _bounded(family: Family, eta: Array) -> Array:
    """Counts stay below some hundred thousands."""
    return np.minimum(eta, 12.0) if family.link == "log" else eta


def _rows(random: np.random.Generator, likelihood: str, eta: Array, dispersion: float) -> Array:
    if likelihood == "normal":
        return eta + dispersion * random.normal(size=eta.shape)
    if likelihood == "square":
        return eta**2 + dispersion * random.normal(size=eta.shape)
    if likelihood == "cauchy":
        return eta + dispersion * random.standard_cauchy(size=eta.shape)
    if likelihood == "student":
        return eta + dispersion * random.standard_t(FREEDOM, size=eta.shape)
    if likelihood == "poisson":
        return random.poisson(np.exp(eta)).astype(float)
    if likelihood == "gamma":
        return np.maximum(random.gamma(dispersion, np.exp(eta) / dispersion), 1e-12)
    if likelihood == "negbin":
        rate = random.gamma(dispersion, np.exp(eta) / dispersion)
        return random.poisson(rate).astype(float)
    trials = int(TRIALS) if likelihood == "binomial" else 1
    return random.binomial(trials, expit(eta)).astype(float)


def _filler(family: Family) -> float:
    """What stands where there is no row: something that the likelihood can take."""
    return 1.0 if family.likelihood == "gamma" else 0.0


def _start(
    random: np.random.Generator, family: Family, truth: dict[str, float], units: Units
) -> tuple[dict[str, float], str]:
    kinds = ["near", "off", "wrong units"] + ["plain"] * 2 * (units == Units())
    kind = str(random.choice(kinds))
    far = {"near": 0.2, "off": 1.0, "wrong units": 0.5, "plain": 0.0}[kind]
    reach = 5.0 * max(truth.get("sd", 1.0), 1.0) if family.link == "identity" else 2.0
    largest = 3.0 if family.link == "identity" else 0.5  # exp(1000) is no start
    wrong = 10.0 ** random.uniform(-3, largest) if kind == "wrong units" else 1.0
    moves = changes(family, Units(wrong, 1 / wrong if family.link != "identity" else 1.0))
    start = {}
    for name, one in family.kinds.items():
        value, noise = truth[name], random.normal()
        if one == "real":
            value = 0.0 if kind == "plain" else value + far * reach * noise
        elif one == "positive":
            value = 1.0 if kind == "plain" else max(value, 0.1) * np.exp(1.5 * far * noise)
        else:
            value = 0.5 if kind == "plain" else expit(np.log(value / (1 - value)) + far * noise)
        factor = moves[name][0] if name != "p" else 1.0
        start[name] = float(value * factor)
    return start, kind if kind != "wrong units" else f"in units wrong by {wrong:.0e}"


def _latent(family: Family, start: dict[str, float]) -> Any:
    if family.prior == "slopes":
        return np.array([start["mean"], start["mean_slope"]])
    if family.prior == "uniform":
        return 0.5
    if family.prior == "lognormal":
        return float(np.exp(start["mu"]))
    return start.get("mean", start.get("low", 0.0))

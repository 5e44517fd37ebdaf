"""What the oracle says about a fit of a drawn data set: `judge(draw, fit, seconds)`.

A fit is *wrong* if it is off by more than 0.1 standard errors or 0.1 in the log likelihood. A doubt
is a *false alarm* if everything is right and no doubt is true: the maximum is not at infinity, the
likelihood is not flat, and where starts disagree there is no other maximum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz_draws import Draw
from fuzz_marginals import bounds, constrained, free, log_marginal
from grid_oracle import Directions, Top, climb, judge_directions, polish

Array = np.ndarray
LABELS = (
    "ok",
    "WRONG",  # believed, and off
    "wrong errors",  # believed, right, and standard errors off by more than 10 %
    "false alarm",
    "missed",  # doubted, and off although there is a maximum
    "true doubt",  # at infinity, flat, or another maximum
    "CRASH",
    "refused",  # when the problem was made
    "?",  # the oracle does not believe itself
)
WRONG, RIGHT = 0.1, 0.01


@dataclass(frozen=True)
class Verdict:
    """One fit beside the oracle.

    Attributes:
        draw: what was fitted.
        label: one of `LABELS`.
        sentences: the fit's warnings, or the message of an exception.
        seconds: of the fit.
        error: the largest, in the oracle's standard errors, of parameters that have one.
        below: the oracle's maximum minus its log likelihood at the fit's estimate.
        misstated: the fit's log likelihood minus the oracle's there.
        errors_off: the fit's standard errors, the worst relative error.
        remark: what the oracle has to say.
    """

    draw: Draw
    label: str
    sentences: tuple[str, ...]
    seconds: float
    error: float = np.nan
    below: float = np.nan
    misstated: float = np.nan
    errors_off: float = np.nan
    remark: str = ""

    @property
    def believed(self) -> bool:
        return self.label in ("ok", "WRONG", "wrong errors") or (
            self.label == "?" and not self.sentences
        )

    def line(self) -> str:
        """Everything in one line."""
        numbers = (
            f"{self.error:.2g} SE, below the maximum by {self.below:.2g}, misstated by "
            f"{self.misstated:.2g}, SEs off by {self.errors_off:.1%}"
        )
        said = " | ".join(self.sentences) or "believed"
        words = f"#{self.draw.index} {self.draw.chunk.family} ({self.draw.words})"
        return f"{self.label}: {words}: {numbers}; {self.remark}; {said}"


class Oracle:
    """The log likelihood of a data set on the reals in units of 1, and its maxima."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.kinds = draw, draw.chunk.family.kinds
        self.bounds = bounds(self.kinds)
        self._values: dict[bytes, float] = {}
        self._of_theta = log_marginal(draw.chunk.family, draw.data_in_ones)

    def __call__(self, at: Array) -> float:
        key = np.asarray(at, float).tobytes()
        if key not in self._values:
            value = self._of_theta(constrained(self.folded(at), self.kinds))
            self._values[key] = value if np.isfinite(value) else -1e10
        return self._values[key]

    def folded(self, at: Array) -> Array:
        """The same point, where a sign means nothing: of the mean of x in a likelihood of x^2."""
        family = self.draw.chunk.family
        if family.likelihood == "square" and "mean" in self.kinds:
            at = np.array(at, float)
            place = list(self.kinds).index("mean")
            at[place] = abs(at[place])
        return at

    def own_error(self, top: Top) -> float:
        """Of the grid, by twice as many panels."""
        twice = log_marginal(self.draw.chunk.family, self.draw.data_in_ones, panels=96)
        return abs(twice(constrained(self.folded(top.at), self.kinds)) - top.value)

    def starts(self, fitted: Array) -> list[Array]:
        """From the fit's answer, the truth, and wider effects than the true ones."""
        true = free(self.draw.truth, self.kinds)
        scale = np.array([kind == "positive" for kind in self.kinds.values()])
        true = np.where(scale, np.maximum(true, -1.5), true)
        return [fitted, true, true + 0.8 * scale]

    def more_starts(self, count: int) -> list[Array]:
        random = np.random.default_rng(0)
        true = self.starts(np.zeros(0))[1]
        given = free(self.draw.start, self.kinds)
        near = np.clip(given, true - 10.0, true + 10.0)
        return [near, *(true + random.normal(0.0, 1.5, (count, len(true))))]

    def maximum(self, fitted: Array) -> tuple[Top, list[Top]]:
        """The highest top, and the ends of all climbs."""
        tops = [climb(self, start, self.bounds) for start in self.starts(fitted)]
        best = max(tops, key=lambda top: top.value)
        return polish(self, best, self.bounds), tops

    def has_another(self, best: Top, directions: Directions, tops: list[Top]) -> bool:
        """Whether there is a local maximum elsewhere, lower by more than 0.01."""
        ends = [*tops, *(climb(self, start, self.bounds) for start in self.more_starts(6))]
        for end in ends:
            if end.value > best.value - 0.01:
                continue
            higher = polish(self, end, self.bounds)
            if higher.value < best.value - 0.01 and np.all(
                np.linalg.eigvalsh(higher.information) > -1e-3
            ):
                slope = [
                    self(higher.at + move) - higher.value
                    for move in 0.05 * np.vstack([np.eye(len(end.at)), -np.eye(len(end.at))])
                ]
                if max(slope) < 1e-4:
                    return True
        return False


def estimate_in_ones(draw: Draw, fit: Any) -> dict[str, float]:
    theta = {name: float(value) for name, value in fit.theta.items()}
    return draw.in_ones(theta)


def judge(draw: Draw, fit: Any, seconds: float) -> Verdict:
    """The verdict on a fit."""
    oracle = Oracle(draw)
    sentences = tuple(fit.warnings)
    theta = estimate_in_ones(draw, fit)
    if not all(np.isfinite(list(theta.values()))):
        label = "missed" if sentences else "WRONG"
        return Verdict(draw, label, sentences, seconds, remark="the estimate is not finite")
    low, high = oracle.bounds
    fitted = oracle.folded(np.clip(np.nan_to_num(free(theta, oracle.kinds), neginf=-99), low, high))
    top, tops = oracle.maximum(fitted)
    directions = judge_directions(oracle, top, tuple(oracle.kinds.values()), oracle.bounds)
    inner = list(directions.inner)
    away = np.abs(fitted - oracle.folded(top.at))[inner] / directions.errors[inner]
    error = 0.0 if directions.flat or not inner else float(np.nanmax(away))
    here = oracle(fitted)
    below = top.value - here
    stated = np.nan if fit.likelihood is None else fit.log_likelihood + draw.log_volume
    misstated = float(stated - here)
    errors_off = _errors_off(draw, fit, oracle, fitted, directions)
    own = oracle.own_error(top)
    if own > 0.01:
        return Verdict(
            draw,
            "?",
            sentences,
            seconds,
            error,
            below,
            misstated,
            remark=f"oracle off by {own:.1g}",
        )
    remark, infinite = _remark(oracle, top, directions)
    stated_off = abs(below - misstated) if np.isfinite(misstated) else np.inf
    off = max(error, abs(below), stated_off)
    right_errors = directions.flat or not errors_off > 0.1
    if not sentences:
        label = "WRONG" if off > WRONG else "ok" if right_errors else "wrong errors"
    elif infinite:
        label = "true doubt"
    elif off > RIGHT or not right_errors:
        label = "missed"
    else:
        disagree = any("disagree" in sentence for sentence in sentences)
        true = disagree and oracle.has_another(top, directions, tops)
        label = "true doubt" if true else "false alarm"
        remark += ", another maximum" * true
    return Verdict(
        draw, label, sentences, seconds, error, float(below), misstated, errors_off, remark
    )


def _remark(oracle: Oracle, top: Top, directions: Directions) -> tuple[str, bool]:
    """In words, and whether the maximum is at infinity or the likelihood flat."""
    names = list(oracle.kinds)
    said = [
        f"{names[i]} at {'an end' if i in directions.ends else 'rest'}" for i in directions.ends
    ]
    infinite = directions.flat
    for i in directions.ends:
        if oracle.kinds[names[i]] == "share":
            continue
        if oracle.kinds[names[i]] == "real" or top.at[i] > 2.0:
            infinite = True
    if infinite:
        said.append("flat or at infinity")
    theta = ", ".join(f"{k} {v:.4g}" for k, v in constrained(top.at, oracle.kinds).items())
    return "; ".join([*said, f"the maximum is {top.value:.4f} at {theta}"]), infinite


def _errors_off(
    draw: Draw, fit: Any, oracle: Oracle, fitted: Array, directions: Directions
) -> float:
    """The worst relative error of the fit's standard errors, of parameters that have one."""
    if fit.information is None or not directions.inner:
        return np.nan
    in_units = {name: float(value) for name, value in fit.theta.items()}
    errors = dict(zip(fit.names, fit.standard_errors, strict=True))
    slopes: dict[str, Callable[[float], float]] = {
        "positive": abs,
        "share": lambda value: value * (1 - value),
    }
    unit = draw.in_units({name: 1.0 for name in oracle.kinds})
    zero = draw.in_units({name: 0.0 for name in oracle.kinds})
    worst = 0.0
    for i, (name, kind) in enumerate(oracle.kinds.items()):
        if i not in directions.inner:
            continue
        slope = slopes.get(kind, lambda _: 1.0)(in_units[name])
        factor = abs(unit[name] - zero[name]) if kind == "real" else 1.0
        with np.errstate(all="ignore"):
            mine = errors[name] / (slope * factor)
        off = min(abs(mine / one[i] - 1) for one in (directions.errors, directions.joint))
        worst = max(worst, off if np.isfinite(off) else np.inf)
    return float(worst)

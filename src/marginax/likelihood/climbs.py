"""Climbs of the marginal likelihood: from starts, off plateaus, and on from the particles' ends.

No step is taken that lowers what it climbs.
"""

from typing import NamedTuple

import numpy as np

from marginax.likelihood.newton import Climb, climb
from marginax.likelihood.results import Likelihood, LikelihoodFunction

__all__ = [
    "Maximum",
    "as_high",
    "climb_from_starts",
    "distance",
    "gaps_below",
    "is_near",
    "maximum_from",
]

DISTANCES = (*range(2, 25, 2), *range(-2, -25, -2))
FLAT = 0.05  # a curvature that makes a standard error of more than 4 on the reals


class Maximum(NamedTuple):
    """The highest point that climbs led to.

    Attributes:
        best: the climb with the highest likelihood, after the last steps.
        start: the end of the particles that is nearest to it.
        agreeing: how many of the climbs made before led there.
        lower: by how much the likelihood is lower at each other maximum that was found.
        function: what was climbed.
        likelihood: its value at the best.
    """

    best: Climb
    start: int
    agreeing: int
    lower: tuple[float, ...]
    function: LikelihoodFunction
    likelihood: Likelihood


def climb_from_starts(
    function: LikelihoodFunction, thetas: np.ndarray, max_steps: int = 60
) -> list[Climb]:
    """A climb from every start, off plateaus too."""
    climbs = []
    for theta in thetas:
        first = climb(function.evaluate, theta, function.start, max_steps=max_steps)
        climbs.append(_off_plateau(function, first, thetas[0], max_steps))
    return climbs


def maximum_from(
    function: LikelihoodFunction, ends: np.ndarray, known: list[Climb]
) -> Maximum | None:
    """Climbs from the ends of the particles, unless they are where a known climb led.

    Args:
        function: to be climbed.
        ends: where the particles' runs ended, flat on the reals, a row per start.
        known: climbs made before.

    Returns:
        The highest of all, with the last digits; None if the likelihood is finite nowhere.
    """
    climbs = _finite(known)
    for end in ends:
        if not any(is_near(end, one) for one in climbs):
            climbs += _finite(climb_from_starts(function, end[None]))
    if not climbs:
        return None
    best = max(climbs, key=lambda one: one.local.value)
    # Judged before the last steps, which change the rule and with it every value a little.
    lower, agreeing = gaps_below(best, climbs), sum(as_high(one, best) for one in known)
    if function.adapt is not None:
        function = function.adapt(best.theta, best.local.extra)
    if function.evaluate_finely is not None:
        fine = climb(function.evaluate_finely, best.theta, best.local.extra, max_steps=8)
        best = fine if np.isfinite(fine.local.value) else best
    nearest = int(np.argmin([distance(end, best) for end in ends]))
    value = function.describe(best.theta, best.local.extra)
    return Maximum(best, nearest, agreeing, lower, function, value)


def gaps_below(best: Climb, climbs: list[Climb]) -> tuple[float, ...]:
    """By how much the likelihood is lower at every maximum that is not as high as the best."""
    lower = [one for one in climbs if one.settled and not as_high(one, best)]
    return tuple(best.local.value - one.local.value for one in lower)


def _finite(climbs: list[Climb]) -> list[Climb]:
    return [one for one in climbs if np.isfinite(one.local.value)]


def distance(theta: np.ndarray, top: Climb) -> float:
    """How far theta is from where a climb ended, in standard errors."""
    away = theta - top.theta
    return float(np.sqrt(np.abs(away @ top.local.hessian @ away)))


def is_near(theta: np.ndarray, top: Climb) -> bool:
    """Whether theta is as good as where a climb ended: a fraction of a standard error away."""
    return distance(theta, top) < 0.05


def as_high(one: Climb, best: Climb) -> bool:
    """Whether a climb led to the same place, or to another that is as high (a flat ridge)."""
    return is_near(one.theta, best) or one.local.value > best.local.value - 1e-2


def _off_plateau(
    function: LikelihoodFunction, top: Climb, home: np.ndarray, max_steps: int
) -> Climb:
    """Climbs on from a plateau that has higher ground beside it.

    On a log scale a standard deviation of nearly 0 makes the likelihood flat, so that a climb comes
    to rest there though the maximum is elsewhere. Flat coordinates are tried at a distance, and at
    home, the first start.
    """
    for _ in range(3):
        if not np.isfinite(top.local.value):
            return top
        flat = np.flatnonzero(np.abs(np.diag(top.local.hessian)) < FLAT)
        higher = None
        for i in flat:
            for move in (home[i] - top.theta[i], *DISTANCES):
                moved = top.theta.copy()
                moved[i] += move
                there = function.evaluate(moved, top.local.extra)
                if there.value > max(top.local.value + 1e-3, higher[0] if higher else -np.inf):
                    higher = (there.value, moved, there.extra)
        if higher is None:
            return top
        again = climb(function.evaluate, higher[1], higher[2], max_steps=max_steps)
        top = again if again.local.value > top.local.value else top
    return top

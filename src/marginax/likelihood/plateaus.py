"""Off plateaus of a likelihood, where a climb comes to rest though higher ground is elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb

__all__ = ["is_rounding", "off_plateau"]

DISTANCES = (*range(2, 25, 2), *range(-2, -25, -2))
FEW_DISTANCES = (2, 8, -2, -8)  # in units of a parameter that is measured in large numbers
# Flat coordinates elsewhere together: how often, how far, and from how many of the best one climbs.
TRIED_TOGETHER, SPREADS_TOGETHER, LOWER_CLIMBED = 36, (1.0, 4.0), 2
FLAT = 0.05  # a curvature that makes a standard error of more than 4 typical lengths
HIGHER = 1e-3  # in log likelihood
LAST_DIGITS, PROBES = 4 * np.finfo(float).eps, 4  # relative moves that should change nothing


def off_plateau(
    function: LikelihoodFunction,
    top: Climb,
    home: np.ndarray,
    climb_from: Callable[[np.ndarray, Any], Climb],
) -> Climb:
    """Climbs on from a plateau that has higher ground beside it.

    On a log scale a standard deviation of nearly 0 makes the likelihood flat, so that a climb comes
    to rest there though the maximum is elsewhere. Flat coordinates are tried at a distance, and at
    home, the first start; several of them together too, for in a class of groups without members
    neither its size nor its place alone leads out.

    Args:
        function: what is climbed.
        top: where a climb came to rest.
        home: the first start.
        climb_from: `climb_from(theta, modes)`, another climb.
    """
    rng = np.random.default_rng(0)
    for _ in range(3):
        if not np.isfinite(top.local.value):
            return top
        units = np.ones(len(home)) if function.lengths is None else function.lengths
        flat = np.flatnonzero(np.abs(np.diag(top.local.hessian)) * units**2 < FLAT)
        tried = []
        for moved in [*_one_moved(top, home, flat, units), *_moved(rng, top, home, flat, units)]:
            there = function.evaluate(moved, top.local.extra)
            if abs(there.value - top.local.value) > HIGHER and np.isfinite(there.value):
                tried.append((there.value, moved, there.extra))
        starts = _to_climb_from(function, top, tried, LOWER_CLIMBED if len(flat) > 1 else 0)
        again = [climb_from(moved, modes) for _, moved, modes in starts]
        best = max(again, key=lambda one: one.local.value, default=top)
        if not best.local.value > top.local.value + HIGHER:
            return top
        top = best
    return top


def _to_climb_from(
    function: LikelihoodFunction,
    top: Climb,
    tried: list[tuple[float, np.ndarray, Any]],
    most_lower: int,
) -> list[tuple[float, np.ndarray, Any]]:
    """The highest of what was tried, if it is higher than the top; otherwise the best below it.

    From somewhat lower ground one climbs if several coordinates are flat: the others have to follow
    first.

    Args:
        function: what is climbed.
        top: where a climb came to rest.
        tried: values, places and modes.
        most_lower: how many lower ones.
    """
    ordered = sorted(tried, key=lambda one: -one[0])
    for one in ordered:
        if one[0] > top.local.value and not is_rounding(function, *one[1:]):
            return [one]
    return [one for one in ordered if one[0] <= top.local.value][:most_lower]


def is_rounding(function: LikelihoodFunction, theta: np.ndarray, extra: Any) -> bool:
    """Whether a likelihood is made of rounding: the last digits of theta change it.

    Far out a model may subtract log Gamma functions of 1e16 from each other, and what is left rises
    and falls by hundreds.

    Args:
        function: the likelihood.
        theta: where.
        extra: for the evaluation.
    """
    rng = np.random.default_rng(0)
    value = function.value_at(theta, extra)
    for _ in range(PROBES):
        move = LAST_DIGITS * rng.uniform(-1, 1, len(theta)) * np.abs(theta)
        if not abs(function.value_at(theta + move, extra) - value) < HIGHER:
            return True
    return False


def _one_moved(
    top: Climb, home: np.ndarray, flat: np.ndarray, units: np.ndarray
) -> Iterator[np.ndarray]:
    """A top with one flat coordinate elsewhere."""
    for i in flat:
        far = () if units[i] < 2 else [units[i] * move for move in FEW_DISTANCES]
        for move in (home[i] - top.theta[i], *DISTANCES, *far):
            moved = top.theta.copy()
            moved[i] += move
            yield moved


def _moved(
    rng: np.random.Generator, top: Climb, home: np.ndarray, flat: np.ndarray, units: np.ndarray
) -> Iterator[np.ndarray]:
    """A top with all flat coordinates elsewhere, if there are several."""
    if len(flat) < 2:
        return
    centers = np.stack([top.theta, home, np.zeros(len(home))])
    for k in range(TRIED_TOGETHER):  # every center with either spread
        moved = top.theta.copy()
        away = SPREADS_TOGETHER[k % 2] * rng.standard_normal(len(flat))
        moved[flat] = centers[k % len(centers)][flat] + units[flat] * away
        yield moved

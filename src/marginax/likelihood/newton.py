"""Newton's method on a log likelihood whose value, gradient and Hessian are known: few, safe steps.

A step is accepted only if the likelihood does not fall, and no step is longer than its curvature
warrants, so that the estimate never gets worse. Lengths are in standard errors, so that units do
not matter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "FIRST_RADIUS",
    "Climb",
    "Local",
    "climb",
    "is_finite",
    "restricted",
    "typical_lengths",
    "with_some",
]

FIRST_RADIUS = 2.0  # as a rule, in units of the scales
# A promised gain that rounding, kinks or the noise of draws may hide: 0.07 standard errors.
UNSEEN = 2.5e-3
ROUNDING = 64 * np.finfo(float).eps  # of a log likelihood, relative to it
LONG = 2.0  # a standard error that may be that of large units
FLATTEST = 1e-13  # an eigenvalue below this, where a coordinate alone has 1, is raised to it


class Local(NamedTuple):
    """A log likelihood at a point.

    Attributes:
        value: the log likelihood.
        gradient: its gradient in flat, free theta.
        hessian: its Hessian.
        extra: whatever the next evaluation wants to start from.
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    extra: Any


class Climb(NamedTuple):
    """How it ended.

    Attributes:
        theta: the best point, flat and free.
        local: the likelihood there.
        num_steps: accepted steps.
        settled: whether the promised gain became negligible, and not only that of shorter steps.
        promised: the gain that Newton's method still promises.
        modes_complete: whether the search for modes of the blocks, where there was one, ended.
    """

    theta: np.ndarray
    local: Local
    num_steps: int
    settled: bool
    promised: float = 0.0
    modes_complete: bool = True

    def step(self, lengths: np.ndarray | None = None) -> np.ndarray:
        """Where Newton's method would go next."""
        most = np.ones(len(self.theta)) if lengths is None else lengths
        return _step(self.local, FIRST_RADIUS, most)[0]


def climb(
    evaluate: Callable[[np.ndarray, Any], Local],
    theta: np.ndarray,
    extra: Any,
    *,
    lengths: np.ndarray | None = None,
    max_steps: int = 60,
    negligible: float = 1e-9,
    first_radius: float = FIRST_RADIUS,
) -> Climb:
    """Maximises from theta.

    Args:
        evaluate: `evaluate(theta, extra) -> Local`.
        theta: flat, free start.
        extra: for the first evaluation.
        lengths: the longest that typical lengths may be, where curvature says nothing; 1 unless
            parameters are measured in larger numbers.
        max_steps: evaluations.
        negligible: a promised gain in log likelihood that is not worth a step.
        first_radius: how long the first step may be, in units of the scales.
    """
    here = evaluate(theta, extra)
    if not is_finite(here):
        return Climb(theta, here._replace(value=-np.inf), 0, False)
    most = np.ones(len(theta)) if lengths is None else lengths
    radius, taken = first_radius, 0
    for _ in range(max_steps):
        step, gain = _step(here, radius, most)
        if gain < max(negligible, ROUNDING * abs(here.value)):
            # At rest; or steps were refused until they were too short to promise anything.
            promised = _step(here, FIRST_RADIUS, most)[1]
            failed = radius < FIRST_RADIUS and promised > UNSEEN
            return Climb(theta, here, taken, not failed, promised)
        there = evaluate(theta + step, here.extra)
        length = float(np.linalg.norm(step / _scales(here, most)))
        if is_finite(there) and there.value >= here.value:
            achieved = (there.value - here.value) / gain
            radius = max(radius, 2 * length) if achieved > 0.5 else radius
            theta, here, taken = theta + step, there, taken + 1
        else:
            radius = 0.25 * min(radius, length)
            if radius < 1e-10:
                break
    return Climb(theta, here, taken, False, _step(here, FIRST_RADIUS, most)[1])


def restricted(
    evaluate: Callable[[np.ndarray, Any], Local], theta: np.ndarray, inner: np.ndarray
) -> Callable[[np.ndarray, Any], Local]:
    """The same likelihood of some coordinates, with the others where theta has them.

    Args:
        evaluate: of all coordinates.
        theta: flat and free.
        inner: which coordinates, by index.
    """

    def part(some: np.ndarray, extra: Any) -> Local:
        here = evaluate(with_some(theta, inner, some), extra)
        hessian = here.hessian[np.ix_(inner, inner)]
        return Local(here.value, here.gradient[inner], hessian, here.extra)

    return part


def with_some(theta: np.ndarray, inner: np.ndarray, some: np.ndarray) -> np.ndarray:
    """theta with some of its coordinates, by index, elsewhere."""
    whole = theta.copy()
    whole[inner] = some
    return whole


def is_finite(local: Local) -> bool:
    """Whether value, gradient and Hessian are."""
    return bool(
        np.isfinite(local.value)
        and np.all(np.isfinite(local.gradient))
        and np.all(np.isfinite(local.hessian))
    )


def _scales(local: Local, most: np.ndarray) -> np.ndarray:
    """A typical length of every coordinate: its own standard error, if that is not too long."""
    diagonal = np.abs(np.diag(local.hessian))
    return 1 / np.sqrt(np.maximum(diagonal, 1 / most**2))


def _step(local: Local, radius: float, most: np.ndarray) -> tuple[np.ndarray, float]:
    """The uphill Newton step within the radius, in units of the scales, and what it promises."""
    scales = _scales(local, most)
    curvature = -local.hessian * np.outer(scales, scales)
    w, v = np.linalg.eigh((curvature + curvature.T) / 2)
    q = v.T @ (local.gradient * scales)
    scaled = v @ (q / np.maximum(np.abs(w), FLATTEST))
    length = float(np.linalg.norm(scaled))
    scaled = scaled * (radius / length) if length > radius else scaled
    step = scaled * scales
    # On a plateau a step may be as long as one likes, and lead to where numbers end.
    flat = np.abs(np.diag(local.hessian)) < 1 / most**2
    shorter = np.where(flat, np.clip(step, -FIRST_RADIUS * most, FIRST_RADIUS * most), step)
    gain = float(local.gradient @ shorter) / 2
    return (shorter, gain) if gain > 0 else (step, float(local.gradient @ step) / 2)


def typical_lengths(
    evaluate: Callable[[np.ndarray, Any], Local], theta: np.ndarray, extra: Any
) -> np.ndarray:
    """How long the typical lengths of parameters may be: 1, or more for those in large units.

    A large standard error may be that of a parameter that is measured in millions: one standard
    error away to either side the likelihood has then fallen by a half. Or it is no error at all, on
    a plateau, where a log standard deviation should still be moved by about 1. Far from the data
    heavy tails leave a slope and no curvature, and the length over which the likelihood rises by 1
    tells the units.

    Args:
        evaluate: `evaluate(theta, extra) -> Local`.
        theta: flat, free.
        extra: for the first evaluation.
    """
    here = evaluate(theta, extra)
    lengths = np.ones(len(theta))
    if not is_finite(here):
        return lengths

    def changes(i: int, length: float) -> list[float]:
        move = np.zeros(len(theta))
        move[i] = length
        return [evaluate(theta + side * move, here.extra).value - here.value for side in (-1, 1)]

    for i, slope in enumerate(here.gradient):
        by_curvature = 1 / np.sqrt(max(abs(here.hessian[i, i]), np.finfo(float).tiny))
        by_slope = 1 / max(abs(slope), np.finfo(float).tiny)
        if by_curvature <= LONG:
            continue
        bends = np.array(changes(i, by_curvature)) - slope * by_curvature * np.array([-1, 1])
        if np.all((np.abs(bends) > 0.05) & (np.abs(bends) < 5)):
            lengths[i] = by_curvature
        elif slope != 0 and by_slope > LONG:
            rises = np.array(changes(i, by_slope)) * np.sign(slope) * np.array([-1, 1])
            lengths[i] = by_slope if np.all((rises > 0.2) & (rises < 5)) else 1.0
    return lengths

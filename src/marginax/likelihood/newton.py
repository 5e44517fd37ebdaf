"""Newton's method on a log likelihood whose value, gradient and Hessian are known: few, safe steps.

A step is accepted only if the likelihood does not fall, and no step is longer than its curvature
warrants, so that the estimate never gets worse.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Climb", "Local", "climb"]

FIRST_RADIUS = 2.0  # in units of the scales
UNSEEN = 1e-4  # a promised gain that rounding, or the noise of draws, may hide from a line search


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
    """

    theta: np.ndarray
    local: Local
    num_steps: int
    settled: bool


def climb(
    evaluate: Callable[[np.ndarray, Any], Local],
    theta: np.ndarray,
    extra: Any,
    *,
    max_steps: int = 60,
    negligible: float = 1e-9,
) -> Climb:
    """Maximises from theta.

    Args:
        evaluate: `evaluate(theta, extra) -> Local`.
        theta: flat, free start.
        extra: for the first evaluation.
        max_steps: evaluations.
        negligible: a promised gain in log likelihood that is not worth a step.
    """
    here = evaluate(theta, extra)
    if not _is_finite(here):
        return Climb(theta, here._replace(value=-np.inf), 0, False)
    radius, taken = FIRST_RADIUS, 0
    for _ in range(max_steps):
        step, gain = _step(here, radius)
        if gain < negligible:
            # At rest; or steps were refused until they were too short to promise anything.
            failed = radius < FIRST_RADIUS and _step(here, FIRST_RADIUS)[1] > UNSEEN
            return Climb(theta, here, taken, not failed)
        there = evaluate(theta + step, here.extra)
        if _is_finite(there) and there.value >= here.value:
            achieved = (there.value - here.value) / gain
            length = float(np.linalg.norm(step / _scales(here)))
            radius = max(radius, 2 * length) if achieved > 0.5 else radius
            theta, here, taken = theta + step, there, taken + 1
        else:
            radius = 0.25 * min(radius, float(np.linalg.norm(step / _scales(here))))
            if radius < 1e-10:
                break
    return Climb(theta, here, taken, False)


def _is_finite(local: Local) -> bool:
    return bool(
        np.isfinite(local.value)
        and np.all(np.isfinite(local.gradient))
        and np.all(np.isfinite(local.hessian))
    )


def _scales(local: Local) -> np.ndarray:
    """A typical length of every coordinate: its own standard error, and 1 where that is unknown."""
    diagonal = np.abs(np.diag(local.hessian))
    return 1 / np.sqrt(np.maximum(diagonal, 1.0))


def _step(local: Local, radius: float) -> tuple[np.ndarray, float]:
    """The uphill Newton step within the radius, in units of the scales, and what it promises."""
    scales = _scales(local)
    curvature = -local.hessian * np.outer(scales, scales)
    w, v = np.linalg.eigh((curvature + curvature.T) / 2)
    q = v.T @ (local.gradient * scales)
    scaled = v @ (q / np.maximum(np.abs(w), 1e-8))
    length = float(np.linalg.norm(scaled))
    scaled = scaled * min(1.0, radius / max(length, 1e-300))
    step = scaled * scales
    return step, float(local.gradient @ step) / 2

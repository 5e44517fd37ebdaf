"""The highest maximum, with a look at where the likelihood is nearly as high far from all climbs.

Starts that agree may all have climbed the same hill: of two classes that overlap, another maximum
may have one of them at infinity, where no start led.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from marginax.likelihood.climbs import Maximum, distance, maximum_from
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.information import marginal_errors
from marginax.likelihood.newton import Climb, is_finite

__all__ = ["highest_from"]

FAR = 4.0  # standard errors; a quadratic has fallen by 8 there, and by more if others correlate
FALLEN = 4.0  # in log likelihood: with less the likelihood is no such quadratic
LOOSE = 2.0  # a standard error in typical lengths: four of a larger one say nothing of a hill
ALIKE = 1e-3  # a log likelihood that is as high
FEW_PARAMETERS = 8  # up to which evaluations with a Hessian take no longer than another program
RISES = 1e-6  # in log likelihood for a standard error, where less may be rounding


def highest_from(
    function: LikelihoodFunction,
    ends: np.ndarray,
    known: list[Climb],
    is_lost: Sequence[bool] | None = None,
) -> Maximum | None:
    """`maximum_from`, and once more with starts far out if the likelihood rises there.

    Args:
        function: to be climbed.
        ends: where the particles' runs ended, flat on the reals, a row per start.
        known: climbs made before.
        is_lost: which runs diverged.

    Returns:
        The highest of all, and by how much others are lower; None if it is finite nowhere.
    """
    maximum = maximum_from(function, ends, known, is_lost)
    far = [] if maximum is None else _rising_far_out(maximum)
    if maximum is None or not far:
        return maximum
    lost = [*(is_lost or [False] * len(ends)), *[False] * len(far)]
    more = maximum_from(function, np.concatenate([ends, far]), known, lost)
    if more is None:
        return maximum
    # By one rule: values of different ones are not comparable.
    before = more.function.value_at(maximum.best.theta, maximum.best.local.extra)
    gain = more.best.local.value - before
    if not gain > ALIKE:
        return maximum._replace(lower=more.lower) if gain > -ALIKE else maximum
    away = [distance(e, more.best) if np.all(np.isfinite(e)) else np.inf for e in ends]
    return more._replace(start=int(np.argmin(away)))


def _rising_far_out(maximum: Maximum) -> list[np.ndarray]:
    """Where one parameter is far out and the likelihood higher, or hardly lower and rising on."""
    best, function = maximum.best, maximum.function
    if function.evaluate_finely is not None:  # by draws, which are not there, or one Gaussian
        return []
    lengths = np.ones(len(best.theta)) if function.lengths is None else function.lengths
    errors = marginal_errors(-best.local.hessian)
    value = _cheap_value(function, len(errors))
    top, rising = best.local.value, []
    for i in np.flatnonzero(errors < LOOSE * lengths):
        for side in (-1.0, 1.0):
            moved = best.theta.copy()
            moved[i] += side * FAR * errors[i]
            if value is not None and not top - value(moved, best.local.extra) < FALLEN:
                continue
            here = function.evaluate(moved, best.local.extra)
            if not (is_finite(here) and top - here.value < FALLEN):
                continue
            if here.value > top + ALIKE or side * here.gradient[i] * errors[i] > RISES:
                rising.append(moved)
    return rising


def _cheap_value(
    function: LikelihoodFunction, parameters: int
) -> Callable[[np.ndarray, Any], float] | None:
    """The likelihood without derivatives, where that is cheaper; a program of its own for many."""
    if function.value is None and function.value_alone is not None and parameters > FEW_PARAMETERS:
        return function.value_alone()
    return function.value

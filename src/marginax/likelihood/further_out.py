"""The highest maximum, with a look at where the likelihood is nearly as high far from all climbs.

Starts that agree may all lie in the same valley: of two classes that overlap, another maximum may
have one of them at infinity, where no start led.
"""

from collections.abc import Sequence

import numpy as np

from marginax.likelihood.climbs import Maximum, distance, maximum_from
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.information import marginal_errors
from marginax.likelihood.newton import Climb, is_finite

__all__ = ["highest_from"]

FAR = 4.0  # standard errors; a quadratic has fallen by 8 there
FALLEN = 4.0  # in log likelihood: with less the likelihood is no such quadratic
LOOSE = 2.0  # a standard error in typical lengths: what is known no better has its own tests
ALIKE = 1e-3  # a log likelihood that is as high


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
        The highest of all; None if the likelihood is finite nowhere.
    """
    maximum = maximum_from(function, ends, known, is_lost)
    far = [] if maximum is None else _rising_far_out(maximum)
    if maximum is None or not far:
        return maximum
    lost = [*(is_lost or [False] * len(ends)), *[False] * len(far)]
    more = maximum_from(function, np.concatenate([ends, far]), known, lost)
    if more is None or not more.best.local.value > maximum.best.local.value - ALIKE:
        return maximum
    away = [distance(e, more.best) if np.all(np.isfinite(e)) else np.inf for e in ends]
    return more._replace(start=int(np.argmin(away)))


def _rising_far_out(maximum: Maximum) -> list[np.ndarray]:
    """Where one parameter is far out and the likelihood, hardly lower, rises on outwards."""
    best, function = maximum.best, maximum.function
    if function.evaluate_finely is not None:  # draws say nothing so far from where they are
        return []
    lengths = np.ones(len(best.theta)) if function.lengths is None else function.lengths
    errors = marginal_errors(-best.local.hessian)
    rising = []
    for i in np.flatnonzero(errors < LOOSE * lengths):
        for side in (-1.0, 1.0):
            moved = best.theta.copy()
            moved[i] += side * FAR * errors[i]
            if not best.local.value - function.value_at(moved, best.local.extra) < FALLEN:
                continue
            here = function.evaluate(moved, best.local.extra)
            if is_finite(here) and side * here.gradient[i] > 0:
                rising.append(moved)
    return rising

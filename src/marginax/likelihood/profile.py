r"""Profile likelihood intervals: where the best likelihood with one parameter fixed has fallen.

    r(t) = sign(t - t_hat) sqrt(2 (l_hat - max_{theta: theta_i = t} l(theta)))

is nearly linear in t, so a few secant steps (the Illinois rule) find r = +-z. An end is infinite
where the likelihood never falls so far, and NaN where it was not found: where the climbs of the
others do not come to rest, or the likelihood is rough.
"""

import math
import warnings
from collections.abc import Callable

import jax
import numpy as np

from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction, modes_of
from marginax.likelihood.newton import Climb, Local, climb, restricted
from marginax.model import parameter_table
from marginax.model.problem import Problem

__all__ = ["profile_end", "profile_interval", "profile_of"]

MOST_EVALUATIONS = 25
FARTHEST = 50.0  # in standard errors: beyond it the likelihood does not fall
STEEP = 3.0  # quantiles: so far above the one asked for r is not linear, and the bracket is halved


def profile_of(
    problem: Problem,
    maximum: Maximum | None,
    unconstrained_theta: np.ndarray,
    unconstrained_covariance: np.ndarray,
    name: str,
    quantile: float,
) -> np.ndarray:
    """The two ends on the constrained scale, the lower first; warns of those that were not found.

    Args:
        problem: what was fitted.
        maximum: of its likelihood, with the function itself.
        unconstrained_theta: the estimate, flat, on the reals.
        unconstrained_covariance: of the estimate.
        name: of the parameter in tables.
        quantile: of the standard normal, 1.96 for 95 %.
    """
    names = parameter_table.parameter_names(problem)
    if name not in names:
        raise ValueError(f"There is no parameter {name!r}; there are {', '.join(names)}.")
    place = names.index(name)
    index = parameter_table.sole_coordinates(problem)[place]
    if index is None:
        raise ValueError(
            f"{name!r} hangs together with others (a correlation among several, "
            "an ordered vector, a simplex) and cannot be fixed on its own. "
            "`confidence_intervals()` has its Wald interval; or make it a parameter of its own."
        )
    if maximum is None:
        raise ValueError(
            "A profile needs the likelihood function, which a fit made with "
            "compute_likelihood=False, or from draws alone, does not have."
        )
    error = float(np.sqrt(unconstrained_covariance[index, index]))
    best = maximum.best
    with jax.enable_x64(True):
        ends = profile_interval(maximum.function, best.theta, best.local, index, error, quantile)
    values = []
    for end in ends:
        moved = unconstrained_theta.copy()
        moved[index] = end
        values.append(
            float(
                parameter_table.displayed(problem, parameter_table.unravel_theta(problem, moved))[
                    place
                ]
            )
        )
    if parameter_table.numbers_and_jacobian(problem, unconstrained_theta)[1][place, index] < 0:
        values.reverse()
    for value, which in zip(values, ("lower", "upper"), strict=True):
        if math.isnan(value):
            warnings.warn(
                f"The {which} end of the profile interval of {name} was not found in "
                f"{MOST_EVALUATIONS} evaluations: the likelihood is rough there. It is NaN; "
                "`confidence_intervals()` has the Wald interval.",
                stacklevel=3,
            )
    return np.array(values)


def profile_interval(
    function: LikelihoodFunction,
    theta: np.ndarray,
    best: Local,
    index: int,
    standard_error: float,
    quantile: float,
) -> tuple[float, float]:
    """The two ends on the reals; infinite where the likelihood never falls, NaN if not found.

    Args:
        function: what was climbed.
        theta: its maximum, flat, on the reals.
        best: the likelihood there.
        index: of the parameter, among those on the reals.
        standard_error: its own, on the reals; any length for a first step.
        quantile: of the standard normal, 1.96 for 95 %.
    """
    size = standard_error if math.isfinite(standard_error) and standard_error > 0 else 1.0
    evaluate = function.evaluate_finely or function.evaluate
    extra = modes_of(best.extra)
    top = evaluate(theta, extra).value  # by the same rule as what it is compared with
    others = np.delete(np.arange(len(theta)), index)
    lengths = None if function.lengths is None else function.lengths[others]

    def side(sign: float) -> float:
        def profiled(distance: float, near: np.ndarray) -> Climb:
            moved = theta.copy()
            moved[index] += sign * distance
            part = restricted(evaluate, moved, others)
            return climb(part, near, extra, lengths=lengths, max_steps=30, negligible=1e-6)

        return sign * profile_end(profiled, theta[others], top, quantile, quantile * size)

    return float(theta[index] + side(-1.0)), float(theta[index] + side(1.0))


def profile_end(
    profiled: Callable[[float, np.ndarray], Climb],
    rest: np.ndarray,
    top: float,
    quantile: float,
    distance: float,
) -> float:
    """The distance at which r is the quantile: infinite, or NaN, as above.

    Args:
        profiled: `profiled(distance, near)`, the best of the others with this one so far away.
        rest: the others at the top.
        top: the likelihood there.
        quantile: to be reached.
        distance: the first to be tried, the quantile in standard errors.
    """
    farthest = FARTHEST / quantile * distance
    inner, outer = (0.0, -quantile), (math.inf, math.inf)  # (distance, r - quantile) on both sides
    last = 0
    for _ in range(MOST_EVALUATIONS):
        profile = profiled(distance, rest)
        away = _away(profile.local.value, top, quantile)
        if abs(away) < 1e-4 * quantile:
            return distance if profile.settled else math.nan
        if away < 0:
            inner, rest = (distance, away), profile.theta
            if last < 0:  # the same side twice: the other one's weight is halved
                outer = (outer[0], outer[1] / 2)
        else:
            outer = (distance, away)
            if last > 0:
                inner = (inner[0], inner[1] / 2)
        last = -1 if away < 0 else 1
        if math.isinf(outer[0]) and distance > farthest:
            return math.inf
        if math.isinf(outer[1]) and outer[0] - inner[0] < 1e-3 * outer[0]:
            return math.inf  # as far as numbers reach, and not low enough
        distance = _next(inner, outer, distance, away, quantile)
    return math.nan


def _away(value: float, top: float, quantile: float) -> float:
    """r less the quantile; infinite where the likelihood is not finite."""
    if not math.isfinite(value):
        return math.inf
    return math.sqrt(max(2 * (top - value), 0.0)) - quantile


def _next(
    inner: tuple[float, float],
    outer: tuple[float, float],
    distance: float,
    away: float,
    quantile: float,
) -> float:
    """The distance to try next: further out, in the middle, or by the secant."""
    if math.isinf(outer[0]):
        return min(2 * distance, distance * max(quantile / max(away + quantile, 1e-9), 1.1))
    if outer[1] > STEEP * quantile:
        return (inner[0] + outer[0]) / 2
    share = -inner[1] / (outer[1] - inner[1])
    return inner[0] + share * (outer[0] - inner[0])

r"""Profile likelihood intervals: where the best likelihood with one parameter fixed has fallen.

    r(t) = sign(t - t_hat) sqrt(2 (l_hat - max_{theta: theta_i = t} l(theta)))

is nearly linear in t, so a few secant steps (the Illinois rule) find r = +-z. An end is infinite
where the likelihood never falls so far, and NaN where it was not found: where the climbs of the
others do not come to rest, or the likelihood is rough.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from marginax import natural
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb, Local, climb
from marginax.inference.polish import Polished
from marginax.problem import Problem

__all__ = ["profile_interval", "profile_of"]

MOST_EVALUATIONS = 25
FARTHEST = 50.0  # in standard errors, or on the reals: beyond it the likelihood does not fall

STEEP = 3.0  # quantiles: so far above the one asked for r is not linear, and the bracket is halved


def profile_of(
    problem: Problem,
    polished: Polished | None,
    theta_free: np.ndarray,
    covariance_free: np.ndarray,
    name: str,
    quantile: float,
) -> np.ndarray:
    """The two ends on the natural scale, the lower first; warns of those that were not found.

    Args:
        problem: what was fitted.
        polished: the climbs of its likelihood.
        theta_free: the estimate, flat and free.
        covariance_free: of the estimate.
        name: of the parameter in tables.
        quantile: of the standard normal, 1.96 for 95 %.
    """
    names = natural.shown_names(problem)
    if name not in names:
        raise ValueError(f"profile is {name!r}, but it must be one of {', '.join(names)}.")
    place = names.index(name)
    index = natural.made_of_one(problem)[place]
    if index is None:
        raise ValueError(
            f"profile is {name!r}, which hangs together with others (a correlation among several, "
            "an ordered vector, a simplex) and cannot be fixed on its own. "
            "`confidence_intervals()` has its Wald interval; or make it a parameter of its own."
        )
    if polished is None:
        raise ValueError(
            "A profile needs the likelihood function, which a fit made with polish=False, from "
            "draws alone, or loaded from a file does not have."
        )
    error = float(np.sqrt(covariance_free[index, index]))
    best = polished.best
    with jax.enable_x64(True):
        ends = profile_interval(polished.likelihood, best.theta, best.local, index, error, quantile)
    values = []
    for end in ends:
        moved = theta_free.copy()
        moved[index] = end
        values.append(float(natural.shown(problem, natural.unravelled(problem, moved))[place]))
    if natural.jacobian(problem, theta_free)[place, index] < 0:
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
    likelihood: Likelihood,
    theta: np.ndarray,
    best: Local,
    index: int,
    standard_error: float,
    quantile: float,
) -> tuple[float, float]:
    """The two ends on the reals; infinite where the likelihood never falls, NaN if not found.

    Args:
        likelihood: what was climbed.
        theta: its maximum, flat and free.
        best: the likelihood there.
        index: of the parameter, among the free ones.
        standard_error: its own, on the reals; any length for a first step.
        quantile: of the standard normal, 1.96 for 95 %.
    """
    size = standard_error if math.isfinite(standard_error) and standard_error > 0 else 1.0
    evaluate = likelihood.evaluate_finely or likelihood.evaluate
    extra = best.extra[0] if isinstance(best.extra, tuple) else best.extra
    top = evaluate(theta, extra).value  # by the same rule as what it is compared with
    others = np.arange(len(theta)) != index

    def side(sign: float) -> float:
        def profiled(distance: float, near: np.ndarray) -> Climb:
            def part(rest: np.ndarray, extra: Any) -> Local:
                whole = theta.copy()
                whole[index], whole[others] = theta[index] + sign * distance, rest
                here = evaluate(whole, extra)
                inner = here.hessian[np.ix_(others, others)]
                return Local(here.value, here.gradient[others], inner, here.extra)

            return climb(part, near, extra, max_steps=30, negligible=1e-6)

        far = FARTHEST * max(size, 1.0)
        return sign * _end(profiled, theta[others], top, quantile, quantile * size, far)

    return float(theta[index] + side(-1.0)), float(theta[index] + side(1.0))


def _end(
    profiled: Callable[[float, np.ndarray], Climb],
    rest: np.ndarray,
    top: float,
    quantile: float,
    distance: float,
    farthest: float,
) -> float:
    """The distance at which r is the quantile: infinite, or NaN, as above.

    Args:
        profiled: `profiled(distance, near)`, the best of the others with this one so far away.
        rest: the others at the top.
        top: the likelihood there.
        quantile: to be reached.
        distance: the first to be tried.
        farthest: beyond it the likelihood does not fall.
    """
    inner, outer = (0.0, -quantile), (math.inf, math.inf)  # (distance, r - quantile) on both sides
    last = 0
    for _ in range(MOST_EVALUATIONS):
        found = profiled(distance, rest)
        finite = math.isfinite(found.local.value)
        away = math.sqrt(max(2 * (top - found.local.value), 0.0)) - quantile if finite else math.inf
        if abs(away) < 1e-4 * quantile:
            return distance if found.settled else math.nan
        if away < 0:
            inner, rest = (distance, away), found.theta
            if last < 0:  # the same side twice: the other one's weight is halved
                outer = (outer[0], outer[1] / 2)
        else:
            outer = (distance, away)
            if last > 0:
                inner = (inner[0], inner[1] / 2)
        last = -1 if away < 0 else 1
        if math.isinf(outer[0]):
            if distance > farthest:
                return math.inf
            distance = min(2 * distance, distance * max(quantile / max(away + quantile, 1e-9), 1.1))
        elif math.isinf(outer[1]) and outer[0] - inner[0] < 1e-3 * outer[0]:
            return math.inf  # as far as numbers reach, and not low enough
        elif outer[1] > STEEP * quantile:
            distance = (inner[0] + outer[0]) / 2
        else:
            share = -inner[1] / (outer[1] - inner[1])
            distance = inner[0] + share * (outer[0] - inner[0])
    return math.nan

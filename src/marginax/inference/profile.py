r"""Profile likelihood intervals: where the best likelihood with one parameter fixed has fallen.

    r(t) = sign(t - t_hat) sqrt(2 (l_hat - max_{theta: theta_i = t} l(theta)))

is nearly linear in t, so a few secant steps find r = +-z.
"""

import math

import numpy as np

from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb, Local, climb

__all__ = ["profile_interval"]

MOST_EVALUATIONS = 25
FARTHEST = 50.0  # in standard errors, or on the reals: beyond it the likelihood does not fall


def profile_interval(
    likelihood: Likelihood,
    theta: np.ndarray,
    best: Local,
    index: int,
    standard_error: float,
    quantile: float,
) -> tuple[float, float]:
    """The two ends on the reals; infinite where the likelihood never falls far enough.

    Args:
        likelihood: what was climbed.
        theta: its maximum, flat and free.
        best: the likelihood there.
        index: of the parameter, among the free ones.
        standard_error: its own, on the reals; any length for a first step.
        quantile: of the standard normal, 1.96 for 95 %.
    """
    size = standard_error if math.isfinite(standard_error) and standard_error > 0 else 1.0
    return (
        _end(likelihood, theta, best, index, -size, quantile),
        _end(likelihood, theta, best, index, size, quantile),
    )


def _end(
    likelihood: Likelihood,
    theta: np.ndarray,
    best: Local,
    index: int,
    step: float,
    quantile: float,
) -> float:
    others = np.arange(len(theta)) != index
    evaluate = likelihood.evaluate
    extra = best.extra[0] if isinstance(best.extra, tuple) else best.extra

    def profiled(value: float, near: np.ndarray) -> Climb:
        def part(rest: np.ndarray, extra: object) -> Local:
            whole = theta.copy()
            whole[index], whole[others] = value, rest
            here = evaluate(whole, extra)
            inner = here.hessian[np.ix_(others, others)]
            return Local(here.value, here.gradient[others], inner, here.extra)

        return climb(part, near, extra, max_steps=30, negligible=1e-6)

    top = evaluate(theta, extra).value  # by the same rule as what it is compared with
    inner, rest = (0.0, 0.0), theta[others]  # (distance, r) inside
    outer: tuple[float, float] | None = None
    distance = quantile * abs(step)
    for _ in range(MOST_EVALUATIONS):
        found = profiled(theta[index] + math.copysign(distance, step), rest)
        if not math.isfinite(found.local.value):  # as far as numbers reach, and not low enough
            return math.copysign(math.inf, step)
        r = math.sqrt(max(2 * (top - found.local.value), 0.0))
        if abs(r - quantile) < 1e-4 * quantile:
            break
        if r < quantile:
            inner, rest = (distance, r), found.theta
        else:
            outer = (distance, r)
        if outer is None:
            if distance > FARTHEST * max(abs(step), 1.0):
                return math.copysign(math.inf, step)
            distance = min(2 * distance, distance * max(quantile / max(r, 1e-9), 1.1))
        else:
            slope = (outer[1] - inner[1]) / (outer[0] - inner[0])
            distance = inner[0] + (quantile - inner[1]) / slope
    return float(theta[index] + math.copysign(distance, step))

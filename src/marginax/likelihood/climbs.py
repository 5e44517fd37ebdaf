"""Climbs of the marginal likelihood: from starts, and on from the particles' ends.

No step is taken that lowers what it climbs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from marginax.likelihood.functions import LikelihoodFunction, modes_of
from marginax.likelihood.newton import Climb, climb, is_finite, typical_lengths
from marginax.likelihood.plateaus import is_rounding, off_plateau
from marginax.likelihood.results import (
    LARGEST_SHIFT,
    ImportanceLikelihood,
    Likelihood,
    QuadratureLikelihood,
)
from marginax.likelihood.second_derivatives import by_differences, curvature_agrees

__all__ = [
    "Climbs",
    "Maximum",
    "as_high",
    "climb_from_starts",
    "distance",
    "gaps_below",
    "is_near",
    "maximum_from",
]

PLATEAU = 1e-6  # a curvature, where 1 is that at the best maximum
ROUGHLY = 500.0  # by how much more than at the end two rules may differ where climbs begin
AS_HIGH = 1e-2  # in log likelihood
DIP, ON_THE_WAY = 1e-3, (1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4)  # in log likelihood; shares of a way
MOST_LOOKS = 3  # searches for other modes at the top of a climb, each followed by another climb


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


class Climbs(NamedTuple):
    """Climbs from several starts.

    Attributes:
        function: what was climbed in the end: of rules the coarsest that is fine enough.
        climbs: one from every start.
    """

    function: LikelihoodFunction
    climbs: list[Climb]


def climb_from_starts(
    function: LikelihoodFunction, thetas: np.ndarray, max_steps: int = 60
) -> Climbs:
    """A climb from every start, off plateaus too, over all modes, by a rule that is fine enough."""
    climbs: list[Climb] = []
    modes = function.start
    if function.lengths is None:
        function = function._replace(
            lengths=typical_lengths(function.evaluate, thetas[0], function.start)
        )
    if function.other_modes is not None:
        modes = function.other_modes(thetas[0], modes).modes
    function = _fine_enough_to_begin(function, thetas[0], modes)
    for theta in thetas:
        top = _climb(function, theta, modes, max_steps)
        top = off_plateau(
            function, top, thetas[0], lambda at, known: _climb(function, at, known, max_steps)
        )
        alike = [one for one in _finite(climbs) if is_near(top.theta, one)]
        if alike:  # looked around there already
            top = top._replace(modes_complete=alike[0].modes_complete)
        else:
            top = _over_all_modes(function, top, max_steps)
        climbs.append(top)
    return _finely_enough(function, climbs)


def _climb(
    function: LikelihoodFunction, theta: np.ndarray, modes: Any, max_steps: int = 60
) -> Climb:
    up = partial(
        climb,
        lengths=function.lengths,
        max_steps=max_steps,
        negligible=function.rough_gain,
        first_radius=function.first_radius,
    )
    top = up(function.evaluate, theta, modes)
    if np.isfinite(top.local.value) or not np.all(np.isfinite(top.local.gradient)):
        return top
    here = function.evaluate(theta, modes)
    if not np.isfinite(here.value):
        return top
    # Far nodes may be where second derivatives overflow, though values and gradients do not.
    function = by_differences(function, Climb(theta, here, 0, False))
    return up(function.evaluate, theta, modes)


def _over_all_modes(function: LikelihoodFunction, top: Climb, max_steps: int) -> Climb:
    """Climbs on as long as searches at the top find modes that were not integrated over."""
    if function.other_modes is None or not np.isfinite(top.local.value):
        return top
    for _ in range(MOST_LOOKS):
        search = function.other_modes(top.theta, modes_of(top.local.extra))
        top = top._replace(modes_complete=search.is_complete)
        if not search.num_new:
            break
        again = _climb(function, top.theta, search.modes, max_steps)
        top = again._replace(modes_complete=search.is_complete)
    return top


def _finely_enough(function: LikelihoodFunction, climbs: list[Climb]) -> Climbs:
    """Goes on with finer rules while value or gradient of two differ where the best climb ended."""
    while ended := _finite(climbs):
        best = max(ended, key=lambda one: one.local.value)
        if function.finer is None or _is_accurate(function, best):
            # By too coarse a rule for it there may be a lower top where there is none.
            sure = partial(_surely, function, best=best)
            return Climbs(function, _each_once(sure, climbs))
        function = _finer(function)
        climbs = _each_once(partial(_again, function), climbs)
    return Climbs(function, climbs)


def _sure(function: LikelihoodFunction, new: list[Climb], known: list[Climb]) -> list[Climb]:
    """New climbs, looked at again if they are lower than what is known."""
    best = max([*known, *new], key=lambda one: one.local.value, default=None)
    return new if best is None else [_surely(function, one, best) for one in new]


def _surely(function: LikelihoodFunction, top: Climb, best: Climb) -> Climb:
    """A lower top by a rule that is fine enough there too, and by derivatives that are right."""

    def is_lower() -> bool:
        return bool(np.isfinite(top.local.value)) and not (top.settled and as_high(top, best))

    while is_lower() and function.finer is not None and not _is_accurate(function, top):
        function = _finer(function)
        top = _again(function, top)
    noisy = function.evaluate_finely is not None  # the noise of draws is no kink
    if noisy or not is_lower() or (top.settled and curvature_agrees(function, top)):
        return top
    again = _again(by_differences(function, top), top)
    return again if again.local.value > top.local.value else top


def _finer(function: LikelihoodFunction) -> LikelihoodFunction:
    finer = function if function.finer is None else function.finer()
    return finer._replace(lengths=function.lengths)


def _is_accurate(function: LikelihoodFunction, top: Climb, times: float = 1.0) -> bool:
    """Whether two rules agree in value and gradient, or there are no rules to compare."""
    value = function.describe(top.theta, top.local.extra)
    if not isinstance(value, QuadratureLikelihood):
        return True
    return value.is_accurate(top.local.hessian, times)


def _fine_enough_to_begin(
    function: LikelihoodFunction, theta: np.ndarray, modes: Any
) -> LikelihoodFunction:
    """A rule by which the first steps from theta are not nonsense: heavy tails want a finer one."""
    while function.finer is not None and not function.rule_is_known:
        here = function.evaluate(theta, modes)
        at = Climb(theta, here, 0, False)
        if not is_finite(here) or _is_accurate(function, at, ROUGHLY):
            break
        function = _finer(function)
    return function


def maximum_from(
    function: LikelihoodFunction,
    ends: np.ndarray,
    known: list[Climb],
    is_lost: Sequence[bool] | None = None,
) -> Maximum | None:
    """Climbs from the ends of the particles, unless they are where a known climb led.

    Args:
        function: to be climbed.
        ends: where the particles' runs ended, flat on the reals, a row per start.
        known: climbs made before.
        is_lost: which runs diverged: their ends count only if nothing else is known.

    Returns:
        The highest of all, with the last digits; None if the likelihood is finite nowhere.
    """
    climbs, agreeing = _finite(known), list(known)
    lost = np.zeros(len(ends), bool) if is_lost is None or not climbs else np.array(is_lost)
    known_ends = np.all(np.isfinite(ends), axis=1)
    for end in ends[~lost & known_ends]:
        if _is_worth_a_climb(function, end, climbs):
            more = climb_from_starts(function, end[None])
            same_rule = more.function.evaluate is function.evaluate
            function = more.function
            if not same_rule:  # the values of another rule are not comparable
                climbs = _each_once(partial(_again, function), climbs)
                agreeing = list(climbs)
            climbs += _sure(function, _finite(more.climbs), climbs)
    if not climbs:
        return None
    best = max(climbs, key=lambda one: one.local.value)
    # Judged before the last steps, which change the rule and with it every value a little.
    lower = gaps_below(function, best, climbs)
    num_agreeing = sum(as_high(one, best) for one in agreeing)
    climbed = function
    function, best = _last_steps(function, best)
    away = [distance(e, best) if ok else np.inf for e, ok in zip(ends, known_ends, strict=True)]
    nearest = int(np.argmin(away))
    value = function.describe(best.theta, best.local.extra)
    if isinstance(value, QuadratureLikelihood | ImportanceLikelihood):
        value = replace(value, modes_complete=best.modes_complete)
    if isinstance(value, QuadratureLikelihood) and function is climbed:  # by its own gradient
        value = replace(value, estimate_error=_estimate_error(function, best, value))
    return Maximum(best, nearest, num_agreeing, lower, function, value)


def _is_worth_a_climb(function: LikelihoodFunction, theta: np.ndarray, known: list[Climb]) -> bool:
    """Whether theta is not where a climb ended, nor where the likelihood is rounding."""
    if any(is_near(theta, one) for one in known):
        return False
    return not (known and is_rounding(function, theta, known[0].local.extra))


def _estimate_error(
    function: LikelihoodFunction, best: Climb, value: QuadratureLikelihood
) -> float:
    """By how many standard errors the finer rule would move the estimate, where it is higher there.

    With a kink at a node gradients are noise, and values are not.
    """
    move, errors = value.shift(best.local.hessian)
    if errors <= LARGEST_SHIFT:
        return errors
    length = min(errors, 1.0)
    there = function.describe(best.theta + length / errors * move, best.local.extra)
    return errors if there.log_likelihood - value.log_likelihood > length**2 / 4 else 0.0


def _last_steps(function: LikelihoodFunction, best: Climb) -> tuple[LikelihoodFunction, Climb]:
    """The best with draws that suit it, or with a Hessian that its gradient agrees with."""
    if function.adapt is not None:
        lengths = function.lengths
        function = function.adapt(best.theta, best.local.extra)._replace(lengths=lengths)
    if function.evaluate_finely is not None:
        fine = climb(
            function.evaluate_finely,
            best.theta if function.top is None else function.top,
            best.local.extra,
            lengths=function.lengths,
            max_steps=8,
            negligible=function.negligible,
        )
        fine = fine._replace(modes_complete=best.modes_complete)
        return function, fine if np.isfinite(fine.local.value) else best
    if best.settled and curvature_agrees(function, best):
        return function, best
    differenced = by_differences(function, best)
    again = _again(differenced, best)
    better = np.isfinite(again.local.value) and (again.settled or best.settled)
    return (differenced, again) if better else (function, best)


def _again(function: LikelihoodFunction, top: Climb) -> Climb:
    """Climbs on from a top by another rule."""
    if not np.isfinite(top.local.value):
        return top
    again = _climb(function, top.theta, top.local.extra)
    return again._replace(modes_complete=top.modes_complete)


def _each_once(go_on: Callable[[Climb], Climb], climbs: list[Climb]) -> list[Climb]:
    """What every climb goes on to, found once where several led to the same place."""
    before: list[tuple[Climb, Climb]] = []
    for top in climbs:
        same = [new for old, new in before if _are_one(top, old)]
        before.append((top, same[0] if same else go_on(top)))
    return [new for _, new in before]


def _are_one(one: Climb, other: Climb) -> bool:
    near = is_near(one.theta, other) and is_near(other.theta, one)
    level = abs(one.local.value - other.local.value) < AS_HIGH
    return near and level and one.settled == other.settled


def gaps_below(function: LikelihoodFunction, best: Climb, climbs: list[Climb]) -> tuple[float, ...]:
    """By how much the likelihood is lower at every maximum that is not as high as the best, once.

    Args:
        function: what was climbed.
        best: the highest climb.
        climbs: all of them.
    """
    lower = [one for one in climbs if one.settled and not as_high(one, best) and _bends(one, best)]
    apart = [one for one in lower if _is_apart(function, one, best)]
    once = [one for i, one in enumerate(apart) if not any(_are_one(one, o) for o in apart[:i])]
    return tuple(best.local.value - one.local.value for one in once)


def _is_apart(function: LikelihoodFunction, one: Climb, best: Climb) -> bool:
    """Whether the way from a lower top to the best leads down somewhere, as it does from a maximum.

    Beside a standard deviation of nearly 0 second derivatives may be rounding, and a climb takes
    them for a reason to rest.
    """
    way = best.theta - one.theta
    heights = [function.value_at(one.theta + share * way, one.local.extra) for share in ON_THE_WAY]
    return not all(height > one.local.value - DIP for height in heights)


def _bends(one: Climb, best: Climb) -> bool:
    """Whether a climb that came to rest did so at a maximum, and not on a plateau without end."""
    curvature, usual = (np.maximum(-np.diag(top.local.hessian), 0) for top in (one, best))
    return bool(np.any(curvature > PLATEAU * usual))


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
    return is_near(one.theta, best) or one.local.value > best.local.value - AS_HIGH

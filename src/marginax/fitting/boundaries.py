"""Parameters at an end of what is allowed, such as a variance of 0, and the information there.

Every sentence that comes of it was tested: the likelihood was evaluated where it says something.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import jax
import numpy as np

from marginax.fitting.fit_state import FitState
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.information import marginal_errors, scaled_eigen
from marginax.likelihood.newton import climb, restricted, with_some
from marginax.likelihood.plateaus import is_rounding
from marginax.likelihood.second_derivatives import checked_information
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.model.transforms import Transform, identity
from marginax.model.transforms.base import Limits
from marginax.model.transforms.trees import is_transform

__all__ = [
    "Ends",
    "find_ends",
    "transform_of_each",
    "value_elsewhere",
    "with_flat_ridges",
    "with_information_inside",
]

NEAR = 4.0  # on the reals, towards an end of what is allowed
FURTHER = tuple(2.0**k for k in range(3, 13))  # from within a plateau, on the reals
LOOSE = 2.0  # a standard error on the reals: with a smaller one any end is far away
ALIKE = 1e-3  # a log likelihood that is as high
RIDGE = 0.1  # a fall that the others made good by moving half a standard error and more
LOST = 1e-3  # of the information, which is a standard error thirty times as long
FOLLOWING = 20  # steps that the other parameters have to follow one that is moved
MOST_INWARDS, UNCHANGED = 12, 1e-6  # moves of 1 on the reals, and in the log likelihood
OUTWARDS = (8.0, 4.0, 2.0)  # on the reals: where what the others know is asked again
FALL = 2.0  # of a quadratic two standard errors out


class Ends(NamedTuple):
    """What was found about constrained parameters.

    Attributes:
        sentences: of those at a boundary, by index.
        sides: on the reals, -1 or 1, where it lies.
        undetermined: those whose likelihood falls to neither side.
        ridges: those for which it is as high at a boundary only if others go far along.
    """

    sentences: dict[int, str]
    sides: dict[int, float]
    undetermined: list[int]
    ridges: list[int]


def find_ends(problem: Problem, state: FitState) -> Ends:
    """Constrained parameters whose likelihood is no lower at the boundary of what is allowed."""
    ends = Ends({}, {}, [], [])
    if state.maximum is None:
        return ends
    names, transforms = unconstrained_names(problem), transform_of_each(problem)
    loose = marginal_errors(-state.maximum.best.local.hessian) > LOOSE
    for i, (name, (transform, limits)) in enumerate(zip(names, transforms, strict=True)):
        if transform is identity or not loose[i]:
            continue
        both = dict(zip((-1.0, 1.0), limits, strict=True))
        sides = _sides_as_high(state.maximum, i, both)
        if len(sides) == 2:
            ends.undetermined.append(i)
        elif sides and _is_on_a_ridge(state.maximum, i, sides[0]):
            ends.ridges.append(i)
        elif sides:
            ends.sides[i] = sides[0]
            ends.sentences[i] = (
                f"{name} is at the boundary: the likelihood is as high at "
                f"{_in_words(both[sides[0]], transform)}. It has no standard error, the others' "
                "are with it fixed there, and a likelihood-ratio test of it is conservative."
            )
    return ends


def value_elsewhere(
    maximum: Maximum, index: int, move: float, fixed: Collection[int] = ()
) -> float:
    """The log likelihood with a parameter elsewhere, once the others have followed.

    Args:
        maximum: where it is highest, with the function itself.
        index: of the parameter, on the reals.
        move: how far.
        fixed: others that do not follow.
    """
    best, function = maximum.best, maximum.function
    alone = best.theta.copy()
    alone[index] += move
    here = function.value_at(alone, best.local.extra)
    others = np.array([i for i in range(len(alone)) if i != index and i not in fixed], int)
    if best.local.value - here < ALIKE or len(others) == 0:
        return here
    # By the curvature at the maximum the others would go along, and from there they climb.
    along = alone.copy()
    along[others] += move * _response(best.local.hessian, index, others)
    there = function.value_at(along, best.local.extra)
    start = along if there > here else alone
    lengths = None if function.lengths is None else function.lengths[others]
    part = restricted(function.evaluate, start, others)
    followed = climb(part, start[others], best.local.extra, lengths=lengths, max_steps=FOLLOWING)
    return float(np.nanmax([here, there, followed.local.value]))


def _response(hessian: np.ndarray, index: int, others: np.ndarray) -> np.ndarray:
    """How far the others go where one parameter moves by 1, if the likelihood is quadratic."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(hessian)), np.finfo(float).tiny))
    scaled = hessian / np.outer(scale, scale)
    solved = np.linalg.lstsq(scaled[np.ix_(others, others)], scaled[others, index], rcond=1e-12)[0]
    return np.asarray(-solved * scale[index] / scale[others])


def _sides_as_high(maximum: Maximum, index: int, limits: dict[float, float | None]) -> list[float]:
    """To which sides the likelihood of a parameter is as high as at its maximum.

    Args:
        maximum: where it is highest, with the function itself.
        index: of the parameter, on the reals.
        limits: what it tends to on either side.
    """

    def heights(moves: Sequence[float]) -> dict[float, bool | None]:
        return {one: _as_high(maximum, index, one, moves, limits[one]) for one in limits}

    found = heights([NEAR])
    if False not in found.values():  # on a plateau, which has its end further away
        found = heights(FURTHER)
        if True not in found.values():  # one is lower, and the other where numbers end
            return [one for one in found if found[one] is None]
    return [one for one in found if found[one]]


def _is_on_a_ridge(maximum: Maximum, index: int, side: float) -> bool:
    """Whether the way to a boundary is as high only if the others go along, far from their places.

    With either fixed the other looks well known, and is not: they are known together alone.
    """
    function, best = maximum.function, maximum.best
    alone = best.theta.copy()
    alone[index] += side * NEAR
    fall = best.local.value - function.value_at(alone, best.local.extra)
    falls = bool(np.isfinite(fall) and fall > RIDGE)
    return falls and not is_rounding(function, alone, best.local.extra)


def _as_high(
    maximum: Maximum, index: int, side: float, moves: Sequence[float], limit: float | None
) -> bool | None:
    """Whether the likelihood is as high with a parameter ever further away; None if unknown."""
    for move in moves:
        there = value_elsewhere(maximum, index, side * move)
        if not np.isfinite(there):
            # Where the numbers end, a finite boundary is not far either.
            return None if _is_infinite(limit) else True
        if maximum.best.local.value - there > ALIKE:
            moved = maximum.best.theta.copy()
            moved[index] += side * move
            return None if is_rounding(maximum.function, moved, maximum.best.local.extra) else False
    return True


def with_flat_ridges(state: FitState, ridges: list[int]) -> FitState:
    """The information of what does not go along with parameters on a ridge, which have none.

    Those that do go along lose nearly all of theirs once a parameter is not held where it is.

    Args:
        state: with the information.
        ridges: parameters, by index.
    """
    if state.information is None or not ridges:
        return state
    size = len(state.information)
    rest = [i for i in range(size) if i not in ridges and i not in state.boundaries]
    information = state.information.copy()
    units = scaled_eigen(information)[0]
    scaled = information / np.outer(units, units)
    across, on_ridges = scaled[np.ix_(ridges, rest)], scaled[np.ix_(ridges, ridges)]
    left = scaled[np.ix_(rest, rest)] - across.T @ np.linalg.pinv(on_ridges) @ across
    lost = [i for k, i in enumerate(rest) if not left[k, k] > LOST]
    information[np.ix_(rest, rest)] = left * np.outer(units[rest], units[rest])
    return state._replace(information=information).without_information([*ridges, *lost])


def with_information_inside(state: FitState, sides: dict[int, float]) -> FitState:
    """The information with parameters at a boundary moved inside as far as nothing changes.

    At the boundary itself, a standard deviation of 1e-6, the others' information is a difference of
    numbers of the size 1 / sd^2, and its last digits are rounding. What there is inside is checked
    against values.

    Args:
        state: with the maximum.
        sides: of the parameters at a boundary.
    """
    if state.maximum is None or state.information is None or not sides:
        return state
    best, function = state.maximum.best, state.maximum.function
    theta = best.theta.copy()
    for i, side in sides.items():
        for _ in range(MOST_INWARDS):
            moved = theta.copy()
            moved[i] -= side
            there = function.value_at(moved, best.local.extra)
            if not there > best.local.value - UNCHANGED:
                break
            theta = moved
    moved_inside = bool(np.any(theta != best.theta))
    local = function.evaluate(theta, best.local.extra) if moved_inside else best.local
    inner = np.array([i for i in range(len(theta)) if i not in sides], int)
    information = checked_information(function, theta, local, inner)
    part = _known_at_boundary(state.maximum, information[np.ix_(inner, inner)], inner, sides)
    information[np.ix_(inner, inner)] = part
    return state._replace(information=information)


def _known_at_boundary(
    maximum: Maximum, information: np.ndarray, inner: np.ndarray, sides: dict[int, float]
) -> np.ndarray:
    """The information without directions that are known only as long as nothing is at a boundary.

    Of a class that has no members the place is unknown; a member in a million would still tell it.
    """
    best, function = maximum.best, maximum.function
    if len(inner) == 0:
        return information
    lengths = None if function.lengths is None else function.lengths[inner]
    for far in OUTWARDS:
        outer = best.theta.copy()
        for i, side in sides.items():
            outer[i] += far * side
        part = restricted(function.evaluate, outer, inner)
        top = climb(part, outer[inner], best.local.extra, lengths=lengths, max_steps=8)
        if abs(top.local.value - best.local.value) < 10 * ALIKE:
            break
    else:
        return information
    scale, w, v = scaled_eigen(information)
    for k in np.flatnonzero(w > np.finfo(float).eps):
        move = v[:, k] / scale * 2 / np.sqrt(w[k])
        ends = [
            function.value_at(with_some(outer, inner, top.theta + one * move), top.local.extra)
            for one in (-1, 1)
        ]
        falls = [top.local.value - end if np.isfinite(end) else np.inf for end in ends]
        w[k] = w[k] if min(falls) > FALL / 10 else 0.0
    return np.asarray((v * w) @ v.T * np.outer(scale, scale))


def _is_infinite(limit: float | None) -> bool:
    return limit is not None and bool(np.isinf(limit))


def _in_words(limit: float | None, transform: Transform) -> str:
    if limit is None:
        return f"an end of its {transform.name}"
    return ("-" * (limit < 0) + "infinity") if np.isinf(limit) else f"{limit:g}"


def transform_of_each(problem: Problem) -> list[tuple[Transform, Limits]]:
    """The transform of every real of theta, and what it tends to at both ends."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    leaves = jax.tree.leaves(problem.start_theta())
    return [
        (one, one.limits[i % len(one.limits)])
        for one, leaf in zip(transforms, leaves, strict=True)
        for i in range(leaf.size)
    ]

"""What is odd about a maximum: boundaries, infinity, flat directions, signs, dependent groups.

Every sentence that comes of it was tested: the likelihood was evaluated where it says something.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax._core.processes import whole
from marginax.fitting.fit_state import FitState
from marginax.likelihood.second_derivatives import checked_information
from marginax.model.groups import interacting
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.model.transforms import Transform, identity
from marginax.model.transforms.base import Limits
from marginax.model.transforms.trees import is_transform
from marginax.running.result import Run

__all__ = [
    "at_boundary",
    "blind_to_sign",
    "interacting_groups",
    "rises_for_ever",
    "runaways",
    "with_information_inside",
    "with_tested_directions",
]

CLEAR = 4.0  # standard errors from 0: a parameter that far has not run away to infinity
FAR = (4.0, 16.0, 64.0)  # times Newton's next step: a likelihood that rises on is higher there
HARDLY_DETERMINED = 1e-7  # an eigenvalue of the information, where a coordinate alone has 1
MOST_INWARDS, UNCHANGED = 12, 1e-6  # moves of 1 on the reals, and in the log likelihood
FALL = 2.0  # of a quadratic two standard errors out


def at_boundary(problem: Problem, state: FitState) -> dict[int, str]:
    """Constrained parameters whose likelihood is no lower at the boundary of what is allowed."""
    if state.maximum is None:
        return {}
    best, function = state.maximum.best, state.maximum.function
    extra = best.local.extra
    sentences: dict[int, str] = {}
    here = None
    names, transforms = unconstrained_names(problem), _transform_of_each(problem)
    for i, (name, (transform, limits)) in enumerate(zip(names, transforms, strict=True)):
        # A standard error below 2 on the reals is far from any boundary.
        if transform is identity or -best.local.hessian[i, i] > 0.25:
            continue
        here = function.evaluate(best.theta, extra).value if here is None else here
        heights = []  # at the ends where the likelihood is as high
        for side, limit in zip((-4.0, 4.0), limits, strict=True):
            moved = best.theta.copy()
            moved[i] += side
            there = function.evaluate(moved, extra).value
            # Where the numbers end, a finite boundary is not far either.
            if there > here - 1e-3 or not (np.isfinite(there) or _is_infinite(limit)):
                heights.append((there if np.isfinite(there) else -np.inf, limit))
        if heights:
            _, highest = max(heights, key=lambda end: end[0])
            sentences[i] = (
                f"{name} is at the boundary: the likelihood is as high at "
                f"{_in_words(highest, transform)}. It has no standard error, the others' "
                "are with it fixed there, and a likelihood-ratio test of it is conservative."
            )
    return sentences


def with_information_inside(problem: Problem, state: FitState) -> FitState:
    """The information with parameters at a boundary moved inside as far as nothing changes.

    At the boundary itself, a standard deviation of 1e-6, the others' information is a difference of
    numbers of the size 1 / sd^2, and its last digits are rounding. What there is inside is checked
    against values.
    """
    if state.maximum is None or state.information is None or not state.boundaries:
        return state
    best, function = state.maximum.best, state.maximum.function
    start = np.asarray(ravel_pytree(problem.start_theta())[0], float)
    theta, local = best.theta.copy(), best.local
    for i in state.boundaries:
        inwards = np.sign(start[i] - theta[i])
        for _ in range(MOST_INWARDS):
            moved = theta.copy()
            moved[i] += inwards
            there = function.evaluate(moved, best.local.extra)
            if not there.value > best.local.value - UNCHANGED:
                break
            theta, local = moved, there
    inner = np.array([i for i in range(len(theta)) if i not in state.boundaries], int)
    information = checked_information(function, theta, local, inner)
    return state._replace(information=information)


def runaways(problem: Problem, state: FitState) -> list[int]:
    """Unconstrained parameters along which the likelihood hardly falls to one side.

    A log standard deviation whose maximum is at -infinity, or a slope under separation, may come to
    rest with a little curvature left, which would make a standard error of thousands. Where the
    likelihood does not fall as that curvature says, there is none.
    """
    if state.maximum is None:
        return []
    best, function = state.maximum.best, state.maximum.function
    curvature = -np.diag(best.local.hessian)
    on_the_reals = np.array([one is identity for one, _ in _transform_of_each(problem)])
    near_zero = curvature * best.theta**2 < CLEAR**2
    away: list[int] = []
    here = None
    for i in np.flatnonzero(on_the_reals & (curvature > 0) & near_zero):
        here = function.evaluate(best.theta, best.local.extra) if here is None else here
        for side in (-2.0, 2.0):
            moved = best.theta.copy()
            moved[i] += side / np.sqrt(curvature[i])
            there = function.evaluate(moved, best.local.extra).value
            # A quadratic would have fallen by 2; and a model that is not finite two standard errors
            # away has no such standard error.
            if not np.isfinite(there) or there > here.value - 0.2:
                away.append(int(i))
                break
    return away


def rises_for_ever(state: FitState) -> bool:
    """Whether a likelihood that Newton's method could not climb to its top rises on and on."""
    if state.maximum is None or state.maximum.best.settled:
        return False
    best, function = state.maximum.best, state.maximum.function
    step = best.step(function.lengths)
    values = [best.local.value]
    for times in FAR:
        values.append(function.evaluate(best.theta + times * step, best.local.extra).value)
    finite = np.array(values)[np.isfinite(values)]
    return len(finite) > 1 and bool(np.all(np.diff(finite) >= -1e-6))


def blind_to_sign(problem: Problem, state: FitState) -> tuple[str, ...]:
    """Negative parameters, free to have any sign, whose sign the likelihood does not see."""
    if state.maximum is None:
        return ()
    best, function = state.maximum.best, state.maximum.function
    names, blind = unconstrained_names(problem), []
    here = None
    for i, (transform, _) in enumerate(_transform_of_each(problem)):
        if transform is not identity or not best.theta[i] < 0:
            continue
        here = function.evaluate(best.theta, best.local.extra) if here is None else here
        if not -here.hessian[i, i] * best.theta[i] ** 2 > 1:
            continue  # too near to 0 to tell its sign from the other
        flipped = best.theta.copy()
        flipped[i] = -flipped[i]
        there = function.evaluate(flipped, best.local.extra)
        alike = 1e-9 * (1 + abs(here.value))
        if abs(there.value - here.value) <= alike and np.isfinite(there.value):
            blind.append(names[i])
    return tuple(blind)


def with_tested_directions(state: FitState) -> FitState:
    """The information, with directions that seem to have next to none looked at for themselves.

    A nearly singular information may be right (a year and its square), or rounding. Two standard
    errors along such a direction the likelihood has fallen by 2, or it is flat: there is then no
    information along it.
    """
    if state.maximum is None or state.information is None:
        return state
    best, function = state.maximum.best, state.maximum.function
    scale = np.sqrt(np.abs(np.diag(state.information)))
    if np.any(scale == 0):
        scale = np.where(scale == 0, 1.0, scale)
    w, v = np.linalg.eigh(state.information / np.outer(scale, scale))
    doubtful = np.flatnonzero(w < HARDLY_DETERMINED)
    if len(doubtful) == 0:
        return state
    here = function.evaluate(best.theta, best.local.extra).value
    tested = w.copy()
    for k in doubtful:
        move = v[:, k] / scale * 2 / np.sqrt(max(w[k], 1e-14))
        sides = [function.evaluate(best.theta + side * move, best.local.extra) for side in (-1, 1)]
        falls = [here - one.value if np.isfinite(one.value) else 0.0 for one in sides]
        tested[k] = max(w[k], 1e-14) if min(falls) > FALL / 10 else 0.0
    return state._replace(information=(v * tested) @ v.T * np.outer(scale, scale))


def interacting_groups(problem: Problem, ran: Run, state: FitState) -> int:
    """How many groups of a log joint of all groups at once are not alone where the particles are.

    Such a log joint was looked at where the problem starts; here is where it matters.
    """
    if problem.group_log_joints is None:
        return 0
    _, unravel = ravel_pytree(problem.start_theta())
    theta, find = (
        unravel(jnp.asarray(state.theta)),
        interacting(problem.unconstrained_group_log_joints),
    )
    clouds = jax.tree.map(lambda leaf: jnp.asarray(whole(leaf[state.start]), float), ran.particles)
    wrong: set[int] = set()
    for i in range(min(4, jax.tree.leaves(clouds)[0].shape[0])):
        latent = jax.tree.map(lambda leaf, i=i: leaf[i], clouds)
        wrong |= set(find(theta, latent, problem.data).tolist())
    return len(wrong)


def _is_infinite(limit: float | None) -> bool:
    return limit is not None and bool(np.isinf(limit))


def _in_words(limit: float | None, transform: Transform) -> str:
    if limit is None:
        return f"an end of its {transform.name}"
    return ("-" * (limit < 0) + "infinity") if np.isinf(limit) else f"{limit:g}"


def _transform_of_each(problem: Problem) -> list[tuple[Transform, Limits]]:
    """The transform of every real of theta, and what it tends to at both ends."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    leaves = jax.tree.leaves(problem.start_theta())
    return [
        (one, one.limits[i % len(one.limits)])
        for one, leaf in zip(transforms, leaves, strict=True)
        for i in range(leaf.size)
    ]

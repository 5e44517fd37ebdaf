"""Where a maximum says little: directions to infinity, flat ones, signs, groups that interact.

Every sentence that comes of it was tested: the likelihood was evaluated where it says something.
"""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax._core.processes import whole
from marginax.fitting.boundaries import transform_of_each, value_elsewhere
from marginax.fitting.fit_state import FitState
from marginax.likelihood.information import marginal_errors, scaled_eigen
from marginax.model.groups import interacting
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.model.transforms import identity
from marginax.running.result import Run

__all__ = [
    "blind_to_sign",
    "interacting_groups",
    "rises_for_ever",
    "runaways",
    "with_tested_directions",
]

CLEAR = 4.0  # standard errors from 0: a parameter that far has not run away to infinity
FAR = (4.0, 16.0, 64.0)  # times Newton's next step: a likelihood that rises on is higher there
HARDLY_DETERMINED = 1e-7  # an eigenvalue of the information, where a coordinate alone has 1
FALL = 2.0  # of a quadratic two standard errors out
NO_FALL = 0.01  # the others following: a fall of 0.1 is no good standard error, and yet no infinity


def runaways(problem: Problem, state: FitState, least_error: float = 0.0) -> list[int]:
    """Unconstrained parameters along which the likelihood hardly falls to one side.

    A log standard deviation whose maximum is at -infinity, or a slope under separation, may come to
    rest with a little curvature left, which would make a standard error of thousands. Where the
    likelihood does not fall as that curvature says, there is none.

    Args:
        problem: what is fitted.
        state: with the maximum.
        least_error: parameters with a smaller standard error are not looked at, where units are
            known.
    """
    if state.maximum is None:
        return []
    best = state.maximum.best
    on_the_reals = [one is identity for one, _ in transform_of_each(problem)]
    inner = [i for i in range(len(best.theta)) if i not in state.boundaries]
    information = -best.local.hessian[np.ix_(inner, inner)]
    away = []
    for i, curvature, error in zip(
        inner, np.diag(information), marginal_errors(information), strict=True
    ):
        near_zero = abs(best.theta[i]) < CLEAR * error and error >= least_error
        if not (on_the_reals[i] and curvature > 0 and near_zero):
            continue
        others = [k for k in range(len(best.theta)) if k != i]
        if _hardly_falls(state, i, 1 / np.sqrt(curvature), others, FALL / 10) or _hardly_falls(
            state, i, error, state.boundaries, NO_FALL
        ):
            away.append(i)
    return away


def _hardly_falls(
    state: FitState, index: int, error: float, fixed: Collection[int], fall: float
) -> bool:
    """Whether two standard errors to one side the likelihood is all but as high.

    Args:
        state: with the maximum.
        index: of a parameter.
        error: its standard error.
        fixed: the others that do not follow.
        fall: less is none; a quadratic's is 2.
    """
    if state.maximum is None:
        return False
    for side in (-2.0, 2.0):
        there = value_elsewhere(state.maximum, index, side * error, fixed)
        # A model that is not finite two standard errors away has no such standard error.
        if not np.isfinite(there) or there > state.maximum.best.local.value - fall:
            return True
    return False


def rises_for_ever(state: FitState) -> bool:
    """Whether a likelihood that Newton's method could not climb to its top rises on and on."""
    if state.maximum is None or state.maximum.best.settled:
        return False
    best, function = state.maximum.best, state.maximum.function
    step = best.step(function.lengths)
    values = [best.local.value]
    for times in FAR:
        values.append(function.value_at(best.theta + times * step, best.local.extra))
    finite = np.array(values)[np.isfinite(values)]
    return len(finite) > 1 and bool(np.all(np.diff(finite) >= -1e-6))


def blind_to_sign(problem: Problem, state: FitState) -> tuple[str, ...]:
    """Negative parameters, free to have any sign, whose sign the likelihood does not see."""
    if state.maximum is None:
        return ()
    best, function = state.maximum.best, state.maximum.function
    names, blind = unconstrained_names(problem), []
    here = None
    for i, (transform, _) in enumerate(transform_of_each(problem)):
        if transform is not identity or not best.theta[i] < 0:
            continue
        if not -best.local.hessian[i, i] * best.theta[i] ** 2 > 1:
            continue  # too near to 0 to tell its sign from the other
        here = function.value_at(best.theta, best.local.extra) if here is None else here
        flipped = best.theta.copy()
        flipped[i] = -flipped[i]
        there = function.value_at(flipped, best.local.extra)
        if np.isfinite(there) and abs(there - here) <= 1e-9 * (1 + abs(here)):
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
    # Of the others it is known already that nothing is known, or that they are at a boundary.
    some = np.array([i for i in np.flatnonzero(scale > 0) if i not in state.boundaries], int)
    if len(some) == 0:
        return state
    size, w, v = scaled_eigen(state.information[np.ix_(some, some)])
    doubtful = np.flatnonzero(w < HARDLY_DETERMINED)
    if len(doubtful) == 0:
        return state
    here = function.value_at(best.theta, best.local.extra)
    tested = w.copy()
    for k in doubtful:
        move = np.zeros(len(scale))
        move[some] = v[:, k] / size * 2 / np.sqrt(max(w[k], 1e-14))
        sides = [function.value_at(best.theta + side * move, best.local.extra) for side in (-1, 1)]
        falls = [here - value if np.isfinite(value) else 0.0 for value in sides]
        tested[k] = max(w[k], 1e-14) if min(falls) > FALL / 10 else 0.0
    information = state.information.copy()
    information[np.ix_(some, some)] = (v * tested) @ v.T * np.outer(size, size)
    return state._replace(information=information)


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

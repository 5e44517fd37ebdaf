"""Parameters without an inner maximum of the likelihood, and groups that are not independent."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax._core.processes import whole
from marginax.fitting.fit_state import FitState
from marginax.model.groups import interacting
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.model.transforms import Transform, identity
from marginax.model.transforms.base import Limits
from marginax.model.transforms.trees import is_transform
from marginax.running.result import Run

__all__ = ["at_boundary", "interacting_groups", "runaways"]

LARGE_ERROR = 4.0  # a standard error on the reals that deserves a second look


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
    on_the_reals = [one is identity for one, _ in _transform_of_each(problem)]
    away: list[int] = []
    here = None
    for i in np.flatnonzero(on_the_reals & (curvature > 0) & (curvature < 1 / LARGE_ERROR**2)):
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

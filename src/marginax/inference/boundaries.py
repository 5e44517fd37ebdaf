"""Where the likelihood has no inner maximum in a parameter, and where groups are not alone."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax.bijections import Bijection, identity
from marginax.constraints import is_map
from marginax.groups import interacting
from marginax.inference.findings import Findings
from marginax.natural import free_names
from marginax.problem import Problem
from marginax.processes import whole
from marginax.result import Run

__all__ = ["edges", "entangled", "runaways"]

LARGE_ERROR = 4.0  # a standard error on the reals that deserves a second look


def edges(problem: Problem, found: Findings) -> dict[int, str]:
    """Constrained parameters whose likelihood is no lower at the edge of what is allowed."""
    if found.polished is None:
        return {}
    best, likelihood = found.polished.best, found.polished.likelihood
    owner = _owners(problem)
    extra = best.local.extra
    at_edge: dict[int, str] = {}
    here = None
    for i, name in enumerate(free_names(problem)):
        to = owner[i]
        # A standard error below 2 on the reals is far from any edge.
        if to is identity or -best.local.hessian[i, i] > 0.25:
            continue
        here = likelihood.evaluate(best.theta, extra) if here is None else here
        high = {}  # the ends at which the likelihood is as high, and how high
        for side, end in _ends(to):
            moved = best.theta.copy()
            moved[i] += 4 * side
            there = likelihood.evaluate(moved, extra).value
            # Where the numbers end, a finite edge is not far either.
            if there > here.value - 1e-3 or not (np.isfinite(there) or end == "infinity"):
                high[end] = there if np.isfinite(there) else -np.inf
        if high:
            where = max(high, key=lambda end: high[end])
            at_edge[i] = (
                f"{name} is at the boundary: the likelihood is as high at {where}. It has no "
                "standard error, the others' are with it fixed there, and a likelihood-ratio "
                "test of it is conservative."
            )
    return at_edge


def runaways(problem: Problem, found: Findings) -> list[int]:
    """Unconstrained parameters along which the likelihood hardly falls to one side.

    A log standard deviation whose maximum is at -infinity, or a slope under separation, may come to
    rest with a little curvature left, which would make a standard error of thousands. Where the
    likelihood does not fall as that curvature says, there is none.
    """
    if found.polished is None:
        return []
    best, likelihood = found.polished.best, found.polished.likelihood
    curvature = -np.diag(best.local.hessian)
    free = [to is identity for to in _owners(problem)]
    away: list[int] = []
    here = None
    for i in np.flatnonzero(free & (curvature > 0) & (curvature < 1 / LARGE_ERROR**2)):
        here = likelihood.evaluate(best.theta, best.local.extra) if here is None else here
        for side in (-2.0, 2.0):
            moved = best.theta.copy()
            moved[i] += side / np.sqrt(curvature[i])
            there = likelihood.evaluate(moved, best.local.extra).value
            # A quadratic would have fallen by 2; and a model that is not finite two standard errors
            # away has no such standard error.
            if not np.isfinite(there) or there > here.value - 0.2:
                away.append(int(i))
                break
    return away


def entangled(problem: Problem, ran: Run, found: Findings) -> int:
    """How many groups of a log joint of all groups at once are not alone where the particles are.

    Such a log joint was looked at where the problem starts; here is where it matters.
    """
    if problem.group_log_joints is None:
        return 0
    _, unravel = ravel_pytree(problem.start_theta())
    theta, find = unravel(jnp.asarray(found.theta)), interacting(problem.free_group_log_joints)
    clouds = jax.tree.map(lambda leaf: jnp.asarray(whole(leaf[found.start]), float), ran.particles)
    wrong: set[int] = set()
    for i in range(min(4, jax.tree.leaves(clouds)[0].shape[0])):
        latent = jax.tree.map(lambda leaf, i=i: leaf[i], clouds)
        wrong |= set(find(theta, latent, problem.data).tolist())
    return len(wrong)


def _ends(to: Bijection) -> tuple[tuple[float, str], tuple[float, str]]:
    """The two ways on the reals, and what they lead to."""
    if to.name == "positive":
        return (-1.0, "0"), (1.0, "infinity")
    where = "-1 or 1" if to.name.startswith("correlation") else f"an end of its {to.name}"
    return (-1.0, where), (1.0, where)


def _owners(problem: Problem) -> list[Bijection]:
    """The bijection of every free number."""
    maps = jax.tree.leaves(problem.constrain_theta, is_leaf=is_map)
    leaves = jax.tree.leaves(problem.start_theta())
    return [to for to, leaf in zip(maps, leaves, strict=True) for _ in range(leaf.size)]

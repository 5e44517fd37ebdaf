"""Every reason to doubt a fit, in sentences."""

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path

from marginax.bijections import Bijection, identity
from marginax.inference.likelihood import Evidence, Likelihood
from marginax.inference.newton import Climb
from marginax.problem import Problem, path_name
from marginax.result import Run

__all__ = ["doubts", "free_names", "unbounded"]


def doubts(
    problem: Problem,
    ran: Run,
    climbs: list[Climb],
    best: Climb | None,
    likelihood: Likelihood | None,
    evidence: Evidence | None,
) -> tuple[str, ...]:
    """What the summary has to say beside the numbers."""
    found: list[str] = []
    if best is None:
        if not ran.converged:
            found.append(f"The particles did not come to rest: {ran.reason}")
        if ran.cloud is not None and not ran.cloud.ok:
            found += ran.cloud.warnings
        found.append("There are no standard errors: the likelihood itself was not computed.")
        return tuple(found)
    edges = at_the_edge(problem, best, likelihood)
    if not best.settled and not edges:
        found.append(
            "The likelihood still rises slowly where Newton's method gave up: the maximum may be "
            "at infinity (separation, or a parameter the data say nothing about)."
        )
    found += edges
    names = free_names(problem)
    flat = [
        name for name, loose in zip(names, unbounded(-best.local.hessian), strict=True) if loose
    ]
    if flat:
        found.append(
            f"The likelihood is flat in {', '.join(flat)}: the data do not determine "
            f"{'it' if len(flat) == 1 else 'them'}, or the maximum is at infinity (separation). "
            "The standard errors are unbounded."
        )
    found += _other_maxima(climbs, best)
    if evidence is not None:
        found += _evidence(evidence)
    return tuple(found)


def free_names(problem: Problem) -> tuple[str, ...]:
    """A name for every free number of theta."""
    names = []
    for path, leaf in tree_flatten_with_path(problem.start_theta())[0]:
        base = path_name(path)
        names += [base] if leaf.ndim == 0 else [f"{base}[{i}]" for i in range(leaf.size)]
    return tuple(names)


def unbounded(information: np.ndarray) -> np.ndarray:
    """Which coordinates have a share in a direction without information."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-300))
    w, v = np.linalg.eigh(information / np.outer(scale, scale))
    loose = w < 1e-7
    share = np.sum((v[:, loose] / scale[:, None]) ** 2, axis=1)
    largest = share.max(initial=0.0)
    return share > 1e-6 * largest if largest > 0 else np.zeros(len(scale), bool)


def at_the_edge(problem: Problem, best: Climb, likelihood: Likelihood | None) -> list[str]:
    """Constrained parameters whose likelihood is no lower at the edge of what is allowed."""
    found: list[str] = []
    if likelihood is None:
        return found
    maps = jax.tree.leaves(problem.constrain_theta, is_leaf=lambda m: isinstance(m, Bijection))
    leaves = jax.tree.leaves(problem.start_theta())
    owner = np.repeat(np.arange(len(leaves)), [leaf.size for leaf in leaves])
    names = free_names(problem)
    for i, name in enumerate(names):
        to = maps[owner[i]]
        if to is identity or to.name.startswith("correlation"):
            continue
        curvature = -best.local.hessian[i, i]
        if curvature > 0.25:  # a standard error below 2 on the reals: far from any edge
            continue
        ends = (-1.0,) if to.name == "positive" else (-1.0, 1.0)
        for side in ends:
            moved = best.theta.copy()
            moved[i] += 4 * side
            with jax.enable_x64(True):
                there = likelihood.evaluate(moved, best.local.extra)
            if there.value > best.local.value - 1e-3:
                where = "0" if to.name == "positive" else f"an end of its {to.name}"
                found.append(
                    f"{name} is at the boundary: the likelihood is as high at {where}. Its "
                    "standard error and interval mean nothing, and a likelihood-ratio test of it "
                    "is conservative."
                )
                break
    return found


def _other_maxima(climbs: list[Climb], best: Climb) -> list[str]:
    other = [
        found.local.value
        for found in climbs
        if found is not best
        and found.settled
        and not np.allclose(found.theta, best.theta, atol=0.02, rtol=0.02)
        and found.local.value < best.local.value - 1e-3
    ]
    if not other:
        return []
    values = ", ".join(f"{value:.2f}" for value in other)
    return [
        f"Starts disagree: other maxima have log likelihood {values} against "
        f"{best.local.value:.2f}. The best is reported; there may be a better one still."
    ]


def _evidence(evidence: Evidence) -> list[str]:
    found = []
    if evidence.pareto_k > 0.7:
        found.append(
            f"Importance sampling cannot be believed (Pareto k {evidence.pareto_k:.2f}, above "
            "0.7): the posterior is far from Gaussian."
        )
    elif evidence.effective_draws < 200:
        found.append(
            f"Importance sampling has only {evidence.effective_draws:.0f} effective draws; the "
            "estimate has a visible Monte Carlo error."
        )
    if np.isnan(evidence.pareto_k) and evidence.error > 0.05:
        found.append(
            f"Two quadrature rules differ by {evidence.error:.2g} in the log likelihood: the "
            "posteriors of the groups are far from Gaussian."
        )
    return found

"""How `fit` goes about very many groups: a sample first, batches then, and all of them few times.

1. starts: the likelihood of a sample of groups is climbed from every start.
2. particles: from the best of these tops, batches of groups (`run(..., batch=...)`).
3. polish: few Newton steps on the likelihood of all groups, with no more nodes than it needs.
4. the particles follow to the estimate, a batch after the other.
"""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from marginax import stopping
from marginax.base import Key, Particles, Theta
from marginax.checkpoint import Checkpoint
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb
from marginax.inference.polish import likelihood_of
from marginax.inference.quadrature import MOST_DIMENSIONS, ORDERS
from marginax.method_choice import by_batches
from marginax.minibatch import take_rows
from marginax.problem import Problem
from marginax.result import Run
from marginax.run import run

__all__ = [
    "TOO_MANY_DRAWS",
    "follow",
    "has_many_groups",
    "in_batches",
    "likelihood_of_all",
    "sample_of",
]

MANY = 50_000  # groups
SAMPLE = 2_000  # of them, for the starts
BATCH = 10_000
# Steps of a batch's particles alone before each step of theta, and at the end.
CATCH_UP, LAST_STEPS = 1, 6
FEWEST_EPOCHS = 2
TOO_MANY_DRAWS = (
    "There are no posterior draws: for so many groups they would not fit into memory. Posterior "
    "means and standard deviations are from the likelihood, and every group has its particles."
)
NEGLIGIBLE = 0.01  # standard errors by which fewer nodes may move the estimate


def has_many_groups(problem: Problem) -> bool:
    """Whether groups are so many, and can be taken apart."""
    return problem.group_log_joint is not None and (problem.num_groups or 0) > MANY


def sample_of(problem: Problem, key: Key) -> Problem:
    """The problem of some of the groups, taken at random."""
    num_groups = problem.num_groups or 0
    rows = np.sort(np.asarray(jax.random.choice(key, num_groups, (SAMPLE,), replace=False)))
    return problem.with_data(take_rows(problem.data, jnp.asarray(rows)))


def in_batches(
    problem: Problem,
    theta: Theta,
    cloud: Particles,
    key: Key,
    max_steps: int,
    *,
    checkpoint: str | Path | Checkpoint | None,
    progress: bool | None,
) -> Run:
    """A run over batches of groups from one start, for `FEWEST_EPOCHS` passes or more.

    theta then is a mean over steps, so that a batch's noise does not matter; the likelihood of all
    groups has the last word.
    """
    batch, num_batches = _batches(problem)
    steps = max(max_steps, FEWEST_EPOCHS * num_batches)
    ran = run(
        key,
        by_batches(problem),
        jax.tree.map(lambda leaf: leaf[0], theta),
        jax.tree.map(lambda leaf: leaf[0], cloud),
        problem.data,
        max_steps=steps,
        stop=_after(stopping.averaged(), FEWEST_EPOCHS * num_batches),
        batch=batch,
        catch_up=CATCH_UP,
        block_size=max(1, num_batches // 10),
        progress=progress,
        checkpoint=checkpoint,
        check_cloud=False,
    )
    return _as_lane(ran)


def follow(
    problem: Problem,
    ran: Run,
    theta: np.ndarray,
    key: Key,
    progress: bool | None,
) -> Run:
    """The same run with the particles of all groups carried to theta, flat and free."""
    batch, num_batches = _batches(problem)
    _, unravel = ravel_pytree(problem.start_theta())
    there = unravel(jnp.asarray(theta, ravel_pytree(ran.theta)[0].dtype))
    moved = run(
        key,
        by_batches(problem, optax.set_to_zero()),
        there,
        jax.tree.map(lambda leaf: leaf[0], ran.particles),
        problem.data,
        max_steps=num_batches,
        stop=stopping.never(),
        batch=batch,
        catch_up=LAST_STEPS,
        block_size=max(1, num_batches // 10),
        progress=progress,
        check_cloud=False,
    )
    lane = _as_lane(replace(moved, theta=there))
    after = replace(ran, theta=lane.theta, particles=lane.particles, state=lane.state)
    if moved.status == "max_steps":  # as it should: every batch once
        return after
    reason = f"On the way to the estimate: {moved.reason}"
    return replace(
        after, status=moved.status, reason=reason, statuses=(moved.status,), reasons=(reason,)
    )


def likelihood_of_all(problem: Problem, few: Problem, top: Climb) -> Likelihood | None:
    """The likelihood of all groups, climbed by as few nodes as a sample of the groups allows.

    Args:
        problem: in double precision.
        few: the sample, likewise.
        top: of the sample's likelihood with the usual nodes.
    """
    size = problem.latent_size
    if size > MOST_DIMENSIONS:
        return likelihood_of(problem, top.theta)
    covariance = np.linalg.pinv(-top.local.hessian)
    errors = np.sqrt(np.abs(np.diag(covariance)) * few.num_groups / problem.num_groups)
    usual = quadrature_likelihood(problem)
    for order in range(5, ORDERS[size], 2):
        there = quadrature_likelihood(few, order=order).evaluate(top.theta, top.local.extra)
        moved = covariance @ (there.gradient - top.local.gradient)
        if np.all(np.abs(moved) < NEGLIGIBLE * errors):
            # Few nodes place the maximum; what the likelihood is there, all of them say, once: a
            # small error in every group is a large one in the sum of very many.
            return quadrature_likelihood(problem, order=order)._replace(describe=usual.describe)
    return usual


def _batches(problem: Problem) -> tuple[int, int]:
    """The size of a batch and how many there are; a few groups may be left out of a pass."""
    num_groups = problem.num_groups or 0
    num_batches = -(-num_groups // BATCH)
    return num_groups // num_batches, num_batches


def _after(rule: stopping.StoppingRule, num_steps: int) -> stopping.StoppingRule:
    """The rule, but not before so many steps."""

    def check(blocks: stopping.Blocks) -> stopping.Verdict | None:
        return rule.check(blocks) if blocks.steps.sum() >= num_steps else None

    return stopping.StoppingRule(check, rule.tolerance)


def _as_lane(ran: Run) -> Run:
    """The run as one of one start."""
    parts = {
        name: jax.tree.map(lambda leaf: leaf[None], getattr(ran, name))
        for name in ("theta", "particles", "state", "history")
    }
    return replace(ran, **parts)

"""Strategies: how a fit goes about few groups, and how about very many.

    up to 6,000 groups      starts are climbed on all groups
    more                    on a sample of 2,000; then few steps on the likelihood of all
    up to 50,000 groups     the particles of all groups move at every step
    more                    batches of groups; then the particles of all follow to the estimate

Very many groups on a mesh are spread over its devices and move at once. A strategy is chosen once,
by `choose_strategy`, and `fit` asks it instead of asking how many groups there are.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from marginax._core.trees import unraveler
from marginax.fitting.plan import NARROW, Plan
from marginax.model.problem import Problem
from marginax.running import stopping
from marginax.running.checkpoints import Checkpoint
from marginax.running.result import Run
from marginax.running.runner import run
from marginax.typing import Key, Particles, Theta

__all__ = ["RunOptions", "Strategy", "choose_strategy", "sample_of"]

MANY_STARTS = 6_000  # groups from which on starts are climbed on a sample
SAMPLE = 2_000  # of them
MANY = 50_000  # groups from which on the particles move in batches
BATCH = 10_000
# Steps of a batch's particles alone before each step of theta, and at the end.
WARMUP_STEPS, LAST_STEPS = 1, 6
FEWEST_EPOCHS = 2
TOO_MANY_DRAWS = (
    "There are no posterior draws: for this many groups they would not fit into memory. Posterior "
    "means and standard deviations are from the likelihood, and every group has its particles."
)


class RunOptions(NamedTuple):
    """What the user said of the particles' run.

    Attributes:
        max_steps: the most steps.
        checkpoint: a folder, or a `Checkpoint`.
        progress: whether to show a bar.
        mesh: of devices, if any.
        tolerance: what theta must have come to rest within; None for the rule's own.
    """

    max_steps: int
    checkpoint: str | Path | Checkpoint | None = None
    progress: bool | None = None
    mesh: Mesh | None = None
    tolerance: float | None = None


class Strategy(NamedTuple):
    """How a fit goes about the groups of its problem.

    Attributes:
        sample: the problem of some groups, for the starts; None if they are climbed on all.
        run_particles: `run_particles(thetas, cloud, key, options)`, from all starts (flat, a row
            each), to rest.
        follow: `follow(run, theta, key, options)`, the particles carried to the estimate; None
            where they are there already.
        most_starts: from how many tops the particles start; None for all.
        width: of the clouds at a top, in units of the posteriors.
        words: what the method's description adds.
        no_draws: why there are no posterior draws, in a sentence; empty if there are.
    """

    sample: Problem | None
    run_particles: Callable[[np.ndarray, Particles, Key, RunOptions], Run]
    follow: Callable[[Run, np.ndarray, Key, RunOptions], Run] | None = None
    most_starts: int | None = None
    width: float = NARROW
    words: str = ""
    no_draws: str = ""


def choose_strategy(problem: Problem, plan: Plan, key: Key, mesh: Mesh | None) -> Strategy:
    """The strategy for a problem.

    Args:
        problem: with groups or without.
        plan: what runs.
        key: for the sample.
        mesh: of devices, if any.
    """
    can_be_taken_apart = problem.group_log_joint is not None
    num_groups = (problem.num_groups or 0) if can_be_taken_apart else 0
    sample = sample_of(problem, key) if num_groups > MANY_STARTS else None
    if num_groups <= MANY:
        return Strategy(sample, partial(_all_at_once, problem, plan))
    if mesh is not None:
        words = f", all groups at once on {mesh.size} device{'s' * (mesh.size > 1)}"
        return Strategy(sample, partial(_all_at_once, problem, plan), words=words)
    return Strategy(
        sample,
        partial(_in_batches, problem, plan),
        partial(_follow, problem, plan),
        most_starts=1,
        width=1.0,
        words=", in batches",
        no_draws=TOO_MANY_DRAWS,
    )


def sample_of(problem: Problem, key: Key) -> Problem:
    """The problem of some of the groups, taken at random."""
    num_groups = problem.num_groups or 0
    rows = np.sort(np.asarray(jax.random.choice(key, num_groups, (SAMPLE,), replace=False)))
    return problem.with_groups(rows)


def _all_at_once(
    problem: Problem,
    plan: Plan,
    thetas: np.ndarray,
    cloud: Particles,
    key: Key,
    options: RunOptions,
) -> Run:
    """A run of the particles of all groups, and of the plan's second algorithm if it has one."""
    run_all = partial(
        run,
        data=problem.data,
        key=key,
        num_starts=len(thetas),
        progress=options.progress,
        mesh=options.mesh,
    )
    loose = options.tolerance is not None
    ran = run_all(
        plan.algorithm,
        _as_trees(problem, thetas),
        cloud,
        max_steps=options.max_steps,
        stop=_within(plan, options.tolerance),
        checkpoint=options.checkpoint,
        diagnose=not loose,  # otherwise the likelihood judges
    )
    if plan.then is None or "interrupted" in ran.statuses:
        return ran
    try:
        return run_all(
            plan.then(*jax.tree.map(lambda leaf: leaf[0], (ran.theta, ran.particles))),
            ran.theta,
            ran.particles,
            max_steps=4 * options.max_steps,
            checkpoint=_folder_within(options.checkpoint),
        )
    except KeyboardInterrupt:
        reason = "Ctrl-C before the second run's first step: this is the end of the first."
        each = len(thetas)
        return replace(
            ran,
            status="interrupted",
            reason=reason,
            statuses=("interrupted",) * each,
            reasons=(reason,) * each,
        )


def _within(plan: Plan, tolerance: float | None) -> stopping.StoppingRule | None:
    if tolerance is None or plan.algorithm.stochastic:
        return None
    return stopping.settled(tolerance)


def _folder_within(checkpoint: str | Path | Checkpoint | None) -> Checkpoint | None:
    """A folder of its own, within the first run's, for the run that goes on from it."""
    if checkpoint is None:
        return None
    first = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return replace(first, directory=Path(first.directory) / "then")


def _in_batches(
    problem: Problem,
    plan: Plan,
    thetas: np.ndarray,
    cloud: Particles,
    key: Key,
    options: RunOptions,
) -> Run:
    """A run over batches of groups, for `FEWEST_EPOCHS` passes or more.

    theta then is a mean over steps, so that a batch's noise does not matter; the likelihood of all
    groups has the last word.
    """
    batch_size, num_batches = _batches(problem)
    fewest = FEWEST_EPOCHS * num_batches
    return run(
        plan.in_batches,
        _as_trees(problem, thetas),
        cloud,
        problem.data,
        key=key,
        max_steps=max(options.max_steps, fewest),
        stop=_after(stopping.averaged(), fewest),
        batch_size=batch_size,
        group_warmup_steps=WARMUP_STEPS,
        num_starts=1,
        block_size=max(1, num_batches // 10),
        progress=options.progress,
        checkpoint=options.checkpoint,
        diagnose=False,
    )


def _follow(
    problem: Problem, plan: Plan, ran: Run, theta: np.ndarray, key: Key, options: RunOptions
) -> Run:
    """The same run with the particles of all groups carried to theta, flat on the reals."""
    batch_size, num_batches = _batches(problem)
    there = _as_trees(problem, theta[None])
    moved = run(
        plan.held,
        there,
        ran.particles,
        problem.data,
        key=key,
        max_steps=num_batches,
        stop=stopping.never(),
        batch_size=batch_size,
        group_warmup_steps=LAST_STEPS,
        num_starts=1,
        block_size=max(1, num_batches // 10),
        progress=options.progress,
        diagnose=False,
    )
    after = replace(ran, theta=there, particles=moved.particles, state=moved.state)
    if moved.status == "max_steps":  # as it should: every batch once
        return after
    reason = f"On the way to the estimate: {moved.reason}"
    return replace(
        after, status=moved.status, reason=reason, statuses=(moved.status,), reasons=(reason,)
    )


def _as_trees(problem: Problem, thetas: np.ndarray) -> Theta:
    """Flat starts as trees like theta, with a leading axis over them."""
    unravel = unraveler(jax.eval_shape(problem.start_theta))
    return jax.tree.map(lambda *rows: np.stack(rows), *map(unravel, thetas))


def _batches(problem: Problem) -> tuple[int, int]:
    """The size of a batch and how many there are; a few groups may be left out of a pass."""
    num_groups = problem.num_groups or 0
    num_batches = -(-num_groups // BATCH)
    return num_groups // num_batches, num_batches


def _after(rule: stopping.StoppingRule, num_steps: int) -> stopping.StoppingRule:
    """The rule, but not before this many steps."""

    def check(blocks: stopping.Blocks) -> stopping.Verdict | None:
        return rule.check(blocks) if blocks.steps.sum() >= num_steps else None

    return stopping.StoppingRule(check, rule.tolerance)

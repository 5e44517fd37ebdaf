"""What happens when a block runs away: back with half the step, or the last finite state."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marginax.algorithms.contract import Algorithm
from marginax.running.start_log import DIVERGED, NONFINITE, StartLog
from marginax.running.steps import Block
from marginax.running.stopping import Verdict

__all__ = [
    "MAX_BACKTRACKS",
    "RUNAWAY",
    "Guarded",
    "backtracking_words",
    "failure",
    "guarded_block",
    "reset_at_rest",
]

MAX_BACKTRACKS = 8
# An iterate this many times larger than it started (or than 1) has run away.
RUNAWAY = 1e8


# `run_block(steps)` runs a block from where the log stands: the block, and its size in every start.
# With `first=True` it is the block that was launched already.
RunBlock = Callable[..., tuple[Block, np.ndarray]]


class Guarded(NamedTuple):
    """A block, and what became of the starts in which it ran away.

    Attributes:
        block: with the state that every start goes on from.
        steps: how many steps each start took: 0 where it went back.
        factor: the new step factors.
        failed: which starts had to give up, as `StartLog.failed` has it.
    """

    block: Block
    steps: np.ndarray
    factor: np.ndarray
    failed: np.ndarray


def guarded_block(
    run_block: RunBlock,
    reset: Callable[[np.ndarray], Any] | None,
    log: StartLog,
    steps: np.ndarray,
    start_size: np.ndarray,
) -> Guarded:
    """One block; starts in which it ran away go back with half the step, or give up.

    Args:
        run_block: runs a block from where the log stands.
        reset: `reset(factor)`, the state where the log stands without its momentum; None where
            steps may not be halved.
        log: of the run so far.
        steps: how many steps each start is to take.
        start_size: the largest absolute value each start began with.
    """
    block, size = run_block(steps, first=True)
    limit = RUNAWAY * np.maximum(1.0, start_size)
    # NaN is bad too; a start that has ended may stand far out for good.
    bad = (steps > 0) & ~(size < limit)
    if not np.any(bad):
        return Guarded(block, steps, log.factor, log.failed)

    retry = bad & (reset is not None) & (log.factor > 0.5**MAX_BACKTRACKS)
    give_up = bad & ~retry
    failed = log.failed
    if np.any(give_up):
        steps = _last_finite_step(run_block, steps, give_up, size)
        block, size = run_block(steps)
        ran_away = size > 1e3 * np.maximum(1.0, start_size)
        failed = np.where(give_up, np.where(ran_away, DIVERGED, NONFINITE), failed)
    if reset is not None and np.any(retry):
        at_rest = reset(log.factor / 2)
        block = block._replace(state=_choose(retry, at_rest, block.state))
    factor = np.where(retry, log.factor / 2, log.factor)
    return Guarded(block, np.where(retry, 0, steps), factor, failed)


def _choose(take_new: np.ndarray, new: Any, old: Any) -> Any:
    """Start by start, the new device state or the old one."""
    mask = jnp.asarray(take_new)
    return jax.tree.map(
        lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b), new, old
    )


def _last_finite_step(
    run_block: RunBlock, steps: np.ndarray, give_up: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """How many steps each failing start can take before something is not finite, by bisection."""
    finite, not_finite = np.where(give_up & ~np.isfinite(size), 0, steps), steps
    while np.any(not_finite - finite > 1):
        middle = (finite + not_finite) // 2
        is_finite = np.isfinite(run_block(middle)[1])
        finite = np.where(is_finite, middle, finite)
        not_finite = np.where(is_finite, not_finite, middle)
    return finite


def failure(log: StartLog, start: int) -> Verdict:
    """The verdict on a start that had to give up."""
    ran_away = log.failed[start] == DIVERGED
    what = (
        "theta or the particles ran away"
        if ran_away
        else "log_joint or its gradient became NaN or infinite"
    )
    return Verdict(
        "diverged" if ran_away else "nonfinite",
        f"After step {log.num_steps[start]} {what}; this is the last finite state."
        f"{backtracking_words(log, start)} Take a smaller step, or start closer.",
    )


def backtracking_words(log: StartLog, start: int) -> str:
    """How often the step was halved, as a sentence to append; empty if never."""
    halvings = round(-np.log2(log.factor[start]))
    if halvings == 0:
        return ""
    times = "once" if halvings == 1 else f"{halvings} times"
    return f" The step was halved {times} because larger ones diverged."


def reset_at_rest(
    algorithm: Algorithm, init: Callable[..., Any], keys: Any, state: Any, factor: np.ndarray
) -> Any:
    """The state at rest: what the algorithm declares in `reset_on_backtrack` as at a start."""
    backtracks = round(-np.log2(float(np.min(factor))))  # a fresh key for every backtrack
    fold = partial(jax.random.fold_in, data=backtracks)
    fresh = init(jax.vmap(fold)(keys), state.theta, state.particles)
    at_rest = {name: getattr(fresh, name) for name in algorithm.reset_on_backtrack}
    return state._replace(**at_rest)

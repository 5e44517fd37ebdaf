"""What happens when a block runs away: back with half the step, or the last finite state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from marginax.block import Block
from marginax.lanes import DIVERGED, NONFINITE, Lanes, choose
from marginax.stopping import Verdict

__all__ = [
    "MAX_BACKTRACKS",
    "RUNAWAY",
    "backtracking_words",
    "failure",
    "guarded_block",
    "reset_momentum",
]

MAX_BACKTRACKS = 8
# An iterate this many times larger than it started (or than 1) has run away.
RUNAWAY = 1e8


def guarded_block(
    call: Callable[..., tuple[Block, np.ndarray]],
    reset: Callable[[np.ndarray], Any],
    lanes: Lanes,
    steps: np.ndarray,
    start_size: np.ndarray,
    restarts: int | None,
    may_backtrack: bool,
) -> tuple[Block, np.ndarray, np.ndarray, np.ndarray]:
    """A block, and what becomes of the lanes in which it ran away.

    Args:
        call: runs so many steps in each lane from where the lanes stand; the Block and its size.
        reset: the state where the lanes stand, without its momentum.
        lanes: the book so far.
        steps: how many steps each lane is to take.
        start_size: the largest absolute value each lane started with.
        restarts: as given to `run`.
        may_backtrack: whether steps may be halved.

    Returns:
        The block, the steps each lane took (0 where it went back), the new step factors, and which
        lanes had to give up, as `Lanes.failed` has it.
    """
    block, size = call(steps, first=True)
    limit = RUNAWAY * np.maximum(1.0, start_size)
    # NaN is bad too; a lane that has ended may stand far out for good.
    bad = (steps > 0) & ~(size < limit)
    if not np.any(bad):
        return block, steps, lanes.factor, lanes.failed

    retry = bad & may_backtrack & (lanes.factor > 0.5**MAX_BACKTRACKS)
    give_up = bad & ~retry
    failed = lanes.failed
    if np.any(give_up):
        steps = _last_finite_step(call, steps, give_up, size)
        block, size = call(steps)
        ran_away = size > 1e3 * np.maximum(1.0, start_size)
        failed = np.where(give_up, np.where(ran_away, DIVERGED, NONFINITE), failed)
    if np.any(retry):
        at_rest = reset(lanes.factor / 2)
        block = block._replace(state=choose(~retry, block.state, at_rest, restarts))
    factor = np.where(retry, lanes.factor / 2, lanes.factor)
    return block, np.where(retry, 0, steps), factor, failed


def _last_finite_step(
    call: Callable[[np.ndarray], tuple[Block, np.ndarray]],
    steps: np.ndarray,
    give_up: np.ndarray,
    size: np.ndarray,
) -> np.ndarray:
    """How many steps each failing lane can take before something is not finite, by bisection."""
    finite, not_finite = np.where(give_up & ~np.isfinite(size), 0, steps), steps
    while np.any(not_finite - finite > 1):
        middle = (finite + not_finite) // 2
        is_finite = np.isfinite(call(middle)[1])
        finite = np.where(is_finite, middle, finite)
        not_finite = np.where(is_finite, not_finite, middle)
    return finite


def failure(lanes: Lanes, lane: int) -> Verdict:
    """The verdict on a lane that had to give up."""
    ran_away = lanes.failed[lane] == DIVERGED
    what = (
        "theta or the particles ran away"
        if ran_away
        else "log_joint or its gradient became NaN or infinite"
    )
    return Verdict(
        "diverged" if ran_away else "nonfinite",
        f"After step {lanes.num_steps[lane]} {what}; this is the last finite state."
        f"{backtracking_words(lanes, lane)} Take a smaller step, or start closer.",
    )


def backtracking_words(lanes: Lanes, lane: int) -> str:
    """How often the step was halved, as a sentence to append; empty if never."""
    halvings = round(-np.log2(lanes.factor[lane]))
    if halvings == 0:
        return ""
    times = "once" if halvings == 1 else f"{halvings} times"
    return f" The step was halved {times} because larger ones diverged."


def reset_momentum(
    init: Callable[..., Any], init_key: Any, restarts: int | None, state: Any, factor: np.ndarray
) -> Any:
    """The state at rest: look-aheads at the iterates, momenta and velocities as at a start."""
    backtracks = round(-np.log2(float(np.min(factor))))  # a fresh key for every backtrack
    fold = partial(jax.random.fold_in, data=backtracks)
    fresh = init(fold(init_key) if restarts is None else jax.vmap(fold)(init_key), *state[:2])
    at_rest = {
        name: getattr(fresh, name)
        for name in state._fields
        if "momentum" in name or name.endswith(("_ahead", "_velocity"))
    }
    return state._replace(**at_rest)

"""The loop over blocks on the host: judge, report, save, and go on until every lane has ended."""

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marginax.base import Data
from marginax.block import Block, BlockSummary, magnitude, unpack
from marginax.checkpoint import Checkpoint, CheckpointError, Store
from marginax.divergence import backtracking_words, failure, guarded_block
from marginax.lanes import Lanes, append, blocks_of, on_host, trim
from marginax.processes import agreed
from marginax.progress import Report, show
from marginax.stopping import StoppingRule, Verdict

__all__ = ["Setup", "device_counts", "drive", "sizes"]


class Setup(NamedTuple):
    """What does not change during a run."""

    call: Callable[..., Block]  # (state, data, first_step, num_steps, factor) -> Block
    reset: Callable[[Any, np.ndarray], Any]
    data: Data
    start_size: np.ndarray  # of every lane, when the run began and not when it was resumed
    stop: StoppingRule
    max_steps: int
    block_size: int
    restarts: int | None
    may_backtrack: bool
    is_averaged: bool
    callback: Callable[[Report], bool | None] | None
    checkpoint: Checkpoint | None
    together: bool = False  # whether several processes take part, which must decide alike


def drive(
    setup: Setup,
    state: Any,
    lanes: Lanes,
    store: Store | None,
    bar: Any,
    timings: dict[str, float],
    pressed: list[int],
) -> tuple[Any, Lanes, list[Verdict]]:
    """The loop over blocks, until every lane has ended or `pressed` says that Ctrl-C was."""
    together = setup.together
    began, seconds_before = agreed(together, time.perf_counter())[0], float(lanes.seconds)
    endings = _judge(setup, lanes, [_RUNNING] * len(lanes.num_steps))
    last_save = last_read = began
    block_seconds, stopped = 0.0, False
    ahead: Block | None = None  # launched before the block before it was judged
    try:
        while _RUNNING in endings:
            if stopped or (pressed and not together):
                raise KeyboardInterrupt
            steps = _next_steps(setup, lanes.num_steps, endings)
            launched = ahead
            if launched is None:
                launched = _launch(setup, state, lanes.num_steps, steps, lanes.factor)
            # While the host reads a short block, the device may already go on with the next one; if
            # the run then stops or backtracks, that one is thrown away.
            ahead = None
            if block_seconds < _SHORT_BLOCK:
                ahead = _look_ahead(setup, launched, lanes, steps, endings)
            block, steps, factor, failed = guarded_block(
                partial(_call, setup, state, lanes, launched),
                partial(setup.reset, state),
                lanes,
                steps,
                setup.start_size,
                setup.restarts,
                setup.may_backtrack,
            )
            busy, stopped = store is not None and store.is_busy(), bool(pressed)
            now, busy, stopped = agreed(together, time.perf_counter(), busy, stopped)
            last_read, block_seconds = now, now - last_read
            if np.any(factor != lanes.factor):
                ahead = None
            timings.setdefault("first_block", now - began)
            # One assignment, so that Ctrl-C finds state and book either before or after the block.
            state, lanes = (
                block.state,
                append(
                    lanes, block.summary, block.record, steps, seconds_before + now - began
                )._replace(factor=factor, failed=failed),
            )
            before, endings = endings, _judge(setup, lanes, endings)
            ahead = ahead if before == endings else None
            report = _report(lanes, unpack(block.summary), endings)
            show(bar, report)
            asked = setup.callback is not None and bool(setup.callback(report))
            if setup.callback is not None and agreed(together, 0.0, asked)[1]:
                endings = _end_all(endings, "The callback asked to stop.")
            due = setup.checkpoint and now - last_save >= setup.checkpoint.every_seconds
            if store is not None and due and not busy:
                _save(store, state, lanes)
                last_save = now
    except KeyboardInterrupt:
        endings = _end_all(endings, "Ctrl-C: this is where it stood after the last whole block.")
    except CheckpointError as error:
        store = None
        warnings.warn(str(error), stacklevel=3)
        endings = _end_all(endings, f"{error} The result is here, in memory.")
    except Exception:
        # Not with others: one of them may be lost, and closing would wait for it.
        if store is not None and not together:
            with suppress(CheckpointError):
                store.close()
        raise
    if store is not None:
        try:
            if lanes.num_blocks.any():  # an orbax folder without a step would not be read again
                _save(store, state, lanes)
            store.close()
        except CheckpointError as error:
            warnings.warn(f"{error} The result is here, in memory.", stacklevel=3)
    return state, lanes, endings


_RUNNING = Verdict("running", "")


def _judge(setup: Setup, lanes: Lanes, endings: list[Verdict]) -> list[Verdict]:
    """Asks the stopping rule about every lane that still runs."""

    def ending(lane: int) -> Verdict:
        if lanes.failed[lane]:
            return failure(lanes, lane)
        verdict = setup.stop.check(blocks_of(lanes, lane))
        if verdict is None and lanes.num_steps[lane] >= setup.max_steps:
            verdict = Verdict(
                "max_steps",
                f"All {setup.max_steps} steps were taken before the stopping rule fired: allow "
                "more, or look at the history to see whether theta still moves.",
            )
        if verdict is None:
            return _RUNNING
        return Verdict(verdict.status, verdict.reason + backtracking_words(lanes, lane))

    return [ending(lane) if known is _RUNNING else known for lane, known in enumerate(endings)]


def _end_all(endings: list[Verdict], reason: str) -> list[Verdict]:
    return [Verdict("interrupted", reason) if e is _RUNNING else e for e in endings]


def _report(lanes: Lanes, summary: BlockSummary, endings: list[Verdict]) -> Report:
    return Report(
        num_steps=int(lanes.num_steps.max()),
        seconds=float(lanes.seconds),
        theta=np.asarray(summary.theta_mean),
        velocity=np.asarray(summary.velocity),
        theta_score=np.max(np.abs(summary.theta_score), axis=1, initial=0.0),
        factor=lanes.factor,
        statuses=tuple(ending.status for ending in endings),
    )


def _save(store: Store, state: Any, lanes: Lanes) -> None:
    store.save(int(lanes.num_steps.sum()), (state, trim(lanes, int(lanes.num_blocks.max()))))


# A block shorter than this (in seconds) is worth launching ahead; a longer one hides the host
# anyway.
_SHORT_BLOCK = 0.05


def _next_steps(setup: Setup, done: np.ndarray, endings: list[Verdict]) -> np.ndarray:
    active = np.array([ending is _RUNNING for ending in endings])
    return np.where(active, np.minimum(setup.block_size, setup.max_steps - done), 0)


def _look_ahead(
    setup: Setup, launched: Block, lanes: Lanes, steps: np.ndarray, endings: list[Verdict]
) -> Block | None:
    done = lanes.num_steps + steps
    next_steps = _next_steps(setup, done, endings)
    if not np.any(next_steps):
        return None
    return _launch(setup, launched.state, done, next_steps, lanes.factor)


def _launch(
    setup: Setup, state: Any, done: np.ndarray, steps: np.ndarray, factor: np.ndarray
) -> Block:
    """Starts so many steps in each lane and does not wait for them."""
    return setup.call(state, setup.data, *device_counts(setup, done, steps, factor))


def _call(
    setup: Setup, state: Any, lanes: Lanes, launched: Block, steps: np.ndarray, first: bool = False
) -> tuple[Block, np.ndarray]:
    """A block read back from the device: the one launched already, or one with other steps."""
    block = launched if first else _launch(setup, state, lanes.num_steps, steps, lanes.factor)
    summary, record = on_host((block.summary, block.record), setup.restarts)
    block = block._replace(summary=summary, record=record)
    return block, np.asarray(unpack(summary).magnitude)


_size, _lane_sizes = jax.jit(magnitude), jax.jit(jax.vmap(magnitude))


def sizes(state: Any, restarts: int | None) -> np.ndarray:
    """The largest absolute value in each lane."""
    of_state = _size if restarts is None else _lane_sizes
    return np.asarray(on_host(of_state((state.theta, state.particles)), restarts))


def device_counts(
    setup: Setup, first_step: np.ndarray, num_steps: np.ndarray, factor: np.ndarray
) -> tuple[Any, ...]:
    """First step, number of steps and factor, as the device wants them: with lanes or without."""
    dtype = jnp.result_type(float)
    counts = (first_step.astype(np.int32), num_steps.astype(np.int32), factor.astype(dtype))
    return counts if setup.restarts is not None else tuple(c[0] for c in counts)

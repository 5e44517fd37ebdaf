"""The loop of a run over blocks of steps: judge, report, save, until every start has ended."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.processes import agreed
from marginax.errors import CheckpointError
from marginax.running.backtracking import backtracking_words, failure, guarded_block
from marginax.running.checkpoints import Store
from marginax.running.progress import Report, show
from marginax.running.start_log import StartLog, append, blocks_of, resized
from marginax.running.steps import Block, BlockSummary, magnitude, unpack
from marginax.running.stopping import StoppingRule, Verdict
from marginax.typing import Data

__all__ = [
    "Position",
    "Setup",
    "block_sizes",
    "count_blocks",
    "counts_for_device",
    "drive",
    "magnitudes",
    "sizes",
]

# A block shorter than this (in seconds) is worth launching ahead; a longer one hides the host
# anyway.
_SHORT_BLOCK = 0.05
_RUNNING = Verdict("running", "")
# Blocks of 10 steps, and of twice as many whenever that many steps are 200 blocks: a run of any
# length has few synchronisations, and where it stops does not depend on how long it might have run.
_BLOCK_SIZES = (10, 20, 40, 80, 160, 320, 640)
_BLOCKS_OF_A_SIZE = 200


class Setup(NamedTuple):
    """What does not change during a run.

    Attributes:
        advance: `advance(state, data, first_steps, num_steps, factors) -> Block`.
        reset: `reset(state, factors)`, the state at rest; None where steps may not be halved.
        data: handed on.
        start_size: of every start, when the run began and not when it was resumed.
        stop: the stopping rule.
        max_steps: of every start.
        block_size: steps in a block; None if blocks grow, as `block_sizes` says.
        callback: as given to `run`.
        together: whether several processes take part, which must decide alike.
    """

    advance: Callable[..., Block]
    reset: Callable[[Any, np.ndarray], Any] | None
    data: Data
    start_size: np.ndarray
    stop: StoppingRule
    max_steps: int
    block_size: int | None
    callback: Callable[[Report], bool | None] | None
    together: bool = False


class Position(NamedTuple):
    """Where a run stands after a whole block.

    Attributes:
        state: of the algorithm, on the device.
        log: of all starts.
        endings: the verdict on every start, or that it is still running.
        report: the `Report` of the last block, for the bar; None before the first.
        clock: when the block was read.
    """

    state: Any
    log: StartLog
    endings: tuple[Verdict, ...] = ()
    report: Any = None
    clock: float = 0.0

    def ended(self, reason: str) -> "Position":
        """The same with every start that still runs interrupted for a reason."""
        stopped = Verdict("interrupted", reason)
        return self._replace(
            endings=tuple(stopped if one is _RUNNING else one for one in self.endings)
        )


def drive(
    setup: Setup,
    start: Position,
    store: Store | None,
    bar: Any,
    timings: dict[str, float],
    pressed: list[int],
) -> Position:
    """The loop over blocks, until every start has ended or `pressed` says that Ctrl-C was."""
    began = agreed(setup.together, time.perf_counter())[0]
    running = (_RUNNING,) * len(start.log.num_steps)
    start = start._replace(endings=_judge(setup, start.log, running), clock=began)
    at, last_save = start, began
    try:
        # One assignment a block, so that Ctrl-C finds state and log either before or after it.
        for at in _blocks(setup, start, timings, pressed):
            show(bar, at.report)
            if _callback_stops(setup, at.report):
                at = at.ended("The callback asked to stop.")
                break
            if store is not None and _save_is_due(setup, store, at.clock - last_save):
                _save(store, at)
                last_save = at.clock
    except KeyboardInterrupt:
        at = at.ended("Ctrl-C: this is where it stood after the last whole block.")
    except CheckpointError as error:
        warnings.warn(str(error), stacklevel=3)
        return at.ended(f"{error} The result is here, in memory.")
    except Exception:
        # Not with others: one of them may be lost, and closing would wait for it.
        if store is not None and not setup.together:
            with suppress(CheckpointError):
                store.close()
        raise
    _finish(store, at)
    return at


def _blocks(
    setup: Setup, at: Position, timings: dict[str, float], pressed: list[int]
) -> Iterator[Position]:
    """The positions after one block, two blocks, and so on; raises KeyboardInterrupt on Ctrl-C."""
    together, began, seconds_before = setup.together, at.clock, float(at.log.seconds)
    block_seconds, stopped = 0.0, False
    ahead: Block | None = None  # launched before the block before it was judged
    while _RUNNING in at.endings:
        if stopped or (pressed and not together):
            raise KeyboardInterrupt
        steps = _next_steps(setup, at.log.num_steps, at.endings)
        launched = ahead or _launch(setup, at.state, at.log, steps)
        # While the host reads a short block, the device may already go on with the next one; if the
        # run then stops or backtracks, that one is thrown away.
        ahead = _look_ahead(setup, launched, at, steps) if block_seconds < _SHORT_BLOCK else None
        reset = None if setup.reset is None else partial(setup.reset, at.state)
        block, steps, factor, failed = guarded_block(
            partial(_read, setup, at, launched), reset, at.log, steps, setup.start_size
        )
        now, stopped = agreed(together, time.perf_counter(), bool(pressed))
        block_seconds = now - at.clock
        timings.setdefault("first_block", now - began)
        log = append(at.log, block.summary, block.record, steps, seconds_before + now - began)
        log = log._replace(factor=factor, failed=failed)
        endings = _judge(setup, log, at.endings)
        if np.any(factor != at.log.factor) or endings != at.endings:
            ahead = None
        report = _report(log, unpack(block.summary), endings)
        at = Position(block.state, log, endings, report, now)
        yield at


def _judge(setup: Setup, log: StartLog, endings: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Asks the stopping rule about every start that still runs."""

    def ending(start: int) -> Verdict:
        if log.failed[start]:
            return failure(log, start)
        verdict = setup.stop.check(blocks_of(log, start))
        if verdict is None and log.num_steps[start] >= setup.max_steps:
            verdict = Verdict(
                "max_steps",
                f"All {setup.max_steps} steps were taken before the stopping rule fired: allow "
                "more, or look at the history to see whether theta still moves.",
            )
        if verdict is None:
            return _RUNNING
        return Verdict(verdict.status, verdict.reason + backtracking_words(log, start))

    return tuple(ending(i) if known is _RUNNING else known for i, known in enumerate(endings))


def _report(log: StartLog, summary: BlockSummary, endings: tuple[Verdict, ...]) -> Report:
    return Report(
        num_steps=int(log.num_steps.max()),
        seconds=float(log.seconds),
        theta=np.asarray(summary.theta_mean),
        velocity=np.asarray(summary.velocity),
        theta_score=np.max(np.abs(summary.theta_score), axis=1, initial=0.0),
        factor=log.factor,
        statuses=tuple(ending.status for ending in endings),
    )


def _callback_stops(setup: Setup, report: Report) -> bool:
    if setup.callback is None:
        return False
    return bool(agreed(setup.together, 0.0, bool(setup.callback(report)))[1])


def _save_is_due(setup: Setup, store: Store, seconds: float) -> bool:
    # Where another process still writes, all wait for the next block.
    return seconds >= store.every_seconds and not agreed(setup.together, 0.0, store.is_busy())[1]


def _save(store: Store, at: Position) -> None:
    log = resized(at.log, int(at.log.num_blocks.max()))
    store.save(int(log.num_steps.sum()), (at.state, log))


def _finish(store: Store | None, at: Position) -> None:
    """The last save; a disk that fails now must not cost the result."""
    if store is None:
        return
    try:
        if at.log.num_blocks.any():  # an orbax folder without a step would not be read again
            _save(store, at)
        store.close()
    except CheckpointError as error:
        warnings.warn(f"{error} The result is here, in memory.", stacklevel=4)


def _next_steps(setup: Setup, done: np.ndarray, endings: tuple[Verdict, ...]) -> np.ndarray:
    active = np.array([ending is _RUNNING for ending in endings])
    steps = np.minimum(block_sizes(done, setup.block_size), setup.max_steps - done)
    return np.where(active, steps, 0)


def block_sizes(done: np.ndarray, fixed: int | None) -> np.ndarray:
    """How many steps the next block of every start has.

    Args:
        done: steps that each has taken.
        fixed: what the user asked for; None for blocks that grow with the steps taken. These end
            at multiples of their size, also after a run that ended between two and goes on.
    """
    if fixed is not None:
        return np.full_like(done, fixed)
    size = np.full_like(done, _BLOCK_SIZES[0])
    for smaller, larger in pairwise(_BLOCK_SIZES):
        size = np.where(done >= _BLOCKS_OF_A_SIZE * smaller, larger, size)
    return size - done % size


def count_blocks(done: int, max_steps: int, fixed: int | None) -> int:
    """How many blocks there are from so many steps to so many."""
    growing = _BLOCK_SIZES if fixed is None else (fixed,)
    ends = [*(_BLOCKS_OF_A_SIZE * size for size in growing[:-1]), max_steps]
    count = 0
    for size, end in zip(growing, ends, strict=True):
        steps = min(end, max_steps) - done
        if steps > 0:
            count, done = count - (-steps // size), done + steps
    return count


def _look_ahead(setup: Setup, launched: Block, at: Position, steps: np.ndarray) -> Block | None:
    log = at.log._replace(num_steps=at.log.num_steps + steps)
    next_steps = _next_steps(setup, log.num_steps, at.endings)
    return _launch(setup, launched.state, log, next_steps) if np.any(next_steps) else None


def _launch(setup: Setup, state: Any, log: StartLog, steps: np.ndarray) -> Block:
    """Starts these steps of every start and does not wait for them."""
    counts = counts_for_device(log.num_steps, steps, log.factor)
    return setup.advance(state, setup.data, *counts)


def _read(
    setup: Setup, at: Position, launched: Block, steps: np.ndarray, first: bool = False
) -> tuple[Block, np.ndarray]:
    """A block read back from the device: the one launched already, or one with other steps."""
    block = launched if first else _launch(setup, at.state, at.log, steps)
    summary, record = jax.device_get((block.summary, block.record))
    return block._replace(summary=summary, record=record), np.asarray(unpack(summary).magnitude)


def counts_for_device(
    first_step: np.ndarray, num_steps: np.ndarray, factor: np.ndarray
) -> tuple[Any, ...]:
    """First step, number of steps and factor of every start, as the device wants them."""
    dtype = jnp.result_type(float)
    return first_step.astype(np.int32), num_steps.astype(np.int32), factor.astype(dtype)


def magnitudes(state: Any) -> Array:
    """The largest absolute value in each start."""
    return jax.vmap(lambda *iterates: magnitude(iterates))(state.theta, state.particles)


_magnitudes = jax.jit(lambda theta, particles: magnitudes(_Iterates(theta, particles)))


class _Iterates(NamedTuple):
    """Of a state what every algorithm has."""

    theta: Any
    particles: Any


def sizes(state: Any) -> np.ndarray:
    """The same on the host."""
    return np.asarray(jax.device_get(_magnitudes(state.theta, state.particles)))

"""The log of a run on the host: a row per start, with its steps, its step factor and past blocks.

A stopping rule sees nothing but this, and it is saved with every checkpoint: that is why a resumed
run ends where an unbroken one would.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from marginax.running.steps import Block, unpack
from marginax.running.stopping import Blocks

__all__ = ["DIVERGED", "NONFINITE", "StartLog", "append", "blocks_of", "empty_log", "resized"]

DIVERGED, NONFINITE = 1, 2


class StartLog(NamedTuple):
    """Where every start stands; all but `seconds` have a leading axis over starts.

    Attributes:
        num_steps: steps taken.
        num_blocks: blocks accepted: the number of valid rows in the fields below.
        factor: what the nominal steps are multiplied by, halved at every backtrack.
        failed: `DIVERGED` or `NONFINITE` where a start had to give up, and 0 elsewhere.
        block_steps: steps in each block, [starts, blocks].
        summaries: what the stopping rules see, packed, [starts, blocks, ...].
        records: what the user keeps, [starts, blocks, ...].
        seconds: wall time so far, over all sessions of this run.
    """

    num_steps: np.ndarray
    num_blocks: np.ndarray
    factor: np.ndarray
    failed: np.ndarray
    block_steps: np.ndarray
    summaries: np.ndarray
    records: PyTree
    seconds: np.ndarray


def empty_log(shapes: Block, max_blocks: int) -> StartLog:
    """A log with room for `max_blocks` blocks of the shapes that a block returns."""
    num_starts = shapes.summary.shape[0]

    def room(leaf: Any) -> np.ndarray:
        return np.empty((num_starts, max_blocks, *leaf.shape[1:]), leaf.dtype)

    return StartLog(
        num_steps=np.zeros(num_starts, np.int64),
        num_blocks=np.zeros(num_starts, np.int64),
        factor=np.ones(num_starts),
        failed=np.zeros(num_starts, np.int64),
        block_steps=np.zeros((num_starts, max_blocks), np.int64),
        summaries=room(shapes.summary),
        records=jax.tree.map(room, shapes.record),
        seconds=np.zeros(()),
    )


def append(
    log: StartLog, summary: np.ndarray, record: PyTree, steps: np.ndarray, seconds: float
) -> StartLog:
    """The log with one more block for every start that took steps.

    Rows are written beyond the valid ones and become valid with the new counts, all at once: an
    interrupt in between leaves the old log as it was.
    """
    for start in np.flatnonzero(steps):
        row = log.num_blocks[start]
        log.block_steps[start, row] = steps[start]
        log.summaries[start, row] = summary[start]
        for past, new in zip(jax.tree.leaves(log.records), jax.tree.leaves(record), strict=True):
            past[start, row] = new[start]
    return log._replace(
        num_steps=log.num_steps + steps,
        num_blocks=log.num_blocks + (steps > 0),
        seconds=np.asarray(seconds),
    )


def blocks_of(log: StartLog, start: int) -> Blocks:
    """What a stopping rule sees of one start."""
    rows = slice(0, int(log.num_blocks[start]))
    past = unpack(log.summaries[start, rows])
    return Blocks(
        steps=log.block_steps[start, rows],
        **{name: field for name, field in past._asdict().items() if name != "magnitude"},
        epsilon=float(np.finfo(log.summaries.dtype).eps),
        seconds=float(log.seconds),
    )


def resized(log: StartLog, max_blocks: int) -> StartLog:
    """The log with room for exactly `max_blocks` rows: less to save, or more to go on."""

    def resize(leaf: np.ndarray) -> np.ndarray:
        room = np.zeros((leaf.shape[0], max_blocks, *leaf.shape[2:]), leaf.dtype)
        rows = min(max_blocks, leaf.shape[1])
        room[:, :rows] = leaf[:, :rows]
        return room

    rows = (log.block_steps, log.summaries, log.records)
    block_steps, summaries, records = jax.tree.map(resize, rows)
    return log._replace(block_steps=block_steps, summaries=summaries, records=records)

"""The host's book of a run: one lane per start, with its step count, step factor and past blocks.

Without restarts there is one lane, and the state on the device has no axis for it; here on the host
the lane axis is always there, so that the loop has one way of thinking.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.block import Block, unpack
from marginax.stopping import Blocks

__all__ = [
    "DIVERGED",
    "NONFINITE",
    "Lanes",
    "append",
    "blocks_of",
    "choose",
    "empty_lanes",
    "on_host",
    "trim",
]

DIVERGED, NONFINITE = 1, 2


class Lanes(NamedTuple):
    """Where every start stands; a leading axis over lanes. Saved with each checkpoint.

    Attributes:
        num_steps: steps taken.
        num_blocks: blocks accepted: the number of valid rows in the fields below.
        factor: what the nominal steps are multiplied by, halved at every backtrack.
        failed: `DIVERGED` or `NONFINITE` where a lane had to give up, and 0 elsewhere.
        block_steps: steps in each block, [lanes, blocks].
        summaries: what the stopping rules see, packed, [lanes, blocks, ...].
        records: what the user keeps, [lanes, blocks, ...].
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


def empty_lanes(shapes: Block, restarts: int | None, max_blocks: int) -> Lanes:
    """A book with room for `max_blocks` blocks of the shapes that a block returns."""
    num_lanes = restarts or 1

    def room(leaf: Any) -> np.ndarray:
        shape = leaf.shape if restarts is None else leaf.shape[1:]
        return np.empty((num_lanes, max_blocks, *shape), leaf.dtype)

    return Lanes(
        num_steps=np.zeros(num_lanes, np.int64),
        num_blocks=np.zeros(num_lanes, np.int64),
        factor=np.ones(num_lanes),
        failed=np.zeros(num_lanes, np.int64),
        block_steps=np.zeros((num_lanes, max_blocks), np.int64),
        summaries=room(shapes.summary),
        records=jax.tree.map(room, shapes.record),
        seconds=np.zeros(()),
    )


def append(
    lanes: Lanes, summary: np.ndarray, record: PyTree, steps: np.ndarray, seconds: float
) -> Lanes:
    """The book with one more row for every lane that took steps.

    Rows are written beyond the valid ones and become valid with the new counts, all at once: an
    interrupt in between leaves the old book as it was.
    """
    for lane in np.flatnonzero(steps):
        row = lanes.num_blocks[lane]
        lanes.block_steps[lane, row] = steps[lane]
        lanes.summaries[lane, row] = summary[lane]
        for past, new in zip(jax.tree.leaves(lanes.records), jax.tree.leaves(record), strict=True):
            past[lane, row] = new[lane]
    return lanes._replace(
        num_steps=lanes.num_steps + steps,
        num_blocks=lanes.num_blocks + (steps > 0),
        seconds=np.asarray(seconds),
    )


def blocks_of(lanes: Lanes, lane: int) -> Blocks:
    """What a stopping rule sees of one lane."""
    rows = slice(0, int(lanes.num_blocks[lane]))
    past = unpack(lanes.summaries[lane, rows])
    return Blocks(
        steps=lanes.block_steps[lane, rows],
        **{name: field for name, field in past._asdict().items() if name != "magnitude"},
        epsilon=float(np.finfo(lanes.summaries.dtype).eps),
        seconds=float(lanes.seconds),
    )


def trim(lanes: Lanes, max_blocks: int) -> Lanes:
    """The book with room for exactly `max_blocks` rows: less to save, or more to go on."""

    def resize(leaf: np.ndarray) -> np.ndarray:
        room = np.zeros((leaf.shape[0], max_blocks, *leaf.shape[2:]), leaf.dtype)
        rows = min(max_blocks, leaf.shape[1])
        room[:, :rows] = leaf[:, :rows]
        return room

    rows = (lanes.block_steps, lanes.summaries, lanes.records)
    block_steps, summaries, records = jax.tree.map(resize, rows)
    return lanes._replace(block_steps=block_steps, summaries=summaries, records=records)


def on_host(tree: PyTree, restarts: int | None) -> PyTree:
    """Device results as NumPy arrays with a lane axis; waits until they are ready."""
    host = jax.device_get(tree)
    return host if restarts is not None else jax.tree.map(lambda leaf: np.asarray(leaf)[None], host)


def choose(lane_is_new: np.ndarray, new: Any, old: Any, restarts: int | None) -> Any:
    """Lane by lane, the new device state or the old one."""
    if restarts is None:
        return new if lane_is_new[0] else old
    mask = jnp.asarray(lane_is_new)
    return jax.tree.map(
        lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b), new, old
    )

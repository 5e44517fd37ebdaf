"""The programs of a run: its keys, the first state, the block of steps; and making them ready.

`run` asks for them as it comes to them. Who knows beforehand what will be run, as `fit` does, has
them compiled meanwhile in another thread: XLA needs none of Python's time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax._core.programs import ById, Program, recent
from marginax.algorithms.contract import Algorithm
from marginax.running.loop import counts_for_device, magnitudes, sizes
from marginax.running.steps import advance, over_starts
from marginax.running.trajectories import theta_only
from marginax.typing import Data, Key, Particles, Theta

__all__ = ["block_of_steps", "first_state", "keys_of", "prepare_run"]


def _keys(num_starts: int | None, key: Key) -> tuple[Array, Array]:
    """Keys of the start and of the steps, those of `trajectory`; a pair for every start."""
    if num_starts is None:
        pairs = jax.random.split(key)[None]
    else:
        pairs = jax.vmap(jax.random.split)(jax.random.split(key, num_starts))
    return pairs[:, 0], pairs[:, 1]


def _first(
    fixed: ById, single: bool, keys: Array, theta: Theta, particles: Particles
) -> tuple[Any, Array]:
    """The state of every start, and how large its numbers are."""
    state = over_starts(fixed.value.init, single=single)(keys, theta, particles)
    return state, magnitudes(state)


keys_of = recent(_keys)  # keys_of(num_starts)(key)
_first_program = recent(_first)


def first_state(
    algorithm: Algorithm, single: bool, keys: Array, theta: Theta, particles: Particles
) -> tuple[Any, np.ndarray]:
    """The state of every start, and the largest absolute value in it.

    Args:
        algorithm: of the run.
        single: whether there is one start.
        keys: of the starts.
        theta: with a leading axis over starts.
        particles: likewise.
    """
    if algorithm.identity is None:
        # Not in a program: a cloud that is one point is seen, and refused.
        state = over_starts(algorithm.init, single=single)(keys, theta, particles)
        return state, sizes(state)
    # Of `fit`, which has seen to that.
    state, size = _first_program(_fixed(algorithm), single)(keys, theta, particles)
    return state, np.asarray(size)


def block_of_steps(
    algorithm: Algorithm,
    record: Callable[[Any, Any], PyTree],
    batch_size: int | None,
    group_warmup_steps: int,
    single: bool,
) -> Program:
    """The block of steps of this algorithm, compiled once for all runs of it."""
    return advance(_fixed(algorithm), record, batch_size, group_warmup_steps, single)


def _fixed(algorithm: Algorithm) -> ById:
    # By the whole of it: a copy with another field is another program.
    return ById(algorithm, mark=algorithm, identity=algorithm.identity)


def prepare_run(algorithm: Algorithm, theta: Theta, particles: Particles, data: Data) -> None:
    """Has ready what a run from one start compiles, on all of the data.

    Args:
        algorithm: to be run.
        theta: shapes of its start, with the leading axis over starts.
        particles: likewise.
        data: as it will be given.
    """
    data = jax.tree.map(lambda leaf: jnp.asarray(leaf), data)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    begin = _first_program(_fixed(algorithm), True)
    begin.prepare(keys, theta, particles)
    state, _ = begin.result_shapes(keys, theta, particles)
    block = block_of_steps(algorithm, theta_only, None, 0, True)
    block.prepare(keys, state, data, *counts_for_device(*np.ones((3, 1))))

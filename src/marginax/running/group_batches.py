"""A step on some of the groups: their part of a state is taken out, moved, and put back.

Where every group has latents of its own, a step on a batch of groups concerns theta and the
particles of these groups. Whatever an algorithm remembers for each group (look-aheads, AdaGrad's
sums, momentum counts) stays with the group; what it remembers of theta is shared.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax.algorithms.contract import Algorithm
from marginax.typing import Data, Key

__all__ = ["group_axes", "put_groups", "step_on_groups", "take_groups"]


def group_axes(init: Callable[..., Any], state: Any) -> PyTree:
    """For every leaf of a state the axis that runs over groups, or -1 if it belongs to all.

    Found from the shapes of a state with one group more.
    """

    def with_more(extra: int) -> Any:
        particles = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (leaf.shape[0], leaf.shape[1] + extra, *leaf.shape[2:]), leaf.dtype
            ),
            state.particles,
        )
        return jax.eval_shape(init, jax.random.key(0), state.theta, particles)

    def axis(small: Any, large: Any) -> int:
        longer = [i for i, (a, b) in enumerate(zip(small.shape, large.shape, strict=True)) if a < b]
        return longer[0] if longer else -1

    return jax.tree.map(axis, with_more(0), with_more(1))


def take_groups(state: Any, axes: PyTree, rows: Array) -> Any:
    """The state of some groups, with all that is shared."""
    return jax.tree.map(
        lambda leaf, axis: leaf if axis < 0 else jnp.take(leaf, rows, axis=axis), state, axes
    )


def put_groups(state: Any, axes: PyTree, rows: Array, part: Any) -> Any:
    """The state with that of some groups replaced, and all that is shared."""

    def put(leaf: Array, axis: int, new: Array) -> Array:
        if axis < 0:
            return new
        where = (*[slice(None)] * axis, rows)
        return leaf.at[where].set(new, unique_indices=True)

    return jax.tree.map(put, state, axes, part)


def step_on_groups(
    algorithm: Algorithm, key: Key, part: Any, axes: PyTree, data: Data, warmup_steps: int
) -> tuple[Any, Any]:
    """One step of theta and of the groups in `part`, after warm-up steps of these groups alone.

    Groups that have not been seen for an epoch know an old theta; the steps before let them follow.
    What these steps would do to theta is left undone.
    """

    def follow(i: Array, part: Any) -> Any:
        moved, _ = algorithm.step(jax.random.fold_in(key, i), part, data)
        return jax.tree.map(lambda old, new, axis: old if axis < 0 else new, part, moved, axes)

    if warmup_steps:
        part = jax.lax.fori_loop(0, warmup_steps, follow, part)
    return algorithm.step(jax.random.fold_in(key, warmup_steps), part, data)

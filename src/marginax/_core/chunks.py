"""Chunks of groups: sums and maps over the groups of a model, some at a time.

Where groups are independent given theta, derivatives in theta are sums over groups and the
particles of a group move for themselves. A chunk that fits a cache needs little memory, and a group
costs the same however many there are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax.typing import Data, Particles

__all__ = ["map_over_groups", "sum_over_groups"]

OnSome = Callable[[Particles, Data], PyTree]


def sum_over_groups(function: OnSome, particles: Particles, data: Data, size: int) -> PyTree:
    """The sum of `function(particles, data)` over chunks of `size` groups, and what is left."""
    num_groups = jax.tree.leaves(particles)[0].shape[1]
    num_chunks, left = divmod(num_groups, size)

    def add(i: Array, total: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, total, function(*_some(particles, data, i * size, size)))

    # What is left over, or else the first chunk, begins the total.
    begun = (
        _some(particles, data, num_chunks * size, left) if left else _some(particles, data, 0, size)
    )
    return jax.lax.fori_loop(0 if left else 1, num_chunks, add, function(*begun))


def map_over_groups(function: OnSome, particles: Particles, data: Data, size: int) -> PyTree:
    """`function(particles, data)`, whose leaves have particles and groups as axes, in chunks."""
    num_groups = jax.tree.leaves(particles)[0].shape[1]

    def put(i: Array, whole: PyTree) -> PyTree:
        # The last chunk may begin within the one before: its groups get the same answer again.
        first = jnp.minimum(i * size, num_groups - size)
        part = function(*_some(particles, data, first, size))
        return jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, first, 1), whole, part
        )

    like = jax.eval_shape(function, particles, data)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    return jax.lax.fori_loop(0, -(-num_groups // size), put, nothing)


def _some(particles: Particles, data: Data, first: Array | int, size: int) -> tuple[Any, Any]:
    """The particles and the data of neighbouring groups."""
    return (
        jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, 1), particles),
        jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, 0), data),
    )

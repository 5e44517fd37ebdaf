"""Some groups at a time: sums and maps over the groups of a model, in pieces that fit a cache.

Where groups are independent given theta, derivatives in theta are sums over groups and the
particles of a group move for themselves. A piece of them at a time needs little memory, and a group
costs the same however many there are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax.base import Data, Particles
from marginax.minibatch import batching_of

__all__ = ["map_over_groups", "piece_size", "sum_over_groups"]

OnSome = Callable[[Particles, Data], PyTree]
# A GPU wants more to do at a time than a core with its cache: so many times the rows of a piece.
ON_GPU = 2**9


def piece_size(log_joint: Any, particles: Particles, rows: int) -> int | None:
    """How many groups a piece has, or None where all are to be worked on at once.

    Args:
        log_joint: whether its groups have latents of their own.
        particles: the cloud.
        rows: so many groups times particles a piece should have, on a CPU.
    """
    batching = batching_of(log_joint)
    first = jax.tree.leaves(particles)[0]
    # Where devices share the cloud, each has few enough, and every piece would be sent about.
    if batching is None or not batching.local or jax.typeof(first).sharding.mesh.size > 1:
        return None
    num_particles, num_groups = first.shape[:2]
    rows *= ON_GPU if jax.default_backend() == "gpu" else 1
    size = max(1, rows // num_particles)
    return size if size < num_groups else None


def sum_over_groups(function: OnSome, particles: Particles, data: Data, size: int) -> PyTree:
    """The sum of `function(particles, data)` over pieces of `size` groups, and what is left."""
    num_groups = jax.tree.leaves(particles)[0].shape[1]
    pieces, left = divmod(num_groups, size)

    def add(i: Array, total: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, total, function(*_some(particles, data, i * size, size)))

    # What is left over, or else the first piece, begins the total.
    begun = _some(particles, data, pieces * size, left) if left else _some(particles, data, 0, size)
    return jax.lax.fori_loop(0 if left else 1, pieces, add, function(*begun))


def map_over_groups(function: OnSome, particles: Particles, data: Data, size: int) -> PyTree:
    """`function(particles, data)`, whose leaves have particles and groups as axes, in pieces."""
    num_groups = jax.tree.leaves(particles)[0].shape[1]

    def put(i: Array, whole: PyTree) -> PyTree:
        # The last piece may begin within the one before: its groups get the same answer again.
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

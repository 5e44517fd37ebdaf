"""Minibatches: a log joint rescaled to the batch, and batches drawn without replacement.

    l(theta, x) = log_prior(theta, x) + (num_data / |batch|) sum_{i in batch} log_likelihood(...)

has the full log joint as its expectation over batches, and so do its gradients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.base import Data, Key, Latent, LogJoint, Theta

__all__ = ["Batching", "batch_rows", "batching_of", "check_batch", "epoch_order", "minibatched"]


class Batching(NamedTuple):
    """How a log joint that is rescaled to the batch gets its batches.

    Attributes:
        num_data: how many observations there are in all.
        take: `take(data, rows)`, the data of a batch.
    """

    num_data: int
    take: Callable[[Data, Array], Data]


def batching_of(log_joint: Any) -> Batching | None:
    """What a log joint says of batches, or the object that it is a method of; None if nothing."""
    owner = getattr(log_joint, "__self__", None)
    return getattr(log_joint, "batching", None) or getattr(owner, "batching", None)


def minibatched(
    log_prior: Callable[[Theta, Latent], Array],
    log_likelihood: Callable[[Theta, Latent, Data], Array],
    num_data: int,
) -> LogJoint:
    """Builds the log joint of a batch, rescaled to the whole data set.

    On the whole data set it is the exact log joint, so the same function serves `run(...,
    batch=64)`, a run without batches, and every diagnostic.

    Args:
        log_prior: `log_prior(theta, latent)`, everything that does not involve the data.
        log_likelihood: `log_likelihood(theta, latent, batch)`, of the observations in the batch:
            one number each, or their sum.
        num_data: how many observations there are in all, the leading axis of every leaf of the
            data.

    Returns:
        `log_joint(theta, latent, batch)` for any constructor of this library.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> y = jax.random.normal(jax.random.key(0), (1000,)) + 3.0
        >>> log_joint = mx.minibatched(
        ...     lambda theta, x: -0.5 * (x - theta) ** 2,
        ...     lambda theta, x, batch: -0.5 * (batch - x) ** 2,
        ...     num_data=1000,
        ... )
        >>> method = mx.pgd(log_joint, 0.1, 1e-4)
        >>> cloud = jnp.zeros(20)
        >>> run = mx.run(jax.random.key(1), method, 0.0, cloud, y, max_steps=3200, batch=50)
        >>> bool(abs(run.theta - y.mean()) < 0.1)
        True
    """
    if not num_data >= 1:
        raise ValueError(f"num_data is {num_data}, but there must be at least one observation.")

    def log_joint(theta: Theta, latent: Latent, batch: Data) -> Array:
        size = jax.tree.leaves(batch)[0].shape[0]
        likelihood = jnp.sum(log_likelihood(theta, latent, batch))
        return log_prior(theta, latent) + (num_data / size) * likelihood

    # Lets `run` see that it is rescaled.
    log_joint.batching = Batching(num_data, _take_rows)  # type: ignore[attr-defined]
    return log_joint


def _take_rows(data: Data, rows: Array) -> Data:
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), data)


def check_batch(log_joint: Any, data: Data, batch: int) -> int:
    """Refuses a batch that would give a wrong answer; returns the number of observations."""
    batching = batching_of(log_joint)
    if batching is None:
        raise ValueError(
            f"batch is {batch}, but log_joint was not built by `marginax.minibatched`: the "
            "likelihood of a batch would count as that of all the data. Build it with "
            "`minibatched(log_prior, log_likelihood, num_data)`."
        )
    num_data = batching.num_data
    sizes = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else None for leaf in jax.tree.leaves(data)}
    if batching.take is _take_rows and sizes != {num_data}:
        raise ValueError(
            f"minibatched was told num_data = {num_data}, but the leading axes of data are "
            f"{sorted(sizes, key=str)}. Every leaf must have one row per observation."
        )
    if not 1 <= batch <= num_data:
        raise ValueError(
            f"batch is {batch}, but it must be between 1 and the {num_data} observations there are."
        )
    return num_data


def epoch_order(key: Key, step: Array, num_data: int, batch: int) -> Array:
    """The order of the observations in the epoch that `step` belongs to."""
    return jax.random.permutation(jax.random.fold_in(key, step // (num_data // batch)), num_data)


def batch_rows(order: Array, step: Array, batch: int) -> Array:
    """The rows of this step, each at most once an epoch; a remainder is left out."""
    start = (step % (order.shape[0] // batch)) * batch
    return jax.lax.dynamic_slice_in_dim(order, start, batch)

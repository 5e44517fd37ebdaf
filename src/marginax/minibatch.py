"""Minibatches: a log joint rescaled to the batch, and batches drawn without replacement.

    l(theta, x) = log_prior(theta, x) + (num_data / |batch|) sum_{i in batch} log_likelihood(...)

has the full log joint as its expectation over batches, and so do its gradients. Where every row of
the data is a group with latents of its own, only the part in theta is rescaled: the posterior of a
group's latents does not know the other groups.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax.base import Count, Data, Key, Latent, LogJoint, Particles, Theta
from marginax.checks import check_count, is_integer

__all__ = [
    "Batching",
    "batch_rows",
    "batching_of",
    "check_batch",
    "minibatched",
    "take_rows",
    "theta_weight",
]


class Batching(NamedTuple):
    """How a log joint that is rescaled to the batch gets its batches.

    Attributes:
        num_data: how many observations, or groups, there are in all.
        take: `take(data, rows)`, the data of a batch.
        local: whether rows are groups, so that a batch moves the latents of its groups alone: axis
            1 of every leaf of the particles.
    """

    num_data: int
    take: Callable[[Data, Array], Data]
    local: bool = False


def batching_of(log_joint: Any) -> Batching | None:
    """What a log joint says of batches, or the object that it is a method of; None if nothing."""
    owner = getattr(log_joint, "__self__", None)
    return getattr(log_joint, "batching", None) or getattr(owner, "batching", None)


def theta_weight(log_joint: Any, particles: Particles) -> float:
    """By how much the theta score of these particles counts: all groups over those there are."""
    batching = batching_of(log_joint)
    if batching is None or not batching.local:
        return 1.0
    return batching.num_data / jax.tree.leaves(particles)[0].shape[1]


def minibatched(
    log_prior: Callable[[Theta, Latent], Array],
    log_likelihood: Callable[[Theta, Latent, Data], Array],
    num_data: Count,
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
    num_data = check_count(num_data, "num_data")

    def log_joint(theta: Theta, latent: Latent, batch: Data) -> Array:
        size = jax.tree.leaves(batch)[0].shape[0]
        likelihood = jnp.sum(log_likelihood(theta, latent, batch))
        return log_prior(theta, latent) + (num_data / size) * likelihood

    # Lets `run` see that it is rescaled.
    log_joint.batching = Batching(num_data, take_rows)  # type: ignore[attr-defined]
    return log_joint


def take_rows(data: Data, rows: Array) -> Data:
    """Rows of every leaf of the data."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), data)


def check_batch(log_joint: Any, data: Data, batch: Count) -> int:
    """Refuses a batch that would give a wrong answer; returns it as an integer."""
    batching = batching_of(log_joint)
    if batching is None:
        raise ValueError(
            f"batch is {batch}, but log_joint was not built by `marginax.minibatched`: the "
            "likelihood of a batch would count as that of all the data. Build it with "
            "`minibatched(log_prior, log_likelihood, num_data)`, or with `Problem.grouped` if "
            "every group has latents of its own."
        )
    num_data, rows = batching.num_data, "groups" if batching.local else "observations"
    sizes = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else None for leaf in jax.tree.leaves(data)}
    if batching.take is take_rows and sizes != {num_data}:
        raise ValueError(
            f"log_joint is of {num_data} {rows}, but the leading axes of data are "
            f"{sorted(sizes, key=str)}. Every leaf must have one row for each of them."
        )
    if is_integer(batch) and not 1 <= batch <= num_data:
        raise ValueError(
            f"batch is {batch}, but it must be between 1 and the {num_data} {rows} there are."
        )
    return check_count(batch, "batch")


def batch_rows(key: Key, step: Array, num_data: int, batch: int) -> Array:
    """The rows of this step, each at most once an epoch; a remainder is left out.

    Args:
        key: of the whole run.
        step: its number, which says the epoch and the place in it.
        num_data: how many rows there are.
        batch: how many to take.
    """
    batches = num_data // batch
    places = (step % batches) * batch + jnp.arange(batch, dtype=step.dtype)
    return _shuffled(jax.random.fold_in(key, step // batches), places, num_data)


_ROUNDS = 8


def _shuffled(key: Key, places: Array, num: int) -> Array:
    """What stands at some places of a random order of 0, ..., num - 1.

    For no more work than there are places, where a permutation of all would be drawn, kept, and
    under `vmap` drawn at every step. A Feistel network permutes the cells of a square that is a
    little too large; whoever ends outside 0, ..., num - 1 is permuted again.
    """
    width = math.isqrt(num - 1) + 1 if num > 1 else 1
    height = -(-num // width)
    secrets = jax.random.bits(key, (_ROUNDS,), jnp.uint32)
    sides = jnp.array([width, height], jnp.uint32)

    def permuted(cells: Array) -> Array:
        left, right = cells // sides[1], cells % sides[1]
        for i in range(0, _ROUNDS, 2):
            left = (left + _scrambled(right ^ secrets[i])) % sides[0]
            right = (right + _scrambled(left ^ secrets[i + 1])) % sides[1]
        return left * sides[1] + right

    def again(cells: Array) -> Array:
        return jnp.where(cells < num, cells, permuted(cells))

    cells = permuted(places.astype(jnp.uint32))
    cells = jax.lax.while_loop(lambda cells: jnp.any(cells >= num), again, cells)
    return cells.astype(places.dtype)


def _scrambled(x: Array) -> Array:
    """Every bit of x on every bit of the result; below 2^16, so that sums do not overflow."""
    for factor in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> 16)) * jnp.uint32(factor)
    return x >> 16

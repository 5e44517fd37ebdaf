"""Minibatches: a log joint rescaled to the batch, and batches drawn without replacement.

    l(theta, x) = log_prior(theta, x) + (num_data / |batch|) sum_{i in batch} log_likelihood(...)

has the full log joint as its expectation over batches, and so do its gradients. Where every row of
the data is a group with latents of its own, only the part in theta is rescaled: the posterior of a
group's latents does not know the other groups.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core.checks import check_count, is_integer
from marginax.model.log_joint import Batching, LogJoint, take_rows
from marginax.typing import Count, Data, Key, Latent, Theta

__all__ = ["batch_rows", "check_batch_size", "minibatched"]


def minibatched(
    log_prior: Callable[[Theta, Latent], Array],
    log_likelihood: Callable[[Theta, Latent, Data], Array],
    num_data: Count,
) -> LogJoint:
    """Builds the log joint of a batch, rescaled to the whole data set.

    On the whole data set it is the exact log joint, so the same function serves `run(...,
    batch_size=64)`, a run without batches, and every diagnostic.

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
        >>> key = jax.random.key(1)
        >>> run = mx.run(method, 0.0, cloud, y, max_steps=3200, batch_size=50, key=key)
        >>> bool(abs(run.theta - y.mean()) < 0.1)
        True
    """
    num_data = check_count(num_data, "num_data")

    def log_joint(theta: Theta, latent: Latent, batch: Data) -> Array:
        size = jax.tree.leaves(batch)[0].shape[0]
        likelihood = jnp.sum(log_likelihood(theta, latent, batch))
        return log_prior(theta, latent) + (num_data / size) * likelihood

    return LogJoint(log_joint, Batching(num_data, take_rows))


def check_batch_size(log_joint: LogJoint | None, data: Data, batch_size: Count) -> int:
    """Refuses a batch that would give a wrong answer; returns it as an integer."""
    batching = None if log_joint is None else log_joint.batching
    if batching is None:
        raise ValueError(
            f"batch_size is {batch_size}, but log_joint was not built by `marginax.minibatched`: "
            "the likelihood of a batch would count as that of all the data. Build it with "
            "`minibatched(log_prior, log_likelihood, num_data)`, or with `Problem.grouped` if "
            "every group has latents of its own."
        )
    num_data, rows = batching.num_data, "groups" if batching.of_groups else "observations"
    sizes = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else None for leaf in jax.tree.leaves(data)}
    if batching.take is take_rows and sizes != {num_data}:
        raise ValueError(
            f"log_joint is of {num_data} {rows}, but the leading axes of data are "
            f"{sorted(sizes, key=str)}. Every leaf must have one row for each of them."
        )
    if is_integer(batch_size) and not 1 <= batch_size <= num_data:
        raise ValueError(
            f"batch_size is {batch_size}, but it must be between 1 and the {num_data} {rows} there "
            "are."
        )
    return check_count(batch_size, "batch_size")


def batch_rows(key: Key, step: Array, num_data: int, batch_size: int) -> Array:
    """The rows of this step, each at most once an epoch; a remainder is left out.

    Args:
        key: of the whole run.
        step: its number, which says the epoch and the place in it.
        num_data: how many rows there are.
        batch_size: how many to take.
    """
    batches = num_data // batch_size
    places = (step % batches) * batch_size + jnp.arange(batch_size, dtype=step.dtype)
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

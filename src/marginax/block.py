"""One block of steps on the device, with the few numbers the host needs to judge it.

A block is what `run` compiles: a loop of up to `block_size` steps (how many is an argument, so that
one compilation serves every block), and afterwards, once, what the stopping rules and the
divergence check want to know. The step key is folded from the step's number, so the result does not
depend on how the steps are cut into blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from marginax import _tree
from marginax.base import ById, Data, Key, Latent, LogJoint, Particles, Theta
from marginax.local import group_axes, put_groups, step_on_groups, take_groups
from marginax.minibatch import batch_rows, batching_of
from marginax.programs import recent
from marginax.scores import latent_scores, theta_score

__all__ = [
    "Block",
    "BlockSummary",
    "advance",
    "advance_lanes",
    "magnitude",
    "pack",
    "unpack",
]


class BlockSummary(NamedTuple):
    """What the host looks at after a block; theta is flattened into a vector of length p.

    Attributes:
        theta_mean: mean of theta over the steps of the block, or its last value in a flow that has
            no noise to average out.
        theta_low: smallest value of theta within the block.
        theta_high: largest value of theta within the block.
        theta_score: the ascent direction of theta at the block's last step.
        theta_score_spread: its standard deviation over the particles.
        velocity: root mean square of the particles' velocity (deterministic methods; else 0).
        score: root mean square of the latent scores, the velocity's scale (likewise).
        magnitude: the largest absolute value in theta and the cloud; NaN or inf if one is.
    """

    theta_mean: Array
    theta_low: Array
    theta_high: Array
    theta_score: Array
    theta_score_spread: Array
    velocity: Array
    score: Array
    magnitude: Array


def pack(summary: BlockSummary) -> Array:
    """The summary as one vector: one transfer to the host instead of eight."""
    return jnp.concatenate([jnp.atleast_1d(field) for field in summary])


def unpack(rows: Any) -> BlockSummary:
    """The inverse of `pack`, for one vector or for rows of them."""
    p = (rows.shape[-1] - 3) // 5
    vectors: list[Any] = [rows[..., k * p : (k + 1) * p] for k in range(5)]
    numbers: list[Any] = [rows[..., 5 * p + k] for k in range(3)]
    return BlockSummary(*vectors, *numbers)


class Block(NamedTuple):
    """A finished block.

    Attributes:
        state: the algorithm's State after it.
        summary: a packed `BlockSummary`.
        record: what the user asked to keep, of the last step.
    """

    state: Any
    summary: Any
    record: PyTree


def _advance(
    fixed: ById,
    record: Callable[[Any, Any], PyTree],
    batch: int | None,
    catch_up: int,
    key: Key,
    state: Any,
    data: Data,
    first_step: Array,
    num_steps: Array,
    factor: Array,
) -> Block:
    """Runs `num_steps` steps from `state`, all of them `factor` times their nominal size."""
    algorithm = fixed.value
    method = algorithm if algorithm.rescale is None else algorithm.rescale(factor)
    batch_key = jax.random.fold_in(key, 2**32 - 1)
    batching = batching_of(algorithm.log_joint) if batch else None
    axes = group_axes(algorithm.init, state) if batching and batching.local else None
    theta_0 = ravel_pytree(state.theta)[0]
    is_noisy = algorithm.stochastic or batch is not None

    def moved(t: Array, state: Any) -> tuple[Any, Any, Any, Data]:
        """The state, the part of it that moved, what the step says, and the data it saw."""
        step_key = jax.random.fold_in(key, t)
        if batch is None or batching is None:
            state, info = method.step(step_key, state, data)
            return state, state, info, data
        rows = batch_rows(batch_key, t, batching.num_data, batch)
        batch_data = batching.take(data, rows)
        if axes is None:
            state, info = method.step(step_key, state, batch_data)
            return state, state, info, batch_data
        part = take_groups(state, axes, rows)
        part, info = step_on_groups(method, step_key, part, axes, batch_data, catch_up)
        return put_groups(state, axes, rows, part), part, info, batch_data

    def one_step(i: Array, carry: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, Any, Data]:
        state, total, low, high = carry
        state, part, info, batch_data = moved(first_step + i, state)
        theta = ravel_pytree(state.theta)[0]
        if is_noisy:
            # Sums of differences from the first theta, so that the mean does not lose digits.
            total = total + (theta - theta_0)
        carry = (state, total, jnp.minimum(low, theta), jnp.maximum(high, theta))
        return carry, part, info, batch_data

    start = (state, jnp.zeros_like(theta_0), theta_0, theta_0)
    # The last step stands outside: only its info is wanted, and a loop would copy every step's.
    all_but_one = jnp.maximum(num_steps - 1, 0)
    carry = jax.lax.fori_loop(0, all_but_one, lambda i, c: one_step(i, c)[0], start)
    last, part, info, batch_data = one_step(all_but_one, carry)
    state, total, low, high = jax.tree.map(
        lambda new, old: jnp.where(num_steps > 0, new, old), last, carry
    )

    velocity, score, spread = jnp.zeros(()), jnp.zeros(()), jnp.zeros_like(theta_0)
    if not algorithm.stochastic and algorithm.log_joint is not None:
        velocity, score, spread = _scales(algorithm.log_joint, part, info, batch_data)
    mean = theta_0 + total / jnp.maximum(num_steps, 1).astype(theta_0.dtype)
    summary = BlockSummary(
        theta_mean=mean if is_noisy else ravel_pytree(state.theta)[0],
        theta_low=low,
        theta_high=high,
        theta_score=ravel_pytree(info.theta_score)[0],
        theta_score_spread=spread,
        velocity=velocity.astype(theta_0.dtype),
        score=score.astype(theta_0.dtype),
        magnitude=magnitude((state.theta, state.particles)),
    )
    return Block(state, pack(summary), record(state, info))


def _advance_lanes(
    fixed: ById,
    record: Callable[[Any, Any], PyTree],
    batch: int | None,
    catch_up: int,
    keys: Array,
    states: Any,
    data: Data,
    first_steps: Array,
    num_steps: Array,
    factors: Array,
) -> Block:
    """The same for several starts at once, each with its own key, state, count and factor."""

    def one(key: Key, state: Any, first_step: Array, num_steps: Array, factor: Array) -> Block:
        counts = (first_step, num_steps, factor)
        return _advance(fixed, record, batch, catch_up, key, state, data, *counts)

    return jax.vmap(one)(keys, states, first_steps, num_steps, factors)


# advance(fixed, record, batch, catch_up)(key, state, ...) -> Block
advance, advance_lanes = recent(_advance), recent(_advance_lanes)


# More numbers than this (particles times theta) are not held just to learn their spread.
_LARGEST_SPREAD = 2**24


def _scales(log_joint: LogJoint, state: Any, info: Any, data: Data) -> tuple[Array, Array, Array]:
    """Typical sizes of velocity and scores, and the spread of the theta score over the cloud."""
    scores = latent_scores(log_joint, state.theta, state.particles, data)

    def one_theta_score(latent: Latent) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], latent)
        return ravel_pytree(theta_score(log_joint, state.theta, single, data))[0]

    # The spread needs every particle's theta score at once; for a very large theta it is left at 0,
    # and the rules fall back on the largest score seen.
    num_theta = sum(leaf.size for leaf in jax.tree.leaves(state.theta))
    spread = jnp.zeros(num_theta, _tree.inner(state.theta, state.theta).dtype)
    if num_theta * _tree.cloud_size(state.particles) <= _LARGEST_SPREAD:
        spread = jnp.std(jax.vmap(one_theta_score)(state.particles), axis=0)
    return _rms(info.velocity), _rms(scores), spread


def _rms(tree: PyTree) -> Array:
    return jnp.sqrt(_tree.inner(tree, tree) / sum(leaf.size for leaf in jax.tree.leaves(tree)))


def magnitude(iterates: tuple[Theta, Particles]) -> Array:
    """The largest absolute value in theta and the cloud, and not finite if one of them is not."""
    leaves = jax.tree.leaves(iterates)
    dtype = ravel_pytree(iterates[0])[0].dtype
    # Sums, because a maximum may pass a NaN by.
    tops = [jnp.max(jnp.abs(leaf)).astype(dtype) for leaf in leaves if leaf.size]
    poison = [0 * jnp.sum(leaf).astype(dtype) for leaf in leaves]
    return jnp.max(jnp.stack(tops)) + sum(poison)

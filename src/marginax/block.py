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
from marginax.base import Algorithm, Data, Key, Particles
from marginax.minibatch import draw_batch, epoch_order
from marginax.scores import latent_scores, theta_score

__all__ = ["Block", "BlockSummary", "advance", "advance_lanes", "magnitude"]


class BlockSummary(NamedTuple):
    """What the host looks at after a block; theta is flattened into a vector of length p.

    Attributes:
        theta_mean: mean of theta over the steps of the block.
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


class Block(NamedTuple):
    """A finished block.

    Attributes:
        state: the algorithm's State after it.
        summary: what the stopping rules see.
        record: what the user asked to keep, of the last step.
    """

    state: Any
    summary: BlockSummary
    record: PyTree


def _advance(
    algorithm: Algorithm,
    record: Callable[[Any, Any], PyTree],
    batch: int | None,
    key: Key,
    state: Any,
    data: Data,
    first_step: Array,
    num_steps: Array,
    factor: Array,
) -> Block:
    """Runs `num_steps` steps from `state`, all of them `factor` times their nominal size."""
    method = algorithm if algorithm.rescale is None else algorithm.rescale(factor)
    step_key, batch_key = key, jax.random.fold_in(key, 2**32 - 1)
    num_data = jax.tree.leaves(data)[0].shape[0] if batch else 0

    def rows(order: Array, t: Array) -> tuple[Array, Data]:
        if batch is None:
            return order, data
        new_epoch = t % (num_data // batch) == 0
        order = jax.lax.cond(
            new_epoch, lambda: epoch_order(batch_key, t, num_data, batch), lambda: order
        )
        return order, draw_batch(order, t, data, batch)

    def one_step(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        state, _, order, total, low, high = carry
        order, batch_data = rows(order, first_step + i)
        state, info = method.step(jax.random.fold_in(step_key, first_step + i), state, batch_data)
        theta = ravel_pytree(state.theta)[0]
        # Sums of differences from the first theta, so that the mean does not lose digits.
        total = total + (theta - theta_0)
        return state, info, order, total, jnp.minimum(low, theta), jnp.maximum(high, theta)

    theta_0 = ravel_pytree(state.theta)[0]
    order = epoch_order(batch_key, first_step, num_data, batch) if batch else jnp.zeros(0, int)
    batch_data = rows(order, first_step)[1]
    no_info = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(method.step, key, state, batch_data)[1],
    )
    carry = (state, no_info, order, jnp.zeros_like(theta_0), theta_0, theta_0)
    state, info, order, total, low, high = jax.lax.fori_loop(0, num_steps, one_step, carry)

    velocity, score, spread = jnp.zeros(3, theta_0.dtype)
    spread = jnp.zeros_like(theta_0)
    if not algorithm.stochastic and algorithm.log_joint is not None:
        last = rows(order, first_step + jnp.maximum(num_steps - 1, 0))[1]
        velocity, score, spread = _scales(algorithm, state, info, last, theta_0.dtype)
    count = jnp.maximum(num_steps, 1).astype(theta_0.dtype)
    summary = BlockSummary(
        theta_mean=theta_0 + total / count,
        theta_low=low,
        theta_high=high,
        theta_score=ravel_pytree(info.theta_score)[0],
        theta_score_spread=spread,
        velocity=velocity,
        score=score,
        magnitude=magnitude(state),
    )
    return Block(state, summary, record(state, info))


def _advance_lanes(
    algorithm: Algorithm,
    record: Callable[[Any, Any], PyTree],
    batch: int | None,
    keys: Array,
    states: Any,
    data: Data,
    first_steps: Array,
    num_steps: Array,
    factors: Array,
) -> Block:
    """The same for several starts at once, each with its own key, state, count and factor."""

    def one(key: Key, state: Any, first_step: Array, num_steps: Array, factor: Array) -> Block:
        return _advance(algorithm, record, batch, key, state, data, first_step, num_steps, factor)

    return jax.vmap(one)(keys, states, first_steps, num_steps, factors)


_STATIC = ("algorithm", "record", "batch")
advance = jax.jit(_advance, static_argnames=_STATIC)
advance_lanes = jax.jit(_advance_lanes, static_argnames=_STATIC)


def _scales(
    algorithm: Algorithm, state: Any, info: Any, data: Data, dtype: Any
) -> tuple[Array, Array, Array]:
    """Typical sizes of velocity and scores, and the spread of the theta score over the cloud."""
    log_joint = algorithm.log_joint
    scores = latent_scores(log_joint, state.theta, state.particles, data)  # type: ignore[arg-type]

    def one_theta_score(latent: Particles) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], latent)
        return ravel_pytree(theta_score(log_joint, state.theta, single, data))[0]  # type: ignore[arg-type]

    spread = jnp.std(jax.vmap(one_theta_score)(state.particles), axis=0)
    return _rms(info.velocity, dtype), _rms(scores, dtype), spread


def _rms(tree: PyTree, dtype: Any) -> Array:
    size = sum(leaf.size for leaf in jax.tree.leaves(tree))
    return jnp.sqrt(_tree.inner(tree, tree) / size).astype(dtype)


def magnitude(state: Any) -> Array:
    """The largest absolute value in theta and the cloud, and not finite if one of them is not."""
    leaves = jax.tree.leaves((state.theta, state.particles))
    dtype = jnp.result_type(*jax.tree.leaves(state.theta))
    # Sums, because a maximum may pass a NaN by.
    tops = [jnp.max(jnp.abs(leaf)).astype(dtype) for leaf in leaves if leaf.size]
    poison = [0 * jnp.sum(leaf).astype(dtype) for leaf in leaves]
    return jnp.max(jnp.stack(tops)) + sum(poison)

"""What a run compiles: a block of steps from every start, and the few numbers to judge it by.

A block is what `run` compiles: a loop of some steps (how many is an argument, so that one
compilation serves every block), and afterwards, once, what the stopping rules and the
divergence check want to know. The step key is folded from the step's number, so the result does not
depend on how the steps are cut into blocks. All arrays have a leading axis over starts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from marginax._core import trees
from marginax._core.programs import ById, recent
from marginax.algorithms.contract import Algorithm
from marginax.flows.scores import latent_scores, theta_score
from marginax.model.log_joint import Batching, as_log_joint
from marginax.model.minibatches import batch_rows
from marginax.running.group_batches import group_axes, put_groups, step_on_groups, take_groups
from marginax.typing import Data, Key, Latent, Particles, Theta

__all__ = [
    "Block",
    "BlockSummary",
    "advance",
    "magnitude",
    "over_starts",
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


def over_starts(function: Callable[..., Any], *, single: bool = False) -> Callable[..., Any]:
    """The function of one start, for arguments with a leading axis over starts.

    Args:
        function: of one start.
        single: whether that axis has one entry. The function is then not mapped: under `vmap` a
            loop of its own length would be a loop with masks.
    """
    if not single:
        return jax.vmap(function)

    def alone_with_axis(*arguments: Any) -> Any:
        alone = jax.tree.map(lambda leaf: leaf[0], arguments)
        return jax.tree.map(_with_axis, function(*alone))

    return alone_with_axis


def _with_axis(leaf: Any) -> Array:
    return leaf[None] if isinstance(leaf, jax.Array) else jnp.asarray(leaf)[None]


class _Batches(NamedTuple):
    """Which groups or observations a step sees.

    Attributes:
        batching: how a batch is taken.
        size: how many rows it has.
        axes: for every leaf of the State the axis over groups, if rows are groups.
        warmup_steps: steps of the sampled groups alone before each step.
    """

    batching: Batching
    size: int
    axes: PyTree | None
    warmup_steps: int


class _Steps(NamedTuple):
    """The steps of a run.

    Attributes:
        take: `take(t, state) -> (state, info)`, the step of that number.
        seen: `seen(t, state)`, the part of a state that this step moves, and the data it sees.
    """

    take: Callable[[Array, Any], tuple[Any, Any]]
    seen: Callable[[Array, Any], tuple[Any, Data]]


def _batches(algorithm: Algorithm, state: Any, size: int | None, warmup: int) -> _Batches | None:
    batching = None if algorithm.log_joint is None else as_log_joint(algorithm.log_joint).batching
    if size is None or batching is None:
        return None
    axes = group_axes(algorithm.init, state) if batching.of_groups else None
    return _Batches(batching, size, axes, warmup)


def _steps(method: Algorithm, batches: _Batches | None, data: Data, key: Key) -> _Steps:
    """Steps on all the data, on a batch, or on a batch of groups."""
    if batches is None:
        return _Steps(
            lambda t, state: method.step(jax.random.fold_in(key, t), state, data),
            lambda t, state: (state, data),
        )
    batch_key = jax.random.fold_in(key, 2**32 - 1)

    def rows_at(t: Array) -> Array:
        return batch_rows(batch_key, t, batches.batching.num_data, batches.size)

    def seen(t: Array, state: Any) -> tuple[Any, Data]:
        rows = rows_at(t)
        part = state if batches.axes is None else take_groups(state, batches.axes, rows)
        return part, batches.batching.take(data, rows)

    def take(t: Array, state: Any) -> tuple[Any, Any]:
        step_key = jax.random.fold_in(key, t)
        part, batch = seen(t, state)
        if batches.axes is None:
            return method.step(step_key, part, batch)
        part, info = step_on_groups(
            method, step_key, part, batches.axes, batch, batches.warmup_steps
        )
        return put_groups(state, batches.axes, rows_at(t), part), info

    return _Steps(take, seen)


def _advance(  # noqa: PLR0913, the first five are fixed, the others are what jit is called with
    fixed: ById,
    record: Callable[[Any, Any], PyTree],
    batch_size: int | None,
    group_warmup_steps: int,
    single: bool,
    keys: Array,
    states: Any,
    data: Data,
    first_steps: Array,
    num_steps: Array,
    factors: Array,
) -> Block:
    """Runs `num_steps` steps from every state, all of them `factors` times their nominal size."""
    algorithm: Algorithm = fixed.value
    is_noisy = algorithm.stochastic or batch_size is not None

    def one_start(key: Key, state: Any, first_step: Array, count: Array, factor: Array) -> Block:
        method = algorithm if algorithm.rescale is None else algorithm.rescale(factor)
        batches = _batches(algorithm, state, batch_size, group_warmup_steps)
        steps = _steps(method, batches, data, key)
        theta_0 = ravel_pytree(state.theta)[0]

        @jax.jit  # traced once, for the shapes of what it says and for the loop
        def one_step(t: Array, state: Any) -> tuple[Any, Any]:
            return steps.take(t, state)

        def onwards(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            state, _, total, low, high = carry
            state, info = one_step(first_step + i.astype(count.dtype), state)
            theta = ravel_pytree(state.theta)[0]
            if is_noisy:
                # Sums of differences from the first theta, so that the mean does not lose digits.
                total = total + (theta - theta_0)
            return state, info, total, jnp.minimum(low, theta), jnp.maximum(high, theta)

        # What the last step says is carried, so that the step is compiled once.
        said = jax.eval_shape(lambda: one_step(first_step, state)[1])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), said)
        state, info, total, low, high = jax.lax.fori_loop(
            0, count, onwards, (state, nothing, jnp.zeros_like(theta_0), theta_0, theta_0)
        )
        mean = theta_0 + total / jnp.maximum(count, 1).astype(theta_0.dtype)
        seen = steps.seen(first_step + jnp.maximum(count - 1, 0), state)
        velocity, score, spread = _scales(algorithm, info, *seen)
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

    return over_starts(one_start, single=single)(keys, states, first_steps, num_steps, factors)


# advance(fixed, record, batch_size, group_warmup_steps, single)(keys, states, data, ...) -> Block
advance = recent(_advance)


# More numbers than this (particles times theta) are not held just to learn their spread.
_LARGEST_SPREAD = 2**24


def _scales(algorithm: Algorithm, info: Any, state: Any, data: Data) -> tuple[Array, Array, Array]:
    """Typical sizes of velocity and scores, and the spread of the theta score over the cloud.

    Zeros for a method with noise, which no rule asks for them.
    """
    log_joint = algorithm.log_joint
    if algorithm.stochastic or log_joint is None:
        return jnp.zeros(()), jnp.zeros(()), jnp.zeros_like(ravel_pytree(state.theta)[0])
    scores = latent_scores(log_joint, state.theta, state.particles, data)

    def one_theta_score(latent: Latent) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], latent)
        return ravel_pytree(theta_score(log_joint, state.theta, single, data))[0]

    # The spread needs every particle's theta score at once; for a very large theta it is left at 0,
    # and the rules fall back on the largest score seen.
    num_theta = sum(leaf.size for leaf in jax.tree.leaves(state.theta))
    spread = jnp.zeros(num_theta, trees.inner(state.theta, state.theta).dtype)
    if num_theta * trees.cloud_size(state.particles) <= _LARGEST_SPREAD:
        spread = jnp.std(jax.vmap(one_theta_score)(state.particles), axis=0)
    return _rms(info.velocity), _rms(scores), spread


def _rms(tree: PyTree) -> Array:
    return jnp.sqrt(trees.inner(tree, tree) / sum(leaf.size for leaf in jax.tree.leaves(tree)))


def magnitude(iterates: tuple[Theta, Particles]) -> Array:
    """The largest absolute value in theta and the cloud, and not finite if one of them is not."""
    leaves = jax.tree.leaves(iterates)
    dtype = ravel_pytree(iterates[0])[0].dtype
    # Sums, because a maximum may pass a NaN by.
    tops = [jnp.max(jnp.abs(leaf)).astype(dtype) for leaf in leaves if leaf.size]
    poison = [0 * jnp.sum(leaf).astype(dtype) for leaf in leaves]
    return jnp.max(jnp.stack(tops)) + sum(poison)

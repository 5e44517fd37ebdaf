"""From a fitted model to new values: predictions for the groups at hand, and new data sets."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from marginax.base import Key, Theta

__all__ = ["predict", "simulate"]


def predict(
    fn: Callable[[Key, Theta, Any], PyTree], theta: Theta, draws: PyTree, key: Key, num_draws: int
) -> PyTree:
    """`fn(key, theta, latent)` for draws of the latents, with a leading axis over them.

    Args:
        fn: a prediction, or simulated data, for one latent; natural values.
        theta: the estimate.
        draws: [chains, draws, ...] at every leaf.
        key: a `jax.random.key`.
        num_draws: how many to use, at most all.
    """
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    total = jax.tree.leaves(pooled)[0].shape[0]
    pick_key, fn_key = jax.random.split(key)
    chosen = jax.random.permutation(pick_key, total)[:num_draws]
    latents = jax.tree.map(lambda leaf: leaf[chosen], pooled)
    keys = jax.random.split(fn_key, len(chosen))
    return jax.jit(jax.vmap(fn, (0, None, 0)))(keys, theta, latents)


def simulate(fn: Callable[[Key, Theta], PyTree], theta: Theta, key: Key, num: int) -> PyTree:
    """`fn(key, theta)` for `num` keys, with a leading axis over them."""
    return jax.jit(jax.vmap(fn, (0, None)))(jax.random.split(key, num), theta)

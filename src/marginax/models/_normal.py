"""The normal log density that the models share."""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

__all__ = ["log_normal"]


def log_normal(deviation: Array, variance: ArrayLike) -> Array:
    """Log density of N(0, variance) at the deviation, element by element."""
    log_variance = jnp.log(jnp.asarray(variance, deviation.dtype))
    return -0.5 * (deviation**2 / variance + log_variance + math.log(2 * math.pi))

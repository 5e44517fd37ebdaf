"""What the models share: the normal log density, and two scores of predicted probabilities."""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

__all__ = ["error_rate", "log_normal", "log_predictive_density"]


def log_normal(deviation: Array, variance: ArrayLike) -> Array:
    """Log density of N(0, variance) at the deviation, element by element."""
    log_variance = jnp.log(jnp.asarray(variance, deviation.dtype))
    return -0.5 * (deviation**2 / variance + log_variance + math.log(2 * math.pi))


def error_rate(
    probabilities: Float[Array, "rows classes"], labels: Int[Array, " rows"]
) -> Float[Array, ""]:
    """The share of rows whose most probable class is not their label."""
    return jnp.mean((jnp.argmax(probabilities, axis=1) != labels).astype(probabilities.dtype))


def log_predictive_density(
    probabilities: Float[Array, "rows classes"], labels: Int[Array, " rows"]
) -> Float[Array, ""]:
    """LPPD: the mean over rows of the log of the particle-mean probability of the label."""
    return jnp.mean(jnp.log(jnp.take_along_axis(probabilities, labels[:, None], axis=1)))

"""Two scores of predicted class probabilities on held-out data."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["error_rate", "log_predictive_density"]


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

r"""The random-intercept model, the smallest mixed model, with its exact marginal and estimate.

    x_g ~ N(mean, sd_between^2),   y_gi = x_g + e_gi,   e_gi ~ N(0, sd_within^2)

With lambda = sd_within^2 + n sd_between^2, the group means are N(mean, lambda / n) and independent
of the deviations from them, which gives the marginal and, by the analysis of variance, its maximum.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.models.densities import log_normal
from marginax.typing import Key

__all__ = ["RandomIntercept", "RandomInterceptTheta"]


class RandomInterceptTheta(NamedTuple):
    """The three parameters, on unconstrained scales.

    Attributes:
        mean: of the groups.
        log_sd_between: log standard deviation of the group intercepts.
        log_sd_within: log standard deviation of the observations about their group.
    """

    mean: Array
    log_sd_between: Array
    log_sd_within: Array


class RandomIntercept:
    """theta is a `RandomInterceptTheta`, the latent G intercepts, the data G x n (balanced)."""

    @staticmethod
    def log_joint(
        theta: RandomInterceptTheta, latent: Float[Array, " g"], data: Float[Array, "g n"]
    ) -> Float[Array, ""]:
        """log p_theta(x, y)."""
        prior = log_normal(latent - theta.mean, jnp.exp(2 * theta.log_sd_between))
        noise = log_normal(data - latent[:, None], jnp.exp(2 * theta.log_sd_within))
        return jnp.sum(prior) + jnp.sum(noise)

    @staticmethod
    def simulate(
        key: Key, theta: RandomInterceptTheta, num_groups: int, group_size: int
    ) -> Float[Array, "g n"]:
        """Draws a balanced data set at theta."""
        group_key, noise_key = jax.random.split(key)
        intercepts = theta.mean + jnp.exp(theta.log_sd_between) * jax.random.normal(
            group_key, (num_groups, 1)
        )
        noise = jax.random.normal(noise_key, (num_groups, group_size))
        return intercepts + jnp.exp(theta.log_sd_within) * noise

    @staticmethod
    def log_marginal(theta: RandomInterceptTheta, data: Float[Array, "g n"]) -> Float[Array, ""]:
        """log p_theta(y)."""
        n = data.shape[1]
        within = jnp.exp(2 * theta.log_sd_within)
        total = within + n * jnp.exp(2 * theta.log_sd_between)
        group_means = jnp.mean(data, axis=1, keepdims=True)
        deviations = jnp.sum((data - group_means) ** 2)
        # An orthogonal rotation of each group: one coordinate sqrt(n) * mean, n - 1 that are pure
        # noise.
        means = jnp.sum(log_normal(jnp.sqrt(float(n)) * (group_means - theta.mean), total))
        pure_noise = -0.5 * (
            deviations / within + data.shape[0] * (n - 1) * jnp.log(2 * jnp.pi * within)
        )
        return means + pure_noise

    @staticmethod
    def maximum_likelihood(data: Float[Array, "g n"]) -> RandomInterceptTheta:
        """The exact estimate; log_sd_between is -inf when it lies on the boundary."""
        num_groups, n = data.shape
        group_means = jnp.mean(data, axis=1, keepdims=True)
        mean = jnp.mean(data)
        within = jnp.sum((data - group_means) ** 2) / (num_groups * (n - 1))
        total = n * jnp.mean((group_means - mean) ** 2)
        # Where the groups vary less than noise alone would make them, all the variance is noise.
        boundary = total < within
        within = jnp.where(boundary, jnp.mean((data - mean) ** 2), within)
        between = jnp.where(boundary, 0.0, (total - within) / n)
        return RandomInterceptTheta(mean, 0.5 * jnp.log(between), 0.5 * jnp.log(within))

    @staticmethod
    def posterior(
        theta: RandomInterceptTheta, data: Float[Array, "g n"]
    ) -> tuple[Float[Array, " g"], Float[Array, ""]]:
        """Mean of every intercept and their common variance, given y."""
        precision_between = jnp.exp(-2 * theta.log_sd_between)
        precision_data = data.shape[1] * jnp.exp(-2 * theta.log_sd_within)
        variance = 1 / (precision_between + precision_data)
        group_means = jnp.mean(data, axis=1)
        mean = (precision_between * theta.mean + precision_data * group_means) * variance
        return mean, variance

r"""The toy hierarchical model, where everything is known in closed form.

    x_d ~ N(theta, prior_variance),   y_d | x_d ~ N(x_d, noise_variance),   d = 1..D

The marginal is y_d ~ N(theta, prior_variance + noise_variance), so the maximum likelihood estimate
is the mean of y.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from marginax.models.densities import log_normal
from marginax.typing import Key

__all__ = ["ToyHierarchical"]


@dataclass(frozen=True)
class ToyHierarchical:
    """theta is a scalar, the latent a vector of length D, the data a vector of length D.

    The M-SVGD-EM paper states standard deviations 12 and 1 (variances 144 and 1), and its released
    numbers come from variances 12 and 12.

    Attributes:
        prior_variance: of x_d about theta.
        noise_variance: of y_d about x_d.
    """

    prior_variance: ArrayLike = 1.0
    noise_variance: ArrayLike = 1.0

    def log_joint(
        self, theta: Float[Array, ""], latent: Float[Array, " d"], data: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """log p_theta(x, y)."""
        prior = log_normal(latent - theta, self.prior_variance)
        return jnp.sum(prior + log_normal(data - latent, self.noise_variance))

    def simulate(self, key: Key, theta: float, dimension: int) -> Float[Array, " d"]:
        """Draws y of the given dimension at theta."""
        sd = jnp.sqrt(jnp.asarray(self.prior_variance + self.noise_variance, float))
        return theta + sd * jax.random.normal(key, (dimension,))

    def log_marginal(self, theta: Float[Array, ""], data: Float[Array, " d"]) -> Float[Array, ""]:
        """log p_theta(y)."""
        return jnp.sum(log_normal(data - theta, self.prior_variance + self.noise_variance))

    def maximum_likelihood(self, data: Float[Array, " d"]) -> Float[Array, ""]:
        """The exact estimate, the mean of y."""
        return jnp.mean(data)

    def posterior_mean(
        self, theta: Float[Array, ""], data: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """E[x | y] at theta."""
        pull = data / self.noise_variance + theta / self.prior_variance
        return pull * self.posterior_variance

    @property
    def posterior_variance(self) -> ArrayLike:
        """Var[x_d | y], the same for every d and theta."""
        return 1 / (1 / self.prior_variance + 1 / self.noise_variance)

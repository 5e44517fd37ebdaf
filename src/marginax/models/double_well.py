r"""A latent energy-based model: a double well whose constant is known by quadrature alone.

    p_theta(x) ~ exp(-E_theta(x)),   E_theta(x) = exp(sharpness) (x^2 - 1)^2 - tilt x
    y_i | x_i ~ N(x_i, noise_variance),                                   i = 1..n

theta = (sharpness, tilt). Both the constant and the marginal of y are integrals over a line, which
the trapezoidal rule gives to all digits.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from marginax.models.densities import log_normal
from marginax.typing import Key

__all__ = ["DoubleWell", "DoubleWellTheta"]


class DoubleWellTheta(NamedTuple):
    """theta of the double well.

    Attributes:
        sharpness: log of the height of the barrier between the wells at -1 and 1.
        tilt: how much lower the well on the right lies.
    """

    sharpness: ArrayLike
    tilt: ArrayLike


@dataclass(frozen=True)
class DoubleWell:
    """The latent is a vector of length n, the data a vector of length n.

    Its log joint is `unnormalized_prior(well.energy, well.log_likelihood, num_rows=n)`.

    Attributes:
        noise_variance: of y_i about x_i.
    """

    noise_variance: ArrayLike = 0.25

    def energy(self, theta: DoubleWellTheta, x: Float[Array, ""]) -> Float[Array, ""]:
        """E_theta of one x."""
        return jnp.exp(theta.sharpness) * (x**2 - 1) ** 2 - theta.tilt * x

    def log_likelihood(
        self, theta: DoubleWellTheta, latent: Float[Array, " n"], data: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """log p(y | x)."""
        del theta
        return jnp.sum(log_normal(data - latent, self.noise_variance))

    def log_marginal(self, theta: DoubleWellTheta, data: Float[Array, " n"]) -> Float[Array, ""]:
        """log p_theta(y), by the trapezoidal rule."""
        grid = _grid(data.dtype)
        prior = -jax.vmap(lambda x: self.energy(theta, x))(grid)
        noise = log_normal(data[:, None] - grid[None, :], self.noise_variance)
        joint = jax.nn.logsumexp(prior[None, :] + noise, axis=1)
        return jnp.sum(joint - jax.nn.logsumexp(prior))

    def simulate(self, key: Key, theta: DoubleWellTheta, num_rows: int) -> Float[Array, " n"]:
        """Draws y at theta, from the grid of the quadrature."""
        prior_key, noise_key = jax.random.split(key)
        grid = _grid(jnp.zeros(()).dtype)
        logits = -jax.vmap(lambda x: self.energy(theta, x))(grid)
        x = grid[jax.random.categorical(prior_key, logits, shape=(num_rows,))]
        sd = jnp.sqrt(jnp.asarray(self.noise_variance, x.dtype))
        return x + sd * jax.random.normal(noise_key, x.shape, x.dtype)


def _grid(dtype: jnp.dtype) -> Float[Array, " m"]:
    # E grows as x^4: at 6 nothing is left of the prior, whatever the tilt of interest.
    return jnp.linspace(-6.0, 6.0, 2401, dtype=dtype)

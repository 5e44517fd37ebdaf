r"""Probabilistic principal component analysis, whose estimate is known through eigenvalues.

    x_n ~ N(0, I_q),   y_n | x_n ~ N(mean + W x_n, sd^2 I_p),   n = 1..rows

The marginal is y_n ~ N(mean, W W' + sd^2 I). With eigenvalues l_1 >= ... >= l_p of the sample
covariance (divisor = rows) and eigenvectors u_i, the maximum is sd^2 = mean(l_{q+1..p}), W = U_q
(L_q - sd^2 I)^{1/2} R for any rotation R, so compare W W' and not W.

References:
    Tipping and Bishop (1999), Probabilistic principal component analysis, JRSS B.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.models.densities import log_normal
from marginax.typing import Key

__all__ = ["ProbabilisticPCA", "ProbabilisticPCATheta"]


class ProbabilisticPCATheta(NamedTuple):
    """The parameters, on unconstrained scales.

    Attributes:
        mean: p numbers.
        loadings: W, p x q.
        log_sd: log standard deviation of the noise.
    """

    mean: Array
    loadings: Array
    log_sd: Array

    @property
    def covariance(self) -> Float[Array, "p p"]:
        """W W' + sd^2 I, the covariance of a row, which does not depend on the rotation of W."""
        noise = jnp.exp(2 * self.log_sd) * jnp.eye(
            self.loadings.shape[0], dtype=self.loadings.dtype
        )
        return self.loadings @ self.loadings.T + noise


class ProbabilisticPCA:
    """theta is a `ProbabilisticPCATheta`, the latent is rows x q, the data rows x p."""

    @staticmethod
    def log_joint(
        theta: ProbabilisticPCATheta, latent: Float[Array, "rows q"], data: Float[Array, "rows p"]
    ) -> Float[Array, ""]:
        """log p_theta(x, y)."""
        fitted = theta.mean[None, :] + latent @ theta.loadings.T
        noise = log_normal(data - fitted, jnp.exp(2 * theta.log_sd))
        return jnp.sum(log_normal(latent, 1.0)) + jnp.sum(noise)

    @staticmethod
    def simulate(key: Key, theta: ProbabilisticPCATheta, num_rows: int) -> Float[Array, "rows p"]:
        """Draws rows at theta."""
        latent_key, noise_key = jax.random.split(key)
        p, q = theta.loadings.shape
        latent = jax.random.normal(latent_key, (num_rows, q))
        noise = jnp.exp(theta.log_sd) * jax.random.normal(noise_key, (num_rows, p))
        return theta.mean[None, :] + latent @ theta.loadings.T + noise

    @staticmethod
    def log_marginal(
        theta: ProbabilisticPCATheta, data: Float[Array, "rows p"]
    ) -> Float[Array, ""]:
        """log p_theta(y)."""
        covariance = theta.covariance
        logpdf = jax.scipy.stats.multivariate_normal.logpdf
        return jnp.sum(jax.vmap(lambda row: logpdf(row, theta.mean, covariance))(data))

    @staticmethod
    def maximum_likelihood(
        data: Float[Array, "rows p"], num_components: int
    ) -> ProbabilisticPCATheta:
        """The exact estimate, with R = I."""
        mean = jnp.mean(data, axis=0)
        centered = data - mean[None, :]
        values, vectors = jnp.linalg.eigh(centered.T @ centered / data.shape[0])
        values, vectors = values[::-1], vectors[:, ::-1]  # largest first
        noise_variance = jnp.mean(values[num_components:])
        excess = jnp.sqrt(jnp.maximum(values[:num_components] - noise_variance, 0))
        loadings = vectors[:, :num_components] * excess[None, :]
        return ProbabilisticPCATheta(mean, loadings, 0.5 * jnp.log(noise_variance))

r"""The kernel Stein discrepancy: a distance from the cloud to the posterior, from scores alone.

With the inverse multiquadric k = (1 + r^2 / c^2)^(-1/2), D numbers per latent, and all pairs:

    u(x, y) = k s_x's_y + (k^3 / c^2) (s_x - s_y)'(x - y) + D k^3 / c^2 - 3 r^2 k^5 / c^4

V is the mean of u over all N^2 pairs (never negative), U over the N (N - 1) pairs of different
particles (unbiased, so 0 on average for independent draws of the posterior).

References:
    Gorham and Mackey (2017), Measuring sample quality with kernels, ICML.
    Liu, Lee and Jordan (2016), A kernelized Stein discrepancy for goodness-of-fit tests, ICML.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax._core.linalg import matmul
from marginax.flows.scores import latent_scores
from marginax.typing import Data, LogDensity, Particles, Theta

__all__ = ["KSD", "kernel_stein_discrepancy"]

# So many rows of the N x N matrix are held at once.
ROWS = 256


class KSD(NamedTuple):
    """The squared kernel Stein discrepancy.

    Attributes:
        u: over pairs of different particles; may be negative.
        v: over all pairs; not negative but for rounding.
        root: the square root of v, the discrepancy itself.
    """

    u: Array
    v: Array
    root: Array


def kernel_stein_discrepancy(
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data = None,
    *,
    scale: ArrayLike = 1.0,
) -> KSD:
    """How far the cloud is from the posterior at theta, in tiles of rows: N = 10,000 fits.

    It compares clouds of the same model; as a number alone it has no units a person could read.

    Args:
        log_joint: `log_joint(theta, latent, data)`.
        theta: the estimate.
        particles: the cloud.
        data: handed to `log_joint`.
        scale: c, about the distance over which particles should feel each other.
    """
    check_positive(scale, "scale")
    theta, particles = check_start(theta, particles)
    x = trees.ravel_cloud(particles)
    x = x - jnp.mean(x, axis=0, keepdims=True)
    s = trees.ravel_cloud(latent_scores(log_joint, theta, particles, data))
    n, d = x.shape
    c2 = jnp.asarray(scale).astype(x.dtype) ** 2
    norms, own = jnp.sum(x**2, axis=1), jnp.sum(s * x, axis=1)

    def row(i: Array) -> tuple[Array, Array]:
        """The sum over j of u(x_i, x_j), and u(x_i, x_i)."""
        r2 = jnp.maximum(norms[i] + norms - 2 * matmul(x, x[i]), 0)
        r2 = r2.at[i].set(0)
        k = (1 + r2 / c2) ** -0.5
        cross = own[i] + own - matmul(x, s[i]) - matmul(s, x[i])
        terms = k * matmul(s, s[i]) + k**3 * (cross + d) / c2 - 3 * r2 * k**5 / c2**2
        return jnp.sum(terms), terms[i]

    sums, diagonal = jax.lax.map(row, jnp.arange(n), batch_size=min(n, ROWS))
    total, same = jnp.sum(sums), jnp.sum(diagonal)
    v: Float[Array, ""] = total / n**2
    return KSD((total - same) / max(n * (n - 1), 1), v, jnp.sqrt(jnp.maximum(v, 0)))

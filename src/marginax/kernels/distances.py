r"""The energy kernel: that of the energy distance, from distances themselves.

    k(x, x') = 1 + ( ||x - m|| + ||x' - m|| - ||x - x'|| ) / (2 h)

with the cloud's mean m, held constant. -||x - x'|| alone is positive definite only among weights
that add up to 0; with the two other terms it is so among all (Sejdinovic et al., 2013, section 4).
With rho_j = ||x_j - m||, r_ij = ||x_i - x_j|| and 0 for 0 / 0:

    grad_1 k(x_j, x_i) = [ (x_j - m) / rho_j + (x_i - x_j) / r_ij ] / (2 h)

The part with r_ij is a radial one, in tiles if need be; the rest are sums over the cloud.
"""

import jax.numpy as jnp
from jaxtyping import Array

from marginax._core import trees
from marginax.kernels.bandwidths import Bandwidth, as_rule
from marginax.kernels.base import Kernel
from marginax.kernels.radial import radial
from marginax.typing import Particles

__all__ = ["energy"]


def energy(
    bandwidth: Bandwidth = 1.0, *, precision: str = "full", tile: int | None = None
) -> Kernel:
    """The energy kernel over the whole latent, which grows with the distance from the cloud's mean.

    Particles repel each other with the same strength at all distances.

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        precision: as for `rbf`.
        tile: as for `rbf`.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    References:
        Sejdinovic, Sriperumbudur, Gretton and Fukumizu (2013), Equivalence of distance-based and
        RKHS-based statistics in hypothesis testing, Annals of Statistics.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> kernel = mx.kernels.energy(1.0)
        >>> x = jnp.array([[0.0], [1.0]])
        >>> kernel.velocity(x, jnp.zeros_like(x)).round(3).tolist()
        [[-0.25], [0.25]]
    """
    rule = as_rule(bandwidth)

    def distances(squared: Array, h2: Array) -> tuple[Array, Array]:
        apart = jnp.sqrt(squared)
        inverse = jnp.where(squared > 0, 1 / jnp.where(squared > 0, apart, 1), 0)
        half = 1 / (2 * jnp.sqrt(h2))
        return -half * apart, half * h2 * inverse

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        h2 = rule(x, None)
        away = x - jnp.mean(x, axis=0, keepdims=True)
        rho = jnp.sqrt(jnp.sum(away**2, axis=1, keepdims=True))
        outwards = away / jnp.where(rho > 0, rho, 1)
        half = 1 / (2 * jnp.sqrt(h2))
        alike = jnp.mean(s + half * rho * s + half * outwards, axis=0, keepdims=True)
        own = half * rho * jnp.mean(s, axis=0, keepdims=True)
        between = radial(distances, lambda x, squared: h2, precision, tile)(x, s)
        return trees.unravel_cloud(alike + own + between, particles)

    return Kernel(velocity, f"energy({bandwidth!r})")

r"""The Gaussian (radial basis function) kernel.

k(x, x') = exp(-r^2 / (2 h^2)),  r = ||x - x'||        grad_1 k(x_j, x) = k (x - x_j) / h^2

phi = (1/N) [ K S + (diag(K 1) X - K X) / h^2 ]
"""

import jax.numpy as jnp

from marginax import _tree, stein
from marginax.base import Particles
from marginax.kernels._bandwidth import Bandwidth, as_rule
from marginax.stein import Kernel

__all__ = ["rbf"]


def rbf(bandwidth: Bandwidth = "median") -> Kernel:
    """The Gaussian kernel over the whole latent, exp(-r^2 / (2 h^2)).

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    Warning:
        One bandwidth for all coordinates together: as the dimension of the latent grows, the cloud
        keeps less and less of the posterior's variance.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> kernel = mx.kernels.rbf(1.0)
        >>> x = jnp.array([[0.0], [1.0]])
        >>> kernel.velocity(x, jnp.zeros_like(x)).round(3).tolist()  # no score: pure repulsion
        [[-0.303], [0.303]]
    """
    bandwidth_squared = as_rule(bandwidth)

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        squared = stein.squared_distances(x)
        h2 = bandwidth_squared(squared)
        gram = jnp.exp(-squared / (2 * h2))
        # The Gaussian is its own derivative: grad_1 k is k / h^2 times the difference.
        return _tree.unravel_cloud(stein.radial_velocity(x, s, gram, gram, 1 / h2), particles)

    return Kernel(velocity, f"rbf({bandwidth!r})")

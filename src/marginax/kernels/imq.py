r"""The inverse multiquadric kernel, whose slow tails let far particles still feel each other.

k(x, x') = (1 + r^2 / h^2)^(-1/2)          grad_1 k(x_j, x) = k^3 (x - x_j) / h^2
"""

from marginax import _tree, stein
from marginax.base import Particles
from marginax.kernels._bandwidth import Bandwidth, as_rule
from marginax.stein import Kernel

__all__ = ["imq"]


def imq(bandwidth: Bandwidth = 1.0) -> Kernel:
    """The inverse multiquadric kernel over the whole latent, (1 + r^2 / h^2)^(-1/2).

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    References:
        Gorham and Mackey (2017), Measuring sample quality with kernels, ICML.
    """
    bandwidth_squared = as_rule(bandwidth)

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        squared = stein.squared_distances(x)
        h2 = bandwidth_squared(squared)
        gram = (1 + squared / h2) ** -0.5
        return _tree.unravel_cloud(stein.radial_velocity(x, s, gram, gram**3, 1 / h2), particles)

    return Kernel(velocity, f"imq({bandwidth!r})")

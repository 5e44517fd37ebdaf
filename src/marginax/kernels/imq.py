r"""The inverse multiquadric kernel, whose slow tails let far particles still feel each other.

k(x, x') = (1 + r^2 / h^2)^(-1/2)          grad_1 k(x_j, x) = k^3 (x - x_j) / h^2
"""

import jax
from jaxtyping import Array

from marginax.kernels._bandwidth import Bandwidth, as_rule
from marginax.kernels._radial import radial
from marginax.stein import Kernel

__all__ = ["imq"]


def imq(bandwidth: Bandwidth = 1.0, *, precision: str = "full", tile: int | None = None) -> Kernel:
    """The inverse multiquadric kernel over the whole latent, (1 + r^2 / h^2)^(-1/2).

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        precision: as for `rbf`.
        tile: as for `rbf`.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    References:
        Gorham and Mackey (2017), Measuring sample quality with kernels, ICML.
    """

    def profile(squared: Array, h2: Array) -> tuple[Array, Array]:
        gram = jax.lax.rsqrt(1 + squared / h2)
        return gram, gram * gram * gram

    words = "" if precision == "full" else f", precision={precision!r}"
    velocity = radial(profile, as_rule(bandwidth), precision, tile)
    return Kernel(velocity, f"imq({bandwidth!r}{words})")

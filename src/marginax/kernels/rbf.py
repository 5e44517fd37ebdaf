r"""The Gaussian (radial basis function) kernel.

k(x, x') = exp(-r^2 / (2 h^2)),  r = ||x - x'||        grad_1 k(x_j, x) = k (x - x_j) / h^2

phi = (1/N) [ K S + (diag(K 1) X - K X) / h^2 ]
"""

import jax.numpy as jnp
from jaxtyping import Array

from marginax.kernels._bandwidth import Bandwidth, as_rule
from marginax.kernels._radial import radial
from marginax.stein import Kernel

__all__ = ["rbf"]


def rbf(
    bandwidth: Bandwidth = "median", *, precision: str = "full", tile: int | None = None
) -> Kernel:
    """The Gaussian kernel over the whole latent, exp(-r^2 / (2 h^2)).

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        precision: "full", or "tf32" for products with the Gram matrix in 10 bits on GPUs that have
            it: faster, with an error of about 1e-3 of the largest velocity.
        tile: so many numbers of the Gram matrix are held at a time, to save memory; by default what
            suits the device.

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

    def profile(squared: Array, h2: Array) -> tuple[Array, Array]:
        gram = jnp.exp(-squared / (2 * h2))
        return gram, gram  # its own derivative: grad_1 k is k / h^2 times the difference

    words = "" if precision == "full" else f", precision={precision!r}"
    velocity = radial(profile, as_rule(bandwidth), precision, tile)
    return Kernel(velocity, f"rbf({bandwidth!r}{words})")

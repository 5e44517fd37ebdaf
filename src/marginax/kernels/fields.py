r"""Fields: velocities with every particle's own score, for the place of a kernel.

With K_ij = exp(-||x_i - x_j||^2 / (2 h^2)) and d_i = sum_j K_ij the density of the cloud is
smoothed, and particles move up the score and down the gradient of its logarithm:

    gfsd   v_i = s_i + (x_i - sum_j K_ij x_j / d_i) / h^2
    blob   v_i = s_i + sum_j K_ij (1 / d_i + 1 / d_j) (x_i - x_j) / h^2
    gfsf   V   = S + (K + lambda max(K) I)^-1 (diag(d) - K) X / h^2

SVGD averages the scores by the kernel; these do not, so that their steps are tuned anew. Products
with K are made of tiles where it is large; `gfsf` solves with it, and holds it whole.

References:
    Liu, Zhuo, Cheng, Zhang, Zhu and Carin (2019), Understanding and accelerating particle-based
    variational inference, ICML, section 4; `blob` is there the method of Chen, Zhang, Wang, Li and
    Chen (2018).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, trees
from marginax._core.checks import check_positive
from marginax.kernels.bandwidths import Bandwidth, as_rule
from marginax.kernels.base import Kernel
from marginax.kernels.radial import DENSE, DENSE_ON_GPU, TILE, TILE_ON_GPU, on_gpu
from marginax.typing import Particles

__all__ = ["blob", "gfsd", "gfsf"]

# sum_j K_ij (a_i + a_j) b_j, of a column a and a matrix b with a row per particle.
Smoother = Callable[[Float[Array, "n 1"], Float[Array, "n m"]], Float[Array, "n m"]]


def gfsd(bandwidth: Bandwidth = "median", *, tile: int | None = None) -> Kernel:
    """The gradient flow with a smoothed density, for the kernel slot of every Stein method.

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        tile: how many numbers of K are held at a time, to save memory; by default what suits the
            device.

    Returns:
        A field for `svgd_em`, `m_svgd_em`, `coin_em`, `blockwise` and metrics.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> x = jnp.array([[0.0], [1.0]])
        >>> mx.kernels.gfsd(1.0).velocity(x, jnp.zeros_like(x)).round(3).tolist()
        [[-0.378], [0.378]]
    """

    def push(x: Array, smooth: Smoother) -> Array:
        ones = jnp.ones_like(x[:, :1])
        sums = smooth(ones / 2, jnp.concatenate([x, ones], axis=1))
        return x - sums[:, :-1] / sums[:, -1:]

    return _field(f"gfsd({bandwidth!r})", push, bandwidth, tile)


def blob(bandwidth: Bandwidth = "median", *, tile: int | None = None) -> Kernel:
    """The blob method, for the kernel slot of every Stein method.

    Args:
        bandwidth: as for `gfsd`.
        tile: as for `gfsd`.

    Returns:
        A field for `svgd_em`, `m_svgd_em`, `coin_em`, `blockwise` and metrics.
    """

    def push(x: Array, smooth: Smoother) -> Array:
        ones = jnp.ones_like(x[:, :1])
        density = smooth(ones / 2, ones)
        sums = smooth(1 / density, jnp.concatenate([x, ones], axis=1))
        return sums[:, -1:] * x - sums[:, :-1]

    return _field(f"blob({bandwidth!r})", push, bandwidth, tile)


def gfsf(bandwidth: Bandwidth = "median", *, ridge: float = 1e-2) -> Kernel:
    """The gradient flow with smoothed functions, for the kernel slot of every Stein method.

    It holds the N x N matrix of the kernel, whatever N, and solves with it.

    Args:
        bandwidth: as for `gfsd`.
        ridge: lambda, relative to the largest entry of K.

    Returns:
        A field for `svgd_em`, `m_svgd_em`, `coin_em`, `blockwise` and metrics.
    """
    check_positive(ridge, "ridge")
    rule = as_rule(bandwidth)

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        x = linalg.centered(x)  # the result is the same, and differences lose less
        squared = linalg.squared_distances(x)
        h2 = rule(x, squared)
        gram = jnp.exp(-squared / (2 * h2))
        push = jnp.sum(gram, axis=1, keepdims=True) * x - linalg.matmul(gram, x)
        raised = gram + ridge * jnp.max(gram) * jnp.eye(len(x), dtype=x.dtype)
        return trees.unravel_cloud(s + linalg.solve_positive(raised, push) / h2, particles)

    return Kernel(velocity, f"gfsf({bandwidth!r}, ridge={ridge!r})", is_field=True)


def _field(
    name: str, push: Callable[[Array, Smoother], Array], bandwidth: Bandwidth, tile: int | None
) -> Kernel:
    """v = s + push(x) / h^2."""
    rule = as_rule(bandwidth)

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        x = linalg.centered(x)  # a field does not see where the cloud is
        if x.shape[0] ** 2 > (tile or (DENSE_ON_GPU if on_gpu() else DENSE)):
            h2 = rule(x, None)
            return trees.unravel_cloud(s + push(x, _in_tiles(x, h2, tile)) / h2, particles)
        squared = linalg.squared_distances(x)
        h2 = rule(x, squared)
        gram = jnp.exp(-squared / (2 * h2))
        moved = s + push(x, lambda a, b: linalg.matmul(gram * (a + a.T), b)) / h2
        return trees.unravel_cloud(moved, particles)

    return Kernel(velocity, name, is_field=True)


def _in_tiles(x: Float[Array, "n d"], h2: Array, tile: int | None) -> Smoother:
    """Products with K, some of its rows at a time."""
    norms = jnp.sum(x**2, axis=1)
    rows = max(1, (tile or (TILE_ON_GPU if on_gpu() else TILE)) // len(x))

    def smooth(a: Float[Array, "n 1"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
        def row(i: Array) -> Array:
            squared = norms[i] + norms - 2 * linalg.matmul(x, x[i])
            squared = jnp.where(jnp.arange(len(x)) == i, 0, jnp.maximum(squared, 0))
            return linalg.matmul(jnp.exp(-squared / (2 * h2)) * (a[i] + a[:, 0]), b)

        return jax.lax.map(row, jnp.arange(len(x)), batch_size=rows)

    return smooth

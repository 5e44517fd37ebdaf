r"""Kernels of the distance, k = f(r^2), by one Gram matrix or in tiles.

    rbf           k = exp(-r^2 / (2 h^2))               grad_1 k(x_j, x) = k (x - x_j) / h^2
    imq           k = (1 + r^2 / h^2)^(-1/2)            grad_1 k(x_j, x) = k^3 (x - x_j) / h^2
    inverse_log   k = 1 / (1 + log(1 + r^2 / h^2))      grad_1 k(x_j, x) = 2 k^2 (x - x_j)
                                                                           / (h^2 + r^2)

    phi_i = (1/N) [ sum_j k_ij s_j + (1/h^2) sum_j w_ij (x_i - x_j) ]

The Gram matrix is held whole while it is small. Beyond that a tile of its rows is made, used and
forgotten, so that memory is N D and not N^2; on NVIDIA GPUs with tensor cores a program of our own
(`gpu`) does not make it at all.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, trees
from marginax._core.checks import check_count, check_positive
from marginax._core.linalg import matmul
from marginax.kernels.bandwidths import Bandwidth, Rule, as_rule
from marginax.kernels.base import Kernel
from marginax.kernels.gpu import can_fuse, fused_sums
from marginax.typing import Count, Particles

__all__ = [
    "PRECISIONS",
    "Profile",
    "imq",
    "inverse_log",
    "paper_rbf",
    "radial",
    "radial_velocity",
    "rbf",
]


def rbf(
    bandwidth: Bandwidth = "median", *, precision: str = "full", tile: int | None = None
) -> Kernel:
    """The Gaussian kernel over the whole latent, exp(-r^2 / (2 h^2)).

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        precision: "full", or "tf32" for products with the Gram matrix in 10 bits on GPUs that have
            it: faster, with an error of about 1e-3 of the largest velocity.
        tile: how many numbers of the Gram matrix are held at a time, to save memory; by default
            what suits the device.

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

    return _of_profile("rbf", profile, bandwidth, precision, tile)


def paper_rbf(h: float, *, precision: str = "full", tile: int | None = None) -> Kernel:
    """The Gaussian kernel in the form that the M-SVGD-EM paper prints, exp(-2 r^2 / h^2).

    It is `rbf(h / 2)`. The paper's numbers come from `rbf(5.0)`, exp(-r^2 / (2 h^2)) with h = 5.

    Args:
        h: the paper's bandwidth.
        precision: as for `rbf`.
        tile: as for `rbf`.
    """
    check_positive(h, "h")
    return replace(rbf(h / 2, precision=precision, tile=tile), name=f"paper_rbf({h!r})")


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

    return _of_profile("imq", profile, bandwidth, precision, tile)


def inverse_log(
    bandwidth: Bandwidth = 1.0, *, precision: str = "full", tile: int | None = None
) -> Kernel:
    """The inverse log kernel over the whole latent, 1 / (1 + log(1 + r^2 / h^2)).

    It falls more slowly than any power of the distance: particles far away are still felt.

    Args:
        bandwidth: h as a number, or the rule "median" or "mean" that reads it off the cloud.
        precision: as for `rbf`.
        tile: as for `rbf`.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    References:
        Chen, Mackey, Gorham, Briol and Oates (2018), Stein points, ICML.
    """

    def profile(squared: Array, h2: Array) -> tuple[Array, Array]:
        ratio = squared / h2
        gram = 1 / (1 + jnp.log1p(ratio))
        return gram, 2 * gram * gram / (1 + ratio)

    return _of_profile("inverse_log", profile, bandwidth, precision, tile)


def _of_profile(
    name: str, profile: "Profile", bandwidth: Bandwidth, precision: str, tile: int | None
) -> Kernel:
    """The kernel of a profile with k(x, x) = 1."""
    rule = as_rule(bandwidth)

    def matrices(x: Float[Array, "n d"]) -> tuple[Array, Array]:
        squared = linalg.squared_distances(x)
        h2 = rule(x, squared)
        gram, repulsion = profile(squared, h2)
        return gram, repulsion / h2

    words = "" if precision == "full" else f", precision={precision!r}"
    return Kernel(
        radial(profile, rule, precision, tile),
        f"{name}({bandwidth!r}{words})",
        matrices=matrices,
        fits_batches=not isinstance(bandwidth, str),
    )


# (r^2, h^2) -> K and W, with grad_1 k(x_j, x) = W (x - x_j) / h^2.
Profile = Callable[[Array, Array], tuple[Array, Array]]
# The most numbers of a Gram matrix that is held whole, and of a tile of a larger one, which
# stays in the cache: at 4,096 particles the whole matrix takes 1.2 to 1.6 times as long.
DENSE, TILE = 2**20, 2**19
COLUMNS = 1024  # of such a tile
DENSE_ON_GPU, TILE_ON_GPU = 2**24, 2**26  # a GPU wants more to do at a time
PRECISIONS = {"full": jax.lax.Precision.HIGHEST, "tf32": jax.lax.Precision.DEFAULT}


def radial(
    profile: Profile, rule: Rule, precision: str = "full", tile: Count | None = None
) -> Callable[[Particles, Particles], Particles]:
    """The velocity function of a radial kernel.

    Args:
        profile: the kernel's values and its repulsion, from squared distances.
        rule: the bandwidth.
        precision: of the products with the Gram matrix; distances are always in full precision,
            because they are differences of large numbers.
        tile: how many numbers of the Gram matrix are held at a time; by default what suits the
            device.
    """
    if tile is not None:
        tile = check_count(tile, "tile")
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}, but it must be {' or '.join(map(repr, PRECISIONS))}."
        )
    product = linalg.product(PRECISIONS[precision])

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        if x.shape[0] ** 2 > (tile or (DENSE_ON_GPU if on_gpu() else DENSE)):
            x = x - jnp.mean(x, axis=0, keepdims=True)
            h2 = rule(x, None)
            tiles = partial(_in_tiles, profile, product, tile)
            if can_fuse(x):
                fused = partial(_fused, profile, precision == "tf32")
                phi = jax.lax.platform_dependent(x, s, h2, cuda=fused, default=tiles)
            else:
                phi = tiles(x, s, h2)
            return trees.unravel_cloud(phi, particles)
        squared = linalg.squared_distances(x)
        h2 = rule(x, squared)
        gram, repulsion = profile(squared, h2)
        phi = radial_velocity(x, s, gram, repulsion, 1 / h2, product)
        return trees.unravel_cloud(phi, particles)

    return velocity


def on_gpu() -> bool:
    """Whether JAX computes on one by default."""
    return jax.default_backend() == "gpu"


def _fused(
    profile: Profile,
    rounded: bool,
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    h2: Float[Array, ""],
) -> Float[Array, "n d"]:
    attracted, pushed, total = fused_sums(profile, x, s, h2, rounded=rounded)
    return (attracted + (total[:, None] * x - pushed) / h2) / x.shape[0]


def _in_tiles(
    profile: Profile,
    product: Callable[[Array, Array], Array],
    tile: int | None,
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    h2: Float[Array, ""],
) -> Float[Array, "n d"]:
    n, d = x.shape
    tile = tile or (TILE_ON_GPU if on_gpu() else TILE)
    width = min(n, tile if on_gpu() else COLUMNS)
    fill = -n % width
    # Columns in tiles of one width, so that a pair costs the same whatever N is.
    padded = jnp.pad(jnp.concatenate([s, x], axis=1), ((0, fill), (0, 0)))
    norms = jnp.sum(x**2, axis=1)
    columns = (
        padded.reshape(-1, width, 2 * d),
        jnp.pad(norms, (0, fill)).reshape(-1, width),
        jnp.arange(n + fill).reshape(-1, width),
    )

    def row(i: Array) -> Array:
        def some_columns(sums: tuple[Array, ...], part: tuple[Array, ...]) -> Any:
            attracted, pushed, total = sums
            both, their_norms, j = part
            cross = linalg.matmul(both[:, d:], x[i])
            squared = jnp.where(j == i, 0, jnp.maximum(norms[i] + their_norms - 2 * cross, 0))
            gram, repulsion = profile(squared, h2)
            same = gram is repulsion
            if fill:  # nothing from padding
                gram = jnp.where(j < n, gram, 0)
                repulsion = gram if same else jnp.where(j < n, repulsion, 0)
            if same:  # one pass over the tile
                sums_of_both = product(gram, both)
                attracted, pushed = attracted + sums_of_both[:d], pushed + sums_of_both[d:]
            else:
                attracted = attracted + product(gram, both[:, :d])
                pushed = pushed + product(repulsion, both[:, d:])
            return (attracted, pushed, total + jnp.sum(repulsion)), None

        nothing = (jnp.zeros_like(s[0]), jnp.zeros_like(x[0]), jnp.zeros_like(norms[0]))
        (attracted, pushed, total), _ = jax.lax.scan(some_columns, nothing, columns)
        return attracted + (total * x[i] - pushed) / h2

    return jax.lax.map(row, jnp.arange(n), batch_size=max(1, tile // width)) / n


def radial_velocity(
    x: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    gram: Float[Array, "n n"],
    repulsion: Float[Array, "n n"],
    strength: Float[Array, ""],
    product: Callable[[Array, Array], Array] | None = None,
) -> Float[Array, "n d"]:
    """phi of a kernel k = f(r^2), by matrix products; no N x N x D array exists.

    Args:
        x: the cloud, one particle a row.
        scores: s(x_j), a row each.
        gram: K with entries k(x_i, x_j).
        repulsion: W, and
        strength: c, with -2 f'(r^2) = c W, so that grad_1 k(x_j, x) = c W (x - x_j).
        product: for the products with K and W; by default in full precision.

    Returns:
        (1/N) [K S + c (diag(W 1) X - W X)].
    """
    x = x - jnp.mean(x, axis=0, keepdims=True)  # phi does not change; the difference loses less
    product = product or matmul
    push = jnp.sum(repulsion, axis=1, keepdims=True) * x - product(repulsion, x)
    return (product(gram, scores) + strength * push) / x.shape[0]

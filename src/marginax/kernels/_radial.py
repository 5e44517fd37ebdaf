r"""The velocity of kernels k = f(r^2): by one Gram matrix while that is small, else row by row.

    phi_i = (1/N) [ sum_j k_ij s_j + (1/h^2) sum_j w_ij (x_i - x_j) ]

A tile of rows of the Gram matrix is made, used and forgotten, so that memory is N D and not N^2; on
NVIDIA GPUs with tensor cores a program of our own does not make it at all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax import _tree, stein
from marginax.base import Count, Particles
from marginax.checks import check_count
from marginax.kernels._bandwidth import Rule
from marginax.kernels._fused import can_fuse, fused_sums

__all__ = ["PRECISIONS", "Profile", "radial"]

# (r^2, h^2) -> K and W, with grad_1 k(x_j, x) = W (x - x_j) / h^2.
Profile = Callable[[Array, Array], tuple[Array, Array]]
# A Gram matrix of at most so many numbers is held whole; of a larger one, a tile of so many, which
# stays in the cache: at 4,096 particles the whole matrix takes 1.4 times as long as its tiles.
DENSE, TILE = 2**20, 2**18
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
        tile: so many numbers of the Gram matrix are held at a time; by default what suits the
            device.
    """
    if tile is not None:
        tile = check_count(tile, "tile")
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}, but it must be {' or '.join(map(repr, PRECISIONS))}."
        )
    product = stein.product(PRECISIONS[precision])

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        if x.shape[0] ** 2 > (tile or (DENSE_ON_GPU if on_gpu() else DENSE)):
            x = x - jnp.mean(x, axis=0, keepdims=True)
            h2 = rule(x, None)
            tiles = partial(_in_tiles, profile, product, tile)
            if can_fuse(x):
                fused = partial(_fused, profile, precision == "tf32")
                phi = jax.lax.platform_dependent(x, s, h2, cuda=fused, default=tiles)
            else:
                phi = tiles(x, s, h2)
            return _tree.unravel_cloud(phi, particles)
        squared = stein.squared_distances(x)
        h2 = rule(x, squared)
        gram, repulsion = profile(squared, h2)
        phi = stein.radial_velocity(x, s, gram, repulsion, 1 / h2, product)
        return _tree.unravel_cloud(phi, particles)

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
            cross = stein.matmul(both[:, d:], x[i])
            squared = jnp.where(j == i, 0, jnp.maximum(norms[i] + their_norms - 2 * cross, 0))
            gram, repulsion = profile(squared, h2)
            same = gram is repulsion
            if fill:  # nothing from padding
                gram = jnp.where(j < n, gram, 0)
                repulsion = gram if same else jnp.where(j < n, repulsion, 0)
            if same:  # one pass over the tile
                found = product(gram, both)
                attracted, pushed = attracted + found[:d], pushed + found[d:]
            else:
                attracted = attracted + product(gram, both[:, :d])
                pushed = pushed + product(repulsion, both[:, d:])
            return (attracted, pushed, total + jnp.sum(repulsion)), None

        nothing = (jnp.zeros_like(s[0]), jnp.zeros_like(x[0]), jnp.zeros_like(norms[0]))
        (attracted, pushed, total), _ = jax.lax.scan(some_columns, nothing, columns)
        return attracted + (total * x[i] - pushed) / h2

    return jax.lax.map(row, jnp.arange(n), batch_size=max(1, tile // width)) / n

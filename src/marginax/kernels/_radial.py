r"""The velocity of kernels k = f(r^2): by one Gram matrix while that is small, else row by row.

    phi_i = (1/N) [ sum_j k_ij s_j + (1/h^2) sum_j w_ij (x_i - x_j) ]

A tile of rows of the Gram matrix is made, used and forgotten, so that memory is N D and not N^2.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax import _tree, stein
from marginax.base import Particles
from marginax.kernels._bandwidth import Rule

__all__ = ["PRECISIONS", "Profile", "radial"]

# (r^2, h^2) -> K and W, with grad_1 k(x_j, x) = W (x - x_j) / h^2.
Profile = Callable[[Array, Array], tuple[Array, Array]]
# A Gram matrix of at most so many numbers is held whole; of a larger one, a tile of so many.
DENSE, TILE = 2**24, 2**24
PRECISIONS = {"full": jax.lax.Precision.HIGHEST, "tf32": jax.lax.Precision.DEFAULT}


def radial(
    profile: Profile, rule: Rule, precision: str = "full"
) -> Callable[[Particles, Particles], Particles]:
    """The velocity function of a radial kernel.

    Args:
        profile: the kernel's values and its repulsion, from squared distances.
        rule: the bandwidth.
        precision: of the products with the Gram matrix; distances are always in full precision,
            because they are differences of large numbers.
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}, but it must be {' or '.join(map(repr, PRECISIONS))}."
        )
    product = stein.product(PRECISIONS[precision])

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        if x.shape[0] ** 2 > DENSE:
            return _tree.unravel_cloud(_in_tiles(profile, rule, product, x, s), particles)
        squared = stein.squared_distances(x)
        h2 = rule(x, squared)
        gram, repulsion = profile(squared, h2)
        phi = stein.radial_velocity(x, s, gram, repulsion, 1 / h2, product)
        return _tree.unravel_cloud(phi, particles)

    return velocity


def _in_tiles(
    profile: Profile,
    rule: Rule,
    product: Callable[[Array, Array], Array],
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
) -> Float[Array, "n d"]:
    n, d = x.shape
    x = x - jnp.mean(x, axis=0, keepdims=True)
    norms = jnp.sum(x**2, axis=1)
    h2 = rule(x, None)
    both = jnp.concatenate([s, x], axis=1)

    def row(i: Array) -> Array:
        squared = jnp.maximum(norms[i] + norms - 2 * stein.matmul(x, x[i]), 0)
        squared = jnp.where(jnp.arange(n) == i, 0, squared)
        gram, repulsion = profile(squared, h2)
        if gram is repulsion:  # one pass over the tile
            sums = product(gram, both)
            attracted, pushed = sums[:d], sums[d:]
        else:
            attracted, pushed = product(gram, s), product(repulsion, x)
        return attracted + (jnp.sum(repulsion) * x[i] - pushed) / h2

    return jax.lax.map(row, jnp.arange(n), batch_size=max(1, TILE // n)) / n

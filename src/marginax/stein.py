r"""The Stein velocity: where a cloud of particles should move to look more like the posterior.

    phi(x) = (1/N) sum_j [ k(x_j, x) s(x_j) + grad_1 k(x_j, x) ]           s(x) = grad_x l(theta, x)

grad_1 is the gradient in the FIRST argument, at x_j. For a kernel that falls with distance it
points from x_j to x: the particles repel each other, and that is what keeps the cloud from
collapsing to the mode.

References:
    Liu and Wang (2016), Stein variational gradient descent, NeurIPS, Algorithm 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.base import Particles
from marginax.small_linalg import solve_positive

__all__ = [
    "Kernel",
    "by_covariance",
    "centred",
    "check_kernel",
    "matmul",
    "product",
    "radial_velocity",
    "regress",
    "squared_distances",
    "variances",
    "velocity",
    "whitened_velocity",
]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel, seen from the only side the methods need; make one with `marginax.kernels`.

    Attributes:
        velocity: `velocity(particles, scores) -> velocity`, phi at every particle of the cloud,
            for any pytree of latents.
        name: how it was asked for, for messages and plots.
        whitened: the same where one unit is about one posterior standard deviation, as under a
            metric, if limits apply there that would make no sense in other units; else None.
        over: the blocks within which particles see each other, as `marginax.partition` has them.
        within: whether nothing looks beyond its block of `over`; a sum may have a part that does.
    """

    velocity: Callable[[Particles, Particles], Particles]
    name: str
    whitened: Callable[[Particles, Particles], Particles] | None = None
    over: Any = "whole"
    within: bool = False

    def __repr__(self) -> str:
        return self.name

    def __add__(self, other: "Kernel") -> "Kernel":
        """k_1 + k_2, unweighted: the velocity of a sum is the sum of the velocities."""
        check_kernel(other)
        if "whole" not in (self.over, other.over) and repr(self.over) != repr(other.over):
            raise ValueError(
                f"These kernels work on different blocks, over={self.over!r} and over="
                f"{other.over!r}, and cannot be added. Add them within one `blockwise(a + b)`."
            )
        return Kernel(
            lambda x, s: jax.tree.map(jnp.add, self.velocity(x, s), other.velocity(x, s)),
            f"{self.name} + {other.name}",
            lambda x, s: jax.tree.map(
                jnp.add, whitened_velocity(self, x, s), whitened_velocity(other, x, s)
            ),
            other.over if self.over == "whole" else self.over,
            self.within and other.within,
        )


def check_kernel(kernel: Any) -> None:
    """Refuses what is not a kernel before anything is traced."""
    if not isinstance(kernel, Kernel):
        called = f"; call it: `{kernel.__name__}(...)`" if callable(kernel) else ""
        raise TypeError(
            f"kernel is {kernel!r}, but it must be made by a function of `marginax.kernels`, such "
            f"as `kernels.rbf(1.0)`{called}."
        )


def velocity(kernel: Kernel, particles: Particles, scores: Particles) -> Particles:
    """phi at every particle, for any pytree of latents.

    Args:
        kernel: from `marginax.kernels`.
        particles: the cloud, both the source x_j and the points x at which phi is wanted.
        scores: s(x_j), in the structure of the cloud.

    Returns:
        The velocity, in the structure of the cloud.
    """
    return kernel.velocity(particles, scores)


def whitened_velocity(kernel: Kernel, particles: Particles, scores: Particles) -> Particles:
    """phi of a cloud in whitened coordinates, with the limits that make sense there."""
    return (kernel.whitened or kernel.velocity)(particles, scores)


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


def squared_distances(x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """r_ij^2 = ||x_i - x_j||^2 by one matrix product; exactly 0 on the diagonal, never negative."""
    x = x - jnp.mean(x, axis=0, keepdims=True)  # a cloud far from the origin would cancel to noise
    norms = jnp.sum(x**2, axis=1)
    squared = norms[:, None] + norms[None, :] - 2 * matmul(x, x.T)
    return jnp.where(jnp.eye(x.shape[0], dtype=bool), 0, jnp.maximum(squared, 0))


def by_covariance(z: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """S^-1 z for every particle, S = z'z/N with a ridge in the units of each coordinate.

    Where the cloud does not extend, z is 0 too, so that the ridge only has to keep S invertible.
    """
    n, d = z.shape
    units = jnp.sqrt(variances(z))
    scaled = z / units
    ridge = jnp.finfo(z.dtype).eps ** 0.5 * jnp.eye(min(n, d), dtype=z.dtype)
    if d <= n:
        solved = solve_positive(matmul(scaled.T, scaled) / n + ridge, scaled.T).T
    else:  # the same by an N x N system, so that no D x D matrix exists
        solved = solve_positive(matmul(scaled, scaled.T) / n + ridge, scaled)
    return solved / units


def centred(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """x less its mean, and exactly 0 in coordinates that vary by no more than rounding."""
    z = x - jnp.mean(x, axis=0, keepdims=True)
    size = jnp.max(jnp.abs(x), axis=0, keepdims=True)
    rounding = 4 * jnp.finfo(x.dtype).eps * size
    return jnp.where(jnp.max(jnp.abs(z), axis=0, keepdims=True) > rounding, z, 0)


def variances(z: Float[Array, "n d"]) -> Float[Array, "1 d"]:
    """Of every coordinate of a centred cloud; 1 where it does not vary, to be divided by."""
    squares = jnp.mean(z**2, axis=0, keepdims=True)
    return jnp.where(squares > 0, squares, 1)


def product(precision: jax.lax.Precision) -> Callable[[Array, Array], Array]:
    """A matrix product in a precision; on GPUs JAX's default rounds float32 to 10 bits."""
    return lambda a, b: jnp.matmul(a, b, precision=precision)


matmul = product(jax.lax.Precision.HIGHEST)


def regress(
    scaled: Float[Array, "n d"], z: Float[Array, "n d"], values: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """(1/N) scaled z' values, by the smaller of the two matrices in between."""
    n, d = z.shape
    if d <= n:
        return matmul(scaled, matmul(z.T, values)) / n
    return matmul(matmul(scaled, z.T), values) / n

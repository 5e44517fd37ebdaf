r"""The `Kernel` contract, and kernels from any scalar function.

A kernel is what moves a cloud by the Stein velocity (Liu and Wang, 2016, NeurIPS, Algorithm 1)

    phi(x) = (1/N) sum_j [ k(x_j, x) s(x_j) + grad_1 k(x_j, x) ]           s(x) = grad_x l(theta, x)

grad_1 is the gradient in the FIRST argument, at x_j. For a kernel that falls with distance it
points from x_j to x: the particles repel each other, and that is what keeps the cloud from
collapsing to the mode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core import trees
from marginax.typing import Latent, Particles

__all__ = ["Kernel", "check_kernel", "from_function", "whitened_velocity"]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel, seen from the only side the methods need; make one with `marginax.kernels`.

    Attributes:
        velocity: `velocity(particles, scores) -> velocity`, phi at every particle of the cloud,
            for any pytree of latents.
        name: how it was asked for, for messages and plots.
        whitened: the same where one unit is about one posterior standard deviation, as under a
            metric, if limits apply there that would make no sense in other units; else None.
        blocks: the blocks within which particles see each other, as `marginax.partition` has them.
        within: whether nothing looks beyond its block of `blocks`; a sum may have a part that does.
        matrices: `matrices(x) -> (K, C)` of a cloud of flat latents (of one block), with the
            entries k(x_i, x_j) and those C_ij for which grad_1 k(x_j, x_i) = C_ij (x_i - x_j); None
            where the kernel is no function of the distance.
        fits_batches: whether k(x, x) = 1, and k does not depend on the cloud: random batches of it
            then give the same velocity on average.
        is_field: whether it is no kernel but a velocity that takes every particle's own score whole
            (`kernels.gfsd` and others), which cannot be added to one.
        random: whether the velocity is random, so that a cloud keeps fluctuating.
    """

    velocity: Callable[[Particles, Particles], Particles]
    name: str
    whitened: Callable[[Particles, Particles], Particles] | None = None
    blocks: Any = "whole"
    within: bool = False
    matrices: Callable[[Array], tuple[Array, Array]] | None = None
    fits_batches: bool = False
    is_field: bool = False
    random: bool = False

    def __repr__(self) -> str:
        return self.name

    def __add__(self, other: "Kernel") -> "Kernel":
        """k_1 + k_2, unweighted: the velocity of a sum is the sum of the velocities."""
        check_kernel(other)
        for one in (self, other):
            if one.is_field:
                raise ValueError(
                    f"{one.name} is a field, which has every particle's own score already, and "
                    "cannot be added to a kernel. Use it alone."
                )
        if "whole" not in (self.blocks, other.blocks) and repr(self.blocks) != repr(other.blocks):
            raise ValueError(
                f"These kernels work on different blocks, blocks={self.blocks!r} and blocks="
                f"{other.blocks!r}, and cannot be added. Add them within one `blockwise(a + b)`."
            )
        return Kernel(
            lambda x, s: jax.tree.map(jnp.add, self.velocity(x, s), other.velocity(x, s)),
            f"{self.name} + {other.name}",
            lambda x, s: jax.tree.map(
                jnp.add, whitened_velocity(self, x, s), whitened_velocity(other, x, s)
            ),
            other.blocks if self.blocks == "whole" else self.blocks,
            self.within and other.within,
            random=self.random or other.random,
        )


def check_kernel(kernel: Any) -> None:
    """Refuses what is not a kernel before anything is traced."""
    if not isinstance(kernel, Kernel):
        called = f"; call it: `{kernel.__name__}(...)`" if callable(kernel) else ""
        raise TypeError(
            f"kernel is {kernel!r}, but it must be made by a function of `marginax.kernels`, such "
            f"as `kernels.rbf(1.0)`{called}."
        )


def whitened_velocity(kernel: Kernel, particles: Particles, scores: Particles) -> Particles:
    """phi of a cloud in whitened coordinates, with the limits that make sense there."""
    return (kernel.whitened or kernel.velocity)(particles, scores)


def from_function(k: Callable[[Latent, Latent], Array]) -> Kernel:
    """The kernel k(x, x') of two latents, in whatever structure your latents have.

    Row by row, so that memory stays at N x D; a kernel with a closed form (`rbf`, `imq`) is much
    faster.

    Args:
        k: a positive definite function of two latents that returns a scalar. It must be
            differentiable where its arguments coincide: write r^2, not the norm.

    Returns:
        A kernel for `svgd_em`, `m_svgd_em` and `coin_em`.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> kernel = mx.kernels.from_function(lambda x, y: jnp.exp(-0.5 * jnp.sum((x - y) ** 2)))
        >>> x = jnp.array([[0.0], [1.0]])
        >>> kernel.velocity(x, jnp.zeros_like(x)).round(3).tolist()
        [[-0.303], [0.303]]
    """
    value_and_grad_1 = jax.value_and_grad(k, argnums=0)

    def velocity(particles: Particles, scores: Particles) -> Particles:
        def phi(x: Latent) -> Latent:
            def term(x_j: Latent, score_j: Latent) -> Latent:
                value, gradient = value_and_grad_1(x_j, x)
                return trees.add_scaled(gradient, value, score_j)

            return trees.particle_mean(jax.vmap(term)(particles, scores))

        return jax.lax.map(phi, particles)

    shape = getattr(k, "__name__", "function")
    return Kernel(velocity, f"from_function({shape})")

"""Any kernel you can write down as a scalar function, its gradient taken by autodiff."""

from collections.abc import Callable

import jax
from jaxtyping import Array

from marginax import _tree
from marginax.base import Latent, Particles
from marginax.stein import Kernel

__all__ = ["from_function"]


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
                return _tree.add_scaled(gradient, value, score_j)

            return _tree.particle_mean(jax.vmap(term)(particles, scores))

        return jax.lax.map(phi, particles)

    shape = getattr(k, "__name__", "function")
    return Kernel(velocity, f"from_function({shape})")

r"""The quadratic terms of the accelerated Stein flow: how moving particles bend each other's ways.

The flow has the Hamiltonian H = (1 / 2N) sum_ij k(x_i, x_j) <V_i, V_j> beside the potential, and
moves by Y = (1/N) K V. With A1_ji = grad_1 k(x_j, x_i), A2_ji = grad_2 k(x_j, x_i), G = K V and
S = V V':

    V   = N (K + N eps I)^-1 Y
    T1_j = sum_i V_i <A2_ji, G_i>,   T2_j = sum_i V_i <A1_ji, G_j>,
    T3   = K r,   r_i = sum_l S_il A2_li,        dY/dt = ... + (T1 + T2 - T3) / N^2

For k = f(r^2), A1_ji = C_ji (x_i - x_j) and A2 = -A1, and all sums are products of N x N matrices.

The authors' file has other T1 and T2, the same in one dimension and not the flow's in more:

    T1_j = sum_i A2_ji w_i,  w_i = sum_l S_il K_li,      T2_j = sum_i A1_ji (S K)_ij

References:
    Stein and Li (2025), Accelerated Stein variational gradient flow.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, partition, trees
from marginax._core.linalg import matmul
from marginax.kernels.base import Kernel
from marginax.typing import Particles

__all__ = ["QUADRATIC", "quadratic_terms"]

QUADRATIC = ("exact", "as_released")


def quadratic_terms(
    kernel: Kernel, particles: Particles, momenta: Particles, ridge: float, form: str
) -> Particles:
    """(T1 + T2 - T3) / N^2, block by block.

    Args:
        kernel: of the distance, or `blockwise` of one.
        particles: the cloud.
        momenta: Y, like it.
        ridge: eps.
        form: one of `QUADRATIC`.
    """
    of_block = partial(_of_block, kernel, ridge=ridge, form=form)
    if not kernel.within:
        x, y = trees.ravel_cloud(particles), trees.ravel_cloud(momenta)
        return trees.unravel_cloud(of_block(x, y), particles)
    families = partition.families(kernel.blocks, trees.first_particle(particles))
    pairs = zip(
        partition.split(families, particles), partition.split(families, momenta), strict=True
    )
    return partition.merge(families, tuple(jax.vmap(of_block)(*pair) for pair in pairs), particles)


def _of_block(
    kernel: Kernel, x: Float[Array, "n d"], y: Float[Array, "n d"], *, ridge: float, form: str
) -> Float[Array, "n d"]:
    n = len(x)
    x = linalg.centered(x)  # only differences count, and they lose less
    gram, slope = kernel.matrices(x)  # type: ignore[misc]  # K and C
    v = n * linalg.solve_positive(gram + n * ridge * jnp.eye(n, dtype=x.dtype), y)
    s = matmul(v, v.T)
    r = _differences(s * slope, x)
    terms = (_exact if form == "exact" else _as_released)(x, v, s, gram, slope)
    return (terms - matmul(gram, r)) / n**2


def _exact(x: Array, v: Array, s: Array, gram: Array, slope: Array) -> Array:
    """T1 + T2, from the Hamiltonian."""
    del s
    g = matmul(gram, v)
    across, own = matmul(x, g.T), jnp.sum(x * g, axis=1)  # <x_j, G_i>, <x_j, G_j>
    # T1 and T2 in one: apart, XLA on processors computes the products anew for every entry.
    return matmul(slope * (across + across.T - own[None, :] - own[:, None]), v)


def _as_released(x: Array, v: Array, s: Array, gram: Array, slope: Array) -> Array:
    """T1 + T2 of the authors' file."""
    del v
    w = jnp.sum(s * gram, axis=1, keepdims=True)
    first = matmul(slope, w) * x - matmul(slope, w * x)
    return first + _differences(slope * matmul(s, gram).T, x)


def _differences(weights: Array, x: Array) -> Array:
    """sum_j weights_ij (x_j - x_i), sums beside the product: apart, XLA makes the weights anew."""
    sums = matmul(weights, jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1))
    return sums[:, :-1] - sums[:, -1:] * x

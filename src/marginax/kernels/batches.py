r"""Random batches of the cloud, for a step that costs N B instead of N^2.

At every step the particles fall into batches of B at random, and see the others of their own:

    phi_i = s_i / N + ((N - 1) / N) (1 / (B - 1)) sum_{j != i in i's batch} [ k(x_j, x_i) s_j
                                                                             + grad_1 k(x_j, x_i) ]

A particle's own term counts as in the whole cloud, and the others of its batch for all others: over
random batches the mean is the velocity of the whole cloud, for k(x, x) = 1 and a bandwidth fixed
beforehand. (A plain mean over the batch takes a particle's own score N / B times too often, and the
cloud collapses.) The batch's own velocity has the sum: B phi_i^batch = s_i + sum_{j != i}.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core import trees
from marginax._core.checks import check_count
from marginax.kernels.base import Kernel, check_kernel
from marginax.typing import Count, Particles

__all__ = ["random_batches"]


def random_batches(kernel: Kernel, size: Count, *, seed: int = 0) -> Kernel:
    """A kernel that looks at batches of the cloud, drawn anew at every step.

    The draw is made from the seed and the numbers of the cloud itself, so that a velocity is still
    a function of the cloud alone: the same cloud, the same batches.

    Args:
        kernel: with k(x, x) = 1 and a bandwidth given as a number: `rbf(1.0)`, `imq(1.0)`,
            `inverse_log(1.0)`, or `blockwise` of one. A rule that reads the bandwidth off the
            cloud, moment matching and the fields would be biased.
        size: B, particles in a batch, which divides N; with B = N it is the kernel itself.
        seed: of the draws.

    Returns:
        A kernel. Clouds fluctuate under it, so that `run` averages theta.

    Example:
        >>> import jax, marginax as mx
        >>> kernel = mx.kernels.random_batches(mx.kernels.rbf(1.0), 50)
        >>> x = jax.random.normal(jax.random.key(0), (1000, 2))
        >>> kernel.velocity(x, -x).shape
        (1000, 2)
    """
    check_kernel(kernel)
    size = check_count(size, "size")
    if size < 2:
        raise ValueError(
            f"size is {size}, but a particle needs another in its batch: give 2 or more."
        )
    if not kernel.fits_batches:
        raise ValueError(
            f"random_batches({kernel.name}, ...) would be biased: what a batch sees of this kernel "
            "is not, on average, what the cloud does. Give a kernel of the distance with a number "
            "for its bandwidth, such as `rbf(1.0)`."
        )

    def velocity(particles: Particles, scores: Particles) -> Particles:
        n = trees.cloud_size(particles)
        if n % size:
            raise ValueError(
                f"size is {size}, but it must divide the {n} particles, so that all batches are "
                "of one size."
            )
        if size == n:
            return kernel.velocity(particles, scores)
        order = jax.random.permutation(_key_of(particles, seed), n)

        def in_batches(leaf: Array) -> Array:
            return leaf[order].reshape(n // size, size, *leaf.shape[1:])

        phi = jax.vmap(kernel.velocity)(
            jax.tree.map(in_batches, particles), jax.tree.map(in_batches, scores)
        )
        place = jnp.argsort(order)

        def unbiased(phi: Array, score: Array) -> Array:
            others = size * phi.reshape(n, *phi.shape[2:])[place] - score
            return (score + (n - 1) / (size - 1) * others) / n

        return jax.tree.map(unbiased, phi, scores)

    return Kernel(
        velocity,
        f"random_batches({kernel.name}, {size})",
        blocks=kernel.blocks,
        within=False,  # the draw looks at the whole cloud
        random=True,
    )


def _key_of(particles: Particles, seed: int) -> Array:
    """A key made of all bits of the cloud."""
    key = jax.random.key(seed)
    for leaf in jax.tree.leaves(particles):
        wide = leaf if leaf.dtype.itemsize >= 4 else leaf.astype(jnp.float32)
        bits = jax.lax.bitcast_convert_type(wide, jnp.uint32).ravel()
        # Multiplied by odd numbers that differ, so that places count too.
        odd = 2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1
        key = jax.random.fold_in(key, jnp.sum(bits * odd, dtype=jnp.uint32))
    return key

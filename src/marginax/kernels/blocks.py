r"""One kernel per block: for latents whose blocks are independent given theta and the data.

phi_g(x) = (1/N) sum_j [ k(x_{j,g}, x_g) s_g(x_j) + grad_1 k(x_{j,g}, x_g) ],   g = 1..G

Every block has its own distances and its own bandwidth, so that the number of blocks no longer
costs the cloud its variance. Work N^2 D, memory N^2 G, in tiles of blocks when that is large.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core import partition, trees
from marginax._core.partition import BlockSpec
from marginax.kernels.base import Kernel, check_kernel, whitened_velocity
from marginax.typing import Particles

__all__ = ["blockwise"]

# How many numbers of Gram matrices are held at once.
TILE = 2**22


def blockwise(kernel: Kernel, blocks: BlockSpec = "leading") -> Kernel:
    """The kernel applied to each block of the latent alone.

    Args:
        kernel: what each block uses; it sees a block's numbers as one vector.
        blocks: the blocks. "leading" (one per index of the leading axis, which all leaves share),
            "leaves", "coordinates", or a tree like the latent that names leading axes, such as
            `{"ability": "person", "difficulty": "item"}`; leaves with the same name share blocks.

    Returns:
        A kernel. It is right where the blocks are independent given theta and the data;
        `diagnostics.cross_block_curvature` tests that.

    Example:
        >>> import jax, marginax as mx
        >>> kernel = mx.kernels.blockwise(mx.kernels.rbf("mean") + mx.kernels.linear())
        >>> kernel
        blockwise(rbf('mean') + linear('full'), blocks='leading')
        >>> x = jax.random.normal(jax.random.key(0), (20, 40, 2))  # 20 particles, 40 groups of 2
        >>> kernel.velocity(x, -x).shape
        (20, 40, 2)
    """
    check_kernel(kernel)
    blocks = partition.check_blocks(blocks)

    def each_block(one: Callable[[Array, Array], Array]) -> Callable[..., Particles]:
        def velocity(particles: Particles, scores: Particles) -> Particles:
            families = partition.families(blocks, trees.first_particle(particles))
            pairs = zip(
                partition.split(families, particles), partition.split(families, scores), strict=True
            )
            moved = tuple(_over_blocks(one, x, s) for x, s in pairs)
            return partition.merge(families, moved, particles)

        return velocity

    return Kernel(
        each_block(kernel.velocity),
        f"blockwise({kernel.name}, blocks={blocks!r})",
        each_block(lambda x, s: whitened_velocity(kernel, x, s)),
        blocks,
        within=True,
        matrices=kernel.matrices,
        fits_batches=kernel.fits_batches,
        is_field=kernel.is_field,
        random=kernel.random,
    )


def _over_blocks(one: Callable[[Array, Array], Array], x: Array, s: Array) -> Array:
    num_blocks, n, size = x.shape
    tile = max(1, TILE // n**2)
    # Where groups are spread over devices, a tile has blocks of every device: each works on its
    # own. A tile of neighbours would have to be sent to all, and all would do the same work.
    devices = dict(jax.typeof(x).sharding.mesh.shape).get("groups", 1)
    devices = devices if num_blocks % devices == 0 else 1
    if num_blocks <= tile * devices:
        return jax.vmap(one)(x, s)
    apart = [jnp.moveaxis(a.reshape(devices, -1, n, size), 0, 1) for a in (x, s)]
    moved = jax.lax.map(lambda pair: jax.vmap(one)(*pair), tuple(apart), batch_size=tile)
    return jnp.moveaxis(moved, 1, 0).reshape(x.shape)

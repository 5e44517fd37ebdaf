r"""Are the blocks independent given theta and the data, as a blockwise kernel takes them to be?

If they are, the Hessian of the log joint has nothing between them: with v zero outside a random
half of the blocks, (grad_x^2 l) v vanishes on the other half. A Hessian-vector product tests that,
at a few particles and halves, with every coordinate measured in the cloud's own standard
deviations.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import partition, trees
from marginax._core.checks import check_start
from marginax._core.partition import BlockSpec
from marginax.flows.scores import latent_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["cross_block_curvature"]


def cross_block_curvature(
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data = None,
    *,
    blocks: BlockSpec = "leading",
    num_halves: int = 8,
    key: Key | None = None,
) -> Float[Array, ""]:
    """Curvature between blocks relative to that within them; 0 if the blocks are independent.

    Args:
        log_joint: `log_joint(theta, latent, data)`.
        theta: the estimate.
        particles: the cloud.
        data: handed to `log_joint`.
        blocks: the blocks, as given to `kernels.blockwise`.
        num_halves: how many random halves to try.
        key: for the halves; fixed by default.

    Returns:
        The largest ratio found. Rounding apart it is exactly 0 for independent blocks; above 0.01
        the cloud misses correlation that the blocks cut.
    """
    key = jax.random.key(0) if key is None else key
    theta, particles = check_start(theta, particles)
    families = partition.families(blocks, trees.first_particle(particles))
    num_blocks = [family.num_blocks for family in families]
    total = sum(num_blocks)
    # A coordinate that the cloud does not resolve still gets a unit to be probed in.
    sd = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), particles)
    sd = jax.tree.map(lambda leaf: jnp.where(leaf > 0, leaf, 1), sd)

    def ratio(key: Key, number: Array) -> Array:
        half_key, probe_key, particle_key = jax.random.split(key, 3)
        j = jax.random.randint(particle_key, (), 0, trees.cloud_size(particles))
        latent = jax.tree.map(lambda leaf: leaf[j], particles)
        chosen = jax.random.permutation(half_key, total) < total // 2
        masks = jnp.split(chosen, [sum(num_blocks[: i + 1]) for i in range(len(families) - 1)])
        like = jax.tree.map(lambda leaf: leaf[None], latent)
        # Every other probe has one sign: effects that add up over many blocks show best there.
        noise = trees.normal_like(probe_key, like)
        probe = jax.tree.map(
            lambda leaf: jnp.where(number % 2 == 0, leaf, jnp.ones_like(leaf)), noise
        )
        parts = tuple(
            part * mask[:, None, None].astype(part.dtype)
            for part, mask in zip(partition.split(families, probe), masks, strict=True)
        )
        tangent = jax.tree.map(
            jnp.multiply, sd, trees.first_particle(partition.merge(families, parts, like))
        )
        # Twice in reverse, for models with a derivative of their own (custom_vjp) have no other.
        response = jax.grad(
            lambda x: trees.inner(latent_score(log_joint, theta, x, data), tangent)
        )(latent)
        response = jax.tree.map(lambda r, unit: (r * unit)[None], response, sd)
        within = between = jnp.zeros(())
        for part, mask in zip(partition.split(families, response), masks, strict=True):
            squares = jnp.sum(part**2, axis=(1, 2)).astype(within.dtype)
            within = within + jnp.sum(jnp.where(mask, squares, 0))
            between = between + jnp.sum(jnp.where(mask, 0, squares))
        return jnp.sqrt(between / jnp.where(within > 0, within, 1))

    if total < 2:
        return jnp.zeros(())
    keys = jax.random.split(key, num_halves)
    return jnp.max(jax.vmap(ratio)(keys, jnp.arange(num_halves)))

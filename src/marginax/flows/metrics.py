r"""Riemannian metrics: in which units particles move. In the posterior's own, no step is too long.

Per block g of the latent, H_g = -grad^2_{x_g} l at (theta, mean of the cloud), the absolute values
of its eigenvalues floored, and H_g = L L'. The velocity is taken in whitened coordinates and mapped
back:

    u = L' x,   t = L^-1 s,   phi = L'^-1 phi_u(u, t)

The number of steps then depends on the posterior's shape and not on its units. Where the linear
kernel, or `moment_matched`, is at rest does not change; a kernel of distances measures them in
whitened coordinates, so that a fixed bandwidth is in posterior standard deviations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, partition, trees
from marginax._core.checks import check_count
from marginax._core.linalg import eigh, left_svd
from marginax._core.partition import BlockSpec, Family
from marginax.flows.scores import latent_score
from marginax.flows.sparse_metric import sparse_curvature
from marginax.flows.units import Metric, Units
from marginax.model.structure import Structure
from marginax.typing import Count, Data, Latent, LogDensity, Particles, Theta

__all__ = ["Metric", "curvature"]

# Random probes per column of a block's curvature: one is exact for independent blocks, several keep
# the curvature from cancelling where they are not.
NUM_PROBES = 4
# Eigenvalues below this, relative to the block's largest, are raised to it.
FLOOR = 1e-6


class Factors(NamedTuple):
    """L and L^-1 of every block, a [G, p, p] array per family."""

    families: tuple[Family, ...]
    lower: tuple[Float[Array, "_ _ _"], ...]
    inverse: tuple[Float[Array, "_ _ _"], ...]


def curvature(
    blocks: BlockSpec | None = None,
    *,
    largest_block: Count = 64,
    structure: Structure | None = None,
) -> Metric:
    """The curvature of the log joint at the cloud's mean, block by block.

    Args:
        blocks: the blocks, as for `kernels.blockwise`; by default those of the kernel, which is
            what you want. Blocks larger than the kernel's rotate coordinates across its blocks.
        largest_block: blocks with more numbers than this get diagonal curvature; 1 makes all of it
            diagonal.
        structure: of a latent that is one large block with sparse curvature (`structure_of`). The
            particles then move in the units of the whole, for a kernel that goes coordinate by
            coordinate, and keep their shape in these units when they change with theta.

    Returns:
        A metric for the `particle_metric` of `svgd_em` and `m_svgd_em`, with a particle step of 0.2
        to 0.5 whatever the model. It costs four Hessian-vector products at one point per number of
        the largest block (one, if there is one block).
    """
    if structure is not None:
        if blocks is not None:
            raise ValueError(
                f"blocks is {blocks!r} and a structure was given, which is that of the whole "
                "latent. Give one of them."
            )
        return sparse_curvature(structure)
    if blocks is not None:
        blocks = partition.check_blocks(blocks)
    largest = check_count(largest_block, "largest_block")
    factor = partial(block_factors, blocks, largest)

    def units(
        log_joint: LogDensity,
        theta: Theta,
        particles: Particles,
        data: Data,
        kernel_blocks: BlockSpec,
        memory: Any,
    ) -> Units:
        del memory
        return _of_blocks(factor(log_joint, theta, particles, data, kernel_blocks))

    words = "" if blocks is None else f"blocks={blocks!r}, "
    return Metric(units, f"curvature({words}largest_block={largest})", blocks, largest)


def block_factors(
    blocks: BlockSpec | None,
    largest: int,
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
    kernel_blocks: BlockSpec,
) -> Factors:
    """The factors of every block's curvature at the cloud's mean."""
    mean = trees.particle_mean(particles)
    families = partition.families(kernel_blocks if blocks is None else blocks, mean)
    families = partition.refine(families, mean, largest)
    variances = partition.split(
        families, jax.tree.map(lambda leaf: jnp.var(leaf, axis=0, keepdims=True), particles)
    )
    gradient = partial(latent_score, log_joint, theta, data=data)
    pairs = [
        _factors(_columns(gradient, mean, families, i), variances[i][:, 0])
        for i in range(len(families))
    ]
    return Factors(families, *zip(*pairs, strict=True))


def _of_blocks(factors: Factors) -> Units:
    families, lower, inverse = factors
    upper, inverse_upper = (tuple(jnp.swapaxes(m, 1, 2) for m in ms) for ms in (lower, inverse))

    def displacement(move: Particles, u: Particles, t: Particles) -> Particles:
        # Where the cloud sees more curvature than its mean does, the metric is raised to it.
        stiffness = [
            jax.vmap(_stiffness)(*pair)
            for pair in zip(partition.split(families, u), partition.split(families, t), strict=True)
        ]
        shortened = tuple(
            m / jnp.maximum(1, k)[:, None, None] for m, k in zip(inverse, stiffness, strict=True)
        )
        return _rows_times(families, move, shortened)

    # Particles are rows, so a matrix acts from the right: L' x is x L.
    return Units(
        whiten=lambda cloud: _rows_times(families, cloud, lower),
        whiten_scores=lambda scores: _rows_times(families, scores, inverse_upper),
        displacement=displacement,
        direction=lambda move: _rows_times(families, move, upper),
    )


def _columns(
    gradient: Callable[[Latent], Latent], mean: Latent, families: tuple[Family, ...], which: int
) -> Float[Array, "g k p p"]:
    """Columns of H_g for all blocks of a family at once, by Hessian-vector products.

    A probe excites the same column in every block, with a random weight each. Where blocks are
    independent the answer, divided by the weight, is the column exactly; where they are not, what
    leaks in from other blocks adds to the curvature on average, so that steps are rather short.
    """
    family = families[which]
    num_probes = NUM_PROBES if family.num_blocks > 1 else 1
    sign_key, size_key = jax.random.split(jax.random.key(which))
    shape = (num_probes, family.num_blocks)
    dtype = jnp.result_type(*[jax.tree.leaves(mean)[i] for i in family.leaves])
    sizes = jnp.exp(jax.random.uniform(size_key, shape, dtype, -0.35, 0.35))
    weights = sizes * jax.random.rademacher(sign_key, shape).astype(dtype)
    like = jax.tree.map(lambda leaf: leaf[None], mean)
    nothing = partition.split(families, jax.tree.map(jnp.zeros_like, like))

    def column(weight: Float[Array, " g"], unit: Float[Array, " p"]) -> Float[Array, "g p"]:
        probe = weight[:, None, None] * unit[None, None]
        parts = (*nothing[:which], probe, *nothing[which + 1 :])
        tangent = trees.first_particle(partition.merge(families, parts, like))
        response = jax.jvp(gradient, (mean,), (tangent,))[1]
        response = jax.tree.map(lambda leaf: leaf[None], response)
        return partition.split(families, response)[which][:, 0] / weight[:, None]

    units = jnp.eye(family.block_size, dtype=dtype)
    columns = jax.vmap(lambda weight: jax.vmap(lambda unit: column(weight, unit))(units))(weights)
    return jnp.moveaxis(columns, (0, 1, 2, 3), (1, 3, 0, 2))


def _factors(
    columns: Float[Array, "g k p p"], variances: Float[Array, "g p"]
) -> tuple[Float[Array, "g p p"], Float[Array, "g p p"]]:
    """L and L^-1 with L L' = |H|."""
    num_blocks, num_probes, p, _ = columns.shape
    # Coordinates of one block may have different units, so they are scaled to unit curvature first;
    # one without curvature is measured by the cloud.
    diagonal = jnp.sqrt(jnp.mean(jnp.diagonal(columns, axis1=2, axis2=3) ** 2, axis=1))
    scale = jnp.sqrt(jnp.maximum(diagonal, FLOOR / jnp.where(variances > 0, variances, 1)))
    if p == 1:
        return scale[:, :, None], 1 / scale[:, :, None]
    scaled = columns / (scale[:, None, :, None] * scale[:, None, None, :] * num_probes**0.5)
    # Side by side, the probes' answers have |H| as their left factor: A A' = H H' if they agree.
    side_by_side = jnp.swapaxes(scaled, 1, 2).reshape(num_blocks, p, num_probes * p)
    vectors, values = left_svd(side_by_side)
    largest = jnp.max(values, axis=1, keepdims=True)  # 1 or more, but 0 without any curvature
    half = jnp.sqrt(jnp.maximum(values, FLOOR * jnp.maximum(largest, 1)))
    transposed = jnp.swapaxes(vectors, 1, 2)
    root = linalg.matmul(vectors * half[:, None, :], transposed)
    inverse_root = linalg.matmul(vectors / half[:, None, :], transposed)
    return scale[:, :, None] * root, inverse_root / scale[:, None, :]


def _rows_times(
    families: tuple[Family, ...], cloud: Particles, matrices: tuple[Float[Array, "_ _ _"], ...]
) -> Particles:
    """Every block of every particle, as a row, times the block's matrix."""
    parts = partition.split(families, cloud)
    moved = tuple(linalg.matmul(part, m) for part, m in zip(parts, matrices, strict=True))
    return partition.merge(families, moved, cloud)


def _stiffness(u: Float[Array, "n p"], t: Float[Array, "n p"]) -> Float[Array, ""]:
    """The largest slope of the scores over the cloud, by least squares; 1 if the metric is right.

    It is what the cloud's mean and covariance feel. A posterior that is steep on one side has more
    of it than the Hessian at the mean shows, and a step made for that would swing.
    """
    z = linalg.centered(u)
    slope = -linalg.matmul(t.T, linalg.by_covariance(z)) / u.shape[0]
    if slope.shape[0] == 1:
        return slope[0, 0]
    return jnp.max(eigh((slope + slope.T) / 2)[0])

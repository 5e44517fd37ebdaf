r"""Metrics: in which units the particles move. With the posterior's own, step sizes disappear.

Per block g of the latent, H_g = -grad^2_{x_g} l at (theta, mean of the cloud), the absolute values
of its eigenvalues floored, and H_g = L L'. The velocity is taken in whitened coordinates and mapped
back:

    u = L' x,   t = L^-1 s,   phi = L'^-1 phi_u(u, t)

The number of steps then depends on the posterior's shape and not on its units. Where the linear
kernel, or `moment_matched`, is at rest does not change; a kernel of distances measures them in
whitened coordinates, so that a fixed bandwidth is in posterior standard deviations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax import _tree, partition, stein
from marginax.base import Count, Data, Latent, LogJoint, Particles, Theta
from marginax.checks import check_count
from marginax.partition import Family, Over
from marginax.pieces import map_over_groups, piece_size
from marginax.scores import latent_score, latent_scores
from marginax.small_linalg import eigh, left_svd

__all__ = ["Metric", "check_metric", "curvature", "flow"]

# Random probes per column of a block's curvature: one is exact for independent blocks, several keep
# the curvature from cancelling where they are not.
NUM_PROBES = 4
# Eigenvalues below this, relative to the block's largest, are raised to it.
FLOOR = 1e-6
# Groups times particles that move at a time, and blocks that never have parts in two groups.
ROWS, WITHIN_GROUPS = 2**14, ("leading", "coordinates")


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric on the cloud; make one with `curvature`.

    Attributes:
        factor: `factor(log_joint, theta, particles, data, over) -> Factors`, where `over` are the
            kernel's blocks.
        name: how it was asked for.
        over: its own blocks, if they are not the kernel's.
        largest_block: blocks with more numbers than this are diagonal.
    """

    factor: Callable[[LogJoint, Theta, Particles, Data, Over], "Factors"]
    name: str
    over: Over | None
    largest_block: int

    def __repr__(self) -> str:
        return self.name


class Factors(NamedTuple):
    """L and L^-1 of every block, a [G, p, p] array per family."""

    found: tuple[Family, ...]
    lower: tuple[Float[Array, "_ _ _"], ...]
    inverse: tuple[Float[Array, "_ _ _"], ...]


def curvature(over: Over | None = None, *, largest_block: Count = 64) -> Metric:
    """The curvature of the log joint at the cloud's mean, block by block.

    Args:
        over: the blocks, as for `kernels.blockwise`; by default those of the kernel, which is what
            you want. Blocks larger than the kernel's rotate coordinates across its blocks.
        largest_block: blocks with more numbers than this get diagonal curvature; 1 makes all of it
            diagonal.

    Returns:
        A metric for the `particle_metric` of `svgd_em` and `m_svgd_em`, with a particle step of 0.2
        to 0.5 whatever the model. It costs four Hessian-vector products at one point per number of
        the largest block (one, if there is one block).
    """
    if over is not None:
        over = partition.check_over(over)
    largest = check_count(largest_block, "largest_block")

    def factor(
        log_joint: LogJoint, theta: Theta, particles: Particles, data: Data, blocks: Over
    ) -> Factors:
        mean = _tree.particle_mean(particles)
        found = partition.families(blocks if over is None else over, mean)
        found = partition.refine(found, mean, largest)
        variances = partition.split(
            found, jax.tree.map(lambda leaf: jnp.var(leaf, axis=0, keepdims=True), particles)
        )
        gradient = partial(latent_score, log_joint, theta, data=data)
        pairs = [
            _factors(_columns(gradient, mean, found, i), variances[i][:, 0])
            for i in range(len(found))
        ]
        return Factors(found, *zip(*pairs, strict=True))

    words = "" if over is None else f"over={over!r}, "
    return Metric(factor, f"curvature({words}largest_block={largest})", over, largest)


def flow(
    kernel: stein.Kernel,
    metric: Metric | None,
    log_joint: LogJoint,
    theta: Theta,
    particles: Particles,
    data: Data,
) -> tuple[Particles, Particles]:
    """Where the cloud should move, as a displacement and as a direction in the units of the scores.

    Returns:
        (phi, H phi): what is added to the particles, and what a move is aligned with to see whether
        it goes downhill. Without a metric both are phi.
    """
    on_some = partial(_flow, kernel, metric, log_joint, theta)
    size = piece_size(log_joint, particles, ROWS)
    if size is None or not _groups_move_alone(kernel, metric, particles):
        return on_some(particles, data)
    return map_over_groups(on_some, particles, data, size)


def _groups_move_alone(kernel: stein.Kernel, metric: Metric | None, particles: Particles) -> bool:
    """Whether a group moves as it would among any others."""
    if not (kernel.within and kernel.over in WITHIN_GROUPS):
        return False
    if metric is None:
        return True
    # Probes see coordinates of one group apart on average only, with weights that change with the
    # number of blocks; of a whole group the curvature is exact.
    numbers = sum(math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(particles))
    over = kernel.over if metric.over is None else metric.over
    return bool(over == "leading") and numbers <= metric.largest_block


def _flow(
    kernel: stein.Kernel,
    metric: Metric | None,
    log_joint: LogJoint,
    theta: Theta,
    particles: Particles,
    data: Data,
) -> tuple[Particles, Particles]:
    scores = latent_scores(log_joint, theta, particles, data)
    if metric is None:
        velocity = stein.velocity(kernel, particles, scores)
        return velocity, velocity
    found, lower, inverse = metric.factor(log_joint, theta, particles, data, kernel.over)
    upper, inverse_upper = (tuple(jnp.swapaxes(m, 1, 2) for m in ms) for ms in (lower, inverse))
    # Particles are rows, so a matrix acts from the right: L' x is x L.
    u, t = _rows_times(found, particles, lower), _rows_times(found, scores, inverse_upper)
    move = stein.whitened_velocity(kernel, u, t)
    # Where the cloud sees more curvature than its mean does, the metric is raised to it.
    stiffness = [
        jax.vmap(_stiffness)(*pair)
        for pair in zip(partition.split(found, u), partition.split(found, t), strict=True)
    ]
    shortened = tuple(
        m / jnp.maximum(1, k)[:, None, None] for m, k in zip(inverse, stiffness, strict=True)
    )
    return _rows_times(found, move, shortened), _rows_times(found, move, upper)


def check_metric(metric: Any) -> Metric | None:
    """Refuses what is not a metric before anything is traced."""
    if metric is not None and not isinstance(metric, Metric):
        called = "; call it" if callable(metric) else ""
        raise TypeError(
            f"particle_metric is {metric!r}, but it must be None or made by `marginax.metrics`, "
            f"such as `metrics.curvature()`{called}."
        )
    return metric


def _rows_times(
    found: tuple[Family, ...], cloud: Particles, matrices: tuple[Float[Array, "_ _ _"], ...]
) -> Particles:
    """Every block of every particle, as a row, times the block's matrix."""
    parts = partition.split(found, cloud)
    moved = tuple(stein.matmul(part, m) for part, m in zip(parts, matrices, strict=True))
    return partition.merge(found, moved, cloud)


def _stiffness(u: Float[Array, "n p"], t: Float[Array, "n p"]) -> Float[Array, ""]:
    """The largest slope of the scores over the cloud, by least squares; 1 if the metric is right.

    It is what the cloud's mean and covariance feel. A posterior that is steep on one side has more
    of it than the Hessian at the mean shows, and a step made for that would swing.
    """
    z = stein.centred(u)
    slope = -stein.matmul(t.T, stein.by_covariance(z)) / u.shape[0]
    if slope.shape[0] == 1:
        return slope[0, 0]
    return jnp.max(eigh((slope + slope.T) / 2)[0])


def _columns(
    gradient: Callable[[Latent], Latent], mean: Latent, found: tuple[Family, ...], which: int
) -> Float[Array, "g k p p"]:
    """Columns of H_g for all blocks of a family at once, by Hessian-vector products.

    A probe excites the same column in every block, with a random weight each. Where blocks are
    independent the answer, divided by the weight, is the column exactly; where they are not, what
    leaks in from other blocks adds to the curvature on average, so that steps are rather short.
    """
    family = found[which]
    num_probes = NUM_PROBES if family.num_blocks > 1 else 1
    sign_key, size_key = jax.random.split(jax.random.key(which))
    shape = (num_probes, family.num_blocks)
    dtype = jnp.result_type(*[jax.tree.leaves(mean)[i] for i in family.leaves])
    sizes = jnp.exp(jax.random.uniform(size_key, shape, dtype, -0.35, 0.35))
    weights = sizes * jax.random.rademacher(sign_key, shape).astype(dtype)
    like = jax.tree.map(lambda leaf: leaf[None], mean)
    nothing = partition.split(found, jax.tree.map(jnp.zeros_like, like))

    def column(weight: Float[Array, " g"], unit: Float[Array, " p"]) -> Float[Array, "g p"]:
        probe = weight[:, None, None] * unit[None, None]
        parts = (*nothing[:which], probe, *nothing[which + 1 :])
        tangent = _tree.first_particle(partition.merge(found, parts, like))
        response = jax.jvp(gradient, (mean,), (tangent,))[1]
        response = jax.tree.map(lambda leaf: leaf[None], response)
        return partition.split(found, response)[which][:, 0] / weight[:, None]

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
    root = stein.matmul(vectors * half[:, None, :], transposed)
    inverse_root = stein.matmul(vectors / half[:, None, :], transposed)
    return scale[:, :, None] * root, inverse_root / scale[:, None, :]

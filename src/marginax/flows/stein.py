r"""The Stein flow: where a cloud should move to look more like the posterior, in given units.

Without a metric the velocity phi is the kernel's. With the metric H = L L' of `metrics` it is taken
in whitened coordinates and mapped back:

    u = L' x,   t = L^-1 s,   phi = L'^-1 phi_u(u, t)
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, partition
from marginax._core.chunks import map_over_groups
from marginax._core.linalg import eigh
from marginax._core.partition import Family
from marginax.flows.metrics import Metric
from marginax.flows.scores import latent_scores
from marginax.kernels.base import Kernel, whitened_velocity
from marginax.model.log_joint import as_log_joint
from marginax.typing import Data, LogDensity, Particles, Theta

__all__ = [
    "flow",
]

# Groups times particles that move at a time, and blocks that never have parts in two groups.
ROWS, WITHIN_GROUPS = 2**14, ("leading", "coordinates")


def flow(
    kernel: Kernel,
    metric: Metric | None,
    log_joint: LogDensity,
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
    size = as_log_joint(log_joint).chunk_size(particles, ROWS)
    if size is None or not _groups_move_alone(kernel, metric, particles):
        return on_some(particles, data)
    return map_over_groups(on_some, particles, data, size)


def _groups_move_alone(kernel: Kernel, metric: Metric | None, particles: Particles) -> bool:
    """Whether a group moves as it would among any others."""
    if not (kernel.within and kernel.blocks in WITHIN_GROUPS):
        return False
    if metric is None:
        return True
    # Probes see coordinates of one group apart on average only, with weights that change with the
    # number of blocks; of a whole group the curvature is exact.
    numbers = sum(math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(particles))
    blocks = kernel.blocks if metric.blocks is None else metric.blocks
    return bool(blocks == "leading") and numbers <= metric.largest_block


def _flow(
    kernel: Kernel,
    metric: Metric | None,
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
) -> tuple[Particles, Particles]:
    scores = latent_scores(log_joint, theta, particles, data)
    if metric is None:
        phi = kernel.velocity(particles, scores)
        return phi, phi
    families, lower, inverse = metric.factor(log_joint, theta, particles, data, kernel.blocks)
    upper, inverse_upper = (tuple(jnp.swapaxes(m, 1, 2) for m in ms) for ms in (lower, inverse))
    # Particles are rows, so a matrix acts from the right: L' x is x L.
    u, t = _rows_times(families, particles, lower), _rows_times(families, scores, inverse_upper)
    move = whitened_velocity(kernel, u, t)
    # Where the cloud sees more curvature than its mean does, the metric is raised to it.
    stiffness = [
        jax.vmap(_stiffness)(*pair)
        for pair in zip(partition.split(families, u), partition.split(families, t), strict=True)
    ]
    shortened = tuple(
        m / jnp.maximum(1, k)[:, None, None] for m, k in zip(inverse, stiffness, strict=True)
    )
    return _rows_times(families, move, shortened), _rows_times(families, move, upper)


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

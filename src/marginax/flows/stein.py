r"""The Stein flow: where a cloud should move to look more like the posterior, in given units.

Without a metric the velocity phi is the kernel's. With the metric H = L L' of `metrics` it is taken
in whitened coordinates and mapped back:

    u = L' x,   t = L^-1 s,   phi = L'^-1 phi_u(u, t)
"""

import math
from functools import partial
from typing import Any

import jax

from marginax._core.chunks import map_over_groups
from marginax.flows.metrics import Metric
from marginax.flows.scores import latent_scores
from marginax.kernels.base import Kernel, whitened_velocity
from marginax.model.log_joint import as_log_joint
from marginax.typing import Data, LogDensity, Particles, Theta

__all__ = ["carried", "flow", "memory_of"]

# Groups times particles that move at a time, and blocks that never have parts in two groups.
ROWS, WITHIN_GROUPS = 2**14, ("leading", "coordinates")


def flow(  # noqa: PLR0913, all that a velocity depends on
    kernel: Kernel,
    metric: Metric | None,
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
    memory: Any = (),
) -> tuple[Particles, Particles]:
    """Where the cloud should move, as a displacement and as a direction in the units of the scores.

    Args:
        kernel: how particles share scores.
        metric: in which units they move; None for those of the latent.
        log_joint: the model.
        theta: at which they see it.
        particles: the cloud.
        data: the model's.
        memory: what `carried` returned of the metric.

    Returns:
        (phi, H phi): what is added to the particles, and what a move is aligned with to see whether
        it goes downhill. Without a metric both are phi.
    """
    on_some = partial(_flow, kernel, metric, log_joint, theta, memory)
    size = as_log_joint(log_joint).chunk_size(particles, ROWS)
    if size is None or not _groups_move_alone(kernel, metric, particles):
        return on_some(particles, data)
    return map_over_groups(on_some, particles, data, size)


def carried(
    metric: Metric | None, memory: Any, theta: Theta, clouds: tuple[Particles, ...], data: Data
) -> tuple[Any, tuple[Particles, ...]]:
    """Clouds with the shape that they had in the metric's units before theta changed these.

    Args:
        metric: in which units they move.
        memory: of the units before.
        theta: the new one.
        clouds: the particles, and whatever goes with them.
        data: the model's.

    Returns:
        The memory of the new units, and the clouds.
    """
    if metric is None or metric.carry is None:
        return memory, clouds
    return metric.carry(memory, theta, clouds, data)


def memory_of(metric: Metric | None, particles: Particles) -> Any:
    """What a metric remembers before the first step."""
    return () if metric is None else metric.start(particles)


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


def _flow(  # noqa: PLR0913, as above
    kernel: Kernel,
    metric: Metric | None,
    log_joint: LogDensity,
    theta: Theta,
    memory: Any,
    particles: Particles,
    data: Data,
) -> tuple[Particles, Particles]:
    scores = latent_scores(log_joint, theta, particles, data)
    if metric is None:
        phi = kernel.velocity(particles, scores)
        return phi, phi
    units = metric.units(log_joint, theta, particles, data, kernel.blocks, memory)
    u, t = units.whiten(particles), units.whiten_scores(scores)
    move = whitened_velocity(kernel, u, t)
    return units.displacement(move, u, t), units.direction(move)

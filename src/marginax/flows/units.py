"""The units in which particles move: what a metric is, and what a step asks of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from marginax._core.partition import BlockSpec
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["Frame", "Metric", "Units", "check_metric"]


class Frame(NamedTuple):
    """Coordinates u in which a kernel sees the particles, where those are not the latents.

    Attributes:
        to_latent: one u to its latent; a constant and a linear map, so that densities differ by a
            constant.
        cloud: the particles in u.
    """

    to_latent: Callable[[Latent], Latent]
    cloud: Particles


class Units(NamedTuple):
    """The units at one theta and cloud, and the ways there and back. Clouds are [N, ...] leaves.

    Attributes:
        whiten: a cloud to u = L' x.
        whiten_scores: its scores to t = L^-1 s.
        displacement: (move in u, u, t) to what is added to x.
        direction: a move in u to H times the displacement, in the units of the scores.
    """

    whiten: Callable[[Particles], Particles]
    whiten_scores: Callable[[Particles], Particles]
    displacement: Callable[[Particles, Particles, Particles], Particles]
    direction: Callable[[Particles], Particles]


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric on the cloud; make one with `curvature`.

    Attributes:
        units: `units(log_joint, theta, particles, data, blocks, memory) -> Units`, `blocks` being
            the kernel's.
        name: how it was asked for.
        blocks: its own blocks, if they are not the kernel's.
        largest_block: blocks with more numbers than this are diagonal.
        start: `start(particles)`, what it remembers of the units it had, before the first step.
        carry: `carry(memory, theta, clouds, data) -> (memory, clouds)`, clouds with the shape that
            they had in the units before; None if the cloud stays where it is.
        frame: `frame(theta, particles, data) -> Frame`, where the kernel's blocks are not those of
            the latents; None where they are.
    """

    units: Callable[[LogDensity, Theta, Particles, Data, BlockSpec, Any], Units]
    name: str
    blocks: BlockSpec | None
    largest_block: int
    start: Callable[[Particles], Any] = lambda particles: ()
    carry: Callable[[Any, Theta, Any, Data], tuple[Any, Any]] | None = None
    frame: Callable[[Theta, Particles, Data], Frame] | None = None

    def __repr__(self) -> str:
        return self.name


def check_metric(metric: Any) -> Metric | None:
    """Refuses what is not a metric before anything is traced."""
    if metric is not None and not isinstance(metric, Metric):
        called = "; call it" if callable(metric) else ""
        raise TypeError(
            f"particle_metric is {metric!r}, but it must be None or made by `marginax.metrics`, "
            f"such as `metrics.curvature()`{called}."
        )
    return metric

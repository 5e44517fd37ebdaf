"""The type behind every kernel: a frozen record of the velocity it induces."""

from collections.abc import Callable
from dataclasses import dataclass

from marginax.base import Particles

__all__ = ["Kernel"]


@dataclass(frozen=True)
class Kernel:
    """A kernel, seen from the only side the methods need.

    Attributes:
        velocity: `velocity(particles, scores) -> velocity`, the Stein velocity of
            `marginax.stein` at every particle, in the structure of the cloud.
        name: how it was asked for, for messages and plots.
    """

    velocity: Callable[[Particles, Particles], Particles]
    name: str

    def __repr__(self) -> str:
        return self.name

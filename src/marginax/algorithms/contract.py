"""The contract every algorithm keeps: two pure functions, `init` and `step`, and what a loop asks.

    state       = algorithm.init(key, theta, particles)
    state, info = algorithm.step(key, state, data)

Every State starts with the fields `theta` and `particles` (the estimate and the cloud a user would
report, never a look-ahead), and is a pytree of arrays only, so that it survives jit, vmap, scan,
pickling and sharding. Every step takes a key and the data, also when a method has no use for them:
one contract without exceptions is what lets one loop drive the whole family.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["Algorithm", "check_algorithm"]


class _Parts(NamedTuple):
    """The fields of `Algorithm`, which says what they are."""

    init: Callable[[Key, Theta, Particles], Any]
    step: Callable[[Key, Any, Data], tuple[Any, Any]]
    log_joint: LogDensity | None = None
    rescale: Callable[[Any], "Algorithm"] | None = None
    stochastic: bool = False
    blocks: Any = "whole"
    reset_on_backtrack: tuple[str, ...] = ()
    replicated: tuple[str, ...] = ("theta",)
    identity: str | None = None
    frame: Callable[[Theta, Particles, Data], Any] | None = None


class Algorithm(_Parts):
    """A method of the family, ready to be stepped by `trajectory`, `run` or a loop of your own.

    `run` takes its steps from `rescale(factor)`, with a factor of 1 until one had to be halved; so
    `rescale(1.0).step` must be `step`. `algorithm._replace(step=mine)` therefore leaves `rescale`
    out, unless it is given too: `run` then takes your step, and cannot go back with a smaller one.

    `run` reads of an Info: `theta_score`, like theta, the direction in which theta climbs; and
    `velocity`, like the particles, if the method is deterministic and has a `log_joint`.

    Attributes:
        init: `init(key, theta, particles) -> state`. Checks the starting values.
        step: `step(key, state, data) -> (state, info)`. One iteration.
        log_joint: the density the method was built on, kept so that a loop can check it.
        rescale: `rescale(factor) -> Algorithm`, the same method and State, every step multiplied
            by the factor; None where there is no step to shrink.
        stochastic: whether theta keeps fluctuating, so that the estimate is an average over steps.
        blocks: the blocks within which particles see each other (`kernels.blockwise`); "whole" if
            there is only one, None if the particles are not a cloud but a chain.
        reset_on_backtrack: fields of the State that are as `init` makes them again when a run goes
            back with a smaller step: momenta, velocities, look-aheads. All others are kept.
        replicated: fields of the State that are whole on every device of a mesh: theta, and what
            belongs to it. In all others, what has the shape of the particles lies as they do.
        identity: what other processes, too, know an algorithm by that computes the same on the same
            model, so that they find what was compiled for it; None if its trace alone tells. A copy
            with other fields has none, unless it is given one.
        frame: `frame(theta, particles, data)`, coordinates in which particles see each other where
            those are not the latents (`flows.units.Frame`): blocks are then blocks of these.
    """

    __slots__ = ()

    def _replace(self, **changes: Any) -> "Algorithm":
        """A copy with other fields; without `rescale` if the step is another and it is not."""
        if changes.get("step", self.step) is not self.step:
            changes.setdefault("rescale", None)
        changes.setdefault("identity", None)
        return super()._replace(**changes)

    __replace__ = _replace  # of `copy.replace`


def check_algorithm(value: Any) -> None:
    """Refuses what is no algorithm, such as a constructor that was not called."""
    if isinstance(value, Algorithm):
        return
    called = getattr(value, "__name__", None) if callable(value) else None
    raise TypeError(
        f"algorithm is {f'the function {called}' if called else repr(value)}, but it must be an "
        "Algorithm, which a constructor returns: `marginax.pgd(log_joint, 0.1, 0.1)`, for instance."
    )

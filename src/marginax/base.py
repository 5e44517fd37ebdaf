"""The contract every algorithm keeps: two pure functions, `init` and `step`, and their words.

    state       = algorithm.init(key, theta, particles)
    state, info = algorithm.step(key, state, data)

Every State starts with the fields `theta` and `particles` (the estimate and the cloud a user would
report, never a look-ahead), and is a pytree of arrays only, so that it survives jit, vmap, scan,
pickling and sharding. Every step takes a key and the data, also when a method has no use for them:
one contract without exceptions is what lets one loop drive the whole family.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

__all__ = ["Algorithm", "ById", "Count", "Data", "Key", "Latent", "LogJoint", "Particles", "Theta"]

Key: TypeAlias = PRNGKeyArray
Theta: TypeAlias = PyTree  # floating-point leaves, unconstrained reals
Latent: TypeAlias = PyTree  # one configuration x of the latent variables
Particles: TypeAlias = PyTree  # the cloud: a Latent whose every leaf has a leading axis of length N
Data: TypeAlias = PyTree  # arrays that log_joint wants as its third argument; None if nothing
Count: TypeAlias = int | np.integer  # checked by `checks.check_count`
LogJoint: TypeAlias = Callable[
    [Theta, Latent, Data], Array
]  # log p_theta(x, y) of ONE latent, a scalar


def _parts(mark: Any) -> tuple[Any, Any]:
    """The object and the function of a method; twice itself for anything else."""
    return getattr(mark, "__self__", mark), getattr(mark, "__func__", mark)


@dataclass(frozen=True, eq=False)
class ById:
    """A value as a static argument of jit, equal to another if both carry the same `mark`.

    Functions of a user need not be hashable: a method of an object with arrays is not.
    """

    value: Any
    mark: Any

    def __hash__(self) -> int:
        return id(getattr(self.mark, "__self__", self.mark))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ById):
            return False
        # A method is a new object whenever it is asked for.
        one, two = (_parts(mark) for mark in (self.mark, other.mark))
        return one[0] is two[0] and one[1] is two[1]


class Algorithm(NamedTuple):
    """A method of the family, ready to be stepped by `trajectory` or by a loop of your own.

    `run` asks more of a method than `trajectory` does, and knows it by names:

    - `info.theta_score`, like theta: the direction in which theta climbs;
    - `info.velocity`, like the particles, of a deterministic method that has a `log_joint`;
    - fields of the State with "momentum" in their name, or that end in "_ahead" or "_velocity", are
      as `init` makes them again when a run goes back with a smaller step; all others are kept;
    - fields of the State that begin with "theta" are whole on every device of a mesh.

    Attributes:
        init: `init(key, theta, particles) -> state`. Checks the starting values.
        step: `step(key, state, data) -> (state, info)`. One iteration.
        log_joint: the density the method was built on, kept so that a loop can check it.
        rescale: `rescale(factor) -> Algorithm`, the same method and State, every step multiplied
            by the factor; None where there is no step to shrink.
        stochastic: whether theta keeps fluctuating, so that the estimate is an average over steps.
        over: the blocks within which particles see each other (`kernels.blockwise`); "whole" if
            there is only one, None if the particles are not a cloud but a chain.
    """

    init: Callable[[Key, Theta, Particles], Any]
    step: Callable[[Key, Any, Data], tuple[Any, Any]]
    log_joint: LogJoint | None = None
    rescale: Callable[[Any], "Algorithm"] | None = None
    stochastic: bool = False
    over: Any = "whole"

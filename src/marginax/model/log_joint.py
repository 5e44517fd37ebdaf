"""The density as one object: log p_theta(x, y), and what it knows of its own structure.

A plain function of (theta, latent, data) is a density of which nothing more is known. `LogJoint`
adds what a loop can use: that rows of the data are groups with latents of their own,

    l(theta, x) = sum_g l_g(theta, x_g, y_g)

so that sums over groups may be made in chunks and a step may move a batch of groups; or how batches
of observations are taken; and into which blocks the latent falls.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.checks import is_traced
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = [
    "Batching",
    "LogJoint",
    "as_log_joint",
    "require_density",
    "structure_called",
    "take_rows",
]

# A GPU wants more to do at a time than a core with its cache: this many times the rows of a chunk.
ON_GPU = 2**9


class Batching(NamedTuple):
    """How batches of a density are taken.

    Attributes:
        num_data: how many observations, or groups, there are in all.
        take: `take(data, rows)`, the data of a batch.
        of_groups: whether rows are groups, so that a batch moves the latents of its groups alone:
            axis 1 of every leaf of the particles. Otherwise the density rescales itself to the
            batch.
    """

    num_data: int
    take: Callable[[Data, Array], Data]
    of_groups: bool = False


@dataclass(frozen=True, eq=False)
class LogJoint:
    """A density with what is known of it; call it as the function that it holds.

    Attributes:
        function: `function(theta, latent, data)`, the log density of ONE latent and the data.
        batching: how batches of observations or of groups are taken; None if they cannot be.
        blocks: into which blocks the latent falls, as for `kernels.blockwise`.
        identity: what other processes, too, know a density by that computes the same, so that they
            find what was compiled for it; None if it is known by its trace alone.
        first_derivatives_only: whether its first derivatives alone are those of log p_theta(x, y),
            and neither its values at different theta nor its second derivatives in theta
            (`unnormalized_prior`). What needs these refuses it.
    """

    function: LogDensity
    batching: Batching | None = None
    blocks: Any = "whole"
    identity: str | None = None
    first_derivatives_only: bool = False

    def __call__(self, theta: Theta, latent: Latent, data: Data) -> Array:
        """log p_theta(x, y)."""
        called = _called.get()
        if called is not None:
            called.append(self)
        return self.function(theta, latent, data)

    def wrap(self, function: LogDensity) -> "LogJoint":
        """Another function with the same structure, such as a tempered or a penalised density.

        Example:
            >>> import jax.numpy as jnp, marginax as mx
            >>> density = mx.LogJoint(lambda theta, x, y: -0.5 * (x - theta) ** 2, blocks="leaves")
            >>> half = density.wrap(lambda theta, x, y: 0.5 * density(theta, x, y))
            >>> half(0.0, jnp.asarray(2.0), None).item(), half.blocks
            (-1.0, 'leaves')
        """
        return replace(self, function=function, identity=None)

    @property
    def num_groups(self) -> int | None:
        """How many groups have latents and rows of data of their own; None if that is not known."""
        return self.batching.num_data if self.batching and self.batching.of_groups else None

    def theta_weight(self, particles: Particles) -> float:
        """By how much the theta score of these particles counts: all groups over those there."""
        if self.num_groups is None:
            return 1.0
        return self.num_groups / jax.tree.leaves(particles)[0].shape[1]

    def chunk_size(self, particles: Particles, rows: int) -> int | None:
        """How many groups to work on at a time, or None where all are to be worked on at once.

        Args:
            particles: the cloud.
            rows: how many groups times particles a chunk should have on a CPU.
        """
        first = jax.tree.leaves(particles)[0]
        # Where devices share the cloud, each has few enough, and every chunk would be sent about.
        if self.num_groups is None or jax.typeof(first).sharding.mesh.size > 1:
            return None
        num_particles, num_groups = first.shape[:2]
        rows *= ON_GPU if jax.default_backend() == "gpu" else 1
        size = max(1, rows // num_particles)
        return size if size < num_groups else None


def as_log_joint(log_joint: LogDensity) -> LogJoint:
    """A `LogJoint` as it is; any other function as one of which nothing more is known."""
    return log_joint if isinstance(log_joint, LogJoint) else LogJoint(log_joint)


def require_density(log_joint: LogDensity, why: str) -> None:
    """Refuses a density of which more than its first derivatives in theta is not known."""
    if as_log_joint(log_joint).first_derivatives_only:
        raise ValueError(
            "The log joint has a prior whose constant is not known (`unnormalized_prior`), so that "
            f"only its first derivatives in theta are right, but {why}. Take a method that "
            "climbs by gradients, such as `pgd`, `svgd_em` or `m_svgd_em` with a step size or an "
            "optax optimizer."
        )


def take_rows(data: Data, rows: Array | np.ndarray) -> Data:
    """Rows of every leaf of the data; those of a leaf on the host stay there."""
    return jax.tree.map(
        lambda leaf: (
            leaf[np.asarray(rows)]
            if isinstance(leaf, np.ndarray) and not is_traced(rows)
            else jnp.take(leaf, rows, axis=0)
        ),
        data,
    )


_called: ContextVar[list[LogJoint] | None] = ContextVar("called", default=None)


@contextmanager
def structure_called() -> Iterator[list[LogJoint]]:
    """A list of the `LogJoint`s that are called meanwhile, to see what a wrapper hides."""
    called: list[LogJoint] = []
    token = _called.set(called)
    try:
        yield called
    finally:
        _called.reset(token)

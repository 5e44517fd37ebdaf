"""Refuses what `run` cannot work with, before anything is compiled."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import PyTree

from marginax._core.at_start import NotFiniteError, check_log_joint
from marginax._core.checks import check_count, check_start, warn_user
from marginax._core.precision import SWITCH_ON, hold, is_half
from marginax.algorithms.contract import Algorithm
from marginax.model.log_joint import LogJoint, as_log_joint, structure_called
from marginax.model.minibatches import check_batch_size
from marginax.model.problem import Problem
from marginax.typing import Count, Data, LogDensity, Particles, Theta

__all__ = [
    "Sizes",
    "as_data",
    "check_digits",
    "check_declared",
    "check_density",
    "check_sizes",
    "check_starts",
    "start_axis",
]


OF_A_PROBLEM = (
    "If `fit` has placed the particles: they lie about the theta and latent that your problem "
    "starts from, or about a top of its likelihood. Start these elsewhere. A density that grows "
    "without bound where a scale and what it scales go to 0 together has no such top: write what "
    "is scaled as scale * z, with z of scale 1."
)


class Sizes(NamedTuple):
    """How much is run at a time.

    Attributes:
        max_steps: the most steps of a start.
        block_size: steps in every block, or None for blocks that grow.
        batch_size: rows that a step sees, or None for all of them.
        group_warmup_steps: steps of the sampled groups alone before each step.
    """

    max_steps: int
    block_size: int | None
    batch_size: int | None
    group_warmup_steps: int


def as_data(data: Data) -> Data:
    """The data of a run as numbers, those of the host still there; refuses what cannot be held.

    Args:
        data: numbers and arrays; text is refused, and so are integers out of range. Floats that
            lose digits which matter are warned of: a run computes in the precision that JAX has.
    """
    held = hold(data, "data")
    leaves = jax.tree.leaves(held.arrays)
    if any(isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu" for leaf in leaves):
        raise ValueError(f"{' '.join(held.lost)} {SWITCH_ON}, or code them as smaller ones.")
    if held.lost:
        warn_user(
            f"{' '.join(held.lost)} {SWITCH_ON}, or subtract a constant from them first: a run "
            "computes in the precision that JAX has."
        )
    return held.arrays


def check_digits(theta: Theta, particles: Particles) -> None:
    """Refuses theta and particles in half precision."""
    for path, leaf in tree_flatten_with_path({"theta": theta, "particles": particles})[0]:
        if is_half(getattr(leaf, "dtype", np.float64)):
            raise TypeError(
                f"{path[0].key}{keystr(path[1:])} has dtype {leaf.dtype}, whose two or three "
                "digits are too few to move in small steps. Convert it with "
                "`.astype(jnp.float32)`; the data may stay as they are."
            )


def check_sizes(
    algorithm: Algorithm,
    data: Data,
    max_steps: Count,
    block_size: Count | None,
    batch_size: Count | None,
    group_warmup_steps: Count,
) -> Sizes:
    """The counts among the arguments of `run`, with their defaults."""
    steps = check_count(max_steps, "max_steps")
    block = None if block_size is None else check_count(block_size, "block_size")
    log_joint = None if algorithm.log_joint is None else as_log_joint(algorithm.log_joint)
    of_groups = log_joint is not None and log_joint.num_groups is not None
    if group_warmup_steps and (batch_size is None or not of_groups):
        raise ValueError(
            f"group_warmup_steps is {group_warmup_steps!r}, but it counts the extra steps of the "
            "groups in a batch: it needs batch_size= and the log joint of a `Problem.grouped`."
        )
    warmup = check_count(group_warmup_steps, "group_warmup_steps", least=0)
    batch = None if batch_size is None else check_batch_size(log_joint, data, batch_size)
    return Sizes(steps, block, batch, warmup)


def start_axis(theta: Theta, particles: Particles, num_starts: Count | None) -> tuple[Any, Any]:
    """theta and the cloud with a leading axis over starts: the user's own, or one of length 1."""
    if num_starts is None:
        return jax.tree.map(_with_axis, (theta, particles))
    num_starts = check_count(num_starts, "num_starts")
    for leaf in jax.tree.leaves((theta, particles)):
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != num_starts:
            raise ValueError(
                f"num_starts is {num_starts}, so every leaf of theta and particles needs a leading "
                f"axis of that length over the starts, but one has shape {np.shape(leaf)}."
            )
    return theta, particles


def check_starts(
    algorithm: Algorithm, theta: PyTree, particles: PyTree, data: Data
) -> tuple[Theta, Particles]:
    """Every start as arrays of a definite dtype, at which the log joint is finite."""
    num_starts = len(jax.tree.leaves((theta, particles))[0])
    for i in range(num_starts):
        start = check_start(*jax.tree.map(lambda leaf, i=i: leaf[i], (theta, particles)))
        if algorithm.log_joint is not None:
            check_density(algorithm.log_joint, *start, data)
    return check_start(theta, particles)


def check_density(log_joint: LogDensity, theta: Theta, particles: Particles, data: Data) -> None:
    """Evaluates the log joint at a start, and warns if it hides what another one knows."""
    with structure_called() as called:
        try:
            identity = as_log_joint(log_joint).identity
            check_log_joint(log_joint, theta, particles, data, identity=identity)
        except NotFiniteError as error:
            owner = getattr(as_log_joint(log_joint).function, "__self__", None)
            if not isinstance(owner, Problem):
                raise
            raise NotFiniteError(f"{error} {OF_A_PROBLEM}") from None
    hidden = [inner for inner in called if inner.batching is not None]
    if hidden and not isinstance(log_joint, LogJoint):
        what = "its groups" if hidden[0].num_groups else "how its batches are taken"
        warnings.warn(
            "log_joint is a function that calls a `LogJoint`, and what that one knows (here: "
            f"{what}) does not reach the loop, which then needs more memory and takes no batches. "
            "Give the LogJoint itself, or `its.wrap(function)` instead of the function.",
            stacklevel=4,
        )


def check_backtracking(on_divergence: str) -> bool:
    """Whether a run that runs away may go back with a smaller step."""
    if on_divergence not in ("backtrack", "stop"):
        raise ValueError(
            f"on_divergence is {on_divergence!r}, but it must be 'backtrack' or 'stop'."
        )
    return on_divergence == "backtrack"


def check_declared(algorithm: Algorithm, state: Any) -> None:
    """Refuses an algorithm that declares fields which its State does not have."""
    for what in ("reset_on_backtrack", "replicated"):
        unknown = [name for name in getattr(algorithm, what) if name not in state._fields]
        if unknown:
            raise ValueError(
                f"The algorithm's {what} names {', '.join(unknown)}, but its State has the fields "
                f"{', '.join(state._fields)}."
            )


def _with_axis(leaf: Any) -> Any:
    return leaf[None] if isinstance(leaf, jax.Array | np.ndarray) else np.asarray(leaf)[None]

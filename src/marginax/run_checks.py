"""Refuses what `run` cannot work with, before anything is compiled."""

import jax

from marginax.base import Algorithm, Data, Particles, Theta
from marginax.checks import check_log_joint, check_start
from marginax.minibatch import batching_of

__all__ = ["check_arguments", "check_catch_up", "check_starts"]


def check_arguments(
    max_steps: int, block_size: int | None, on_divergence: str, restarts: int | None
) -> None:
    """Counts and words."""
    for name, value in {
        "max_steps": max_steps,
        "block_size": block_size,
        "restarts": restarts,
    }.items():
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name} is {value!r}, but it must be an integer of at least 1.")
    if on_divergence not in ("backtrack", "stop"):
        raise ValueError(
            f"on_divergence is {on_divergence!r}, but it must be 'backtrack' or 'stop'."
        )


def check_catch_up(catch_up: int, batch: int | None, algorithm: Algorithm) -> None:
    """Steps of groups alone make sense only for batches of groups."""
    batching = batching_of(algorithm.log_joint)
    local = batch is not None and batching is not None and batching.local
    if not (isinstance(catch_up, int) and catch_up >= 0) or (catch_up and not local):
        raise ValueError(
            f"catch_up is {catch_up!r}, but it counts the extra steps of the groups in a batch: "
            "an integer of at least 0, with batch= and the log joint of a `Problem.grouped`."
        )


def check_starts(
    algorithm: Algorithm, theta: Theta, particles: Particles, data: Data, restarts: int | None
) -> tuple[Theta, Particles]:
    """Every start as arrays of a definite dtype, at which the log joint is finite."""
    theta, particles = check_start(theta, particles)
    if restarts is None:
        starts = [(theta, particles)]
    else:
        for leaf in jax.tree.leaves((theta, particles)):
            if leaf.ndim == 0 or leaf.shape[0] != restarts:
                raise ValueError(
                    f"restarts is {restarts}, so every leaf of theta and particles needs a leading "
                    f"axis of that length over the starts, but one has shape {leaf.shape}."
                )
        starts = [
            jax.tree.map(lambda leaf, i=i: leaf[i], (theta, particles)) for i in range(restarts)
        ]
    for start in starts:
        if restarts is not None:
            check_start(*start)  # now without the axis over starts
        if algorithm.log_joint is not None:
            check_log_joint(algorithm.log_joint, *start, data)
    return theta, particles

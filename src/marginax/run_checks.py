"""Refuses what `run` cannot work with, before anything is compiled."""

import jax

from marginax.base import Algorithm, Count, Data, Particles, Theta
from marginax.checks import check_count, check_log_joint, check_start
from marginax.minibatch import batching_of

__all__ = ["check_catch_up", "check_divergence", "check_starts"]


def check_divergence(on_divergence: str) -> None:
    """One of two words."""
    if on_divergence not in ("backtrack", "stop"):
        raise ValueError(
            f"on_divergence is {on_divergence!r}, but it must be 'backtrack' or 'stop'."
        )


def check_catch_up(catch_up: Count, batch: Count | None, algorithm: Algorithm) -> int:
    """Steps of groups alone make sense only for batches of groups."""
    batching = batching_of(algorithm.log_joint)
    local = batch is not None and batching is not None and batching.local
    if catch_up and not local:
        raise ValueError(
            f"catch_up is {catch_up!r}, but it counts the extra steps of the groups in a batch: "
            "it needs batch= and the log joint of a `Problem.grouped`."
        )
    return check_count(catch_up, "catch_up", least=0)


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

"""The particles' run of a fit: where it begins, and what if it cannot begin there."""

import jax
import numpy as np

from marginax._core.at_start import NotFiniteError
from marginax.fitting.plan import NARROW, Plan, start_particles
from marginax.fitting.starts import Starts
from marginax.fitting.strategies import RunOptions, Strategy
from marginax.likelihood.functions import modes_of
from marginax.model.problem import Problem, in_double_precision
from marginax.running.result import Run
from marginax.typing import Key

__all__ = ["run_particles"]


def run_particles(  # noqa: PLR0913, all that a fit has decided by then
    problem: Problem,
    plan: Plan,
    strategy: Strategy,
    starts: Starts,
    keys: tuple[Key, Key],
    options: RunOptions,
    *,
    from_tops: bool,
) -> Run:
    """The run, from the tops of the climbs, in all the modes that are known there.

    Args:
        problem: what is fitted.
        plan: what runs.
        strategy: how it goes about the groups.
        starts: with the climbs made of them.
        keys: for the clouds, and for the run.
        options: of the run.
        from_tops: whether it may begin where the likelihood is high, or where the user said.
    """
    climbed = from_tops and len(starts.climbs) > 0
    tops = starts.tops()[: strategy.most_starts] if climbed else []
    thetas = np.array([top.theta for top in tops]) if tops else starts.thetas
    thetas = thetas[: strategy.most_starts]
    # The modes of a sample are not those of all groups.
    known = bool(tops) and strategy.sample is None
    modes = [modes_of(top.local.extra) for top in tops] if known else None
    width = strategy.width if climbed else NARROW
    structure = None if starts.function is None else starts.function.structure
    if structure is not None and climbed:
        with jax.enable_x64(True):  # as the factors were made
            double = in_double_precision(problem)
            cloud = start_particles(
                double, thetas, keys[0], plan.num_particles, width, modes, structure
            )
            return strategy.run_particles(thetas, cloud, keys[1], options)
    try:
        cloud = start_particles(problem, thetas, keys[0], plan.num_particles, width, modes)
        return strategy.run_particles(thetas, cloud, keys[1], options)
    except NotFiniteError:
        if not tops:
            raise
    # A top may be where float32 ends, at a variance of 0; the user's own start was looked at.
    given = starts.thetas[:1]
    cloud = start_particles(problem, given, keys[0], plan.num_particles, NARROW)
    return strategy.run_particles(given, cloud, keys[1], options)

"""Climbs of a few groups' likelihood, to where those of many begin.

Of many groups, most of a climb is on the way to where a few of them lead already, at a small part
of the cost. What is believed comes from the climbs that follow.
"""

from typing import NamedTuple

import numpy as np

from marginax.likelihood.blocks import USUAL_CHUNK
from marginax.likelihood.climbs import climb_from_starts, is_near
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb
from marginax.model.problem import Problem, in_double_precision

__all__ = ["Beginnings", "few_groups", "rough_tops"]

# Groups from which on a few are climbed first, and how many: a chunk, whose programs serve all.
MANY, FEW = 1_500, USUAL_CHUNK
WIDEST = 3.0  # standard error of a log standard deviation, or a logit
LEAST_DETERMINED = 1e-4  # the smallest eigenvalue of an information scaled to a unit diagonal


class Beginnings(NamedTuple):
    """Where climbs begin.

    Attributes:
        thetas: a row for each place, flat on the reals.
        of_start: for every start which of these places is its own.
    """

    thetas: np.ndarray
    of_start: list[int]


def few_groups(problem: Problem) -> Problem | None:
    """The problem of a few of its groups, if it has many and can be taken apart."""
    num_groups = problem.num_groups or 0
    if num_groups < MANY or problem.group_log_joint is None:
        return None
    rows = np.random.default_rng(0).choice(num_groups, FEW, replace=False)
    return in_double_precision(problem.with_groups(np.sort(rows)))


def rough_tops(function: LikelihoodFunction, thetas: np.ndarray, is_free: np.ndarray) -> Beginnings:
    """The places where climbs from the starts come to rest, each once.

    Args:
        function: the likelihood of a few groups.
        is_free: which reals of theta are parameters themselves, in whatever units they have.
        thetas: the starts, a row each. One whose climb ends at a boundary, or where a few groups do
            not determine all parameters, is a place itself: others may not find back from there.
    """
    places: list[np.ndarray] = []
    tops: list[Climb | None] = []
    of_start: list[int] = []
    for theta, top in zip(thetas, climb_from_starts(function, thetas).climbs, strict=True):
        good = top.settled and np.isfinite(top.local.value) and _is_determined(top, is_free)
        same = [i for i, one in enumerate(tops) if one is not None and is_near(top.theta, one)]
        if good and same:
            of_start.append(same[0])
            continue
        of_start.append(len(places))
        places.append(top.theta if good else theta)
        tops.append(top if good else None)
    return Beginnings(np.array(places), of_start)


def _is_determined(top: Climb, is_free: np.ndarray) -> bool:
    """Whether the information at a top is far from singular, whatever the units.

    Where a parameter has no units, as the logarithm of a standard deviation, it must also be known
    to a few of them: at a boundary, which is at infinity, it is not.
    """
    information = -top.local.hessian
    scale = np.sqrt(np.maximum(np.diag(information), 0))
    if not np.all(scale > 0):
        return False
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    if values[0] < LEAST_DETERMINED:
        return False
    errors = np.sqrt(np.sum(vectors**2 / values, axis=1)) / scale
    return bool(np.all(errors[~is_free] < WIDEST))

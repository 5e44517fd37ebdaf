"""Where theta starts, as given, around it and at the scale of the data; and the climbs from there.

Starts that agree say something only if they were far apart. How far is told by the likelihood where
theta was given: a parameter without a unit (a log standard deviation, a logit) is moved by about 1,
one with a unit by the spread that a group has in it. If the data lie further from the given start
than that, the last start is the best of several at their scale.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from marginax._core.random_numbers import standard_normal
from marginax.fitting.rough_climbs import Beginnings, few_groups, rough_tops
from marginax.fitting.strategies import Strategy
from marginax.likelihood.climbs import climb_from_starts, is_near
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.methods import choose_likelihood
from marginax.likelihood.newton import Climb, Local, climb
from marginax.model.problem import Problem, in_double_precision
from marginax.model.transforms import identity
from marginax.model.transforms.trees import is_transform
from marginax.typing import Key

__all__ = [
    "Starts",
    "at_scale_of_data",
    "climb_starts",
    "in_own_units",
    "overdispersed",
    "settled",
]

MANY_TRIED, FEW_TRIED = 16, 4
FAR = 5.0  # units between the given start and the data


class Starts(NamedTuple):
    """Where theta starts.

    Attributes:
        thetas: a row per start, flat, on the reals.
        function: the likelihood, if it can be computed; of the sample if there is one.
        climbs: of it, from every start.
        interrupted: whether Ctrl-C came; the climbs are then those that had ended.
    """

    thetas: np.ndarray
    function: LikelihoodFunction | None = None
    climbs: tuple[Climb, ...] = ()
    interrupted: bool = False

    def tops(self) -> list[Climb]:
        """The tops of the climbs that came to rest, each once, best first."""
        tops: list[Climb] = []
        for one in sorted(settled(self.climbs), key=lambda one: -one.local.value):
            if not any(is_near(one.theta, top) for top in tops):
                tops.append(one)
        return tops


def climb_starts(
    problem: Problem, strategy: Strategy, thetas: np.ndarray, mesh: Mesh | None
) -> Starts:
    """Climbs of the likelihood, or that of a sample, from the starts, if it can be computed."""
    sampled = strategy.sample is not None
    with jax.enable_x64(True):
        _warn_without_double()
        double = in_double_precision(strategy.sample or problem)
        function = choose_likelihood(double, thetas[0], None if sampled else mesh)
        if function is None:
            return Starts(thetas)
        thetas, begin = _beginnings(double, function, thetas, mesh)
        watched, ended = _watched(function, begin.thetas)
        try:
            made = climb_from_starts(watched, begin.thetas)
        except KeyboardInterrupt:
            if not ended():
                raise
            return Starts(thetas, function, tuple(ended()), interrupted=True)
        climbed = made.function
        if climbed.evaluate is watched.evaluate:
            climbed = climbed._replace(evaluate=function.evaluate)
        return Starts(thetas, climbed, tuple(made.climbs[i] for i in begin.of_start))


def _beginnings(
    problem: Problem, function: LikelihoodFunction, thetas: np.ndarray, mesh: Mesh | None
) -> tuple[np.ndarray, Beginnings]:
    """The starts in the parameters' own units, and where climbs from them begin."""
    few = None if mesh is not None else few_groups(problem)
    of_few = None if few is None else choose_likelihood(few, thetas[0])
    if few is None or of_few is None:
        thetas = in_own_units(problem, function, thetas)
        return thetas, Beginnings(thetas, list(range(len(thetas))))
    thetas = in_own_units(few, of_few, thetas)
    return thetas, rough_tops(of_few, thetas, _is_free(problem))


def _watched(
    function: LikelihoodFunction, thetas: np.ndarray
) -> tuple[LikelihoodFunction, Callable[[], list[Climb]]]:
    """The likelihood, and a function that says which climbs from the starts have come to rest.

    Args:
        function: to be climbed.
        thetas: where climbs start, a row each.
    """
    highest: list[tuple[np.ndarray, Local]] = []  # of each start so far

    def evaluate(theta: np.ndarray, extra: Any) -> Local:
        local = function.evaluate(theta, extra)
        if len(highest) < len(thetas) and np.array_equal(theta, thetas[len(highest)]):
            highest.append((theta, local))
        elif highest and local.value > highest[-1][1].value:
            highest[-1] = (theta, local)
        return local

    def at_rest() -> list[Climb]:
        # Nothing is evaluated: whether the next step promises anything is seen where they are.
        known = [climb(lambda *_, at=at: at, theta, None, max_steps=1) for theta, at in highest]
        return settled(known)

    return function._replace(evaluate=evaluate), at_rest


def settled(climbs: Sequence[Climb]) -> list[Climb]:
    """Those that came to rest where the likelihood is finite."""
    return [one for one in climbs if one.settled and np.isfinite(one.local.value)]


def overdispersed(problem: Problem, key: Key, num_starts: int) -> np.ndarray:
    """Starts of theta, flat: the given one first, others a standard normal away on the reals."""
    leaves = jax.tree.leaves(problem.start_theta())
    theta = np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(float)
    away = np.array(standard_normal(key, (num_starts, theta.size)))
    away[0] = 0.0
    return theta + away


def in_own_units(problem: Problem, function: LikelihoodFunction, thetas: np.ndarray) -> np.ndarray:
    """The starts with parameters that have units moved in them.

    Args:
        problem: what is fitted.
        function: its likelihood.
        thetas: starts a standard normal away from the first.
    """
    units = _units(problem, function.evaluate(thetas[0], function.start))
    starts = thetas[0] + units * (thetas - thetas[0])
    if len(starts) > 1:
        starts[-1] = at_scale_of_data(problem, function, starts[0], starts[-1], units)
    return starts


def at_scale_of_data(
    problem: Problem,
    function: LikelihoodFunction,
    given: np.ndarray,
    otherwise: np.ndarray,
    units: np.ndarray,
) -> np.ndarray:
    """The best of several starts at the data's scale, or `otherwise` if the data are near.

    Args:
        problem: what is fitted.
        function: its likelihood.
        given: the start that was given.
        otherwise: another, which is one of those tried.
        units: of the parameters.
    """
    leaves = [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(problem.data)]
    leaves = [leaf[np.isfinite(leaf)] for leaf in leaves if leaf.size > 1]
    places = [(np.median(leaf), np.std(leaf)) for leaf in leaves if leaf.size > 1]
    free = _is_free(problem)
    far = [
        (center, spread)
        for center, spread in places
        if np.any(free & (np.abs(center - given) + spread > FAR * units))
    ]
    if not far:
        return otherwise
    rng = np.random.default_rng(0)
    tries = FEW_TRIED if function.evaluate_finely is not None else MANY_TRIED
    best, height = otherwise, function.value_at(otherwise, function.start)
    for _ in range(tries):
        center, spread = far[rng.integers(len(far))]
        moved = given + units * rng.standard_normal(given.size)
        at_data = center + spread * rng.standard_normal(given.size)
        taken = free & (rng.random(given.size) < 0.5)
        start = np.where(taken, at_data, moved)
        value = function.value_at(start, function.start)
        if value > height or not np.isfinite(height):
            best, height = (start, value) if np.isfinite(value) else (best, height)
    return best


def _units(problem: Problem, local: Local) -> np.ndarray:
    """How far apart starts are along every real of theta: 1, or a group's spread in its units."""
    curvature = np.abs(np.diag(local.hessian))
    known = _is_free(problem) & np.isfinite(curvature) & (curvature > 0)
    spread = np.sqrt((problem.num_groups or 1) / np.where(known, curvature, 1.0))
    return np.where(known, spread, 1.0)


def _is_free(problem: Problem) -> np.ndarray:
    """Which reals of theta are parameters themselves, in whatever units they have."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    leaves = jax.tree.leaves(problem.start_theta())
    return np.concatenate(
        [np.full(leaf.size, one is identity) for one, leaf in zip(transforms, leaves, strict=True)]
    )


def _warn_without_double() -> None:
    try:
        double = jax.device_put(np.zeros((), np.float64)).dtype == np.float64
    except Exception:  # a platform that refuses float64 outright
        double = False
    if not double:
        warnings.warn(
            "This platform has no float64: information and Newton steps are in float32, and "
            "standard errors may be off in the third digit.",
            stacklevel=4,
        )

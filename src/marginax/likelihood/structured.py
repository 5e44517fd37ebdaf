r"""The likelihood of one block of very many latents, as a function of theta to be climbed.

First steps climb Laplace's approximation, whose gradient is exact and whose Hessian is Louis' for a
Gaussian posterior, corrected by every short step that is taken (Broyden's symmetric rank-one
formula). The last steps climb the likelihood itself: for a Gaussian posterior that is Laplace's;
for any other weighted draws from the best Gaussian, with the score identity

    grad_theta log p_theta(y) = E[grad_theta l | y]

and the Hessian of Laplace's approximation by differences of its gradient.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.programs import KEPT
from marginax._core.random_numbers import generator_of
from marginax.likelihood.best_gaussian import Gaussian, best_gaussian, fitting_draws
from marginax.likelihood.blocks import Blocks, as_blocks
from marginax.likelihood.functions import LikelihoodFunction, StructuredStart, modes_of
from marginax.likelihood.laplace import (
    Mode,
    curvature_is_constant,
    find_mode,
    laplace_gradient,
    laplace_value,
    louis_hessian,
)
from marginax.likelihood.many_latents import Latents, latents_of
from marginax.likelihood.newton import Local
from marginax.likelihood.results import StructuredLikelihood
from marginax.likelihood.structured_draws import (
    CLIMBING_DRAWS,
    CLIMBING_SEED,
    NEAR,
    maximum_by_draws,
    value_by_draws,
)
from marginax.likelihood.weighted_draws import resampled, weigh
from marginax.model.problem import Problem
from marginax.model.structure import Structure, find_structure
from marginax.typing import Key

__all__ = ["structured_likelihood"]

PROBES = 8  # of a trace
# Standard errors: a step after which the Hessian is found anew, one within which it is that of the
# estimate, and one where first climbs may end.
LONG, CLOSE, ROUGHLY = 1.0, 0.003, 0.02
# Very many latents make standard errors short, and many of them are safe.
FIRST_RADIUS = 32.0
STEP = 0.02  # of differences, in standard errors as known latents would have them
SURE = 1e-8  # relative to the sizes: below it a correction by Broyden's formula is rounding


def structured_likelihood(problem: Problem, theta: np.ndarray) -> LikelihoodFunction | str:
    """The likelihood of a problem without groups; or why its latents have no structure.

    Args:
        problem: in double precision.
        theta: flat, on the reals; where it will first be evaluated.
    """
    blocks = as_blocks(problem)
    found = _latents(_Asked(blocks, theta, problem.structure))
    if isinstance(found, str):
        return found
    return _climbable(found._replace(data=blocks.data, start=blocks.start[0]), blocks.start)


class _Asked:
    """What structure is looked for in; equal to others of the same model with the same data."""

    def __init__(self, blocks: Blocks, theta: np.ndarray, kind: str | None) -> None:
        self.blocks, self.theta, self.kind = blocks, theta, kind
        digest = hashlib.sha256(repr((kind, np.shape(theta), blocks.start.shape)).encode())
        for leaf in jax.tree.leaves(blocks.data):
            array = np.asarray(leaf)
            digest.update(repr((array.shape, array.dtype)).encode())
            digest.update(array.tobytes())
        self.key = (blocks.bare, digest.digest())
        known = blocks.identity
        self.identity = None if known is None else f"{known} {digest.hexdigest()}"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.key == other.key


@lru_cache(KEPT)
def _latents(asked: _Asked) -> Latents | str:
    """Found and compiled once for a model and its data, of which which latents meet is a part."""
    blocks = asked.blocks

    def density(x: Array, theta: Array, data: Any) -> Array:
        return blocks.log_densities(theta, x[None], data)[0]

    found = find_structure(
        density, blocks.start[0], asked.theta, blocks.data, asked.kind, asked.identity
    )
    if isinstance(found, str):
        return found
    nothing = jnp.zeros(0)  # of these data: others come to the same programs
    return latents_of(blocks, found)._replace(data=None, start=nothing)


class _Parts(NamedTuple):
    """What all evaluations share.

    Attributes:
        latents: of the problem.
        start: where the first search for the mode begins, [1, n].
        z: standard normal probes, the same at every theta.
        fitting: those by which Gaussians are fitted.
    """

    latents: Latents
    start: Array
    z: Array
    fitting: Array


def _climbable(latents: Latents, start: Array) -> LikelihoodFunction:
    size = latents.structure.size
    z = jnp.asarray(np.random.default_rng(19).standard_normal((PROBES, size)))
    parts = _Parts(latents, start, z, fitting_draws(size))
    return LikelihoodFunction(
        start,
        _remembering(partial(_evaluate, parts)),
        partial(_describe, parts),
        partial(_evaluate_gaussian, parts),
        partial(_adapt, parts),
        value=partial(_value, parts),
        rough_gain=ROUGHLY**2 / 2,
        first_radius=FIRST_RADIUS,
        draw=partial(_draw, parts),
        structure=latents.structure,
    )


def _remembering(evaluate: Callable[[np.ndarray, Any], Local]) -> Callable[..., Local]:
    """The same, with the last answer kept: several stages begin at the same place."""
    last: list[Any] = [None, None, None]

    def again(theta: np.ndarray, known: Any) -> Local:
        if known is not last[1] or not np.array_equal(theta, last[0]):
            last[:] = theta, known, evaluate(theta, known)
        return last[2]

    return again


class _There(NamedTuple):
    """Laplace's approximation at a theta: its mode, value, gradient and the weights of H^-1."""

    mode: Mode
    value: float
    gradient: np.ndarray
    weights: Array


def _mode_at(parts: _Parts, theta: np.ndarray, known: Any) -> Mode:
    latents, begin = parts.latents, modes_of(known)[0]
    mode = find_mode(latents, jnp.asarray(theta), begin)
    if not mode.is_found and not np.array_equal(begin, parts.start[0]):
        mode = find_mode(latents, jnp.asarray(theta), parts.start[0])
    return mode


def _value(parts: _Parts, theta: np.ndarray, known: Any) -> float:
    mode = _mode_at(parts, theta, known)
    return laplace_value(parts.latents, mode) if mode.is_found else -np.inf


def _at(parts: _Parts, theta: np.ndarray, known: Any) -> _There:
    latents, mode = parts.latents, _mode_at(parts, theta, known)
    if not mode.is_found:
        return _There(mode, -np.inf, np.full(len(theta), np.nan), jnp.zeros(0))
    gradient, weights = laplace_gradient(latents, jnp.asarray(theta), mode)
    return _There(mode, laplace_value(latents, mode), gradient, weights)


def _evaluate(parts: _Parts, theta: np.ndarray, known: Any) -> Local:
    """Laplace's approximation, with a Hessian that is good enough to climb by."""
    there = _at(parts, theta, known)
    if not there.mode.is_found:
        return Local(there.value, there.gradient, np.full((len(theta),) * 2, np.nan), known)
    hessian = _hessian(parts, theta, known, there)
    onwards = StructuredStart(there.mode.x[None], theta, there.gradient, hessian)
    return Local(there.value, there.gradient, hessian, onwards)


def _evaluate_gaussian(parts: _Parts, theta: np.ndarray, known: Any) -> Local:
    """The same with its Hessian by differences, for the last steps where it is exact."""
    there = _at(parts, theta, known)
    if not there.mode.is_found:
        return Local(there.value, there.gradient, np.full((len(theta),) * 2, np.nan), known)
    exact = known.exact if isinstance(known, StructuredStart) else None
    if exact is not None and _is_far(theta, *exact, CLOSE):
        exact = None
    hessian = _hessian(parts, theta, known, there) if exact is None else exact[1]
    step = np.linalg.lstsq(-hessian, there.gradient)[0]
    if exact is None and not _is_far(theta + step, theta, hessian, CLOSE):  # all but there
        exact = (theta, _differences(parts, theta, there))
        hessian = exact[1]
    onwards = StructuredStart(there.mode.x[None], theta, there.gradient, hessian, exact=exact)
    return Local(there.value, there.gradient, hessian, onwards)


def _hessian(parts: _Parts, theta: np.ndarray, known: Any, there: _There) -> np.ndarray:
    """About the Hessian: the last one, corrected, or Louis' after a long way."""
    if isinstance(known, StructuredStart) and not _is_far(theta, known.theta, known.hessian, LONG):
        return _corrected(known, theta, there.gradient)
    at = (jnp.asarray(theta), there.mode, there.weights)
    return louis_hessian(parts.latents, *at, parts.z)


def _differences(parts: _Parts, theta: np.ndarray, there: _There) -> np.ndarray:
    """The Hessian of Laplace's approximation, from its gradient to either side."""
    latents, x = parts.latents, there.mode.x
    maps = latents.structure.maps
    complete = latents.complete(jnp.asarray(theta), x, latents.data, maps, there.weights)
    curvature = np.abs(np.diag(complete))
    steps = STEP / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    rows = [
        _at(parts, theta + move, x[None]).gradient - _at(parts, theta - move, x[None]).gradient
        for move in np.diag(steps)
    ]
    found = np.array(rows) / (2 * steps[:, None])
    return (found + found.T) / 2


def _is_gaussian(parts: _Parts, theta: np.ndarray, mode: Mode) -> bool:
    return curvature_is_constant(parts.latents, jnp.asarray(theta), mode, parts.z[:2])


def _adapt(parts: _Parts, theta: np.ndarray, known: Any) -> LikelihoodFunction:
    """The same, with last steps that climb the likelihood itself."""
    function = _climbable(parts.latents, parts.start)
    there = _at(parts, theta, known)
    if not there.mode.is_found or _is_gaussian(parts, theta, there.mode):
        return function
    hessian = _differences(parts, theta, there)
    latents = parts.latents
    top = maximum_by_draws(latents, theta, hessian, there.mode, parts.fitting)

    def by_draws(theta: np.ndarray, known: Any) -> Local:
        at, count = jnp.asarray(theta), top.num_draws
        drawn = weigh(latents, at, top.gaussian, count, CLIMBING_SEED)
        onwards = StructuredStart(
            top.gaussian.mean[None], theta, drawn.score, hessian, top.gaussian, num_draws=count
        )
        return Local(drawn.log_likelihood, drawn.score, hessian, onwards)

    return function._replace(evaluate_finely=by_draws, top=top.theta, negligible=NEAR**2)


def _nearest(parts: _Parts, theta: np.ndarray, known: Any, mode: Mode) -> Gaussian:
    before = known.gaussian if isinstance(known, StructuredStart) else None
    return before or best_gaussian(parts.latents, jnp.asarray(theta), mode, parts.fitting)


def _describe(parts: _Parts, theta: np.ndarray, known: Any) -> StructuredLikelihood:
    there, structure = _at(parts, theta, known), parts.latents.structure
    if _is_gaussian(parts, theta, there.mode):
        return _exact(structure, there.mode, there.value, np.zeros((len(theta),) * 2))
    gaussian = _nearest(parts, theta, known, there.mode)
    climbed = known.num_draws if isinstance(known, StructuredStart) else 0
    return value_by_draws(parts.latents, theta, gaussian, there.value, climbed or CLIMBING_DRAWS)


def _draw(parts: _Parts, theta: np.ndarray, known: Any, key: Key, count: int) -> np.ndarray:
    mode, latents = _at(parts, theta, known).mode, parts.latents
    if _is_gaussian(parts, theta, mode):
        z = jnp.asarray(generator_of(key).standard_normal((count, latents.structure.size)))
        away = latents.structure.factors.unwhiten(mode.factor, z)
        return np.asarray(mode.x)[None] + np.asarray(away)
    gaussian = _nearest(parts, theta, known, mode)
    return resampled(latents, jnp.asarray(theta), gaussian, key, count)


def _exact(
    structure: Structure, mode: Mode, value: float, no_noise: np.ndarray
) -> StructuredLikelihood:
    inverse = np.asarray(structure.factors.inverse_on_pattern(mode.factor))
    variance = inverse[structure.pattern.rows == structure.pattern.cols]
    return StructuredLikelihood(
        log_likelihood=value,
        error=0.0,
        mean=np.asarray(mode.x)[None],
        sd=np.sqrt(variance)[None],
        undefined=0.0,
        structure=structure.words,
        laplace=value,
        num_draws=None,
        effective_draws=None,
        pareto_k=None,
        score_covariance=no_noise,
    )


def _corrected(known: StructuredStart, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The Hessian that explains the last change of the gradient: one of rank one is added."""
    step = theta - known.theta
    missed = gradient - known.gradient - known.hessian @ step
    size = float(missed @ step)
    if abs(size) <= SURE * np.linalg.norm(missed) * np.linalg.norm(step):
        return known.hessian
    return known.hessian + np.outer(missed, missed) / size


def _is_far(theta: np.ndarray, where: np.ndarray, hessian: np.ndarray, most: float) -> bool:
    """Whether theta is further away than so many standard errors, as the Hessian has them."""
    return bool(np.any(np.abs(np.diag(hessian)) * (theta - where) ** 2 > most**2))

r"""The likelihood of a problem by importance sampling, as a function of theta to be climbed.

Draws and their weights are made by `importance_weights`; here they follow theta.

The proposal follows theta: at theta + d its centre and root are m + R u and R A^-1/2, u and A to
first order in d. The draws' noise then hardly changes from point to point, and value and gradient
are known to many more digits than their own error would allow; for a Gaussian posterior, exactly.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from marginax._core.linalg import cholesky, lower_solve
from marginax._core.programs import KEPT, ById, program
from marginax.likelihood.blocks import MOST_LATENTS, Blocks, as_blocks, chunk_of
from marginax.likelihood.functions import FineStart, LikelihoodFunction, modes_of
from marginax.likelihood.importance_weights import (
    Draws,
    Ratios,
    StandardDraws,
    Weighed,
    fewest_effective,
    log_ratios,
    standard_draws,
)
from marginax.likelihood.mode_search import mode_search
from marginax.likelihood.modes import Laplace, hessians
from marginax.likelihood.newton import Local
from marginax.likelihood.proposals import Proposal, as_modes, proposals_by_chunk
from marginax.likelihood.results import ImportanceLikelihood
from marginax.model.problem import Problem

__all__ = [
    "DEGREES",
    "GROUP_DRAWS",
    "JOINT_DRAWS",
    "MOST_LATENTS",
    "NUM_REPLICATES",
    "arrays_of",
    "value_fields",
    "importance_likelihood",
    "in_words",
    "ratios_of",
]

JOINT_DRAWS, GROUP_DRAWS = 2**13, 2**10
DEGREES = (math.inf, 12.0, 5.0)  # a Gaussian first: it is exact where the posterior is one
COARSER = 8  # how many times fewer draws the first steps use
NUM_REPLICATES = 4  # other draws, whose answers tell the error


class _Known(NamedTuple):
    """A Hessian, and where it was taken."""

    theta: np.ndarray
    hessian: np.ndarray

    def is_far(self, theta: np.ndarray) -> bool:
        """Whether theta is so far away, in standard errors, that the Hessian may be another."""
        away = theta - self.theta
        return bool(np.any(np.abs(np.diag(self.hessian)) * away**2 > 0.02**2))


def importance_likelihood(
    problem: Problem, theta: np.ndarray, mesh: Mesh | None = None
) -> LikelihoodFunction:
    """With the proposal, Gaussian or t, that has the largest effective sample size at theta."""
    parts = _compile(problem, mesh)
    num_draws = JOINT_DRAWS if problem.num_groups is None else GROUP_DRAWS
    size = parts.blocks.start.shape[1]
    proposals = [standard_draws(size, num_draws, degrees) for degrees in DEGREES]

    def adapt(theta: np.ndarray, start: Any) -> LikelihoodFunction:
        worst = [fewest_effective(_weigh(parts, theta, start, draws)) for draws in proposals]
        best = int(np.argmax(worst))
        return _with_draws(problem, parts, proposals[best])._replace(adapt=adapt)

    return adapt(theta, parts.blocks.start)


class _Parts(NamedTuple):
    """What is compiled once for all proposals.

    Attributes:
        blocks: of the problem.
        propose: as `proposals_by_chunk` returns.
        value_and_gradient: `(theta, proposal, data, draws)`, with a proposal that follows theta.
        known_curvature: `(theta, modes, data)`, what theta's would be if the latents were known.
        weigh: `(theta, proposal, data, draws) -> Ratios`.
    """

    blocks: Blocks
    propose: Any
    value_and_gradient: Any
    known_curvature: Any
    weigh: Any


def _compile(problem: Problem, mesh: Mesh | None) -> _Parts:
    blocks = as_blocks(problem, mesh)
    return _Parts(blocks, proposals_by_chunk(blocks), *_compiled(blocks.bare))


@lru_cache(KEPT)
def _compiled(bare: ById) -> tuple[Any, Any, Any]:
    blocks = bare.value

    def following(theta: Array, proposal: Proposal, data: Any, draws: StandardDraws) -> Array:
        follow = partial(_follow, blocks, theta, data=data)
        several = len(proposal.log_share) > 1
        at = jax.vmap(follow)(proposal.at) if several else _one(follow, proposal)
        logs = ratios_of(blocks, theta, proposal._replace(at=at), data, draws).logs
        return jnp.sum(jax.nn.logsumexp(logs, axis=1)) - len(logs) * math.log(logs.shape[1])

    @program(bare)
    def value_and_gradient(
        theta: Array, proposal: Proposal, data: Any, draws: StandardDraws
    ) -> Any:
        return jax.value_and_grad(following)(theta, proposal, data, draws)

    @program(bare)
    def known_curvature(theta: Array, modes: Array, data: Any) -> Array:
        def known(theta: Array) -> Array:
            return jnp.sum(blocks.log_densities(theta, modes[0], data))

        return jnp.abs(jnp.diag(jax.hessian(known)(theta)))

    @program(bare)
    def weigh(theta: Array, proposal: Proposal, data: Any, draws: StandardDraws) -> Ratios:
        return ratios_of(blocks, theta, proposal, data, draws)

    return value_and_gradient, known_curvature, weigh


def _with_draws(problem: Problem, parts: _Parts, draws: Draws) -> LikelihoodFunction:
    blocks = parts.blocks
    all_draws, num_few = arrays_of(draws), len(draws.z) // COARSER
    # A Sobol sequence's own beginning.
    few = all_draws._replace(z=all_draws.z[:num_few], log_density=all_draws.log_density[:num_few])

    def value_and_gradient(theta: np.ndarray, start: Any, draws: StandardDraws) -> Any:
        modes = as_modes(modes_of(start))
        values, gradients, onwards = [], [], []
        points = len(modes) * len(draws.z)
        for rows, proposal, further in parts.propose(theta, modes, points):
            value, gradient = parts.value_and_gradient(
                jnp.asarray(theta), proposal, chunk_of(blocks, rows), draws
            )
            values.append(value)
            gradients.append(gradient)
            onwards.append(further)
        return sum(values), sum(gradients), jnp.concatenate(onwards, axis=1)

    def hessian(
        theta: np.ndarray, at: np.ndarray, modes: Array, draws: StandardDraws
    ) -> np.ndarray:
        # Differences of the gradient, in steps of a hundredth of a standard error or less.
        curvature = np.asarray(parts.known_curvature(jnp.asarray(theta), modes, blocks.data))
        # A coordinate that tells nothing there has its slope's length, or any.
        slope = np.where(at != 0, np.abs(at), 1.0)
        steps = 0.01 / np.where(curvature > 0, np.sqrt(curvature), slope)

        def gradient(theta: np.ndarray) -> np.ndarray:
            return np.asarray(value_and_gradient(theta, modes, draws)[1])

        rows = [gradient(theta + move) - gradient(theta - move) for move in np.diag(steps)]
        differences = np.array(rows) / (2 * steps[:, None])
        return (differences + differences.T) / 2

    def evaluate(theta: np.ndarray, start: Any) -> Local:
        value, gradient, modes = value_and_gradient(theta, start, few)
        gradient = np.asarray(gradient)
        return Local(float(value), gradient, hessian(theta, gradient, modes, few), modes)

    def evaluate_finely(theta: np.ndarray, start: Any) -> Local:
        known = start.curvature if isinstance(start, FineStart) else None
        value, gradient, modes = value_and_gradient(theta, start, all_draws)
        gradient = np.asarray(gradient)
        if known is None or known.is_far(theta):
            known = _Known(theta, hessian(theta, gradient, modes, all_draws))
        return Local(float(value), gradient, known.hessian, FineStart(modes, known))

    def describe(theta: np.ndarray, start: Any) -> ImportanceLikelihood:
        num_draws, size = draws.z.shape
        others = [
            standard_draws(size, num_draws, draws.degrees, seed=seed + 1)
            for seed in range(NUM_REPLICATES)
        ]
        again = [value_and_gradient(theta, start, arrays_of(one)) for one in (draws, *others)]
        gradients = np.array([np.asarray(gradient) for _, gradient, _ in again])
        weighed = Weighed.of(_weigh(parts, theta, start, draws))
        return ImportanceLikelihood(
            **value_fields(problem, weighed, num_draws, draws.degrees),
            error=float(np.std([float(value) for value, _, _ in again], ddof=1)),
            score_covariance=np.atleast_2d(np.cov(gradients.T)),
            num_modes=len(as_modes(modes_of(start))),
        )

    return LikelihoodFunction(
        blocks.start,
        evaluate,
        describe,
        evaluate_finely,
        other_modes=mode_search(blocks),
        value=lambda theta, start: float(value_and_gradient(theta, start, few)[0]),
    )


def _weigh(parts: _Parts, theta: np.ndarray, start: Any, draws: Draws) -> Iterator[Ratios]:
    """The weights of draws at the modes, a chunk at a time."""
    blocks, modes = parts.blocks, as_modes(modes_of(start))
    for rows, proposal, _ in parts.propose(theta, modes, len(modes) * len(draws.z)):
        yield parts.weigh(jnp.asarray(theta), proposal, chunk_of(blocks, rows), arrays_of(draws))


def value_fields(
    problem: Problem, weighed: Weighed, num_draws: int, degrees: float
) -> dict[str, Any]:
    """What weights say of the likelihood, by the names that both its types have."""
    worst = float(weighed.pareto_k.max())
    return {
        "log_likelihood": float(weighed.log_marginal.sum()),
        "by_group": None if problem.num_groups is None else weighed.log_marginal,
        "mean": weighed.mean,
        "sd": weighed.sd,
        "undefined": float(weighed.undefined.mean()),
        "num_draws": num_draws,
        "proposal": in_words(degrees),
        "effective_draws": float(weighed.effective.min()),
        "pareto_k": None if worst == -math.inf else worst,
    }


def arrays_of(draws: Draws) -> StandardDraws:
    """The draws on the device."""
    return StandardDraws(*(jnp.asarray(part) for part in draws))


def in_words(degrees: float) -> str:
    """The shape of a proposal."""
    return "Gaussian" if math.isinf(degrees) else f"t ({degrees:g} degrees of freedom)"


def ratios_of(
    blocks: Blocks, theta: Array, proposal: Proposal, data: Any, draws: StandardDraws
) -> Ratios:
    """The log weights of draws placed by a proposal."""
    return log_ratios(lambda x: blocks.log_densities(theta, x, data), proposal, draws)


def _one(follow: Callable[[Laplace], Laplace], proposal: Proposal) -> Laplace:
    """What follows the only mode, without the cost of mapping over it."""
    alone = follow(jax.tree.map(lambda leaf: leaf[0], proposal.at))
    return jax.tree.map(lambda leaf: leaf[None], alone)


def _follow(blocks: Blocks, theta: Array, at: Laplace, data: Any) -> Laplace:
    """`at`, with the derivatives in theta that the modes and their curvatures have."""

    def along(u: Array) -> Array:
        return at.mode + jnp.einsum("bpq,bq->bp", at.root, u)

    def densities(u: Array) -> Array:  # in whitened coordinates: modes 0, curvatures I
        return blocks.log_densities(theta, along(u), data)

    def moving(value: Array) -> Array:  # zero, with the derivatives of value
        return value - jax.lax.stop_gradient(value)

    u = moving(jax.grad(lambda u: jnp.sum(densities(u)))(jnp.zeros_like(at.mode)))
    curvature = jnp.eye(u.shape[1], dtype=u.dtype)[None] + moving(-hessians(densities, u))
    lower = cholesky(curvature)
    root = lower_solve(lower, jnp.swapaxes(at.root, 1, 2))
    log_root = at.log_root - jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)), axis=1)
    return Laplace(along(u), jnp.swapaxes(root, 1, 2), log_root)

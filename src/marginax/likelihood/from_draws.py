r"""What posterior draws say of the likelihood, where it cannot be computed from modes.

Newton's method from draws alone:

    score        grad log p_theta(y) = E[grad_theta l | y]                            (Fisher)
    information  I = E[-grad^2_theta l | y] - Var[grad_theta l | y]                   (Louis, 1982)

summed over blocks, which are independent given theta. The draws are made anew at every theta, and
the steps end when one is within twice its Monte Carlo error: to go on would make it worse. The
likelihood itself then comes from importance sampling with what the draws look like.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.likelihood.blocks import Blocks, as_blocks, chunk_of, in_chunks
from marginax.likelihood.importance import (
    DEGREES,
    GROUP_DRAWS,
    JOINT_DRAWS,
    MOST_LATENTS,
    NUM_REPLICATES,
    arrays_of,
    ratios_of,
    value_fields,
)
from marginax.likelihood.importance_weights import Ratios, Weighed, fewest_effective, standard_draws
from marginax.likelihood.modes import Laplace
from marginax.likelihood.posterior import Posterior, posterior_sampler
from marginax.likelihood.proposals import Proposal
from marginax.likelihood.results import DrawsLikelihood
from marginax.model.problem import Problem
from marginax.typing import Key

__all__ = [
    "LouisClimb",
    "Moments",
    "climb_by_draws",
    "likelihood_from_draws",
    "louis_climb",
    "louis_moments",
]

WORST_RHAT = 1.2  # chains that differ more than this are not from one distribution
MOST_NOISE = 0.2  # of the information: with more, standard errors would be off by a tenth and more
LEAST_SHARE = 0.02  # of the information that known latents would have
MOST_DRAWS = 100  # per chain: second derivatives take long, and these are averages


class Moments(NamedTuple):
    """What the draws say of the likelihood's derivatives.

    Attributes:
        score: the gradient.
        information: minus the Hessian.
        score_covariance: of the gradient's Monte Carlo error, from the chains' own means.
        complete: what the information would be if the latents were known.
        noise: the Monte Carlo error of the information along its weakest direction, relative to it:
            Louis' difference of two large matrices may be nothing but noise.
    """

    score: np.ndarray
    information: np.ndarray
    score_covariance: np.ndarray
    complete: np.ndarray
    noise: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the information is more than noise."""
        return bool(self.noise < MOST_NOISE)


class LouisClimb(NamedTuple):
    """How the climb ended.

    Attributes:
        theta: the estimate, flat, on the reals.
        moments: the derivatives there.
        posterior: the draws there.
        num_steps: steps taken.
        settled: whether the next step was within its Monte Carlo error.
    """

    theta: np.ndarray
    moments: Moments
    posterior: Posterior
    num_steps: int
    settled: bool


def louis_moments(blocks: Blocks) -> Callable[[np.ndarray, Posterior], Moments]:
    """A function that gives score and information at theta from draws at theta."""

    @jax.jit
    def averages(theta: Array, draws: Array, data: Any) -> Any:
        def one_chain(chain: Array) -> Any:  # [draws, blocks, size]
            def mean(theta: Array) -> Array:
                values = jax.vmap(lambda x: jnp.sum(blocks.log_densities(theta, x, data)))(chain)
                return jnp.mean(values)

            # A pass per parameter forwards, or per block backwards: whichever are fewer.
            jacobian = jax.jacfwd if len(theta) < chain.shape[1] else jax.jacrev
            scores = jax.vmap(lambda x: jacobian(blocks.log_densities)(theta, x, data))(chain)
            outer = jnp.einsum("sbp,sbq->pq", scores, scores) / len(chain)
            return jnp.mean(scores, axis=0), outer, jax.hessian(mean)(theta)

        return jax.lax.map(one_chain, draws)

    def moments(theta: np.ndarray, posterior: Posterior) -> Moments:
        thin = -(-posterior.draws.shape[1] // MOST_DRAWS)
        draws = jnp.asarray(posterior.draws[:, ::thin])
        scores, outers, hessians = (
            np.asarray(part) for part in averages(jnp.asarray(theta), draws, blocks.data)
        )
        each = scores.mean(axis=0)  # [blocks, p]
        information = -hessians.mean(axis=0) - (outers.mean(axis=0) - each.T @ each)
        # Linear in the chains about their mean, so that their spread tells the error.
        by_chain = np.array(
            [
                -hessian - outer + each.T @ score + score.T @ each - each.T @ each
                for hessian, outer, score in zip(hessians, outers, scores, strict=True)
            ]
        )
        return Moments(
            each.sum(axis=0),
            information,
            np.atleast_2d(np.cov(scores.sum(axis=1).T)) / len(scores),
            -hessians.mean(axis=0),
            _noise(information, by_chain),
        )

    return moments


def _noise(information: np.ndarray, by_chain: np.ndarray) -> float:
    """The error along the weakest direction, of that direction's own information; inf below 0."""
    scale = np.sqrt(np.abs(np.diag(information)))
    scale = np.where(scale > 0, scale, 1.0)
    w, v = np.linalg.eigh(information / np.outer(scale, scale))
    weakest = v[:, 0] / scale
    along = np.einsum("p,cpq,q->c", weakest, by_chain, weakest)
    error = float(np.std(along, ddof=1) / np.sqrt(len(along)))
    return error / float(w[0]) if w[0] > 0 else float("inf")


def louis_climb(
    sample: Callable[[np.ndarray, int], Posterior],
    blocks: Blocks,
    theta: np.ndarray,
    max_steps: int = 12,
) -> LouisClimb | None:
    """Newton steps with fresh draws at each theta, until they are lost in Monte Carlo error.

    None if the chains do not mix, or the model is not finite where they go: better no step than one
    from draws that are not from the posterior.

    Args:
        sample: `sample(theta, step)` draws from the posterior at theta.
        blocks: of the problem.
        theta: flat start on the reals.
        max_steps: the most steps.
    """
    moments_at = louis_moments(blocks)
    taken = 0
    while True:
        posterior = sample(theta, taken)
        moments = moments_at(theta, posterior)
        if not (posterior.rhat < WORST_RHAT and _is_finite(moments)):
            return None
        step, error = _step(moments)
        done = bool(np.all(np.abs(step) <= 2 * error))
        if done or taken == max_steps:
            return LouisClimb(theta, moments, posterior, taken, done)
        theta, taken = theta + step, taken + 1


def climb_by_draws(
    problem: Problem, theta: np.ndarray, cloud: Array, key: Key
) -> LouisClimb | None:
    """Newton steps with scores and information from posterior draws, from theta.

    Args:
        problem: in double precision.
        theta: flat, on the reals.
        cloud: [particles, blocks, size], where the chains start.
        key: for the chains.
    """
    draw = posterior_sampler(problem)

    def sample(theta: np.ndarray, step: int) -> Posterior:
        return draw(theta, cloud, jax.random.fold_in(key, step))

    return louis_climb(sample, as_blocks(problem), theta)


def _is_finite(moments: Moments) -> bool:
    return all(bool(np.all(np.isfinite(part))) for part in moments[:4])


def _step(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Newton's step, no longer than two standard errors in any direction, and its own error.

    Relative to what known latents would say, the information is between 0 and 1 near a maximum.
    Where it is not, far from one or for want of draws, the step is that of the EM algorithm, which
    does not overshoot.
    """
    diagonal = np.abs(np.diag(moments.complete))
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    w, v = np.linalg.eigh(moments.complete * np.outer(scale, scale))
    root = scale[:, None] * v / np.sqrt(np.maximum(np.abs(w), 1e-10))
    share, u = np.linalg.eigh(root.T @ moments.information @ root)
    share = np.where(share > LEAST_SHARE, share, 1.0)
    along = u.T @ (root.T @ moments.score) / share
    along = np.clip(along, -2 / np.sqrt(share), 2 / np.sqrt(share))
    inverse = root @ (u / share) @ u.T @ root.T
    error = np.sqrt(np.diag(inverse @ moments.score_covariance @ inverse))
    return root @ (u @ along), error


def likelihood_from_draws(
    problem: Problem, theta: np.ndarray, posterior: np.ndarray
) -> DrawsLikelihood | None:
    """From a Gaussian or t with the mean and the covariance of posterior draws, block by block.

    For posteriors whose mode and curvature say too little of them. None where the latents are too
    many.

    Args:
        problem: in double precision.
        theta: flat, on the reals.
        posterior: [..., blocks, size].
    """
    if problem.latent_size > MOST_LATENTS:
        return None
    blocks = as_blocks(problem)
    num_blocks, size = blocks.start.shape
    num_draws = JOINT_DRAWS if problem.num_groups is None else GROUP_DRAWS
    samples = posterior.reshape(-1, num_blocks, size)
    mean = samples.mean(axis=0)
    away = samples - mean
    covariance = np.einsum("sbp,sbq->bpq", away, away) / len(samples)
    scale = np.sqrt(np.maximum(np.einsum("bpp->bp", covariance), np.finfo(float).tiny))
    units = scale[:, :, None] * scale[:, None, :]
    root = scale[:, :, None] * np.linalg.cholesky(covariance / units + 1e-12 * np.eye(size))
    log_root = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
    at = Laplace(*(jnp.asarray(x) for x in (mean, root, log_root)))
    weigh = jax.jit(partial(ratios_of, blocks))
    proposal = Proposal(jax.tree.map(lambda part: part[None], at), jnp.zeros((1, num_blocks)))

    def weights(degrees: float, seed: int) -> Iterator[Ratios]:
        z = arrays_of(standard_draws(size, num_draws, degrees, seed=seed))
        for rows in in_chunks(blocks, num_draws):
            here = jax.tree.map(lambda part, rows=rows: part[:, rows], proposal)
            yield weigh(jnp.asarray(theta), here, chunk_of(blocks, rows), z)

    degrees = max(DEGREES, key=lambda degrees: fewest_effective(weights(degrees, 0)))
    replicates = [Weighed.of(weights(degrees, seed)) for seed in range(NUM_REPLICATES + 1)]
    return DrawsLikelihood(
        **value_fields(problem, replicates[0], num_draws, degrees),
        error=float(np.std([one.log_marginal.sum() for one in replicates], ddof=1)),
    )

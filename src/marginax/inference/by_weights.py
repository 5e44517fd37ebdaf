"""The likelihood from posterior draws: importance sampling from what they look like."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from marginax.inference.blocks import as_blocks, in_pieces, piece_of
from marginax.inference.by_importance import (
    DEGREES,
    GROUP_DRAWS,
    JOINT_DRAWS,
    NUM_REPLICATES,
    arrays_of,
    evidence_of,
    in_words,
    ratios_of,
)
from marginax.inference.importance import Ratios, Weighed, fewest_effective, standard_draws
from marginax.inference.likelihood import Evidence
from marginax.inference.modes import Laplace
from marginax.problem import Problem

__all__ = ["evidence_from_draws"]


def evidence_from_draws(problem: Problem, theta: np.ndarray, posterior: np.ndarray) -> Evidence:
    """From a Gaussian or t with the mean and the covariance of posterior draws, block by block.

    For posteriors whose mode and curvature say too little of them.

    Args:
        problem: in double precision.
        theta: flat and free.
        posterior: [..., blocks, size].
    """
    blocks = as_blocks(problem)
    num_blocks, size = blocks.start.shape
    num_draws = JOINT_DRAWS if problem.num_groups is None else GROUP_DRAWS
    samples = posterior.reshape(-1, num_blocks, size)
    mean = samples.mean(axis=0)
    away = samples - mean
    covariance = np.einsum("sbp,sbq->bpq", away, away) / len(samples)
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(size))
    log_root = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
    at = Laplace(*(jnp.asarray(x) for x in (mean, root, log_root)))
    weigh = jax.jit(partial(ratios_of, blocks))

    def weights(degrees: float, seed: int) -> Iterator[Ratios]:
        z = arrays_of(standard_draws(size, num_draws, degrees, seed=seed))
        for rows in in_pieces(blocks, num_draws):
            here = Laplace(*(part[rows] for part in at))
            yield weigh(jnp.asarray(theta), here, piece_of(blocks, rows), *z)

    degrees = max(DEGREES, key=lambda degrees: fewest_effective(weights(degrees, 0)))
    found = [Weighed.of(weights(degrees, seed)) for seed in range(NUM_REPLICATES + 1)]
    return evidence_of(
        problem,
        found[0],
        f"importance sampling, {num_draws} draws from a {in_words(degrees)} with the mean and "
        "covariance of the posterior draws",
        error=float(np.std([one.log_marginal.sum() for one in found], ddof=1)),
        score_covariance=np.zeros((len(theta), len(theta))),
    )

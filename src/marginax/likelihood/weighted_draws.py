r"""Weighted draws of very many latents, and what they say of theta.

The draws are ends of paths that begin at the nearest Gaussian (`annealed_paths`); they come with
their mirror images, in chunks of which only sums are kept.

The score of theta is a sum over all latents, and noisy. By Stein's identity, for any field phi,
E[phi' grad_x l + div phi | y] = 0; with b and D a parameter's derivatives of grad_x l and of H,

    phi(x) = P^-1 (b - D (x - m) / 2),       div phi = -<P^-1, D> / 2

takes away what is linear and quadratic in the score, and for a Gaussian posterior all its noise.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.random_numbers import generator_of
from marginax.likelihood.annealed_paths import KICKS, even_paths
from marginax.likelihood.best_gaussian import Gaussian
from marginax.likelihood.importance_weights import pareto_k
from marginax.likelihood.laplace import in_both_halves
from marginax.likelihood.many_latents import Latents
from marginax.typing import Key

__all__ = ["Chunk", "Weights", "resampled", "weigh"]

NUMBERS = 2_000_000  # of draws held at a time
TO_CHOOSE_FROM = 16  # the first of a chain


class Chunk(NamedTuple):
    """Some draws and their mirror images.

    Attributes:
        logs: [draws] log weights, -inf where the density was NaN.
        scores: of theta, [draws, p].
        mean: of their latents by these weights.
        variance: likewise.
        num_undefined: draws at which the density was NaN.
        kicks: of their paths.
    """

    logs: np.ndarray
    scores: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    num_undefined: int
    kicks: int


class Weights(NamedTuple):
    """What weighted draws say of a likelihood at theta.

    Attributes:
        logs: [draws] log weights.
        log_likelihood: of theta.
        error: its standard error.
        score: grad_theta log p_theta(y).
        score_covariance: of its Monte Carlo error.
        mean: of the latents' posterior.
        sd: likewise.
        num_undefined: draws at which the density was NaN.
        chunks: what all this was made of, for more draws to be added.
    """

    logs: np.ndarray
    log_likelihood: float
    error: float
    score: np.ndarray
    score_covariance: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    num_undefined: int
    chunks: tuple[Chunk, ...]

    @property
    def effective_draws(self) -> float:
        """By how many draws of equal weight they would be replaced."""
        share = np.exp(self.logs - self.logs.max())
        return float(share.sum() ** 2 / np.sum(share**2))

    @property
    def pareto_k(self) -> float | None:
        """Of their tail; None if all are equal."""
        found = pareto_k(self.logs)
        return None if found == -np.inf else found


def weigh(
    latents: Latents,
    theta: Array,
    gaussian: Gaussian,
    num_draws: int,
    seed: int,
    before: tuple[Chunk, ...] = (),
) -> Weights:
    """Fresh antithetic draws of the Gaussian with their weights.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        gaussian: to draw from.
        num_draws: at least so many, those before included.
        seed: of the draws; the same for all theta, so that what is found is smooth in it.
        before: chunks that there are, of the same theta, Gaussian and seed.
    """
    structure = latents.structure
    twice = in_both_halves(structure, structure.factors.inverse_on_pattern(gaussian.factor))
    divergence = -latents.slopes(theta, gaussian.mean, latents.data, structure.maps, twice)[1] / 2
    constant = (
        structure.size / 2 * np.log(2 * np.pi)
        - float(structure.factors.log_determinant(gaussian.factor)) / 2
    )
    size = max(2, min(num_draws, NUMBERS // structure.size) // 2 * 2)
    kicks = KICKS
    if before:  # of one size, for which the programs are compiled
        size, kicks = len(before[0].logs), before[-1].kicks
    chunks = list(before)
    while sum(len(chunk.logs) for chunk in chunks) < num_draws:
        random = np.random.default_rng((seed, len(chunks)))
        u, v = (_mirrored(random, size // 2, structure.size) for _ in range(2))
        away, logs, kicks = even_paths(latents, theta, gaussian, (u, v), kicks)
        values, scores, of_latents, fields = latents.stein_scores(
            theta, gaussian.mean, latents.data, away
        )
        logs = logs + np.asarray(values) + constant
        # phi' grad_x l = (S f)' grad_x l = f' (S grad_x l): one solve for all parameters.
        pulled = structure.factors.solve(gaussian.factor, of_latents)
        scores = scores + jnp.einsum("kpn,kn->kp", fields, pulled) + divergence[None]
        chunks.append(_chunk(logs, np.asarray(scores), np.asarray(gaussian.mean), away, kicks))
    return _summed(tuple(chunks))


def _mirrored(random: np.random.Generator, count: int, size: int) -> Array:
    half = random.standard_normal((count, size))
    return jnp.asarray(np.concatenate([half, -half]))


def _chunk(
    logs: np.ndarray, scores: np.ndarray, center: np.ndarray, away: Array, kicks: int
) -> Chunk:
    undefined = np.isnan(logs)
    logs = np.where(undefined, -np.inf, logs)
    share = np.exp(logs - logs.max()) if np.isfinite(logs.max()) else np.zeros(len(logs))
    share = share / max(share.sum(), np.finfo(float).tiny)
    x = np.asarray(away)
    mean = share @ x
    variance = np.maximum(share @ x**2 - mean**2, 0)  # x is away from the middle already
    scores = np.where(np.isfinite(scores), scores, 0.0)
    return Chunk(logs, scores, center + mean, variance, int(undefined.sum()), kicks)


def _summed(chunks: tuple[Chunk, ...]) -> Weights:
    logs = np.concatenate([chunk.logs for chunk in chunks])
    top = logs.max()
    pieces = [np.exp(chunk.logs - top) for chunk in chunks]
    totals = np.array([piece.sum() for piece in pieces])
    total = totals.sum()
    part = totals / total
    score = sum(w @ chunk.scores for w, chunk in zip(pieces, chunks, strict=True)) / total
    mean = part @ np.stack([chunk.mean for chunk in chunks])
    between = np.stack([chunk.variance + (chunk.mean - mean) ** 2 for chunk in chunks])
    # Pairs of mirror images are the independent units: errors are those of their sums.
    paired = np.concatenate([_pairs(w) for w in pieces])
    relative = paired / paired.mean() - 1
    away = [
        _pairs(w[:, None] * (chunk.scores - score)) for w, chunk in zip(pieces, chunks, strict=True)
    ]
    off = np.concatenate(away) / total
    return Weights(
        logs,
        float(top + np.log(total / len(logs))),
        float(np.sqrt(np.mean(relative**2) / len(paired))),
        score,
        off.T @ off,
        mean,
        np.sqrt(part @ between),
        sum(chunk.num_undefined for chunk in chunks),
        chunks,
    )


def _pairs(values: np.ndarray) -> np.ndarray:
    """Draws and their mirror images, added up."""
    half = len(values) // 2
    return values[:half] + values[half:]


def resampled(
    latents: Latents, theta: Array, gaussian: Gaussian, key: Key, count: int
) -> np.ndarray:
    """Draws of the posterior: a chain of Metropolis and Hastings whose proposals are paths' ends.

    Weights that are all but equal make nearly all of them independent draws.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        gaussian: near to the posterior.
        key: of the draws.
        count: how many.
    """
    random, kicks, size = generator_of(key), KICKS, latents.structure.size
    ends: list[np.ndarray] = []
    logs = np.zeros(0)
    total = count + TO_CHOOSE_FROM
    each = max(1, min(total, NUMBERS // size))
    while len(logs) < total:
        u, v = (jnp.asarray(random.standard_normal((each, size))) for _ in range(2))
        away, more, kicks = even_paths(latents, theta, gaussian, (u, v), kicks)
        x = gaussian.mean[None] + away
        ends.append(np.asarray(x))
        logs = np.append(logs, more + np.asarray(latents.values(theta, x, latents.data)))
    logs = np.where(np.isnan(logs), -np.inf, logs)
    first = np.argmax(logs[:TO_CHOOSE_FROM] + random.gumbel(size=TO_CHOOSE_FROM))
    chain = _accepted(logs, int(first), random.random(len(logs)))
    return np.concatenate(ends)[chain[TO_CHOOSE_FROM:total]]


def _accepted(logs: np.ndarray, now: int, uniform: np.ndarray) -> np.ndarray:
    """Which proposal the chain is at after each."""
    at = np.empty(len(logs), int)
    for proposed in range(len(logs)):
        if proposed >= TO_CHOOSE_FROM and np.log(uniform[proposed]) < logs[proposed] - logs[now]:
            now = proposed
        at[proposed] = now
    return at

r"""The Gaussian nearest to the posterior of very many latents, and weighted draws from it.

A moment-matched cloud comes to rest where E_q[s] = 0 and E_q[-grad^2_x l] = S_q^-1: the Gaussian q
that is best in Kullback-Leibler divergence. Without a cloud, over fixed antithetic draws
x_k = m + L^-T z_k of L L' = P:

    P <- P/2 + mean_k H(theta, x_k) / 2,     m <- m + (mean_k H)^-1 mean_k s(x_k) / 2

(undamped it can swing). Its draws have far more even weights than those of mode and curvature. The
draws that are weighed are fresh: those by which q was fitted would make it look too good.

The score of theta is a sum over all latents, and noisy. By Stein's identity, for any field phi,
E[phi' grad_x l + div phi | y] = 0; with b and D a parameter's derivatives of grad_x l and of H,

    phi(x) = P^-1 (b - D (x - m) / 2),       div phi = -<P^-1, D> / 2

takes away what is linear and quadratic in the score, and for a Gaussian posterior all its noise.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.likelihood.importance_weights import pareto_k
from marginax.likelihood.laplace import Mode
from marginax.likelihood.many_latents import Latents
from marginax.typing import Key

__all__ = ["Gaussian", "Weights", "best_gaussian", "fitting_draws", "resampled", "weigh"]

FITTING_PAIRS = 64
ROUNDS = 40
AT_REST = 1e-8  # in squared standard deviations of m, and of P relative to itself, per latent
NUMBERS = 4_000_000  # of draws held at a time
OF_MANY = 8


class Gaussian(NamedTuple):
    """N(m, P^-1).

    Attributes:
        mean: m.
        entries: of P on its pattern.
        factor: of P.
    """

    mean: Array
    entries: Array
    factor: Any


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
    """

    logs: np.ndarray
    log_likelihood: float
    error: float
    score: np.ndarray
    score_covariance: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    num_undefined: int

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


def fitting_draws(size: int) -> Float[Array, "k n"]:
    """Standard normal draws and their mirror images, always the same."""
    half = jax.random.normal(jax.random.key(20), (FITTING_PAIRS, size))
    return jnp.concatenate([half, -half])


def best_gaussian(
    latents: Latents, theta: Array, start: Gaussian | Mode, z: Float[Array, "k n"]
) -> Gaussian:
    """From the mode, or from the Gaussian of a theta nearby, to rest.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        start: where to begin.
        z: of `fitting_draws`.
    """
    structure, data = latents.structure, latents.data
    factors = structure.factors
    mean = start.x if isinstance(start, Mode) else start.mean
    entries, factor = start.entries, start.factor
    for _ in range(ROUNDS):
        xs = mean[None] + factors.unwhiten(factor, z)
        score, average = latents.means(theta, xs, data, structure.maps)
        mixed = (entries + average) / 2
        lifted = latents.lift(mixed, jnp.zeros((), mixed.dtype))
        step = factors.solve(latents.lift(average, jnp.zeros((), mixed.dtype)).factor, score) / 2
        if not bool(jnp.all(jnp.isfinite(step))):
            break
        moved = float(jnp.vdot(step, score)) / 2 + _change(latents, mixed, entries)
        mean, entries, factor = mean + step, lifted.values, lifted.factor
        if moved < AT_REST * structure.size:
            break
    return Gaussian(mean, entries, factor)


def _change(latents: Latents, new: Array, old: Array) -> float:
    """How much P moved, as a sum of squares in units of its diagonal."""
    pattern = latents.structure.pattern
    scale = np.sqrt(np.abs(np.asarray(new)[pattern.rows == pattern.cols]))
    relative = np.asarray(new - old) / (scale[pattern.rows] * scale[pattern.cols])
    return float(np.sum(relative**2))


def resampled(
    latents: Latents, theta: Array, gaussian: Gaussian, key: Key, count: int
) -> np.ndarray:
    """Draws of the posterior: of eight times as many, each as often as its weight says.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        gaussian: near to the posterior.
        key: of the draws.
        count: how many.
    """
    structure, kept = latents.structure, []
    each = max(1, min(count, NUMBERS // (OF_MANY * structure.size)))
    for chunk in range(-(-count // each)):
        draw_key, choice_key = jax.random.split(jax.random.fold_in(key, chunk))
        z = jax.random.normal(draw_key, (OF_MANY * each, structure.size))
        xs = gaussian.mean[None] + structure.factors.unwhiten(gaussian.factor, z)
        logs = latents.values(theta, xs, latents.data) + jnp.sum(z**2, axis=1) / 2
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        chosen = jax.random.categorical(choice_key, logs, shape=(each,))
        kept.append(np.asarray(xs[chosen]))
    return np.concatenate(kept)[:count]


def weigh(latents: Latents, theta: Array, gaussian: Gaussian, num_draws: int, seed: int) -> Weights:
    """Fresh antithetic draws of the Gaussian with their weights.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        gaussian: to draw from.
        num_draws: an even number.
        seed: of the draws; the same for all theta, so that what is found is smooth in it.
    """
    structure = latents.structure
    inverse = jnp.asarray(structure.factors.inverse_on_pattern(gaussian.factor))
    off_diagonal = jnp.asarray(structure.pattern.rows != structure.pattern.cols)
    twice = jnp.where(off_diagonal, 2 * inverse, inverse)
    divergence = -latents.slopes(theta, gaussian.mean, latents.data, structure.maps, twice)[1] / 2
    constant = (
        structure.size / 2 * np.log(2 * np.pi)
        - float(structure.factors.log_determinant(gaussian.factor)) / 2
    )
    size = max(2, min(num_draws, NUMBERS // structure.size) // 2 * 2)
    key = jax.random.key(seed)
    parts: list[tuple[np.ndarray, ...]] = []
    for chunk in range(-(-num_draws // size)):
        half = jax.random.normal(jax.random.fold_in(key, chunk), (size // 2, structure.size))
        z = jnp.concatenate([half, -half])
        away = structure.factors.unwhiten(gaussian.factor, z)
        values, scores, of_latents, fields = latents.stein_scores(
            theta, gaussian.mean, latents.data, away
        )
        logs = values + jnp.sum(z**2, axis=1) / 2 + constant
        # phi' grad_x l = (S f)' grad_x l = f' (S grad_x l): one solve for all parameters.
        pulled = structure.factors.solve(gaussian.factor, of_latents)
        scores = scores + jnp.einsum("kpn,kn->kp", fields, pulled) + divergence[None]
        parts.append((np.asarray(logs), np.asarray(scores), np.asarray(gaussian.mean[None] + away)))
    return _summed(parts)


def _summed(parts: list[tuple[np.ndarray, ...]]) -> Weights:
    logs = np.concatenate([part[0] for part in parts])
    undefined = int(np.sum(np.isnan(logs)))
    logs = np.where(np.isnan(logs), -np.inf, logs)
    top = logs.max()
    share = np.exp(logs - top)
    total = share.sum()
    scores = np.concatenate([part[1] for part in parts])
    scores = np.where(np.isfinite(scores), scores, 0.0)
    score = share @ scores / total
    cut = np.cumsum([0, *(len(part[0]) for part in parts)])
    pieces = [share[a:b] for a, b in zip(cut[:-1], cut[1:], strict=True)]
    mean = sum(w @ part[2] for w, part in zip(pieces, parts, strict=True)) / total
    square = sum(w @ (part[2] - mean) ** 2 for w, part in zip(pieces, parts, strict=True)) / total
    # Pairs of mirror images are the independent units: errors are those of their sums.
    paired = np.concatenate([_pairs(w) for w in pieces])
    relative = paired / paired.mean() - 1
    error = np.sqrt(np.mean(relative**2) / len(paired))
    away = [
        _pairs(w[:, None] * (s - score))
        for w, s in zip(pieces, np.split(scores, cut[1:-1]), strict=True)
    ]
    off = np.concatenate(away) / total
    return Weights(
        logs,
        float(top + np.log(total / len(logs))),
        float(error),
        score,
        off.T @ off,
        mean,
        np.sqrt(square),
        undefined,
    )


def _pairs(values: np.ndarray) -> np.ndarray:
    """Draws and their mirror images, added up."""
    half = len(values) // 2
    return values[:half] + values[half:]

"""Whether chains have mixed: R-hat of their halves, and how many independent draws they are worth.

In NumPy: it is asked for once, of finished draws.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Mixing", "effective_draws", "mixing", "rhat"]

MOST_NUMBERS = 2**22  # transformed at once


class Mixing(NamedTuple):
    """Of the worst coordinate each.

    Attributes:
        rhat: the potential scale reduction of halves of the chains; near 1 is right.
        effective_draws: independent draws that would know its mean as well.
    """

    rhat: float
    effective_draws: float


def mixing(draws: np.ndarray) -> Mixing:
    """Of draws [chains, draws, ...]; a coordinate that never moved has not mixed at all."""
    flat = draws.reshape(*draws.shape[:2], -1)
    if not np.all(np.isfinite(flat)) or not np.all(flat.std(axis=(0, 1)) > 0):
        return Mixing(float("inf"), 0.0)
    some = max(1, MOST_NUMBERS // (flat.shape[0] * flat.shape[1]))
    parts = [flat[..., first : first + some] for first in range(0, flat.shape[2], some)]
    return Mixing(
        float(max(np.max(rhat(part)) for part in parts)),
        float(min(np.min(effective_draws(part)) for part in parts)),
    )


def rhat(draws: np.ndarray) -> np.ndarray:
    """The potential scale reduction of every coordinate of [chains, draws, coordinates].

    Of halves: chains that all drift alike agree with each other, but not with themselves earlier
    on (Gelman et al., Bayesian Data Analysis, 3rd edition, 11.4).
    """
    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    within, estimate = _variances(halves)
    return np.sqrt(estimate / within)


def effective_draws(draws: np.ndarray) -> np.ndarray:
    """The effective sample size of every coordinate of [chains, draws, coordinates].

    Autocorrelations of all chains together, added up in pairs as long as these are positive and
    fall (Geyer's initial monotone sequence).
    """
    num_chains, length, _ = draws.shape
    within, estimate = _variances(draws)
    centered = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centered, n=2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :length].mean(axis=0) / length
    correlation = 1 - (within - covariance * (length / (length - 1))) / estimate
    correlation[0] = 1.0
    even = length // 2 * 2
    pairs = correlation[:even:2] + correlation[1:even:2]
    pairs = np.where(np.cumprod(pairs > 0, axis=0), pairs, 0)
    time = 2 * np.minimum.accumulate(pairs, axis=0).sum(axis=0) - 1
    total = num_chains * length
    # Draws that alternate are worth more than independent ones, but no one counts on it.
    return total / np.maximum(time, 1 / np.log10(total))


def _variances(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Within chains, and the estimate of the whole variance that looks between them too."""
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1) if len(draws) > 1 else 0.0
    return within, within * (length - 1) / length + between

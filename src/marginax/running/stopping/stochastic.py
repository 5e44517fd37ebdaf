"""`averaged`, the stopping rule of stochastic methods: whether averages of theta have settled."""

import numpy as np

from marginax.running.stopping.base import (
    Blocks,
    StoppingRule,
    Verdict,
    asked,
    check_tolerance,
    even,
    first,
    num_even,
    size,
)

__all__ = ["average_theta", "averaged"]

_NUM_BATCHES = 16


def averaged(tolerance: float = 1e-2) -> StoppingRule:
    """For stochastic methods and minibatches: the estimate is the mean over the run's second half.

    Args:
        tolerance: converged means that every coordinate of that mean is within
            `tolerance * max(1, |theta|)` of its limit, at about 95 % confidence.

    Returns:
        A stopping rule.
    """
    check_tolerance(tolerance)

    def check(blocks: Blocks) -> Verdict | None:
        num_blocks = num_even(blocks.steps)
        lengths = asked(num_blocks, at_first=2 * _NUM_BATCHES)
        if len(lengths) < 2 or lengths[-1] != num_blocks:
            return None
        blocks = even(blocks)
        if not _is_stationary(first(blocks, lengths[-2]), tolerance):
            return None
        if not _is_stationary(blocks, tolerance):
            return None
        drift, _, error = _horizons(blocks)
        return Verdict(
            "converged",
            f"The mean of theta over the last {blocks.steps[-_window(num_blocks) :].sum()} steps "
            f"has a Monte Carlo error of {np.max(error, initial=0.0):.1e} (relative tolerance "
            f"{tolerance:g}), and its two halves differ by {np.max(drift, initial=0.0):.1e}.",
        )

    return StoppingRule(check, tolerance)


def _is_stationary(blocks: Blocks, tolerance: float) -> bool:
    drift, drift_error, error = _horizons(blocks)
    scale = size(average_theta(blocks))
    still = np.maximum(drift, error) <= 50 * blocks.epsilon * scale  # it does not move at all
    drifting = drift > 1.5 * drift_error
    return bool(np.all(still | ~(drifting | (2.5 * error > tolerance * scale))))


def _horizons(blocks: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per coordinate: |A - B|, its Monte Carlo error, and that of the mean of all batches."""
    means = _batch_means(blocks.theta_mean)
    half = len(means) // 2
    drift = np.abs(means[half:].mean(axis=0) - means[:half].mean(axis=0))
    by_differences = np.mean(np.diff(means, axis=0) ** 2, axis=0) / 2
    by_variance = means.var(axis=0, ddof=1)
    # Neighbours that are alike make the differences too small. A little of that is allowed for;
    # with more, the batches are too short to tell drift from noise, and nothing can be said yet.
    rounding = (50 * blocks.epsilon * size(means[-1])) ** 2
    tiny = np.finfo(by_variance.dtype).tiny  # in float32 a smaller number is 0
    alike = 1 - by_differences / np.maximum(by_variance, tiny)
    alike = np.where(by_variance > rounding, np.maximum(0.0, alike), 0.0)
    variance = np.maximum(by_differences, by_variance) * (1 + alike) / np.maximum(1 - alike, 0.1)
    error = np.where(alike > 0.4, np.inf, np.sqrt(variance / len(means)))
    return drift, np.sqrt(by_differences * 2 / half), error


def _window(num_blocks: int) -> int:
    """How many of the last blocks the estimate averages over: about half, in whole batches."""
    if num_blocks < 2 * _NUM_BATCHES:
        return max(1, num_blocks // 2)
    return num_blocks // 2 // _NUM_BATCHES * _NUM_BATCHES


def _batch_means(theta_mean: np.ndarray) -> np.ndarray:
    window = theta_mean[-_window(len(theta_mean)) :]
    return window.reshape(_NUM_BATCHES, -1, window.shape[1]).mean(axis=1)


def average_theta(blocks: Blocks) -> np.ndarray:
    """The estimate of a stochastic run: theta averaged over the last half of its steps."""
    blocks = even(blocks)
    window = _window(len(blocks.steps))
    return np.average(blocks.theta_mean[-window:], axis=0, weights=blocks.steps[-window:])

r"""When to stop: rules that look at whole blocks and say why.

A rule sees every block so far and answers with a verdict or with None. Rules are pure functions of
what they see, so that a resumed run stops exactly where an unbroken one would, and they combine: `a
| b` stops when either does, `a & b` when both do.

- `settled()`, for deterministic flows: theta's remaining path, extrapolated, is short, and score
  and velocity are small beside their own scale;
- `averaged()`, for stochastic methods: block means of theta have stopped drifting, measured against
  their own Monte Carlo error, and that error is small;
- `max_seconds(s)`: wall time.

**Remaining path.** Let theta range over R_A in the third quarter of the run and over R_B in the
last. A small R_B alone says nothing: a slow flow moves little far from its end. The two together
say how fast it slows down, and so what is left. Stein flows end slowly, more like a power t^(-a) of
time than geometrically, so that is what is assumed: r = R_B / R_A gives a, and R_B / ((4/3)^a - 1)
is left. (For geometric convergence this is two to four times too careful; for r above 0.7 no end is
in sight, unless the moves are a thousand times below the tolerance.) Momentum makes theta swing,
and near a turning point it hardly moves; so the test has to hold twice, at run lengths a quarter
apart.

**Two horizons.** The second half of the run is cut into 16 batches; A is the mean of the first
eight, B of the last eight. Their Monte Carlo error comes from the successive differences of the
batch means, which a slow drift does not inflate. The test holds when A and B differ by less than
1.5 of that error, the batches are not correlated with their neighbours, and 2.5 standard errors of
the mean of all 16 are within the tolerance; and it has to hold twice, at run lengths a quarter
apart, because noise can hide a drift once.

Both are asked only at geometrically growing run lengths: a test repeated at every block would fire
by chance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["Blocks", "StoppingRule", "Verdict", "averaged", "max_seconds", "never", "settled"]


class Blocks(NamedTuple):
    """Everything a rule may look at: one row per block so far, theta flattened to length p.

    Attributes:
        steps: steps taken in each block.
        theta_mean: mean of theta over each block (without noise, its last value), [blocks, p].
        theta_low: smallest value of theta within each block, [blocks, p].
        theta_high: largest value of theta within each block, [blocks, p].
        theta_score: the ascent direction of theta at the end of each block, [blocks, p].
        theta_score_spread: its standard deviation over the particles, [blocks, p].
        velocity: root mean square velocity of the cloud at the end of each block.
        score: root mean square latent score there, the velocity's scale.
        epsilon: rounding unit of theta's dtype.
        seconds: wall time of the run so far.
    """

    steps: np.ndarray
    theta_mean: np.ndarray
    theta_low: np.ndarray
    theta_high: np.ndarray
    theta_score: np.ndarray
    theta_score_spread: np.ndarray
    velocity: np.ndarray
    score: np.ndarray
    epsilon: float
    seconds: float


class Verdict(NamedTuple):
    """A rule's answer when it fires.

    Attributes:
        status: how the run ended, a word of `Run.status`; rules say "converged" or "time_limit".
        reason: why, in a sentence.
    """

    status: str
    reason: str


@dataclass(frozen=True)
class StoppingRule:
    """A rule; combine with `|` and `&`.

    Attributes:
        check: `check(blocks) -> Verdict | None`.
        tolerance: what "converged" promises about theta, if the rule promises anything.
    """

    check: Callable[[Blocks], Verdict | None]
    tolerance: float | None = None

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        """Stops when either rule does, for the reason of the one that fired."""
        return StoppingRule(
            lambda blocks: self.check(blocks) or other.check(blocks),
            self.tolerance if self.tolerance is not None else other.tolerance,
        )

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        """Stops when both rules do."""

        def check(blocks: Blocks) -> Verdict | None:
            first, second = self.check(blocks), other.check(blocks)
            if first is None or second is None:
                return None
            status = first.status if first.status != "converged" else second.status
            return Verdict(status, f"{first.reason} {second.reason}")

        return StoppingRule(
            check, self.tolerance if self.tolerance is not None else other.tolerance
        )


def never() -> StoppingRule:
    """Takes every step it is given."""
    return StoppingRule(lambda blocks: None)


def max_seconds(seconds: float) -> StoppingRule:
    """Stops at the end of the block in which this much wall time has passed."""
    if not seconds > 0:
        raise ValueError(f"max_seconds is {seconds}, but it must be positive.")

    def check(blocks: Blocks) -> Verdict | None:
        if blocks.seconds < seconds:
            return None
        return Verdict("time_limit", f"The time limit of {seconds:g} s was reached.")

    return StoppingRule(check)


def settled(tolerance: float = 1e-2) -> StoppingRule:
    """For deterministic flows (SVGD-EM, M-SVGD-EM, ASVGD-EM, Coin-EM) without minibatches.

    Args:
        tolerance: converged means that every coordinate of theta is within
            `tolerance * max(1, |theta|)` of where the flow would end. Asked for are a remaining
            path below that, and a theta score and a velocity below 0.04 of it beside their
            scales: the spread of the theta score over the particles, and the size of the latent
            scores (or the largest seen so far, if that is more).

    Returns:
        A stopping rule.
    """
    _check_tolerance(tolerance)

    def check(blocks: Blocks) -> Verdict | None:
        num_blocks = len(blocks.steps)
        asked = _asked(num_blocks, first=8)
        if len(asked) < 2 or asked[-1] != num_blocks:
            return None
        if not _has_settled(_first(blocks, asked[-2]), tolerance):
            return None
        if not _has_settled(blocks, tolerance):
            return None
        score_share, velocity_share = _shares(blocks)
        left = np.max(_remaining_path(blocks, tolerance), initial=0.0)
        return Verdict(
            "converged",
            f"theta has about {left:.1e} left to go "
            f"(relative tolerance {tolerance:g}); its score is {score_share:.1e} and the "
            f"particles' velocity {velocity_share:.1e} of their scale.",
        )

    return StoppingRule(check, tolerance)


# How much smaller than the tolerance score and velocity must be: measured, see the documentation. A
# Stein cloud creeps on slowly, and theta with it, when theta alone seems to have come to rest.
_SHARE = 0.04


def _has_settled(blocks: Blocks, tolerance: float) -> bool:
    near = np.all(_remaining_path(blocks, tolerance) <= tolerance * _size(blocks.theta_mean[-1]))
    return bool(near) and max(_shares(blocks)) <= _SHARE * tolerance


# If theta ends like t^-a, these are r = R_B / R_A of the last two quarters of a run, and what is
# left in units of R_B, for a from fast to slow.
_POWERS = np.linspace(12.0, 0.02, 600)
_CONTRACTIONS = ((4 / 3) ** _POWERS - 1) / (2**_POWERS - (4 / 3) ** _POWERS)
_LEFT = 1 / ((4 / 3) ** _POWERS - 1)


def _remaining_path(blocks: Blocks, tolerance: float) -> np.ndarray:
    """R_B / ((4/3)^a - 1) per coordinate."""
    size = _size(blocks.theta_mean[-1])
    quarter = len(blocks.steps) // 4
    high, low = blocks.theta_high, blocks.theta_low
    before = high[-2 * quarter : -quarter].max(axis=0) - low[-2 * quarter : -quarter].min(axis=0)
    move = high[-quarter:].max(axis=0) - low[-quarter:].min(axis=0)
    contraction = np.maximum(move / np.maximum(before, np.finfo(before.dtype).tiny), 0.1)
    left = move * np.interp(contraction, _CONTRACTIONS, _LEFT, right=np.inf)
    # A move a thousand times below the tolerance is rest, whatever it was before: particles that
    # find their order in the cloud keep shaking theta at that level, without a trend.
    left = np.where(move <= 1e-3 * tolerance * size, np.minimum(left, 1e3 * move), left)
    # At rounding level the moves stop shrinking; what is left is then of that size itself.
    return np.where(move <= 50 * blocks.epsilon * size, move, left)


def _shares(blocks: Blocks) -> tuple[float, float]:
    """Theta score and velocity at the end, as shares of their scales."""
    scores = np.abs(blocks.theta_score)
    score_scale = np.maximum(blocks.theta_score_spread[-1], scores.max(axis=0)) + 1e-30
    velocity_scale = max(float(blocks.score[-1]), float(blocks.velocity.max())) + 1e-30
    share = float(np.max(scores[-1] / score_scale, initial=0.0))
    return share, float(blocks.velocity[-1]) / velocity_scale


def _size(theta: np.ndarray) -> np.ndarray:
    return np.maximum(1.0, np.abs(theta))


def _first(blocks: Blocks, count: int) -> Blocks:
    rows = {name: field[:count] for name, field in blocks._asdict().items() if np.ndim(field)}
    return blocks._replace(**rows)


def averaged(tolerance: float = 1e-2) -> StoppingRule:
    """For stochastic methods and minibatches: the estimate is the mean over the run's second half.

    Args:
        tolerance: converged means that every coordinate of that mean is within
            `tolerance * max(1, |theta|)` of its limit, at about 95 % confidence.

    Returns:
        A stopping rule.
    """
    _check_tolerance(tolerance)

    def check(blocks: Blocks) -> Verdict | None:
        num_blocks = len(blocks.steps)
        asked = _asked(num_blocks, first=2 * _NUM_BATCHES)
        if len(asked) < 2 or asked[-1] != num_blocks:
            return None
        if not _is_stationary(_first(blocks, asked[-2]), tolerance):
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
    size = _size(average_theta(blocks))
    still = np.maximum(drift, error) <= 50 * blocks.epsilon * size  # it does not move at all
    drifting = drift > 1.5 * drift_error
    return bool(np.all(still | ~(drifting | (2.5 * error > tolerance * size))))


def _horizons(blocks: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per coordinate: |A - B|, its Monte Carlo error, and that of the mean of all batches."""
    means = _batch_means(blocks.theta_mean)
    half = len(means) // 2
    drift = np.abs(means[half:].mean(axis=0) - means[:half].mean(axis=0))
    by_differences = np.mean(np.diff(means, axis=0) ** 2, axis=0) / 2
    by_variance = means.var(axis=0, ddof=1)
    # Neighbours that are alike make the differences too small. A little of that is allowed for;
    # with more, the batches are too short to tell drift from noise, and nothing can be said yet.
    rounding = (50 * blocks.epsilon * _size(means[-1])) ** 2
    tiny = np.finfo(by_variance.dtype).tiny  # in float32 a smaller number is 0
    alike = 1 - by_differences / np.maximum(by_variance, tiny)
    alike = np.where(by_variance > rounding, np.maximum(0.0, alike), 0.0)
    variance = np.maximum(by_differences, by_variance) * (1 + alike) / np.maximum(1 - alike, 0.1)
    error = np.where(alike > 0.4, np.inf, np.sqrt(variance / len(means)))
    return drift, np.sqrt(by_differences * 2 / half), error


_NUM_BATCHES = 16


def _asked(num_blocks: int, first: int) -> list[int]:
    """The run lengths, up to this one, at which a rule is asked: each a quarter above the last."""
    asked = []
    while first <= num_blocks:
        asked.append(first)
        first = math.ceil(1.25 * first)
    return asked


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
    window = _window(len(blocks.steps))
    return np.average(blocks.theta_mean[-window:], axis=0, weights=blocks.steps[-window:])


def _check_tolerance(tolerance: float) -> None:
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}, but it must be a positive finite number.")

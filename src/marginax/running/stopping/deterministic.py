"""`settled`, the stopping rule of deterministic methods: how far theta still has to go."""

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

__all__ = ["settled"]


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
    check_tolerance(tolerance)

    def check(blocks: Blocks) -> Verdict | None:
        num_blocks = num_even(blocks.steps)
        lengths = asked(num_blocks, at_first=8)
        if len(lengths) < 2 or lengths[-1] != num_blocks:
            return None
        blocks = even(blocks)
        if not _has_settled(first(blocks, lengths[-2]), tolerance):
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
    near = np.all(_remaining_path(blocks, tolerance) <= tolerance * size(blocks.theta_mean[-1]))
    return bool(near) and max(_shares(blocks)) <= _SHARE * tolerance


# If theta ends like t^-a, these are r = R_B / R_A of the last two quarters of a run, and what is
# left in units of R_B, for a from fast to slow.
_POWERS = np.linspace(12.0, 0.02, 600)
_CONTRACTIONS = ((4 / 3) ** _POWERS - 1) / (2**_POWERS - (4 / 3) ** _POWERS)
_LEFT = 1 / ((4 / 3) ** _POWERS - 1)


def _remaining_path(blocks: Blocks, tolerance: float) -> np.ndarray:
    """R_B / ((4/3)^a - 1) per coordinate."""
    scale = size(blocks.theta_mean[-1])
    quarter = len(blocks.steps) // 4
    high, low = blocks.theta_high, blocks.theta_low
    before = high[-2 * quarter : -quarter].max(axis=0) - low[-2 * quarter : -quarter].min(axis=0)
    move = high[-quarter:].max(axis=0) - low[-quarter:].min(axis=0)
    contraction = np.maximum(move / np.maximum(before, np.finfo(before.dtype).tiny), 0.1)
    left = move * np.interp(contraction, _CONTRACTIONS, _LEFT, right=np.inf)
    # A move a thousand times below the tolerance is rest, whatever it was before: particles that
    # find their order in the cloud keep shaking theta at that level, without a trend.
    left = np.where(move <= 1e-3 * tolerance * scale, np.minimum(left, 1e3 * move), left)
    # At rounding level the moves stop shrinking; what is left is then of that size itself.
    return np.where(move <= 50 * blocks.epsilon * scale, move, left)


def _shares(blocks: Blocks) -> tuple[float, float]:
    """Theta score and velocity at the end, as shares of their scales."""
    scores = np.abs(blocks.theta_score)
    score_scale = np.maximum(blocks.theta_score_spread[-1], scores.max(axis=0)) + 1e-30
    velocity_scale = max(float(blocks.score[-1]), float(blocks.velocity.max())) + 1e-30
    share = float(np.max(scores[-1] / score_scale, initial=0.0))
    return share, float(blocks.velocity[-1]) / velocity_scale

"""What every stopping rule sees and answers, how rules combine; `never` and `max_seconds`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Blocks",
    "StoppingRule",
    "Verdict",
    "asked",
    "check_tolerance",
    "even",
    "first",
    "max_seconds",
    "never",
    "num_even",
    "size",
]


class Blocks(NamedTuple):
    """Everything a rule may look at: one row per block so far, theta flattened to length p.

    Blocks may grow with the steps taken; `settled` and `averaged` first put shorter ones together.

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


def size(theta: np.ndarray) -> np.ndarray:
    """What a relative tolerance is relative to."""
    return np.maximum(1.0, np.abs(theta))


def first(blocks: Blocks, count: int) -> Blocks:
    """The first `count` blocks."""
    return blocks._replace(**{name: field[:count] for name, field in _fields(blocks)})


def num_even(steps: np.ndarray) -> int:
    """How many blocks `even` makes of blocks with so many steps."""
    return len(_first_rows(steps))


def even(blocks: Blocks) -> Blocks:
    """The same run in blocks of one length, that of the longest: shorter ones are put together.

    Rules compare quarters and batches of a run, and count them in blocks.
    """
    rows, steps = _first_rows(blocks.steps), blocks.steps
    if len(rows) == len(steps):
        return blocks
    last = {name: field[np.append(rows[1:], len(steps)) - 1] for name, field in _fields(blocks)}
    total = np.add.reduceat(steps, rows)
    sums = np.add.reduceat(blocks.theta_mean * steps[:, None].astype(float), rows, axis=0)
    together = {
        "steps": total,
        "theta_mean": (sums / total[:, None]).astype(blocks.theta_mean.dtype),
        "theta_low": np.minimum.reduceat(blocks.theta_low, rows, axis=0),
        "theta_high": np.maximum.reduceat(blocks.theta_high, rows, axis=0),
    }
    return blocks._replace(**last | together)


def _first_rows(steps: np.ndarray) -> np.ndarray:
    """Of every block of `even` its first row: where the steps pass a multiple of the longest."""
    if len(steps) == 0:
        return np.zeros(0, int)
    block = -(-np.cumsum(steps) // steps.max())
    return np.flatnonzero(np.diff(block, prepend=0))


def _fields(blocks: Blocks) -> list[tuple[str, Any]]:
    """The fields that have a row per block."""
    return [(name, field) for name, field in blocks._asdict().items() if np.ndim(field)]


def asked(num_blocks: int, at_first: int) -> list[int]:
    """The run lengths, up to this one, at which a rule is asked: each a quarter above the last."""
    lengths = []
    while at_first <= num_blocks:
        lengths.append(at_first)
        at_first = math.ceil(1.25 * at_first)
    return lengths


def check_tolerance(tolerance: float) -> None:
    """Refuses one that promises nothing."""
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}, but it must be a positive finite number.")

"""A row of the report's first page, and how a verdict is worded."""

from typing import Any, NamedTuple

from marginax.reproduction.columns import PUBLISHED, WRITTEN

__all__ = ["COLUMNS", "Claim", "MARGINAX", "NO_NUMBER", "percent", "verdict"]

COLUMNS = (PUBLISHED, WRITTEN)
MARGINAX = "marginax / default"
NO_NUMBER = "—"


class Claim(NamedTuple):
    """One row.

    Attributes:
        claim: in words.
        paper: the number the paper prints, if it prints one.
        published: what its released code gives, executed.
        written: what its Algorithm 1 gives, executed.
        marginax: what this library's default gives.
        verdict: whether the claim holds, and where.
    """

    claim: str
    paper: str
    published: str
    written: str
    marginax: str
    verdict: str


def verdict(published: Any, written: Any) -> str:
    """Where a claim holds."""
    return {
        (True, True): "Holds, as published and as written.",
        (False, True): "Holds as written, not as published.",
        (True, False): "Holds as published, not as written.",
        (False, False): "Does not hold.",
    }[bool(published), bool(written)]


def percent(change: tuple[float, ...]) -> str:
    """Before and after."""
    return " → ".join(f"{value:.1f}" for value in change) + " %"

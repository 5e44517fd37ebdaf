"""The report's first page: the paper's claims, three columns of numbers, a verdict each."""

from collections.abc import Callable, Mapping

from marginax.paper.claims.claim import Claim
from marginax.paper.claims.logistic import logistic, test_error
from marginax.paper.claims.network import network, starts
from marginax.paper.claims.toy import ablation, toy
from marginax.paper.store import Finished

__all__ = ["Claim", "claims"]


def claims(results: Mapping[str, Finished]) -> list[Claim]:
    """Every claim whose experiment has been run."""
    makers: dict[str, Callable[[Finished], list[Claim]]] = {
        "toy_methods": toy,
        "toy_ablation": ablation,
        "logistic_methods": logistic,
        "logistic_test_error": test_error,
        "network_curves": network,
        "network_starts": starts,
    }
    return [
        claim for name, make in makers.items() if name in results for claim in make(results[name])
    ]

"""The report's first page: the paper's claims, three columns of numbers, a verdict each."""

from collections.abc import Callable, Mapping

from marginax.reproduction.claims.claim import Claim
from marginax.reproduction.claims.logistic import logistic_claims, test_error
from marginax.reproduction.claims.network import network_claims, starts
from marginax.reproduction.claims.toy import ablation, toy_claims
from marginax.reproduction.results import Finished

__all__ = ["Claim", "claims"]


def claims(results: Mapping[str, Finished]) -> list[Claim]:
    """Every claim whose experiment has been run."""
    makers: dict[str, Callable[[Finished], list[Claim]]] = {
        "toy_methods": toy_claims,
        "toy_ablation": ablation,
        "logistic_methods": logistic_claims,
        "logistic_test_error": test_error,
        "network_curves": network_claims,
        "network_starts": starts,
    }
    return [
        claim for name, make in makers.items() if name in results for claim in make(results[name])
    ]

"""Two fits beside each other: the likelihood-ratio test."""

from typing import Any, NamedTuple

__all__ = ["LikelihoodRatio", "likelihood_ratio"]


class LikelihoodRatio(NamedTuple):
    """A test of a smaller model within a larger one.

    Attributes:
        statistic: twice the difference of the log likelihoods.
        degrees: how many parameters more the larger model has.
        p_value: from the chi-square distribution.
        note: what to keep in mind.
    """

    statistic: float
    degrees: int
    p_value: float
    note: str


def likelihood_ratio(one: Any, other: Any) -> LikelihoodRatio:
    """The test of two fits of the same data, whichever is the larger."""
    sizes = len(one.theta_free), len(other.theta_free)
    if sizes[0] == sizes[1]:
        raise ValueError(
            f"Both models have {sizes[0]} parameters: a likelihood-ratio test needs one inside "
            "the other. Compare them by AIC."
        )
    larger, smaller = (one, other) if sizes[0] > sizes[1] else (other, one)
    gain = larger.log_marginal_likelihood().log_likelihood
    gain -= smaller.log_marginal_likelihood().log_likelihood
    statistic, degrees = max(2 * gain, 0.0), abs(sizes[0] - sizes[1])
    note = (
        "If the smaller model sets a variance to 0, this p-value is too large, up to twice for "
        "one variance."
    )
    if gain < -1e-3:
        note = "The larger model has the lower likelihood: one of the fits missed its maximum."
    from scipy.special import chdtrc  # slow to import, and only needed here

    return LikelihoodRatio(statistic, degrees, float(chdtrc(degrees, statistic)), note)

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
    for what, name in (("groups", "num_groups"), ("observations", "num_observations")):
        counts = getattr(one.problem, name), getattr(other.problem, name)
        if None not in counts and counts[0] != counts[1]:
            raise ValueError(
                f"One fit has {counts[0]} {what} and the other {counts[1]}: a likelihood-ratio "
                "test needs two fits of the same data. Fit both models to the same rows."
            )
    larger, smaller = (one, other) if sizes[0] > sizes[1] else (other, one)
    found = larger.log_marginal_likelihood(), smaller.log_marginal_likelihood()
    gain = found[0].log_likelihood - found[1].log_likelihood
    error = found[0].error + found[1].error
    statistic, degrees = max(2 * gain, 0.0), abs(sizes[0] - sizes[1])
    note = (
        "If the smaller model sets a variance to 0, this p-value is too large, up to twice for "
        "one variance."
    )
    if error > 0.05:
        note += f" The likelihoods have errors, {error:.2g} together: so uncertain is half of this."
    if gain < -max(1e-3, 2 * error):
        note = (
            "The larger model has the lower likelihood, by more than the errors of both "
            f"({error:.2g}): one of the fits missed its maximum."
        )
    from scipy.special import chdtrc  # slow to import, and only needed here

    return LikelihoodRatio(statistic, degrees, float(chdtrc(degrees, statistic)), note)

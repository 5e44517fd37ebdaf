"""What a method of computing the likelihood returns: a function to climb, and a type of value.

A value has a type for every way of computing it, with the error that this way has: quadrature,
importance sampling around the modes, importance sampling from what posterior draws look like. All
say how they were found (`method`), whether to believe them (`is_reliable`), and what to warn of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array

from marginax.likelihood.newton import Local

__all__ = [
    "DrawsLikelihood",
    "ImportanceLikelihood",
    "Likelihood",
    "LikelihoodFunction",
    "QuadratureLikelihood",
]

WORST_PARETO_K = 0.7  # above it the sum of the weights cannot be believed
FEWEST_EFFECTIVE = 200
LARGEST_DIFFERENCE = 0.05  # of two quadrature rules, in the log likelihood


@dataclass(frozen=True)
class QuadratureLikelihood:
    """log p_theta(y) by adaptive Gauss-Hermite quadrature, group by group.

    Attributes:
        log_likelihood: log p_theta(y).
        error: the difference to a coarser rule, added up over groups.
        by_group: log p_theta(y_g).
        mean: posterior means of the latent, on the reals, a row per group.
        sd: posterior standard deviations.
        undefined: the share of nodes at which the log density was NaN.
        num_nodes: per dimension.
    """

    log_likelihood: float
    error: float
    by_group: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    undefined: float
    num_nodes: int

    @property
    def method(self) -> str:
        """How it was found, in words."""
        return f"adaptive Gauss-Hermite quadrature, {self.num_nodes} nodes per dimension"

    @property
    def quality(self) -> str:
        """What the weights of draws say; empty, for there are none."""
        return ""

    @property
    def is_reliable(self) -> bool:
        """Whether value and derivatives can be used as they are."""
        return True

    def warnings(self) -> list[str]:
        """Reasons to doubt the value, a sentence each."""
        said = []
        if self.error > LARGEST_DIFFERENCE:
            said.append(
                f"Two quadrature rules differ by {self.error:.2g} in the log likelihood: the "
                "posteriors of the groups are far from Gaussian."
            )
        return said + _of_undefined(self.undefined)


@dataclass(frozen=True)
class ImportanceLikelihood:
    """log p_theta(y) by importance sampling around the modes of the blocks.

    Attributes:
        log_likelihood: log p_theta(y).
        error: its standard error, from other draws.
        by_group: log p_theta(y_g), or None without groups.
        mean: posterior means of the latent, on the reals, a row per block.
        sd: posterior standard deviations.
        undefined: the share of draws at which the log density was NaN.
        num_draws: of every block.
        proposal: what they were drawn from, in words.
        effective_draws: of the worst block.
        pareto_k: of the worst block's weights, which should be below 0.7; None if all weights are
            equal, as for a Gaussian posterior: nothing could be better.
        score_covariance: of the gradient's Monte Carlo error.
    """

    log_likelihood: float
    error: float
    by_group: np.ndarray | None
    mean: np.ndarray
    sd: np.ndarray
    undefined: float
    num_draws: int
    proposal: str
    effective_draws: float
    pareto_k: float | None
    score_covariance: np.ndarray

    @property
    def method(self) -> str:
        """How it was found, in words."""
        return f"importance sampling, {self.num_draws} draws from a {self.proposal} at the mode"

    @property
    def quality(self) -> str:
        """What the weights say."""
        return _quality(self)

    @property
    def is_reliable(self) -> bool:
        """Whether the weights say that value and derivatives are right."""
        return _is_reliable(self)

    def warnings(self) -> list[str]:
        """Reasons to doubt the value, a sentence each."""
        return _of_weights(self, "Importance sampling") + _of_undefined(self.undefined)


@dataclass(frozen=True)
class DrawsLikelihood:
    """log p_theta(y) by importance sampling from a proposal fitted to posterior draws.

    Attributes:
        log_likelihood: log p_theta(y).
        error: its standard error, from other draws.
        by_group: log p_theta(y_g), or None without groups.
        mean: posterior means of the latent, on the reals, a row per block.
        sd: posterior standard deviations.
        undefined: the share of draws at which the log density was NaN.
        num_draws: of every block.
        proposal: what they were drawn from, in words.
        effective_draws: of the worst block.
        pareto_k: as for `ImportanceLikelihood`.
    """

    log_likelihood: float
    error: float
    by_group: np.ndarray | None
    mean: np.ndarray
    sd: np.ndarray
    undefined: float
    num_draws: int
    proposal: str
    effective_draws: float
    pareto_k: float | None

    @property
    def method(self) -> str:
        """How it was found, in words."""
        return (
            f"importance sampling, {self.num_draws} draws from a {self.proposal} with the mean and "
            "covariance of the posterior draws"
        )

    @property
    def quality(self) -> str:
        """What the weights say."""
        return _quality(self)

    @property
    def is_reliable(self) -> bool:
        """Whether the weights say that the value is right."""
        return _is_reliable(self)

    def warnings(self) -> list[str]:
        """Reasons to doubt the value, a sentence each."""
        return _of_weights(self, "The log likelihood") + _of_undefined(self.undefined)


Likelihood: TypeAlias = QuadratureLikelihood | ImportanceLikelihood | DrawsLikelihood


class LikelihoodFunction(NamedTuple):
    """log p_theta(y) for flat theta on the reals, so that climbing it is written once.

    Attributes:
        start: what the first evaluation starts its mode search from, [blocks, size].
        evaluate: `evaluate(theta, start) -> Local`.
        describe: `describe(theta, start) -> Likelihood`, the value that is reported.
        evaluate_finely: the same with a Hessian that takes longer and is free of the draws' noise,
            for the last steps; None where `evaluate` has no noise.
        adapt: `adapt(theta, start)` is the same likelihood with draws that suit theta; None where
            there are no draws.
    """

    start: Array
    evaluate: Callable[[np.ndarray, Any], Local]
    describe: Callable[[np.ndarray, Any], Likelihood]
    evaluate_finely: Callable[[np.ndarray, Any], Local] | None = None
    adapt: "Callable[[np.ndarray, Any], LikelihoodFunction] | None" = None


def _is_reliable(value: ImportanceLikelihood | DrawsLikelihood) -> bool:
    heavy = value.pareto_k is not None and value.pareto_k > WORST_PARETO_K
    return not heavy and value.effective_draws >= FEWEST_EFFECTIVE


def _quality(value: ImportanceLikelihood | DrawsLikelihood) -> str:
    worst = "" if value.by_group is None else " in the worst group"
    tail = "equal weights" if value.pareto_k is None else f"Pareto k {value.pareto_k:.2f}"
    return f"{value.effective_draws:.0f} effective draws{worst}, {tail}"


def _of_weights(value: ImportanceLikelihood | DrawsLikelihood, what: str) -> list[str]:
    if value.is_reliable:
        return []
    tail = "" if value.pareto_k is None else f"Pareto k {value.pareto_k:.2f}, which should be "
    tail += "" if value.pareto_k is None else f"below {WORST_PARETO_K:g}; "
    return [
        f"{what} cannot be believed ({tail}{value.effective_draws:.0f} effective draws): the "
        "posterior is far from Gaussian."
    ]


def _of_undefined(share: float) -> list[str]:
    if share == 0:
        return []
    return [
        f"log_joint was NaN at {share:.1%} of the points of the integral, which counted as zero "
        "density. If that is not what NaN means there, the estimate is wrong."
    ]

"""What a likelihood is worth: a type of value for every way of computing it.

A value has a type for every way of computing it, with the error that this way has: quadrature,
importance sampling around the modes, importance sampling from what posterior draws look like. All
say how they were found (`method`), whether to believe them (`is_reliable`), and what to warn of.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "DrawsLikelihood",
    "ImportanceLikelihood",
    "Likelihood",
    "QuadratureLikelihood",
    "StructuredLikelihood",
]

WORST_PARETO_K = 0.7  # above it the sum of the weights cannot be believed
FEWEST_EFFECTIVE = 200
NOTHING = 1e-9  # a share of the density that is too small to matter
LARGEST_DIFFERENCE = 0.05  # of two quadrature rules, in the log likelihood
LARGEST_SHIFT = 0.05  # in standard errors of the estimate
# Two rules agree: in the log likelihood, and in standard errors by which the estimate would move.
# (That of very many groups is a sum of as many errors.) The second derivative of a parameter that
# the data hardly determine is small, and wants more digits than the value itself.
GOOD_VALUE, GOOD_SHIFT, MANY_GROUPS = 2e-5, 3e-4, 300


@dataclass(frozen=True)
class QuadratureLikelihood:
    """log p_theta(y) by adaptive Gauss-Hermite quadrature, group by group.

    Attributes:
        log_likelihood: log p_theta(y).
        error: the difference to a coarser rule, added up over groups.
        by_group: log p_theta(y_g).
        mean: posterior means of the latent, on the reals, a row per group.
        sd: posterior standard deviations.
        undefined: the share of the Gaussians at the modes where the log density was NaN.
        num_nodes: per dimension and mode.
        rule: which rule, in words.
        score_error: by how much the gradient by the coarser rule differs.
        num_modes: of the group that has most.
        modes_complete: whether the search for other modes came to an end.
        estimate_error: by how many standard errors the finer rule would move the estimate.
    """

    log_likelihood: float
    error: float
    by_group: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    undefined: float
    num_nodes: int
    rule: str = "quadrature"
    score_error: np.ndarray | float = 0.0
    num_modes: int = 1
    modes_complete: bool = True
    estimate_error: float = 0.0

    @property
    def method(self) -> str:
        """How it was found, in words."""
        return self.rule + _around(self.num_modes)

    def is_accurate(self, hessian: np.ndarray, times: float = 1.0) -> bool:
        """Whether a finer rule would change value and estimate by next to nothing.

        Args:
            hessian: of the log likelihood, which tells how far an error of the gradient moves it.
            times: as many times more is good enough too.
        """
        allowed = times * GOOD_VALUE * max(1.0, len(self.by_group) / MANY_GROUPS)
        return self.error <= allowed and self.shift(hessian)[1] <= times * GOOD_SHIFT

    def shift(self, hessian: np.ndarray) -> tuple[np.ndarray, float]:
        """How the gradient by the finer rule would move the estimate, and that in standard errors.

        Args:
            hessian: of the log likelihood.
        """
        size = np.sqrt(np.maximum(np.abs(np.diag(hessian)), np.finfo(float).tiny))
        curvature = -hessian / np.outer(size, size)
        w, v = np.linalg.eigh((curvature + curvature.T) / 2)
        w = np.where(w > 1e-6, w, np.inf)  # a flat direction has no standard error to compare with
        along = v.T @ (self.score_error / size)
        return v @ (along / w) / size, float(np.max(np.abs(along) / np.sqrt(w), initial=0.0))

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
                f"Two quadrature rules, the finer with {self.num_nodes} nodes per dimension, "
                f"differ by {self.error:.2g} in the log likelihood: it is known no better."
            )
        elif self.estimate_error > LARGEST_SHIFT:
            said.append(
                f"Two quadrature rules, the finer with {self.num_nodes} nodes per dimension, "
                f"differ by {self.estimate_error:.2g} standard errors in the estimate: it is known "
                "no better."
            )
        return said + _of_modes(self.modes_complete) + _of_undefined(self.undefined)


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
        num_modes: of the block that has most.
        modes_complete: whether the search for other modes came to an end.
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
    num_modes: int = 1
    modes_complete: bool = True

    @property
    def method(self) -> str:
        """How it was found, in words."""
        place = "the mode" if self.num_modes == 1 else "every mode"
        draws = f"importance sampling, {self.num_draws} draws from a {self.proposal} at {place}"
        return draws + _around(self.num_modes)

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
        said = _of_weights(self, "Importance sampling") + _of_modes(self.modes_complete)
        return said + _of_undefined(self.undefined)


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


@dataclass(frozen=True)
class StructuredLikelihood:
    """log p_theta(y) of one block of very many latents, by the factors of its sparse curvature.

    Attributes:
        log_likelihood: log p_theta(y).
        error: its standard error; 0 for a Gaussian posterior.
        mean: posterior means of the latent, on the reals, in one row.
        sd: posterior standard deviations.
        undefined: the share of draws at which the log density was NaN.
        structure: of the curvature, in words.
        laplace: what Laplace's approximation gives.
        num_draws: from the Gaussian nearest to the posterior; None where that is the posterior, and
            nothing was drawn. Likewise
        effective_draws: what the weights leave of them, and
        pareto_k: of their tail, which should be below 0.7.
        score_covariance: of the gradient's Monte Carlo error.
    """

    log_likelihood: float
    error: float
    mean: np.ndarray
    sd: np.ndarray
    undefined: float
    structure: str
    laplace: float
    num_draws: int | None
    effective_draws: float | None
    pareto_k: float | None
    score_covariance: np.ndarray

    @property
    def by_group(self) -> None:
        """There are no groups."""
        return

    @property
    def method(self) -> str:
        """How it was found, in words."""
        if self.num_draws is None:
            return f"exact, for a Gaussian posterior ({self.structure})"
        return (
            f"importance sampling, {self.num_draws} draws from the Gaussian nearest to the "
            f"posterior ({self.structure})"
        )

    @property
    def quality(self) -> str:
        """What the weights say, and how far Laplace's approximation is off."""
        if self.num_draws is None:
            return ""
        off = self.laplace - self.log_likelihood
        return f"{_quality(self)}; Laplace's approximation is {off:+.2f} away"

    @property
    def is_reliable(self) -> bool:
        """Whether the weights, if there are any, say that value and derivatives are right."""
        return self.num_draws is None or _is_reliable(self)

    def warnings(self) -> list[str]:
        """Reasons to doubt the value, a sentence each."""
        said = [] if self.num_draws is None else _of_weights(self, "Importance sampling")
        return said + _of_undefined(self.undefined)


Likelihood: TypeAlias = (
    QuadratureLikelihood | ImportanceLikelihood | DrawsLikelihood | StructuredLikelihood
)


def _is_reliable(value: "ImportanceLikelihood | DrawsLikelihood | StructuredLikelihood") -> bool:
    heavy = value.pareto_k is not None and value.pareto_k > WORST_PARETO_K
    return not heavy and (value.effective_draws or 0) >= FEWEST_EFFECTIVE


def _quality(value: "ImportanceLikelihood | DrawsLikelihood | StructuredLikelihood") -> str:
    worst = "" if value.by_group is None else " in the worst group"
    tail = "equal weights" if value.pareto_k is None else f"Pareto k {value.pareto_k:.2f}"
    return f"{value.effective_draws:.0f} effective draws{worst}, {tail}"


def _of_weights(
    value: "ImportanceLikelihood | DrawsLikelihood | StructuredLikelihood", what: str
) -> list[str]:
    if value.is_reliable:
        return []
    tail = "" if value.pareto_k is None else f"Pareto k {value.pareto_k:.2f}, which should be "
    tail += "" if value.pareto_k is None else f"below {WORST_PARETO_K:g}; "
    return [
        f"{what} cannot be believed ({tail}{value.effective_draws:.0f} effective draws): the "
        "posterior is far from Gaussian."
    ]


def _around(num_modes: int) -> str:
    return "" if num_modes == 1 else f", around up to {num_modes} modes of a posterior"


def _of_modes(complete: bool) -> list[str]:
    if complete:
        return []
    return [
        "The posterior of the latents has several modes, and every search from other points found "
        "more: the likelihood is too low by those not found, and the estimate may be another."
    ]


def _of_undefined(share: float) -> list[str]:
    if share < NOTHING:
        return []
    return [
        f"log_joint was NaN at {share:.1%} of the points of the integral, which counted as zero "
        "density. If that is not what NaN means there, the estimate is wrong."
    ]

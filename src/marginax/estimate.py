"""What `fit` returns: estimates with standard errors, the likelihood, the latents, the doubts."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

from marginax.base import Latent, Particles, Theta
from marginax.inference.doubts import unbounded
from marginax.inference.likelihood import Evidence, one_latent
from marginax.problem import Problem
from marginax.result import Run
from marginax.summary import summary_text

__all__ = ["Fit", "LatentSummary", "LikelihoodRatio"]


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


class LatentSummary(NamedTuple):
    """The posterior of the latents at the estimate ("random effects"), natural scale.

    Attributes:
        mean: trees like the latent, all groups; where a latent is constrained, its median.
        sd: standard deviations; of free latents exact, of constrained ones by the delta method.
        low: lower end of the central interval.
        high: upper end.
    """

    mean: Latent
    sd: Latent
    low: Latent
    high: Latent


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted model. `print(fit)` is its summary.

    Attributes:
        problem: what was fitted.
        theta_free: the estimate, flat, on the reals.
        information: the observed information there (None without polish).
        evidence: the likelihood and its error (None without polish).
        run: the particles' run, all starts.
        method: what ran, in words.
        doubts: every reason to doubt, in sentences; empty is good.
        timings: seconds by stage.
    """

    problem: Problem
    theta_free: np.ndarray
    information: np.ndarray | None
    evidence: Evidence | None
    run: Run
    method: str
    doubts: tuple[str, ...]
    timings: dict[str, float]

    @property
    def converged(self) -> bool:
        """Whether there is nothing to doubt."""
        return not self.doubts

    @property
    def theta(self) -> Theta:
        """The estimate on its natural scale, a tree like the start."""
        return self.problem.natural_theta(self._unravel(self.theta_free))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the natural numbers, in the order of every table."""
        return self.problem.natural_names()

    @property
    def estimates(self) -> np.ndarray:
        """The estimate on its natural scale, flat."""
        return self._natural(self.theta_free)

    @property
    def particles(self) -> Particles:
        """The cloud of the first start, on the reals."""
        return jax.tree.map(lambda leaf: leaf[0], self.run.particles)

    @property
    def covariance_free(self) -> np.ndarray:
        """Of the estimate on the reals: the inverse information, infinite where there is none."""
        information = self._need(self.information)
        loose = unbounded(information)
        w, v = np.linalg.eigh((information + information.T) / 2)
        covariance = (v / np.where(w > 0, w, np.inf)) @ v.T
        covariance[loose, loose] = np.inf
        return covariance

    @property
    def covariance(self) -> np.ndarray:
        """Of the estimate on its natural scale, by the delta method."""
        jacobian = self._jacobian()
        free = self.covariance_free
        finite = np.isfinite(np.diag(free))
        inside = np.where(np.outer(finite, finite), free, 0.0)
        covariance = jacobian @ inside @ jacobian.T
        touched = (np.abs(jacobian[:, ~finite]) > 0).any(axis=1)
        covariance[touched, touched] = np.inf
        return covariance

    def standard_errors(self) -> np.ndarray:
        """In the order of `names`; infinite where the data say nothing."""
        return np.sqrt(np.diag(self.covariance))

    def monte_carlo_error(self) -> np.ndarray:
        """How far the estimates may be from the maximum for want of draws; 0 by quadrature."""
        evidence = self._need(self.evidence)
        free = np.where(np.isfinite(self.covariance_free), self.covariance_free, 0.0)
        error = self._jacobian() @ free @ evidence.score_covariance @ free @ self._jacobian().T
        return np.sqrt(np.diag(error))

    def confidence_intervals(self, level: float = 0.95) -> np.ndarray:
        """Wald intervals [parameters, 2], made on the reals and mapped to the natural scale."""
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but it must be between 0 and 1.")
        half = stats.norm.ppf(0.5 + level / 2) * np.sqrt(np.diag(self.covariance_free))
        if len(half) != len(self.names):  # a Cholesky factor: no one-to-one numbers
            width = stats.norm.ppf(0.5 + level / 2) * self.standard_errors()
            return np.stack([self.estimates - width, self.estimates + width], axis=1)
        ends = np.stack([self._natural(self.theta_free + sign * half) for sign in (-1, 1)], axis=1)
        return np.sort(ends, axis=1)

    def log_marginal_likelihood(self) -> Evidence:
        """log p_theta(y) at the estimate, how it was found, and its error."""
        return self._need(self.evidence)

    @property
    def aic(self) -> float:
        """-2 log likelihood + 2 parameters."""
        return -2 * self._need(self.evidence).log_likelihood + 2 * len(self.theta_free)

    @property
    def bic(self) -> float:
        """-2 log likelihood + parameters log n, n the number of groups."""
        if self.problem.num_groups is None:
            return math.nan
        penalty = len(self.theta_free) * math.log(self.problem.num_groups)
        return -2 * self._need(self.evidence).log_likelihood + penalty

    def likelihood_ratio_test(self, other: "Fit") -> LikelihoodRatio:
        """Against a fit of a smaller or larger model of the same data."""
        sizes = len(self.theta_free), len(other.theta_free)
        if sizes[0] == sizes[1]:
            raise ValueError(
                f"Both models have {sizes[0]} parameters: a likelihood-ratio test needs one inside "
                "the other. Compare them by AIC."
            )
        larger, smaller = (self, other) if sizes[0] > sizes[1] else (other, self)
        gain = larger._need(larger.evidence).log_likelihood
        gain -= smaller._need(smaller.evidence).log_likelihood
        statistic, degrees = max(2 * gain, 0.0), abs(sizes[0] - sizes[1])
        note = (
            "If the smaller model sets a variance to 0, this p-value is too large, up to twice for "
            "one variance."
        )
        if gain < -1e-3:
            note = "The larger model has the lower likelihood: one of the fits missed its maximum."
        return LikelihoodRatio(statistic, degrees, float(stats.chi2.sf(statistic, degrees)), note)

    def latent_summary(self, level: float = 0.95) -> LatentSummary:
        """Means, standard deviations and intervals of the latents at the estimate."""
        evidence = self._need(self.evidence)
        _, unravel = ravel_pytree(one_latent(self.problem))
        half = stats.norm.ppf(0.5 + level / 2)

        def natural(flat: np.ndarray) -> Latent:
            each = jax.vmap(unravel)(jnp.asarray(flat, _dtype(self.problem)))
            if self.problem.num_groups is None:
                each = jax.tree.map(lambda leaf: leaf[0], each)
            return self.problem.natural_latent(each)

        low, high = (natural(evidence.mean + sign * half * evidence.sd) for sign in (-1, 1))
        nudge = 1e-3
        above, below = (natural(evidence.mean + s * nudge * evidence.sd) for s in (1, -1))
        sd = jax.tree.map(lambda a, b: jnp.abs(a - b) / (2 * nudge), above, below)
        return LatentSummary(natural(evidence.mean), sd, low, high)

    def summary(self) -> str:
        """The table a statistician expects, and one clear line."""
        return summary_text(self)

    def __repr__(self) -> str:
        return self.summary()

    def _unravel(self, flat: np.ndarray) -> Theta:
        start, unravel = ravel_pytree(self.problem.start_theta())
        return unravel(jnp.asarray(flat, start.dtype))

    def _natural(self, flat: np.ndarray) -> np.ndarray:
        tree = self.problem.natural_theta(self._unravel(flat))
        return np.asarray(ravel_pytree(tree)[0], float)

    def _jacobian(self) -> np.ndarray:
        start, unravel = ravel_pytree(self.problem.start_theta())

        def natural(flat: Any) -> Any:
            return ravel_pytree(self.problem.natural_theta(unravel(flat)))[0]

        return np.asarray(jax.jacobian(natural)(jnp.asarray(self.theta_free, start.dtype)), float)

    @staticmethod
    def _need(value: Any) -> Any:
        if value is None:
            raise ValueError(
                "This fit has no likelihood: it was made with polish=False. Fit again without it."
            )
        return value


def _dtype(problem: Problem) -> Any:
    return ravel_pytree(problem.start_latent())[0].dtype

"""What `fit` returns: estimates with standard errors, the likelihood, the latents, the doubts."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from marginax import natural
from marginax.base import Key, Particles, Theta
from marginax.checks import check_level
from marginax.comparison import LikelihoodRatio, likelihood_ratio
from marginax.inference.information import delta_method, inverse_information
from marginax.inference.likelihood import Evidence
from marginax.inference.polish import Polished
from marginax.inference.profile import profile_of
from marginax.inference.refresh import Posterior
from marginax.latents import LatentSummary, latent_summary, natural_draws
from marginax.predictive import predict, simulate
from marginax.problem import Problem
from marginax.result import Run
from marginax.saved import read_fit, write_fit
from marginax.summary import summary_text

__all__ = ["Fit"]


@dataclass(frozen=True, repr=False, eq=False)
class Fit:
    """A fitted model. `print(fit)` is its summary.

    Attributes:
        problem: what was fitted.
        theta_free: the estimate, flat, on the reals.
        information: the observed information there (None if it could not be computed).
        score_covariance: of the Monte Carlo error of the score there; zero by quadrature.
        evidence: the likelihood and its error (None if it could not be computed).
        draws: of the posterior of the latents, on the reals; None with refresh=False, without
            BlackJAX, above 50,000 groups, or where chains did not mix: `notes` say which.
        run: the particles' run, all starts.
        start: which of the run's starts is the estimate's.
        num_starts: how many starts of theta were tried.
        num_agreeing: how many of them led to the estimate.
        edges: which free numbers are at the boundary of what their constraints allow.
        method: what ran, in words.
        doubts: every reason to doubt, in sentences; empty is good.
        notes: what else one should know.
        timings: seconds by stage.
        polished: the climbs of the likelihood, as long as the fit is in memory.
    """

    problem: Problem
    theta_free: np.ndarray
    information: np.ndarray | None
    score_covariance: np.ndarray | None
    evidence: Evidence | None
    draws: Posterior | None
    run: Run
    start: int
    num_starts: int
    num_agreeing: int
    edges: tuple[int, ...]
    method: str
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    timings: dict[str, float]
    polished: Polished | None = None

    @property
    def converged(self) -> bool:
        """Whether there is nothing to doubt."""
        return not self.doubts

    @property
    def theta(self) -> Theta:
        """The estimate on its natural scale, a tree like the start."""
        return self.problem.natural_theta(self._free)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the natural numbers, in the order of every table."""
        return natural.shown_names(self.problem)

    @property
    def estimates(self) -> np.ndarray:
        """The estimate on its natural scale, flat; of a Cholesky factor the correlations."""
        return np.asarray(natural.shown(self.problem, self._free), float)

    @property
    def particles(self) -> Particles:
        """The cloud of the start that the estimate came from, on the reals."""
        return jax.tree.map(lambda leaf: leaf[self.start], self.run.particles)

    @property
    def covariance_free(self) -> np.ndarray:
        """Of the estimate on the reals: the inverse information.

        Infinite where there is no information; NaN for parameters at a boundary, which have no
        standard error, and the others' is then with these fixed.
        """
        return inverse_information(self._need(self.information), self.edges)

    @property
    def covariance(self) -> np.ndarray:
        """Of the estimate on its natural scale, by the delta method."""
        return delta_method(natural.jacobian(self.problem, self.theta_free), self.covariance_free)

    def standard_errors(self) -> np.ndarray:
        """In the order of `names`; infinite where the data say nothing, NaN at a boundary."""
        return np.sqrt(np.diag(self.covariance))

    def monte_carlo_error(self) -> np.ndarray:
        """How far the estimates may be from the maximum for want of draws; 0 by quadrature."""
        free = np.where(np.isfinite(self.covariance_free), self.covariance_free, 0.0)
        spread = natural.jacobian(self.problem, self.theta_free) @ free
        return np.sqrt(np.diag(spread @ self._need(self.score_covariance) @ spread.T))

    def confidence_intervals(self, level: float = 0.95, profile: str | None = None) -> np.ndarray:
        """Intervals for the natural numbers.

        Args:
            level: of confidence.
            profile: the name of one parameter: its interval from the profile likelihood, which
                needs no normal approximation and costs some ten climbs.

        Returns:
            [parameters, 2] Wald intervals, made on the reals and mapped to the natural scale; or
            the two ends of the one asked for: infinite (or the end of what is allowed) where the
            likelihood never falls far enough, NaN, with a warning, where an end was not found.
        """
        check_level(level)
        quantile = NormalDist().inv_cdf(0.5 + level / 2)
        if profile is not None:
            free = (self.theta_free, self.covariance_free)
            return profile_of(self.problem, self.polished, *free, profile, quantile)
        table = natural.intervals(self.problem, self.estimates, self.standard_errors(), quantile)
        return np.where(np.isnan(self.standard_errors())[:, None], np.nan, table)

    def log_marginal_likelihood(self) -> Evidence:
        """log p_theta(y) at the estimate, how it was found, and its error."""
        return self._need(self.evidence)

    @property
    def aic(self) -> float:
        """-2 log likelihood + 2 parameters."""
        return -2 * self._need(self.evidence).log_likelihood + 2 * len(self.theta_free)

    @property
    def bic(self) -> float:
        """-2 log likelihood + parameters log n, n of `Problem.num_observations` or of groups."""
        if self.problem.sample_size is None:
            return math.nan
        penalty = len(self.theta_free) * math.log(self.problem.sample_size)
        return -2 * self._need(self.evidence).log_likelihood + penalty

    def likelihood_ratio_test(self, other: "Fit") -> LikelihoodRatio:
        """Against a fit of a smaller or larger model of the same data."""
        return likelihood_ratio(self, other)

    def latent_summary(self, level: float = 0.95) -> LatentSummary:
        """Means, standard deviations and intervals of the latents at the estimate."""
        return latent_summary(self.problem, self.evidence, self.draws, level)

    @property
    def posterior(self) -> PyTree:
        """Draws of the latents at the estimate: natural scale, [chains, draws, ...] per leaf."""
        return natural_draws(self.problem, self._need_draws())

    def predict(
        self, fn: Callable[[Key, Theta, Any], PyTree], key: Key, num_draws: int = 1000
    ) -> PyTree:
        """Posterior predictions: `fn` at the estimate and at draws of the latents.

        Args:
            fn: `fn(key, theta, latent)` with natural values: a prediction, or simulated data.
            key: a `jax.random.key`.
            num_draws: how many draws to use, at most all.

        Returns:
            What `fn` returns, with a leading axis over draws.
        """
        return predict(fn, self.theta, self.posterior, key, num_draws)

    def simulate(self, fn: Callable[[Key, Theta], PyTree], key: Key, num: int = 1) -> PyTree:
        """New data sets from the fitted model, new latents included.

        Args:
            fn: `fn(key, theta)` draws latents and data at the natural theta.
            key: a `jax.random.key`.
            num: how many.

        Returns:
            What `fn` returns, with a leading axis over data sets; `problem.with_data` takes one.
        """
        return simulate(fn, self.theta, key, num)

    def to_arviz(self) -> Any:
        """An `arviz.InferenceData`: latents, data and the estimate."""
        from marginax.interop.arviz import to_arviz

        return to_arviz(self)

    def to_numpyro(self) -> Any:
        """`params` and `posterior_samples` for `numpyro.infer.Predictive`."""
        from marginax.interop.numpyro import to_numpyro

        return to_numpyro(self)

    def plot(self, predictive: PyTree = None, observed: Any = None) -> Any:
        """A matplotlib figure: paths of theta, intervals, Stein ratios, latents, predictions.

        Args:
            predictive: what `predict` returned, one array [draws, ...], for a predictive panel.
            observed: what was observed there.
        """
        from marginax.plotting import plot_fit

        return plot_fit(self, predictive, observed)

    def save(self, path: str | Path) -> None:
        """Writes the fit to one .npz file, without the problem: that is your code."""
        write_fit(self, path)

    @classmethod
    def load(cls, path: str | Path, problem: Problem) -> "Fit":
        """Reads what `save` wrote; the problem must be the one it was made with."""
        return cls(**read_fit(path, problem))

    def summary(self) -> str:
        """The table a statistician expects, and one clear line."""
        return summary_text(self)

    def __repr__(self) -> str:
        return self.summary()

    @property
    def _free(self) -> Theta:
        return natural.unravelled(self.problem, self.theta_free)

    @staticmethod
    def _need(value: Any) -> Any:
        if value is None:
            raise ValueError(
                "This fit has no likelihood: it was made with polish=False, or the latents are too "
                "many for it. Its `doubts` and `notes` say which."
            )
        return value

    def _need_draws(self) -> Posterior:
        if self.draws is None:
            raise ValueError(
                "This fit has no posterior draws: it was made with refresh=False, BlackJAX is not "
                "installed (`pip install 'marginax[blackjax]'`), or its `doubts` and `notes` say "
                "why."
            )
        return self.draws

"""What `fit` returns: estimates with standard errors, likelihood, latents, warnings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from marginax._core.checks import check_level
from marginax._core.disk_cache import kept_on_disk
from marginax.fitting.latents import (
    RandomEffects,
    constrained_draws,
    predict,
    random_effects,
    simulate,
    theta_draws,
)
from marginax.fitting.saving import read_fit, write_fit
from marginax.fitting.tables import SummaryTable, as_dataframe, summary_table, summary_text
from marginax.fitting.uncertainty import (
    LikelihoodRatio,
    delta_method,
    inverse_information,
    likelihood_ratio,
)
from marginax.likelihood.climbs import Maximum, climb_from_starts, maximum_from
from marginax.likelihood.methods import choose_likelihood
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.profile import profile_of
from marginax.likelihood.results import (
    ImportanceLikelihood,
    Likelihood,
    QuadratureLikelihood,
    StructuredLikelihood,
)
from marginax.model import parameter_table
from marginax.model.problem import Problem, in_double_precision
from marginax.running.result import Run
from marginax.typing import Key, Particles, Theta

__all__ = ["Fit"]


@dataclass(frozen=True, repr=False, eq=False)
class Fit:
    """A fitted model. `print(fit)` is its summary.

    Attributes:
        problem: what was fitted.
        unconstrained_theta: the estimate, flat, on the reals.
        information: the observed information there (None if it could not be computed).
        score_covariance: of the Monte Carlo error of the score there; zero by quadrature.
        likelihood: how the likelihood was computed, its error, and its value by group (None if it
            could not be computed).
        draws: of the posterior of the latents, on the reals; None with draw_posterior=False,
            without BlackJAX, above 50,000 groups, or where chains did not mix: `notes` say which.
        run: the particles' run, all starts.
        start: which of the run's starts is the estimate's.
        num_starts: how many starts of theta were tried.
        num_agreeing: how many of them led to the estimate.
        boundaries: which numbers on the reals are at the boundary of what is allowed.
        method: what ran, in words.
        converged: whether the optimisation came to its end; `ok` says whether to believe it.
        warnings: every reason to doubt, in sentences; empty is good.
        notes: what else one should know.
        timings: seconds by stage.
        maximum: of the likelihood, with the function itself, as long as the fit is in memory.
    """

    problem: Problem
    unconstrained_theta: np.ndarray
    information: np.ndarray | None
    score_covariance: np.ndarray | None
    likelihood: Likelihood | None
    draws: Posterior | None
    run: Run
    start: int
    num_starts: int
    num_agreeing: int
    boundaries: tuple[int, ...]
    method: str
    converged: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    timings: dict[str, float]
    maximum: Maximum | None = None

    @property
    def ok(self) -> bool:
        """Whether there is nothing to warn of."""
        return not self.warnings

    @property
    def theta(self) -> Theta:
        """The estimate on its constrained scale, a tree like the start."""
        return parameter_table.constrained_theta(self.problem, self._on_the_reals)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of every table."""
        return parameter_table.parameter_names(self.problem)

    @property
    def estimates(self) -> np.ndarray:
        """The numbers of the table, flat; of a Cholesky factor for instance the correlations."""
        return self._numbers_and_jacobian[0].copy()

    @property
    def particles(self) -> Particles:
        """The cloud of the start that the estimate came from, on the reals."""
        return jax.tree.map(lambda leaf: leaf[self.start], self.run.particles)

    @property
    def unconstrained_covariance(self) -> np.ndarray:
        """Of the estimate on the reals: the inverse information.

        Infinite where there is no information; NaN for parameters at a boundary, which have no
        standard error, and the others' is then with these fixed.
        """
        return inverse_information(self._need(self.information), self.boundaries)

    @property
    def covariance(self) -> np.ndarray:
        """Of the numbers of the table, by the delta method."""
        return delta_method(self._jacobian, self.unconstrained_covariance)

    @property
    def standard_errors(self) -> np.ndarray:
        """In the order of `names`; infinite where the data say nothing, NaN at a boundary."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def monte_carlo_error(self) -> np.ndarray:
        """How far the estimates may be from the maximum for want of draws; 0 by quadrature."""
        covariance = self.unconstrained_covariance
        spread = self._jacobian @ np.where(np.isfinite(covariance), covariance, 0.0)
        return np.sqrt(np.diag(spread @ self._need(self.score_covariance) @ spread.T))

    def confidence_intervals(self, level: float = 0.95) -> np.ndarray:
        """Wald intervals [parameters, 2], made on the reals and mapped to the constrained scale."""
        quantile, errors = _quantile(level), self.standard_errors
        table = parameter_table.intervals(self.problem, self.estimates, errors, quantile)
        return np.where(np.isnan(errors)[:, None], np.nan, table)

    def profile_interval(self, name: str, level: float = 0.95) -> np.ndarray:
        """The interval of one parameter from the profile likelihood.

        It needs no normal approximation and costs some ten climbs.

        Args:
            name: of the parameter, one of `names`.
            level: of confidence.

        Returns:
            The two ends: infinite (or the end of what is allowed) where the likelihood never falls
            far enough, NaN, with a warning, where an end was not found.
        """
        quantile = _quantile(level)
        at = (self.unconstrained_theta, self.unconstrained_covariance)
        return profile_of(self.problem, self._likelihood_function, *at, name, quantile)

    @cached_property
    def _likelihood_function(self) -> Maximum | None:
        """The maximum with its function; of a fit that was loaded, found anew."""
        if self.maximum is not None or not isinstance(
            self.likelihood, QuadratureLikelihood | ImportanceLikelihood | StructuredLikelihood
        ):
            return self.maximum
        with jax.enable_x64(True), kept_on_disk():
            problem, theta = in_double_precision(self.problem), self.unconstrained_theta
            function = choose_likelihood(problem, theta)
            if function is None:
                return None
            made = climb_from_starts(function, theta[None])
            return maximum_from(made.function, theta[None], made.climbs)

    @property
    def log_likelihood(self) -> float:
        """log p_theta(y) at the estimate; `likelihood` has its error and how it was computed."""
        return self._need(self.likelihood).log_likelihood

    @property
    def aic(self) -> float:
        """-2 log likelihood + 2 parameters."""
        return -2 * self.log_likelihood + 2 * len(self.unconstrained_theta)

    @property
    def bic(self) -> float:
        """-2 log likelihood + parameters log n, n of `Problem.num_observations` or of groups."""
        if self.problem.sample_size is None:
            return math.nan
        penalty = len(self.unconstrained_theta) * math.log(self.problem.sample_size)
        return -2 * self.log_likelihood + penalty

    def likelihood_ratio_test(self, other: "Fit") -> LikelihoodRatio:
        """Against a fit of a smaller or larger model of the same data."""
        return likelihood_ratio(self, other)

    def random_effects(self, level: float = 0.95) -> RandomEffects:
        """Means, standard deviations and intervals of the latents at the estimate."""
        found = random_effects(self.problem, self.likelihood, self.draws, level)
        return found._replace(labels=self.problem.group_labels)

    @property
    def posterior(self) -> PyTree:
        """Draws of the latents at the estimate, constrained: [chains, draws, ...] in every leaf."""
        return constrained_draws(self.problem, self._need_draws())

    def predict(
        self,
        fn: Callable[[Key, Theta, Any], PyTree],
        *,
        key: Key,
        num_draws: int = 1000,
        theta: str = "estimate",
    ) -> PyTree:
        """Posterior predictions: `fn` at the estimate and at draws of the latents.

        Args:
            fn: `fn(key, theta, latent)` with constrained values: a prediction, or simulated data.
                For a new group draw its latent from theta inside, and leave the given one alone.
            key: a `jax.random.key`.
            num_draws: how many draws to use, at most all.
            theta: "estimate", or "draw": every prediction with its own theta, normal around the
                estimate on the reals with the covariance of the estimate, so that predictions know
                that theta was estimated. The latents are drawn at the estimate all the same.

        Returns:
            What `fn` returns, with a leading axis over draws.
        """
        if theta not in ("estimate", "draw"):
            raise ValueError(f'theta is {theta!r}; it must be "estimate" or "draw".')
        if theta == "estimate":
            return predict(fn, self.theta, self.posterior, key, num_draws)
        theta_key, key = jax.random.split(key)
        at = (self.unconstrained_theta, self.unconstrained_covariance)
        thetas = theta_draws(self.problem, *at, theta_key, num_draws)
        return predict(fn, thetas, self.posterior, key, num_draws, theta_axis=0)

    def simulate(self, fn: Callable[[Key, Theta], PyTree], *, key: Key, num: int = 1) -> PyTree:
        """New data sets from the fitted model, new latents included.

        Args:
            fn: `fn(key, theta)` draws latents and data at the constrained theta.
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

    def plot(
        self, predictive: PyTree = None, observed: Any = None, *, x: Any = None, mask: Any = None
    ) -> Any:
        """A matplotlib figure of all: estimates, random effects, paths of theta, predictions.

        Args:
            predictive: for predictions and residuals; this and the others as in `plot_predictions`.
            observed: what was observed there.
            x: what to draw predictions along.
            mask: 0 where nothing was observed.
        """
        from marginax.fitting.plotting import given_predictions, plot_fit

        if predictive is None:
            return plot_fit(self, None)
        return plot_fit(self, given_predictions(self, predictive, observed, x, mask))

    def plot_estimates(
        self, names: Sequence[str] | None = None, *, exp: bool = False, level: float = 0.95
    ) -> Any:
        """A matplotlib figure: estimates with intervals, each in its own units.

        Args:
            names: some of the parameters, in this order.
            exp: exponentials of parameters without a constraint, on a logarithmic axis with a line
                at 1; others as they are.
            level: of the intervals.
        """
        from marginax.fitting.plotting import plot_estimates

        return plot_estimates(self, names, exp, level)

    def plot_random_effects(self, level: float = 0.95) -> Any:
        """A matplotlib figure: latents of the groups, sorted, with labels and a line at 0.

        A panel for each number of a group's latent, up to 12; without groups one for every leaf.

        Args:
            level: of the intervals.
        """
        from marginax.fitting.plotting import plot_effects

        return plot_effects(self, level)

    def plot_predictions(
        self, predictive: PyTree, observed: Any = None, *, x: Any = None, mask: Any = None
    ) -> Any:
        """A matplotlib figure: predictions beside the data, as suits numbers, counts or 0/1.

        Args:
            predictive: one array [draws, ...] of simulated data, such as `predict` returns; of 0/1
                data also chances.
            observed: [...], what was observed there, or the name of a column of the problem's data.
            x: [...], or a name likewise: bands along it. Without it, 0/1 data are compared with
                predicted chances, counts and numbers with their predicted distribution.
            mask: [...], 0 where nothing was observed; by default the "mask" of the problem's data,
                as `pad_groups` makes it.
        """
        from marginax.fitting.plotting import given_predictions, plot_predictions

        return plot_predictions(given_predictions(self, predictive, observed, x, mask))

    def save(self, path: str | Path) -> None:
        """Writes the fit to one .npz file, without the problem: that is your code."""
        write_fit(self, path)

    @classmethod
    def load(cls, path: str | Path, problem: Problem) -> "Fit":
        """Reads what `save` wrote; the problem must be the one it was made with."""
        return cls(**read_fit(path, problem))

    def table(self, *, exp: bool = False, level: float = 0.95) -> Any:
        """The parameters as a pandas DataFrame: estimate, standard error, z, p, interval.

        Args:
            exp: exponentials of parameters without a constraint, which are odds or rate ratios
                where the model has a logit or a log link; others, such as standard deviations, stay
                as they are.
            level: of the intervals.
        """
        rows = self.summary_table(level).rows
        return as_dataframe(rows, parameter_table.is_free(self.problem), exp)

    def summary(self) -> str:
        """The table a statistician expects, and one clear line."""
        return summary_text(self)

    def summary_table(self, level: float = 0.95) -> SummaryTable:
        """Everything that summaries say, as rows and facts: for text, HTML and JSON alike."""
        with kept_on_disk():
            return summary_table(self, level)

    def __repr__(self) -> str:
        return self.summary()

    @property
    def _on_the_reals(self) -> Theta:
        return parameter_table.unravel_theta(self.problem, self.unconstrained_theta)

    @cached_property
    def _numbers_and_jacobian(self) -> tuple[np.ndarray, np.ndarray]:
        return parameter_table.numbers_and_jacobian(self.problem, self.unconstrained_theta)

    @property
    def _jacobian(self) -> np.ndarray:
        return self._numbers_and_jacobian[1]

    @staticmethod
    def _need(value: Any) -> Any:
        if value is None:
            raise ValueError(
                "This fit has no likelihood: it was made with compute_likelihood=False, or the "
                "latents are too many for it. Its `warnings` and `notes` say which."
            )
        return value

    def _need_draws(self) -> Posterior:
        if self.draws is None:
            raise ValueError(
                "This fit has no posterior draws: it was made with draw_posterior=False, BlackJAX "
                "is not installed (`pip install 'marginax[blackjax]'`), or its `warnings` and "
                "`notes` say why."
            )
        return self.draws


def _quantile(level: float) -> float:
    check_level(level)
    return NormalDist().inv_cdf(0.5 + level / 2)

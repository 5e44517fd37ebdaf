"""What `mixed` returns: estimates in the words of the field, predictions, tests, figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from marginax._core.checks import check_level
from marginax.formulas.climbing import fit_by_climbing
from marginax.formulas.comparison import Anova, Bootstrap, anova, bootstrapped
from marginax.formulas.design import Design
from marginax.formulas.families import Family
from marginax.formulas.frames import table_like
from marginax.formulas.linear_fit import fit_linear
from marginax.formulas.prediction import (
    linear_predictor,
    mean_of,
    pearson_residuals,
    simulated,
    warn_of_new_levels,
)
from marginax.formulas.solution import Effects, Solution
from marginax.formulas.summary import summary_text
from marginax.formulas.tables import (
    check_group,
    fixed_columns,
    fixed_rows,
    random_effect_columns,
    variance_columns,
)

__all__ = ["MixedFit"]


@dataclass(frozen=True, repr=False, eq=False)
class MixedFit:
    """A fitted mixed model. `print(fit)` is its summary.

    Tables are dataframes of the library that the data came in.

    Attributes:
        design: the formula with its data.
        family: of the response.
        link: its name.
        reml: whether the likelihood is the restricted one.
        solution: the estimate, and all that is known of it.
        seconds: that the fit took.
    """

    design: Design
    family: Family
    link: str
    reml: bool
    solution: Solution
    seconds: float

    @property
    def formula(self) -> str:
        """As it was given."""
        return self.design.formula.text

    @property
    def log_likelihood(self) -> float:
        """At the estimate; the restricted one for REML. `solution.error` is its error."""
        return self.solution.log_likelihood

    @property
    def reml_criterion(self) -> float:
        """-2 times the restricted log likelihood."""
        if not self.reml:
            raise ValueError("The fit is by maximum likelihood; reml=True has a REML criterion.")
        return -2 * self.log_likelihood

    @property
    def aic(self) -> float:
        """-2 log likelihood + 2 parameters."""
        return -2 * self.log_likelihood + 2 * self.solution.num_parameters

    @property
    def bic(self) -> float:
        """-2 log likelihood + parameters log n, n the number of rows."""
        penalty = self.solution.num_parameters * math.log(self.num_observations)
        return -2 * self.log_likelihood + penalty

    @property
    def num_observations(self) -> int:
        """The rows that were used."""
        return self.design.num_rows

    @property
    def converged(self) -> bool:
        """Whether the climb came to its end; `ok` says whether to believe it."""
        return self.solution.converged

    @property
    def ok(self) -> bool:
        """Whether there is nothing to warn of."""
        return not self.solution.warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every reason to doubt, in sentences; empty is good."""
        return self.solution.warnings

    @property
    def notes(self) -> tuple[str, ...]:
        """What else one should know: rows left out, a variance of 0."""
        return (*self.design.notes, *self.solution.notes)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all parameters: fixed effects, standard deviations, correlations, dispersion."""
        return (*self.design.names, *(one.name for one in self.solution.numbers))

    @property
    def estimates(self) -> np.ndarray:
        """Of all parameters, in the order of `names`."""
        return np.array([*self.solution.fixed, *(one.estimate for one in self.solution.numbers)])

    def fixed_rows(self, level: float = 0.95) -> list[tuple[Any, ...]]:
        """Of every fixed effect: name, estimate, standard error, z, p, low, high."""
        return fixed_rows(self.design.names, self.solution, level)

    @property
    def fixed_effects(self) -> Any:
        """A table: of every fixed effect its estimate, standard error, z, p and 95 % interval."""
        return self.table()

    def table(self, *, exp: bool = False, level: float = 0.95) -> Any:
        """The fixed effects as a dataframe.

        Args:
            exp: exponentials, odds ratios for a logit link and rate ratios for a log link, with
                standard errors by the delta method.
            level: of the intervals.
        """
        given = (self.design.names, self.solution, self.link)
        columns = fixed_columns(*given, exp=exp, level=level)
        return table_like(columns, self.design.table.backend)

    @property
    def variance_components(self) -> Any:
        """A table of all other parameters: standard deviations, correlations, dispersion."""
        columns = variance_columns(self.solution.numbers)
        return table_like(columns, self.design.table.backend)

    @cached_property
    def _effects(self) -> tuple[Effects, ...]:
        return self.solution.effects()

    def random_effects(self, group: str | None = None, level: float = 0.95) -> Any:
        """A table of the random effects: means, standard deviations and intervals given the data.

        Args:
            group: one grouping factor; by default all of them.
            level: of the intervals.
        """
        check_level(level)
        groups = self.design.columns.groups
        check_group(groups, group)
        columns = random_effect_columns(groups, self._effects, group, level)
        return table_like(columns, self.design.table.backend)

    def predict(self, newdata: Any = None, *, random: bool = True, kind: str = "response") -> Any:
        """Expected responses.

        Args:
            newdata: a dataframe; by default the data that were fitted.
            random: with the random effects of known levels. A level that was not seen is an average
                one, with a warning.
            kind: "response" or "link", the linear predictor.

        Returns:
            An array with a number for every row; of ordinal responses with a column for every
            category. Of binomial ones the chance of a success.
        """
        if kind not in ("response", "link"):
            raise ValueError(f'kind is {kind!r}; it must be "response" or "link".')
        columns = self.design.columns
        if newdata is not None:
            columns, table = self.design.columns_of(newdata)
            if table.notes:
                raise ValueError(f"{table.notes[0]} A prediction needs all of them: fill them in.")
        if random:
            warn_of_new_levels(columns)
        means = [one.mean for one in self._effects] if random else None
        eta = linear_predictor(columns, self.solution, means)
        return eta if kind == "link" else mean_of(self.family, self.link, eta, self.solution)

    @property
    def fitted(self) -> np.ndarray:
        """Expected responses of the rows that were used, with their random effects."""
        return self.predict()

    def residuals(self, kind: str = "pearson") -> np.ndarray:
        """What the fit leaves of the rows that were used.

        Args:
            kind: "response", observed less fitted, or "pearson", that in standard deviations.
        """
        if kind not in ("response", "pearson"):
            raise ValueError(f'kind is {kind!r}; it must be "response" or "pearson".')
        left, unit = pearson_residuals(self.design, self.family, self.fitted, self.solution)
        return left / unit if kind == "pearson" else left

    def anova(self, other: "MixedFit") -> Anova:
        """A likelihood-ratio test against a smaller or larger model of the same data."""
        return anova(self, other)

    def simulate(self, num: int = 1, *, seed: int, new_effects: bool = True) -> np.ndarray:
        """New responses of the rows that were used: [num, rows].

        Args:
            num: how many data sets.
            seed: the same seed gives the same numbers.
            new_effects: draw new random effects; otherwise those of the fit.
        """
        random = np.random.default_rng(seed)
        given = (self.design, self.family, self.link, self.solution)
        return np.array([simulated(*given, random, new_effects) for _ in range(num)])

    def refit(self, response: np.ndarray) -> "MixedFit":
        """The same model of another response, such as `simulate` makes."""
        values = np.asarray(response, float)
        if values.shape != self.design.response.values.shape:
            raise ValueError(
                f"The response has shape {values.shape}; it must be "
                f"{self.design.response.values.shape}, a number for every row that was used."
            )
        design = self.design._replace(response=self.design.response._replace(values=values))
        if self.family.name == "gaussian":
            return replace(self, design=design, solution=fit_linear(design, self.reml))
        solution = fit_by_climbing(design, self.family, self.link, design.response)
        return replace(self, design=design, solution=solution)

    def bootstrap(self, num: int = 200, *, seed: int) -> Bootstrap:
        """Parametric bootstrap: the model fitted to data of its own making.

        Args:
            num: how many data sets.
            seed: the same seed gives the same numbers.
        """
        responses = self.simulate(num, seed=seed)

        def again(k: int) -> np.ndarray:
            return self.refit(responses[k]).estimates

        backend = self.design.table.backend
        return bootstrapped(self.names, self.estimates, again, num, backend)

    def profile_interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """The interval of one parameter from the profile likelihood.

        Args:
            name: one of `names`.
            level: of confidence.
        """
        check_level(level)
        if name not in self.names:
            raise ValueError(f"There is no parameter {name!r}; there are {', '.join(self.names)}.")
        return self.solution.profile(name, NormalDist().inv_cdf(0.5 + level / 2))

    def draws(self, num: int = 1000, *, seed: int) -> dict[str, np.ndarray]:
        """Draws of the random effects given the data: by group, [num, levels, effects].

        Args:
            num: how many.
            seed: the same seed gives the same numbers.
        """
        made = self.solution.draw(seed, num)
        groups = self.design.columns.groups
        return {group.name: part for group, part in zip(groups, made, strict=True)}

    def to_arviz(self, num: int = 1000, *, seed: int = 0) -> Any:
        """An `arviz.InferenceData`: draws of the random effects, the data and the estimate."""
        from marginax.formulas.figures import as_inference_data

        return as_inference_data(self, num, seed)

    def plot(self) -> Any:
        """A matplotlib figure of all: estimates, data and curve, residuals, random effects."""
        from marginax.formulas.figures import plot_mixed

        return plot_mixed(self)

    def plot_estimates(
        self, names: Sequence[str] | None = None, *, exp: bool = False, level: float = 0.95
    ) -> Any:
        """A matplotlib figure: estimates with intervals, each in its own units.

        Args:
            names: some of `names`; by default the fixed effects.
            exp: exponentials of fixed effects, as in `table`, with a line at 1.
            level: of the intervals of fixed effects; others' are of 95 %.
        """
        from marginax.formulas.figures import plot_estimates

        return plot_estimates(self, names, exp, level)

    def plot_random_effects(self, group: str | None = None, level: float = 0.95) -> Any:
        """A matplotlib figure: random effects, sorted, with labels and a line at 0.

        Args:
            group: one grouping factor; by default all of them.
            level: of the intervals.
        """
        from marginax.formulas.figures import plot_effects

        return plot_effects(self, group, level)

    def plot_predictions(self, x: str | None = None) -> Any:
        """A matplotlib figure: the data along a column, the fitted curve, and a band.

        The curve is of an average level; the band has 95 % of new data of new levels, or for 0/1
        data, successes and categories 95 % of new levels' chances.

        Args:
            x: a column of the fixed effects; by default the first one of numbers. Other columns are
                held at their means, or at what is most common.
        """
        from marginax.formulas.figures import plot_predictions

        return plot_predictions(self, x)

    def plot_residuals(self) -> Any:
        """A matplotlib figure: residuals against fitted values."""
        from marginax.formulas.figures import plot_residuals

        return plot_residuals(self)

    def summary(self) -> str:
        """What lme4 says of a model, and one clear line."""
        return summary_text(self)

    def __repr__(self) -> str:
        return self.summary()

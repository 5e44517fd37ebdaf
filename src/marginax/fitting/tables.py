"""What a fit says, as rows and facts: the one source of its text, its report and its JSON.

To add a column, add a line to `COLUMNS`; to add a line about the likelihood, a `Fact`.
"""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "COLUMNS",
    "Column",
    "Fact",
    "Row",
    "SummaryTable",
    "as_dataframe",
    "summary_table",
    "summary_text",
    "verdict",
]


class Row(NamedTuple):
    """A parameter of a fit.

    Attributes:
        name: of the parameter.
        estimate: on its constrained scale.
        standard_error: infinite where the data say nothing; None at a boundary, or not computed.
        low: lower end of the confidence interval; None likewise.
        high: upper end.
    """

    name: str
    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None

    @property
    def z(self) -> float | None:
        """The estimate in standard errors, where these are finite."""
        error = self.standard_error
        return self.estimate / error if error and math.isfinite(error) else None


class Column(NamedTuple):
    """A column of the table of parameters.

    Attributes:
        key: its name in JSON.
        title: its heading; {level} is the level of confidence in per cent.
        value: from a row to plain values, for JSON.
        text: from a row to what is printed.
        width: of the printed column, at least.
        from_errors: whether it needs standard errors, and is left out without them.
    """

    key: str
    title: str
    value: Callable[[Row], Any]
    text: Callable[[Row], str]
    width: int
    from_errors: bool = True


def _number(value: float | None, form: str = ".4g") -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:{form}}" if math.isfinite(value) else "unbounded"


def _interval(row: Row) -> str:
    if row.low is None or row.high is None:
        return "-"
    return f"[{_number(row.low)}, {_number(row.high)}]"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


COLUMNS = (
    Column("name", "parameter", lambda row: row.name, lambda row: row.name, 9, False),
    Column(
        "estimate",
        "estimate",
        lambda row: _finite(row.estimate),
        lambda row: _number(row.estimate),
        11,
        False,
    ),
    Column(
        "standard_error",
        "std. error",
        lambda row: _finite(row.standard_error),
        lambda row: _number(row.standard_error),
        11,
    ),
    Column("z", "z", lambda row: _finite(row.z), lambda row: _number(row.z, ".2f"), 8),
    Column(
        "interval",
        "{level:g} % interval",
        lambda row: [_finite(row.low), _finite(row.high)],
        _interval,
        25,
    ),
)


class Fact(NamedTuple):
    """Something a fit says beside its parameters.

    Attributes:
        key: its name in JSON.
        title: its name in a report.
        value: a plain value, for JSON; None if it is not finite.
        text: what is printed.
    """

    key: str
    title: str
    value: Any
    text: str


class SummaryTable(NamedTuple):
    """The parameters and the facts of a fit.

    Attributes:
        columns: of the table of parameters.
        rows: one for every parameter.
        facts: about the likelihood and the posterior, in order.
        level: of the confidence intervals.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    facts: tuple[Fact, ...]
    level: float

    @property
    def titles(self) -> list[str]:
        """The headings of the columns."""
        return [column.title.format(level=100 * self.level) for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The table as it is printed, a list of texts for every parameter."""
        return [[column.text(row) for column in self.columns] for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The table as plain values, for JSON: all columns, with None for what is not known."""
        return [{column.key: column.value(row) for column in COLUMNS} for row in self.rows]

    def fact(self, key: str) -> Fact | None:
        """The fact of this name, if the fit has it."""
        return next((fact for fact in self.facts if fact.key == key), None)


def as_dataframe(rows: Sequence[Row], is_free: Sequence[bool], exp: bool) -> Any:
    """The rows as a pandas DataFrame, with p-values from the normal distribution.

    Args:
        rows: of a table.
        is_free: which parameters have no constraint.
        exp: exponentials of these.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "A dataframe needs pandas, which is not installed: `pip install pandas`. "
            "`summary_table()` has the same numbers without it."
        ) from None
    records = []
    for row, free in zip(rows, is_free, strict=True):
        z, error = row.z, row.standard_error
        values = [row.estimate, error, row.low, row.high]
        if exp and free:
            ends = [None if end is None else _exp(end) for end in (row.low, row.high)]
            at = _exp(row.estimate)
            values = [at, None if error is None else at * error, *ends]
        p = None if z is None else math.erfc(abs(z) / math.sqrt(2))
        records.append((row.name, values[0], values[1], z, p, *values[2:]))
    columns = ["parameter", "estimate", "std_error", "z", "p", "low", "high"]
    numbers = dict.fromkeys(columns[1:], float)
    return pandas.DataFrame(records, columns=columns).astype(numbers)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def summary_table(fit: Any, level: float) -> SummaryTable:
    """The table of a `Fit`."""
    has_errors = fit.information is not None
    columns = tuple(column for column in COLUMNS if has_errors or not column.from_errors)
    nothing = np.full(len(fit.names), np.nan)
    errors = fit.standard_errors if has_errors else nothing
    ends = fit.confidence_intervals(level) if has_errors else np.stack([nothing, nothing], axis=1)
    rows = tuple(
        Row(name, float(x), _known(error), _known(low), _known(high))
        for name, x, error, (low, high) in zip(fit.names, fit.estimates, errors, ends, strict=True)
    )
    return SummaryTable(columns, rows, (*_of_likelihood(fit), *_of_draws(fit)), level)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _of_likelihood(fit: Any) -> list[Fact]:
    value = fit.likelihood
    if value is None:
        return []
    text = f"{value.log_likelihood:.3f} (error {value.error:.1g})"
    facts = [
        Fact("log_likelihood", "log likelihood", _finite(value.log_likelihood), text),
        Fact("aic", "AIC", _finite(fit.aic), f"{fit.aic:.2f}"),
    ]
    size = fit.problem.sample_size
    if size is not None:
        counted = "groups" if fit.problem.num_observations is None else "observations"
        facts.append(Fact("bic", "BIC", _finite(fit.bic), f"{fit.bic:.2f} (n = {size} {counted})"))
    facts.append(Fact("log_likelihood_by", "computed by", value.method, value.method))
    if value.quality:
        facts.append(Fact("weights", "weights", value.quality, value.quality))
    return facts


def _of_draws(fit: Any) -> list[Fact]:
    facts = []
    if fit.information is not None and np.any(fit.score_covariance > 0):
        errors = fit.standard_errors
        known = np.isfinite(errors)
        share = float(np.max(fit.monte_carlo_error[known] / errors[known], initial=0.0))
        text = f"at most {share:.1%} of a standard error"
        facts.append(Fact("monte_carlo_error", "Monte Carlo error of the estimates", share, text))
    if fit.draws is not None:
        text = (
            f"{fit.draws.sampler}, R-hat {fit.draws.rhat:.3f}, "
            f"{fit.draws.effective_draws:.0f} effective draws of the worst"
        )
        facts.append(Fact("posterior", "posterior of the latents", text, text))
    return facts


def verdict(fit: Any) -> str:
    """One clear line: whether the optimisation came to its end, and whether to believe it."""
    if fit.ok:
        return f"CONVERGED{_agreement(fit)}."
    count = len(fit.warnings)
    some = "a warning" if count == 1 else f"{count} warnings"
    return f"CONVERGED, with {some}:" if fit.converged else f"NOT CONVERGED, {some}:"


def _agreement(fit: Any) -> str:
    """How many starts led to the estimate, as the end of a sentence."""
    if fit.num_starts == 1:
        return ""
    if fit.num_agreeing == fit.num_starts:
        return f", {fit.num_starts} starts agree"
    return f", {fit.num_agreeing} of {fit.num_starts} starts led here and the others nowhere"


def summary_text(fit: Any) -> str:
    """What `print(fit)` shows."""
    table = fit.summary_table()
    lines = [f"Maximum marginal likelihood: {fit.method}", "", *_aligned(table), ""]
    lines += _fact_lines(table)
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in fit.timings.items())
    lines += [f"time: {seconds}", "", verdict(fit)]
    for warning in fit.warnings:
        lines += textwrap.wrap(warning, 92, initial_indent="  - ", subsequent_indent="    ")
    for note in fit.notes:
        lines += textwrap.wrap(f"Note: {note}", 96, subsequent_indent="    ")
    return "\n".join(lines)


def _aligned(table: SummaryTable) -> list[str]:
    """The first column to the left, the others to the right."""
    lines = [table.titles, *table.cells]
    widths = [
        max(column.width, *(len(line[i]) for line in lines)) if i == 0 else column.width
        for i, column in enumerate(table.columns)
    ]
    return [
        " ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _fact_lines(table: SummaryTable) -> list[str]:
    facts = {fact.key: fact for fact in table.facts}
    if "log_likelihood" not in facts:
        lines = ["log likelihood not computed"]
    else:
        numbers = [facts[key] for key in ("log_likelihood", "aic", "bic") if key in facts]
        how = [facts[key].text for key in ("log_likelihood_by", "weights") if key in facts]
        lines = [
            ", ".join(f"{fact.title} {fact.text}" for fact in numbers),
            f"by {'; '.join(how)}",
        ]
    others = [facts[key] for key in ("monte_carlo_error", "posterior") if key in facts]
    return lines + [f"{fact.title}: {fact.text}" for fact in others]

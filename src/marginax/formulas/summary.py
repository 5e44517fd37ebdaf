"""What `print(fit)` says of a mixed model, in the order and the words of lme4."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from marginax.formulas.covariances import correlations

__all__ = ["summary_text", "verdict"]

WIDTH = 96


def summary_text(fit: Any) -> str:
    """The whole summary."""
    parts = [
        _head(fit),
        _criteria(fit),
        _random_effects(fit),
        _dispersion(fit),
        _fixed_effects(fit),
        _coding(fit),
        [verdict(fit), *_wrapped(fit.warnings, "  - ", "    ")],
        _wrapped([f"Note: {note}" for note in fit.notes], "", "    "),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def verdict(fit: Any) -> str:
    """One clear line: whether the climb came to its end, and whether to believe it."""
    if fit.ok:
        return "CONVERGED."
    count = len(fit.warnings)
    some = "a warning" if count == 1 else f"{count} warnings"
    return f"CONVERGED, with {some}:" if fit.converged else f"NOT CONVERGED, {some}:"


def _head(fit: Any) -> list[str]:
    how = "restricted maximum likelihood (REML)" if fit.reml else "maximum likelihood"
    kind = "Linear mixed model" if fit.family.name == "gaussian" else "Mixed model"
    lines = [
        f"{kind} fitted by {how}",
        f"Formula: {fit.formula}",
        f"Family:  {fit.family.name} ({fit.link} link)",
    ]
    lines += textwrap.wrap(f"Computed: {fit.solution.method}", WIDTH, subsequent_indent="    ")
    return lines


def _criteria(fit: Any) -> list[str]:
    error = f" (error {fit.solution.error:.1g})" if fit.solution.error else ""
    values = [
        ("AIC", f"{fit.aic:.2f}"),
        ("BIC", f"{fit.bic:.2f}"),
        ("REML criterion", f"{fit.reml_criterion:.3f}")
        if fit.reml
        else ("logLik", f"{fit.log_likelihood:.3f}{error}"),
        ("parameters", str(fit.solution.num_parameters)),
    ]
    return ["   ".join(f"{name} {value}" for name, value in values)]


def _random_effects(fit: Any) -> list[str]:
    design, solution = fit.design, fit.solution
    errors = {one.name: one.standard_error for one in solution.numbers}
    rows = [("Groups", "Name", "Variance", "Std.Dev.", "Std.Err.", "Corr")]
    for group, covariance in zip(design.columns.groups, solution.covariances, strict=True):
        between = correlations(covariance)
        for block in group.blocks:
            for a, i in enumerate(block):
                sd = _sd_of(solution, group.name, group.effects[i])
                error = errors.get(f"sd({group.effects[i]} | {group.name})")
                corr = " ".join(f"{between[i, j]:6.3f}" for j in block[:a])
                first = group.name if i == 0 else ""
                row = (first, group.effects[i], _number(sd**2), _number(sd), _number(error), corr)
                rows.append(row)
    if fit.family.name == "gaussian":
        sigma = float(solution.dispersion["sigma"])
        error = errors.get("sigma")
        rows.append(("Residual", "", _number(sigma**2), _number(sigma), _number(error), ""))
    sizes = "; ".join(f"{group.name} {group.num_levels}" for group in design.columns.groups)
    return [
        "Random effects:",
        *_aligned(rows, left=2),
        f"Number of observations: {fit.num_observations}; groups: {sizes}",
    ]


def _sd_of(solution: Any, group: str, effect: str) -> float:
    return next(
        one.estimate
        for one in solution.numbers
        if one.about is not None and one.about.group == group and one.about.effects == (effect,)
    )


def _dispersion(fit: Any) -> list[str]:
    if fit.family.name == "gaussian":
        return []
    says = {one.name: one.says for one in fit.family.parameters}
    rows = [("Name", "Estimate", "Std.Err.", "95 % interval", "")]
    for one in fit.solution.numbers:
        if one.about is None:
            ends = f"[{_number(one.low)}, {_number(one.high)}]"
            row = (one.name, _number(one.estimate), _number(one.standard_error), ends)
            rows.append((*row, says.get(one.name.split("[")[0], "")))
    return ["Parameters of the family:", *_aligned(rows, left=1)] if len(rows) > 1 else []


def _fixed_effects(fit: Any) -> list[str]:
    rows = [("", "Estimate", "Std. Error", "z value", "Pr(>|z|)", "95 % interval")]
    for name, estimate, error, z, p, low, high in fit.fixed_rows():
        row = (name, _number(estimate), _number(error), _number(z, ".3f"), _p_value(p))
        rows.append((*row, f"[{_number(low)}, {_number(high)}]"))
    return ["Fixed effects:", *_aligned(rows, left=1)] if len(rows) > 1 else []


def _coding(fit: Any) -> list[str]:
    """How categorical columns are coded: the first level is what the others are compared with."""
    lines = []
    for name, levels in fit.design.coding.items():
        some = ", ".join(levels[:8]) + (", ..." if len(levels) > 8 else "")
        lines.append(f"Coding: {name} has the levels {some}; the first is the reference.")
    categories = fit.design.response.categories
    if categories and fit.family.name == "binomial":
        lines.append(f"Response: {categories[1]!r} is the success, {categories[0]!r} is not.")
    elif categories:
        lines.append(f"Response: {' < '.join(categories)}.")
    return lines


def _wrapped(sentences: Any, first: str, then: str) -> list[str]:
    lines = []
    for sentence in sentences:
        lines += textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=then)
    return lines


def _number(value: float | None, form: str = ".5g") -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:{form}}" if math.isfinite(value) else "unbounded"


def _p_value(p: float | None) -> str:
    if p is None or math.isnan(p):
        return "-"
    return "<2e-16" if p < 2e-16 else f"{p:.3g}"


def _aligned(rows: Sequence[tuple[str, ...]], left: int) -> list[str]:
    """Columns as wide as they must be, the first few to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            f"{cell:<{width}}" if i < left or i == len(row) - 1 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f" {'  '.join(cells)}".rstrip())
    return lines

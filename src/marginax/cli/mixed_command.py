"""What `marginax mixed` does with its options, which `app` declares: from a formula to a report."""

import json
import math
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import typer

from marginax.cli.about import versions
from marginax.cli.datafile import check_pyarrow
from marginax.cli.messages import errors, one_line, warnings_as_notes
from marginax.cli.page import Panel, figure_html, with_minus
from marginax.cli.writing import check_writable, write_figure, write_whole
from marginax.formulas.frames import imported
from marginax.formulas.front import mixed
from marginax.formulas.result import MixedFit
from marginax.formulas.summary import verdict

__all__ = ["MixedRequest", "mixed_from_file"]

WITH_WARNINGS = 3


class MixedRequest(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        formula: of the model.
        data: the table.
        family: of the response.
        link: if not the usual one.
        weights: a column, if any.
        reml: restricted maximum likelihood.
        zero_inflation: extra zeros.
        out: the folder for results; without one the summary is printed and nothing written.
    """

    formula: str
    data: Path
    family: str
    link: str | None
    weights: str | None
    reml: bool
    zero_inflation: bool
    out: Path | None


def mixed_from_file(asked: MixedRequest) -> int:
    """Reads, fits, prints and writes.

    Returns:
        The exit code: 0 if there is nothing to warn of, 3 otherwise.
    """
    with warnings_as_notes():
        table = _read(asked.data)
        errors.print(
            f"{asked.data}: {len(table)} rows, {len(table.columns)} columns.", markup=False
        )
        if asked.out is not None:
            check_writable(asked.out)
        fit = mixed(
            asked.formula,
            table,
            asked.family,
            link=asked.link,
            weights=asked.weights,
            reml=asked.reml,
            zero_inflation=asked.zero_inflation,
        )
        typer.echo(f"\n{fit}\n")
        if asked.out is not None:
            _write(fit, asked, asked.out)
            typer.echo(f"Report: {asked.out / 'report.html'} ({fit.seconds:.1f} s)")
    return 0 if fit.ok else WITH_WARNINGS


def _read(path: Path) -> Any:
    pandas = imported("pandas")
    readers = {".csv": pandas.read_csv, ".parquet": pandas.read_parquet}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"{path}: data come from {' and '.join(readers)} files. Save the table as one of these."
        )
    if path.suffix.lower() == ".parquet":
        check_pyarrow(path)
    try:
        return readers[path.suffix.lower()](path)
    except ImportError:
        raise ImportError(
            f"Reading {path} needs pyarrow, which is not installed: `pip install pyarrow`, or save "
            "the table as .csv."
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{path} cannot be read: {reason}. Check the path after --data.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no table that can be read: {one_line(error)}") from None


def _write(fit: MixedFit, asked: MixedRequest, out: Path) -> None:
    """summary.json, random_effects.csv, figure.png and report.html."""
    summary = _summary(fit, asked)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / "summary.json", lambda path: path.write_text(text, encoding="utf-8"))
    effects = fit.random_effects()
    write_whole(out / "random_effects.csv", lambda path: effects.to_csv(path, index=False))
    panels: list[Panel] = []
    try:
        panels = write_figure(fit.plot(), out / "figure.png")
    except ImportError as error:
        errors.print(f"Note: figure.png was not written: {one_line(error)}", markup=False)
    page = _page(fit, summary, panels)
    write_whole(out / "report.html", lambda path: path.write_text(page, encoding="utf-8"))


def _summary(fit: MixedFit, asked: MixedRequest) -> dict[str, Any]:
    """The numbers of a fit as plain JSON; null is what has no finite value."""
    fixed = [
        dict(
            zip(
                ("name", "estimate", "standard_error", "z", "p", "low", "high"),
                (row[0], *map(_finite, row[1:])),
                strict=True,
            )
        )
        for row in fit.fixed_rows()
    ]
    others = [
        {
            "name": one.name,
            "estimate": _finite(one.estimate),
            "standard_error": _finite(one.standard_error),
            "low": _finite(one.low),
            "high": _finite(one.high),
        }
        for one in fit.solution.numbers
    ]
    return {
        "formula": fit.formula,
        "data": str(asked.data),
        "family": fit.family.name,
        "link": fit.link,
        "reml": fit.reml,
        "converged": fit.converged,
        "ok": fit.ok,
        "warnings": list(fit.warnings),
        "notes": list(fit.notes),
        "fixed_effects": fixed,
        "variance_components": others,
        "log_likelihood": _finite(fit.log_likelihood),
        "log_likelihood_error": _finite(fit.solution.error),
        "aic": _finite(fit.aic),
        "bic": _finite(fit.bic),
        "num_observations": fit.num_observations,
        "groups": {group.name: group.num_levels for group in fit.design.columns.groups},
        "method": fit.solution.method,
        "seconds": round(fit.seconds, 3),
        "versions": versions(),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _page(fit: MixedFit, summary: dict[str, Any], panels: list[Panel]) -> str:
    """One page that needs nothing but itself, in the style of other reports."""
    template = files("marginax.cli").joinpath("report.html").read_text(encoding="utf-8")
    title = escape(f"{fit.formula}, fitted to {Path(summary['data']).name}")
    head = template.split("<body>")[0].replace("<!-- title -->", title)
    reasons = "".join(f"<li>{escape(one)}</li>" for one in fit.warnings)
    kind, more = ("good", "") if fit.ok else ("bad", f"<ul>{reasons}</ul>")
    notes = "".join(f"<li>{escape(one)}</li>" for one in fit.notes)
    facts = {
        "family": f"{fit.family.name} ({fit.link} link)",
        "log likelihood": with_minus(_likelihood(fit)),
        "AIC, BIC": f"{fit.aic:.2f}, {fit.bic:.2f}",
        "observations": str(fit.num_observations),
        "groups": ", ".join(f"{name} {count}" for name, count in summary["groups"].items()),
        "computed by": fit.solution.method,
        "versions": ", ".join(f"{name} {here}" for name, here in summary["versions"].items()),
    }
    rows = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts.items())
    parts = [
        f"<h1>{title}</h1>",
        f'<div class="verdict {kind}"><b>{escape(verdict(fit).capitalize())}</b>{more}</div>',
        "<h2>Fixed effects</h2>",
        _html_table(summary["fixed_effects"]),
        "<h2>Random effects and dispersion</h2>",
        _html_table(summary["variance_components"]),
        f"<dl>{rows}</dl>",
        f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        figure_html(panels),
        '<p class="small">Beside this page: <code>summary.json</code>, these numbers; '
        "<code>random_effects.csv</code>; <code>figure.png</code>.</p>",
    ]
    return head + "<body>\n" + "\n".join(filter(None, parts)) + "\n</body>\n</html>\n"


def _likelihood(fit: MixedFit) -> str:
    error = fit.solution.error
    return f"{fit.log_likelihood:.3f}" + (f" (error {error:.1g})" if error else "")


def _html_table(records: list[dict[str, Any]]) -> str:
    if not records:
        return "<p>There are none.</p>"
    top = "".join(
        f'<th class="column-{name}">{escape(name.replace("_", " "))}</th>' for name in records[0]
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td class="column-{name}">{escape(_cell(name, value))}</td>'
            for name, value in row.items()
        )
        + "</tr>"
        for row in records
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "p" and value < 2e-16:
        return "< 2e−16"
    return value if isinstance(value, str) else with_minus(f"{value:.4g}").replace("e-", "e−")

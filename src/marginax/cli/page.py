"""The report of a fit as one HTML page that needs nothing but itself."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from marginax.fitting.result import Fit
from marginax.fitting.tables import SummaryTable, verdict

__all__ = ["Panel", "figure_html", "page", "with_minus"]


class Panel(NamedTuple):
    """A part of the figure.

    Attributes:
        title: what it shows.
        picture: PNG in base64.
    """

    title: str
    picture: str


def page(
    fit: Fit, summary: Mapping[str, Any], panels: Sequence[Panel], skipped: Sequence[str]
) -> str:
    """The whole page.

    Args:
        fit: the result.
        summary: its numbers and what it is a fit of, as in summary.json.
        panels: of the figure.
        skipped: sentences about files that could not be written.
    """
    table = fit.summary_table()
    template = files("marginax.cli").joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(f"{summary['title']}, fitted to {Path(summary['data']).name}"),
        "verdict": _verdict(fit),
        "estimates": _estimates(table),
        "likelihood": _likelihood(table),
        "notes": _listed("Notes", [*fit.notes, *summary["remarks"], *skipped]),
        "figure": figure_html(panels),
        "made": _made(fit, summary),
        "out": escape(summary["out"]),
    }
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text)
    return template


def _verdict(fit: Fit) -> str:
    words = escape(verdict(fit).capitalize())
    if fit.ok:
        return f'<div class="verdict good"><b>{words}</b></div>'
    items = "".join(f"<li>{escape(warning)}</li>" for warning in fit.warnings)
    return f'<div class="verdict bad"><b>{words}</b><ul>{items}</ul></div>'


def _estimates(table: SummaryTable) -> str:
    """The table of parameters; every column has a class, by which the page may hide it."""
    kinds = [f'class="column-{column.key}"' for column in table.columns]
    top = "".join(
        f"<th {kind}>{escape(title)}</th>" for kind, title in zip(kinds, table.titles, strict=True)
    )
    rows = [[row[0], *map(with_minus, row[1:])] for row in table.cells]
    body = "\n".join(
        "<tr>"
        + "".join(f"<td {kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _likelihood(table: SummaryTable) -> str:
    if table.fact("log_likelihood") is None:
        return "<p>The log likelihood was not computed.</p>"
    return _facts((fact.title, with_minus(fact.text)) for fact in table.facts)


def _made(fit: Fit, summary: Mapping[str, Any]) -> str:
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in fit.timings.items())
    rows = [
        ("model", f"{summary['function']}() of {summary['model']}"),
        ("data", f"{summary['data']}, {summary['rows']} rows"),
        ("groups", str(fit.problem.num_groups or "none: one block of latents")),
        ("settings", ", ".join(f"{k} = {v}" for k, v in summary["settings"].items())),
        ("method", fit.method),
        ("seed", str(summary["seed"])),
        ("time", seconds),
        ("when and where", f"{summary['date']}, {summary['device']}"),
        ("versions", ", ".join(f"{k} {v}" for k, v in summary["versions"].items())),
    ]
    return _facts(row for row in rows if row[1])


def figure_html(panels: Sequence[Panel]) -> str:
    """The panels as pictures, in columns or below each other; nothing if there are none."""
    if not panels:
        return ""
    pictures = "\n".join(
        f'<img alt="{escape(panel.title)}" src="data:image/png;base64,{panel.picture}">'
        for panel in panels
    )
    return f'<h2>Figure</h2><div class="panels">{pictures}</div>'


def _listed(title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f"<dl>{inside}</dl>"


def with_minus(text: str) -> str:
    """Numbers with a real minus sign, and a dash for what is not known."""
    return "–" if text == "-" else re.sub(r"(?<![\w-])-(?=[\d.i])", "−", text)

"""The report of a fit as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marginax.estimate import Fit
from marginax.summary import agreement

__all__ = ["Panel", "page"]


class Panel(NamedTuple):
    """A part of the figure.

    Attributes:
        title: what it shows.
        picture: PNG in base64.
        width: in inches; letters have the same size in all panels only if this is kept.
    """

    title: str
    picture: str
    width: float


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
    template = files("marginax.cli").joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(f"{summary['title']}, fitted to {Path(summary['data']).name}"),
        "verdict": _verdict(fit),
        "estimates": _estimates(fit),
        "likelihood": _likelihood(fit),
        "notes": _listed("Notes", [*fit.notes, *summary["remarks"], *skipped]),
        "figure": _figure(panels),
        "made": _made(fit, summary),
        "out": escape(summary["out"]),
    }
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text)
    return template


def _verdict(fit: Fit) -> str:
    if fit.converged:
        return f'<div class="verdict good"><b>Converged{agreement(fit)}.</b></div>'
    items = "".join(f"<li>{escape(doubt)}</li>" for doubt in fit.doubts)
    return f'<div class="verdict bad"><b>Doubtful:</b><ul>{items}</ul></div>'


def _estimates(fit: Fit) -> str:
    if fit.information is None:
        pairs = zip(fit.names, fit.estimates, strict=True)
        return _table(("parameter", "estimate"), [(name, _number(x)) for name, x in pairs])
    errors, ends = fit.standard_errors(), fit.confidence_intervals()
    rows = []
    for name, x, error, (low, high) in zip(fit.names, fit.estimates, errors, ends, strict=True):
        known = np.isfinite(error)
        interval = "–" if np.isnan(error) else f"{_end(low)} to {_end(high)}"
        z = _number(x / error, ".2f") if known else "–"
        rows.append((name, _number(x), _number(error), z, interval))
    return _table(("parameter", "estimate", "std. error", "z", "95 % interval"), rows)


def _likelihood(fit: Fit) -> str:
    if fit.evidence is None:
        return "<p>The log likelihood was not computed.</p>"
    found = fit.evidence
    counted = "observations" if fit.problem.num_observations else "groups"
    rows = [
        ("log likelihood", f"{_number(found.log_likelihood, '.3f')} (error {found.error:.1g})"),
        ("AIC", _number(fit.aic, ".2f")),
    ]
    if fit.problem.sample_size is not None:
        words = f"{_number(fit.bic, '.2f')} (n = {fit.problem.sample_size} {counted})"
        rows.append(("BIC", words))
    rows.append(("computed by", found.method))
    if np.isfinite(found.pareto_k):
        worst = f"Pareto k {found.pareto_k:.2f}, {found.effective_draws:.0f} effective draws"
        rows.append(("importance sampling", worst))
    if fit.draws is not None:
        draws = f"{fit.draws.sampler}, R-hat {fit.draws.rhat:.3f}"
        rows.append(("posterior of the latents", draws))
    return _facts(rows)


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


def _figure(panels: Sequence[Panel]) -> str:
    if not panels:
        return ""
    widest = max(panel.width for panel in panels)
    pictures = "\n".join(
        f'<img alt="{escape(panel.title)}" style="width: {panel.width / widest:.1%}" '
        f'src="data:image/png;base64,{panel.picture}">'
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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _end(value: float) -> str:
    return _number(value) if np.isfinite(value) else "−∞" if value < 0 else "∞"


def _number(value: float, form: str = ".4g") -> str:
    if np.isnan(value):
        return "–"
    return f"{value:{form}}".replace("-", "−") if np.isfinite(value) else "unbounded"

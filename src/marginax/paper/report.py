"""The report as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from marginax.paper.claims import claims
from marginax.paper.store import Finished

__all__ = ["Shown", "html"]

NOTEBOOK_SECONDS = {"toy": 497, "logistic": 423, "network": 579}  # the paper's, on a laptop i7


class Shown(NamedTuple):
    """A drawn figure.

    Attributes:
        name: of its files.
        picture: PNG in base64.
        title: what it shows.
        words: what differs, and why.
    """

    name: str
    picture: str
    title: str
    words: str


def html(finished: Mapping[str, Finished], figures: Sequence[Shown]) -> str:
    """The whole page."""
    template = files("marginax.paper").joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "executed": _executed(finished),
        "claims": _claims(finished),
        "figures": "\n".join(_figure(shown) for shown in figures),
        "times": _times(finished),
        "missing": _missing(figures),
        "words": _words(finished),
    }
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text)
    return template


def _claims(finished: Mapping[str, Finished]) -> str:
    rows = claims(finished)
    return _table(
        ("Claim", "Paper", "As published", "As written", "marginax", "Verdict"),
        rows,
        "claims",
    )


def _figure(shown: Shown) -> str:
    title = escape(shown.title)
    number = int(shown.name.split("_")[1])  # the same in a report of one part
    return (
        f'<figure id="{shown.name}"><h3>Figure {number}. {title}</h3>'
        f'<img alt="{title}" src="data:image/png;base64,{shown.picture}">'
        f"<figcaption>{escape(shown.words.strip())}</figcaption></figure>"
    )


def _times(finished: Mapping[str, Finished]) -> str:
    rows = []
    for part, notebook in NOTEBOOK_SECONDS.items():
        names = [name for name in finished if name.startswith(part)]
        for name in names:
            about = finished[name].about
            rows.append(
                (name, str(about["num_runs"]), f"{about['seconds']:.1f} s", "", about["size"])
            )
        if names:
            seconds = sum(finished[name].about["seconds"] for name in names)
            runs = sum(finished[name].about["num_runs"] for name in names)
            rows.append((f"{part}: all of it", str(runs), f"{seconds:.0f} s", f"{notebook} s", ""))
    return _table(("Experiment", "Runs", "Wall time", "Paper's notebook", "Size"), rows, "times")


def _executed(finished: Mapping[str, Finished]) -> str:
    """What was executed, where, with which versions: one line per different setting."""
    keys = ("date", "device", "dtype", "marginax", "jax", "optax", "numpy", "python")
    seen = sorted({tuple(str(found.about[key]) for key in keys) for found in finished.values()})
    lines = [
        ", ".join(
            value if key in ("date", "device", "dtype") else f"{key} {value}"
            for key, value in zip(keys, values, strict=True)
        )
        for values in seen
    ]
    return "<br>".join(escape(line) for line in lines)


def _words(finished: Mapping[str, Finished]) -> str:
    if all(found.about["size"] == "full" for found in finished.values()):
        return ""
    return (
        "<p><b>This is not the full set.</b> The words under the figures describe the full one, "
        "with the paper's numbers of trials and steps.</p>"
    )


def _missing(figures: Sequence[Shown]) -> str:
    return "" if figures else "<p>No figure could be drawn: no experiment is complete.</p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )

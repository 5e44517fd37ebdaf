"""Figures, a CSV per table, and one self-contained report.html of what was computed."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from marginax.interop.drawing import in_style
from marginax.reproduction import results
from marginax.reproduction.claims import claims
from marginax.reproduction.experiments import EXPERIMENTS
from marginax.reproduction.results import Finished
from marginax.reproduction.sizes import SIZES

__all__ = ["Shown", "html", "render"]

# Many panels to a figure; whole fonts in PDFs, and as the minus sign a dash that every font has.
SMALL: dict[Any, Any] = {
    "axes.edgecolor": "#222222",  # a palette of 256 colours has no grey to spare
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "pdf.fonttype": 42,
    "axes.unicode_minus": False,
}
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
    template = files("marginax.reproduction").joinpath("report.html").read_text(encoding="utf-8")
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
            took = f"{about['seconds']:.1f} s"
            rows.append((name, str(about["num_runs"]), took, "", about["size"], about["device"]))
        if names:
            runs = sum(finished[name].about["num_runs"] for name in names)
            devices = {finished[name].about["device"] for name in names}
            # Seconds of different machines do not add up.
            took = f"{sum(finished[name].about['seconds'] for name in names):.0f} s"
            took, device = (took, *devices) if len(devices) == 1 else ("—", "several")
            rows.append((f"{part}: all of it", str(runs), took, f"{notebook} s", "", device))
    head = ("Experiment", "Runs", "Wall time", "Paper's notebook", "Size", "Device")
    return _table(head, rows, "times")


def _executed(finished: Mapping[str, Finished]) -> str:
    """What was executed, where, with which versions: one line per different setting."""
    keys = ("date", "device", "dtype", "marginax", "jax", "optax", "numpy", "python")
    seen = sorted(
        {tuple(str(one_done.about[key]) for key in keys) for one_done in finished.values()}
    )
    lines = [
        ", ".join(
            value if key in ("date", "device", "dtype") else f"{key} {value}"
            for key, value in zip(keys, values, strict=True)
        )
        for values in seen
    ]
    return "<br>".join(escape(line) for line in lines)


def _words(finished: Mapping[str, Finished]) -> str:
    if all(one_done.about["size"] == "full" for one_done in finished.values()):
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


def render(out: str | Path, size: str | None = None) -> Path:
    """Writes `figures/`, `csv/` and `html` into the folder of the results.

    Args:
        out: the folder `reproduce` wrote to, here or on another machine.
        size: quick, standard or full; the largest that is there if None.

    Returns:
        The report.
    """
    out = Path(out)
    there = results.sizes_in(out)
    size = size or next((name for name in reversed(SIZES) if name in there), "full")
    read = {named.name: results.read(out, size, named.name) for named in EXPERIMENTS}
    finished = {name: done for name, done in read.items() if done is not None}
    if not finished:
        raise ValueError(
            f"There are no finished experiments in {out / 'results' / size}. Compute some with "
            "`marginax reproduce`, or give the folder that holds them."
        )
    try:
        from matplotlib import rcParams

        from marginax.reproduction.figures import DRAWINGS, captions
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib: pip install 'marginax[plot]'. The results are kept; "
            "`marginax reproduce --render DIR` draws them later, or on another machine."
        ) from error
    arrays = {name: experiment.arrays for name, experiment in finished.items()}
    _write_tables(out / "csv", arrays)
    words, figures = captions(), []
    with in_style():
        rcParams.update(SMALL)
        for drawing in (one for one in DRAWINGS if arrays.keys() >= set(one.needs)):
            picture = _drawn(drawing.draw(arrays), out / "figures" / drawing.name)
            figures.append(Shown(drawing.name, picture, **words[drawing.name]))
    _write(out / "report.html", html(finished, figures).encode())
    return out / "report.html"


def _drawn(figure: Any, path: Path) -> str:
    """Writes a figure as PNG and as PDF, and returns the first in base64."""
    png = _small_png(figure)
    figure.set_layout_engine("none")  # laid out once is enough
    pdf = io.BytesIO()
    figure.savefig(pdf, format="pdf")
    _write(path.with_suffix(".png"), png)
    _write(path.with_suffix(".pdf"), pdf.getvalue())
    return base64.b64encode(png).decode()


def _write_tables(folder: Path, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """A CSV file for every array of every experiment."""
    for name, quantities in arrays.items():
        for quantity, array in quantities.items():
            _write(folder / f"{name}_{quantity}.csv", array.csv().encode())


def _small_png(figure: Any) -> bytes:
    """A palette is a third of the size; by coverage, or a colour bar would lose its rare end."""
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(small, "PNG")
    return small.getvalue()


def _write(path: Path, content: bytes) -> None:
    results.write_whole(path, lambda file: file.write(content))

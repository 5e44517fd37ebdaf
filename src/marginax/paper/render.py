"""Draws what was computed: figures, a CSV per table, and one self-contained report.html."""

import base64
import io
from pathlib import Path
from typing import Any

from marginax.paper import report, store
from marginax.paper.experiments import EXPERIMENTS
from marginax.paper.sizes import SIZES

__all__ = ["render"]


def render(out: str | Path, size: str | None = None) -> Path:
    """Writes `figures/`, `csv/` and `report.html` into the folder of the results.

    Args:
        out: the folder `reproduce` wrote to, here or on another machine.
        size: quick, standard or full; the largest that is there if None.

    Returns:
        The report.
    """
    out = Path(out)
    there = store.sizes_in(out)
    size = size or next((name for name in reversed(SIZES) if name in there), "full")
    read = {named.name: store.read(out, size, named.name) for named in EXPERIMENTS}
    finished = {name: found for name, found in read.items() if found is not None}
    if not finished:
        raise ValueError(
            f"There are no finished experiments in {out / 'results' / size}. Compute some with "
            "`marginax reproduce`, or give the folder that holds them."
        )
    try:
        import matplotlib

        from marginax.paper.figures import DRAWINGS, captions
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib: pip install 'marginax[plot]'. The results are kept; "
            "`marginax reproduce --render DIR` draws them later, or on another machine."
        ) from error
    # Fewer, larger objects in the PDFs; the dash of the minus sign is in every font.
    matplotlib.rcParams.update({"pdf.fonttype": 42, "axes.unicode_minus": False})

    for name, found in finished.items():
        for quantity, array in found.arrays.items():
            _write(out / "csv" / f"{name}_{quantity}.csv", array.csv().encode())

    arrays = {name: found.arrays for name, found in finished.items()}
    words = captions()
    figures = []
    for drawing in DRAWINGS:
        if not all(need in arrays for need in drawing.needs):
            continue
        figure = drawing.draw(arrays)
        png = _small_png(figure)
        figure.set_layout_engine("none")  # laid out once is enough
        pdf = io.BytesIO()
        figure.savefig(pdf, format="pdf")
        _write(out / "figures" / f"{drawing.name}.png", png)
        _write(out / "figures" / f"{drawing.name}.pdf", pdf.getvalue())
        picture = base64.b64encode(png).decode()
        figures.append(report.Shown(drawing.name, picture, **words[drawing.name]))
    _write(out / "report.html", report.html(finished, figures).encode())
    return out / "report.html"


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
    store.write_whole(path, lambda file: file.write(content))

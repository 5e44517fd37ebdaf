"""What the report's figures share: a colour for every method, panels, boxes and maps.

`report` draws them in the style of all figures (`interop/drawing`), with smaller letters: they are
many panels wide. Importing this module needs matplotlib (`pip install "marginax[plot]"`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from marginax.reproduction.results import Labelled

__all__ = ["Drawing", "Results", "boxes", "heat_map", "line_style", "panels", "short_name"]

Results = Mapping[str, Mapping[str, Labelled]]  # experiment -> quantity -> numbers
# Okabe and Ito's colours; line styles differ too, for print without colour.
_STYLES = {
    "SVGD-EM": ("#000000", "-"),
    "M-SVGD-EM(0.3)": ("#56B4E9", "--"),
    "M-SVGD-EM(0.5)": ("#0072B2", "-."),
    "M-SVGD-EM(0.9)": ("#D55E00", "-"),
    "M-SVGD-EM(restart)": ("#CC79A7", "-"),
    "PGD": ("#7F7F7F", "--"),
    "MPGD": ("#CC79A7", "--"),
    "SOUL": ("#E69F00", "--"),
    "default": ("#009E73", "-"),
    "none": ("#000000", "-"),
    "θ only": ("#56B4E9", "--"),
    "particles only": ("#E69F00", "-."),
    "both": ("#D55E00", "-"),
}


class Drawing(NamedTuple):
    """One figure of the report; its title and words are in `captions.toml`.

    Attributes:
        name: of its files and of its caption.
        needs: the experiments it is drawn from.
        draw: `draw(results) -> matplotlib Figure`.
    """

    name: str
    needs: tuple[str, ...]
    draw: Callable[[Results], Figure]


def short_name(label: str) -> str:
    """The method's name out of "column / name / kernel / detail"."""
    column, name, *_ = label.split(" / ")
    return "marginax" if column == "marginax" else name


def line_style(label: str) -> dict[str, Any]:
    """Colour, dash and width of a method, the same in every figure."""
    column, name, *_ = label.split(" / ")
    colour, dash = _STYLES[name]
    return {"color": colour, "linestyle": dash, "linewidth": 2.4 if column == "marginax" else 1.5}


def panels(
    rows: int, columns: int, *, height: float = 3.0, width: float = 11.0, **kwargs: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of report width and its axes, always as a matrix."""
    figure = Figure(figsize=(width, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False, **kwargs)
    return figure, axes


def boxes(ax: Any, counts: Sequence[np.ndarray], labels: Sequence[str], never: int) -> None:
    """Box plots of iterations, their means in words; `never` is drawn as a line."""
    drawn = ax.boxplot(
        list(counts),
        orientation="horizontal",
        widths=0.6,
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for box, label in zip(drawn["boxes"], labels, strict=True):
        box.set(facecolor=line_style(label)["color"], alpha=0.55)
    ax.set_yticks(range(1, len(labels) + 1), [short_name(label) for label in labels])
    ax.invert_yaxis()
    ax.axvline(never, color="grey", linestyle=":", linewidth=1)
    for position, values in enumerate(counts, start=1):
        reached = np.mean(values) < never
        words = f"{np.mean(values):.0f} ± {np.std(values):.0f}" if reached else "never"
        ax.annotate(
            words,
            (1.02, position),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7.5,
            annotation_clip=False,
        )
    ax.set_xlim(0, never * 1.03)


def heat_map(
    ax: Any,
    values: np.ndarray,
    rows: Sequence[Any],
    columns: Sequence[Any],
    *,
    low: float,
    high: float,
    form: str | None = None,
    never: float = np.inf,
    **labels: str,
) -> Any:
    """A matrix as colours, with its numbers if a format is given, and a dash for `never`."""
    ax.set_facecolor("#CCCCCC")
    image = ax.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto", origin="lower")
    every = 1 if len(columns) <= 10 else 3
    ax.set_xticks(range(0, len(columns), every), [f"{x:g}" for x in columns[::every]])
    every = 1 if len(rows) <= 10 else 3
    ax.set_yticks(range(0, len(rows), every), [f"{x:g}" for x in rows[::every]])
    ax.spines[:].set_visible(False)
    ax.set(**labels)
    if form is not None:
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                bright = (value - low) / (high - low) > 0.55
                ax.text(
                    j,
                    i,
                    format(value, form) if value < never else "–",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="black" if bright else "white",
                )
    return image

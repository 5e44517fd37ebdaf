"""How every figure looks: one style sheet, its colours, panels, and numbers that can be read.

The style sheet is `figures.mplstyle` beside this file, which `plt.style.use` knows as
"marginax.interop.figures": figures of your own, of the docs and of the paper's report look alike.
Importing this module needs no matplotlib; drawing does (`pip install "marginax[plot]"`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "BLUE",
    "COLORS",
    "GREY",
    "ORANGE",
    "PALE",
    "SKY",
    "Panel",
    "figure_of",
    "in_style",
    "legend_above",
    "parts_of",
    "readable",
    "readable_ticks",
    "shortened",
    "style",
]

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)
COLORS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, "#000000")
GREY, PALE = "#808080", "#A9CCE3"
LONGEST_ROW = 50  # letters of a legend
WIDTH = 5.0  # inches of a panel: letters are readable where it fills a telephone


class Panel(NamedTuple):
    """A part of a figure.

    Attributes:
        title: what it shows.
        height: in inches.
        draw: `draw(part)`, into a matplotlib SubFigure.
    """

    title: str
    height: float
    draw: Callable[[Any], None]


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError:
        raise ImportError(
            "Figures need matplotlib, which is not installed: `pip install 'marginax[plot]'`."
        ) from None
    return mpl


@lru_cache(1)
def style() -> Any:
    """The style sheet as matplotlib's parameters."""
    path = Path(__file__).with_name("figures.mplstyle")
    return _matplotlib().rc_params_from_file(path, use_default_template=False)


@contextmanager
def in_style() -> Iterator[None]:
    """Whatever is drawn inside has the style; a user's own settings are as before afterwards."""
    with _matplotlib().rc_context(style()):
        yield


def figure_of(panels: Sequence[Panel], columns: int = 2) -> Any:
    """A figure of panels, each below the shorter of the columns; a single one has no title.

    Args:
        panels: in the order of reading.
        columns: at most this many beside each other.
    """
    with in_style():
        from marginax.interop.notebook_figure import NotebookFigure

        stacks = _stacks(panels, min(columns, len(panels)))
        heights = [sum(panels[i].height for i in stack) for stack in stacks]
        figure = NotebookFigure(figsize=(WIDTH * len(stacks), max(heights)))
        for stack, height, column in zip(
            stacks, heights, figure.subfigures(1, len(stacks), squeeze=False)[0], strict=True
        ):
            blank = max(heights) - height
            ratios = [panels[i].height for i in stack] + [blank] * (blank > 0)
            parts = column.subfigures(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
            for i, part in zip(stack, parts, strict=False):
                part.set_label(panels[i].title)
                part.set_gid(str(i))
                if len(panels) > 1:
                    part.suptitle(panels[i].title, x=0.02, ha="left", weight="bold")
                panels[i].draw(part)
        return figure


def _stacks(panels: Sequence[Panel], columns: int) -> list[list[int]]:
    """Which panels stand below each other."""
    stacks: list[list[int]] = [[] for _ in range(columns)]
    for i in range(len(panels)):
        min(stacks, key=lambda stack: sum(panels[k].height for k in stack)).append(i)
    return stacks


def parts_of(figure: Any) -> list[tuple[str, Any]]:
    """The panels of a figure in their order: titles, and boxes in inches from the lower left."""
    parts = [part for column in figure.subfigs for part in column.subfigs if part.get_gid()]
    to_inches = figure.dpi_scale_trans.inverted()
    return [
        (str(part.get_label()), part.bbox.transformed(to_inches))
        for part in sorted(parts, key=lambda part: int(part.get_gid()))
    ]


def readable(value: float, digits: int = 3) -> str:
    """A number as one would write it: "0.742", "−1250", "2.5e−7"."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and 1e-4 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        front, _, power = f"{value:.{digits}g}".partition("e")
        text = f"{front}e{int(power)}" if power else front
    return text.replace("-", "−")


def readable_ticks(axis: Any, count: int = 5, room: int = 40) -> None:
    """At most this many ticks, at round numbers, written out; fewer where they are long.

    Args:
        axis: `ax.xaxis` or `ax.yaxis`, with its limits.
        count: of ticks.
        room: for how many letters a horizontal axis has room.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    is_log = bool(axis.get_scale() == "log" and high > 10 * low)
    locators = [_ticks(low, high, some, is_log) for some in range(count, 1, -1)]
    if axis.axis_name == "y":
        room = 1000
    fitting = (one for one in locators if _letters(one, low, high) <= room)
    axis.set_major_locator(next(fitting, locators[-1]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick_text(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _ticks(low: float, high: float, count: int, is_log: bool) -> Any:
    from matplotlib.ticker import MaxNLocator

    return _log_ticks(low, high, count) if is_log else MaxNLocator(count, steps=[1, 2, 2.5, 5, 10])


def _letters(locator: Any, low: float, high: float) -> int:
    ticks = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
    return sum(len(_tick_text(tick)) + 2 for tick in ticks)


def _tick_text(value: float) -> str:
    """A round number in full, or with a power of ten where that is much shorter."""
    text = readable(value, 10)
    if len(text) <= 6 or not value:
        return text
    front, _, power = f"{value:.9e}".partition("e")
    short = f"{front.rstrip('0').rstrip('.')}e{int(power)}".replace("-", "−")
    return short if len(short) < len(text) else text


def _log_ticks(low: float, high: float, count: int) -> Any:
    """1, 2 and 5 of every power of 10, or 1 alone, or every so many powers."""
    from matplotlib.ticker import FixedLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**k for k in powers for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= count:
            return FixedLocator(inside)
    return FixedLocator(inside[:: -(-len(inside) // count)])


def legend_above(ax: Any) -> None:
    """The legend above the axes, where it hides nothing, in as many rows as it needs."""
    labels = [str(label) for label in ax.get_legend_handles_labels()[1]]
    if not labels:
        return
    in_one_row = sum(map(len, labels)) + 3 * len(labels) <= LONGEST_ROW
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=len(labels) if in_one_row else 2,
        columnspacing=1.0,
        handlelength=1.4,
        borderpad=0.2,
    )


def shortened(text: Any, length: int = 26) -> str:
    """A label that leaves room for the picture."""
    words = str(text)
    return words if len(words) <= length else f"{words[: length - 1]}…"

"""Draws how data flows: `python docs/figures/flow.py` writes docs/_static/flow.svg.

One column, 380 units wide, so that its letters are those of the text on a telephone. It has its own
white ground, so that it reads in the dark theme too.
"""

from html import escape
from pathlib import Path

WIDTH, MARGIN, LINE, LEFT = 380, 10, 19, 44
BLUE, GREEN, INK, GREY = "#0072B2", "#009E73", "#1a1a1a", "#666666"

# Folders, what they do, their colour, and what they hand on.
STAGES = (
    (("model/",), ("the density, data, groups, transforms",), BLUE, "log joint: log p_θ(x, y)"),
    (("flows/scores",), ("its two gradients over a cloud",), BLUE, "scores"),
    (
        ("kernels/", "flows/"),
        ("Stein and Langevin moves, momentum,", "optimizers, metrics"),
        BLUE,
        "a direction, a move",
    ),
    (("algorithms/",), ("one file a method: init, step",), BLUE, "Algorithm"),
    (
        ("running/", "diagnostics/"),
        ("THE loop: stops, backtracks, saves;", "judges the cloud"),
        BLUE,
        "Run: θ and a cloud at rest",
    ),
    (
        ("likelihood/",),
        ("climbs log p_θ(y) by Newton's steps;", "its curvature, posterior draws"),
        GREEN,
        "Likelihood, information, draws",
    ),
    (("fitting/",), ("the plan, the stages, what to warn of",), GREEN, "Fit"),
    (
        ("formulas/",),
        ("a formula to linear algebra where that", "is exact, to a problem otherwise"),
        GREEN,
        "MixedFit",
    ),
    (("cli/",), ("a model or a formula, and a table, to a folder",), GREEN, ""),
)
BELOW = (
    ("_core/", "under all: trees, small matrices,"),
    ("", "compiled programs, files, checks"),
    ("interop/", "NumPyro models in, ArviZ data out"),
    ("models/", "known answers, for tests, examples"),
    ("reproduction/", "the paper's experiments, beside cli/"),
)


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A line of text, with theta as an index of p."""
    index = 'p<tspan dy="3" font-size="11">θ</tspan><tspan dy="-3">'
    before, found, after = escape(words, quote=False).partition("p_θ")
    words = f"{before}{index}{after}</tspan>" if found else before
    return f'<text x="{x:g}" y="{y:g}"{more}>{words}</text>'


def box(y: float, names: tuple[str, ...], lines: tuple[str, ...], colour: str) -> tuple[str, float]:
    """A box with the names of folders above what they do, and where it ends."""
    height = LINE * (1 + len(lines)) + 14
    drawn = [
        f'<rect x="{LEFT}" y="{y:g}" width="{WIDTH - MARGIN - LEFT}" height="{height}" rx="7" '
        f'fill="{"#f3faf7" if colour == GREEN else "#f2f7fb"}" stroke="{colour}" '
        'stroke-width="1.6"/>',
        text(LEFT + 11, y + LINE + 2, ", ".join(names), ' font-weight="bold"'),
    ]
    for i, line in enumerate(lines):
        drawn.append(text(LEFT + 11, y + LINE * (i + 2) + 2, line, ' font-size="14"'))
    return "\n".join(drawn), y + height


def arrow(y: float, word: str, colour: str) -> tuple[str, float]:
    """An arrow down with what is handed on beside it."""
    x, end = LEFT + 22, y + 26
    head = f"M{x} {y:g} V{end - 2:g} m-4.5 -5 l4.5 5.5 l4.5 -5.5"
    return (
        f'<path d="{head}" fill="none" stroke="{colour}" stroke-width="1.6"/>\n'
        + text(x + 12, y + 18, word, f' fill="{colour}" font-weight="bold" font-size="14"'),
        end,
    )


def bypass(top: float, bottom: float) -> str:
    """The log joint goes to the likelihood itself too, without the particles."""
    x = 26
    path = f"M{LEFT} {top:g} H{x} V{bottom:g} H{LEFT - 2} m-5 -4.5 l5.5 4.5 l-5.5 4.5"
    middle = (top + bottom) / 2
    turned = f' fill="{GREEN}" font-weight="bold" font-size="14" text-anchor="middle"'
    turned += f' transform="rotate(-90 {x - 8} {middle:g})"'
    return f'<path d="{path}" fill="none" stroke="{GREEN}" stroke-width="1.6"/>\n' + text(
        x - 8, middle, "the same log joint, without the particles", turned
    )


def draw() -> str:
    """The whole figure as text."""
    parts, y, middles = [], float(MARGIN), {}
    for names, lines, colour, word in STAGES:
        top = y
        drawn, y = box(y, names, lines, colour)
        parts.append(drawn)
        middles[names] = (top + y) / 2
        if word:
            drawn, y = arrow(y, word, colour)
            parts.append(drawn)
    parts.append(bypass(middles[("model/",)], middles[("likelihood/",)]))
    y += 12
    for name, words in BELOW:
        y += LINE
        parts.append(text(MARGIN, y, name, f' font-weight="bold" font-size="13" fill="{GREY}"'))
        parts.append(text(120, y, words, f' font-size="13" fill="{GREY}"'))
    height = y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" font-family="sans-serif" font-size="15" '
        f'fill="{INK}">\n<rect width="{WIDTH}" height="{height:g}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


path = Path(__file__).parents[1] / "_static" / "flow.svg"
path.write_text(draw(), encoding="utf-8")
print(path.name, path.stat().st_size, "bytes")

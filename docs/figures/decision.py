"""Draws the decision figure: `python docs/figures/decision.py` writes docs/_static/decision.svg.

One column, 380 units wide, so that its letters are those of the text on a telephone. It has its own
white ground, so that it reads in the dark theme too.
"""

from html import escape
from pathlib import Path

WIDTH, MARGIN, LINE = 380, 10, 19
BLUE, GREEN, INK = "#0072B2", "#009E73", "#1a1a1a"

# A question, the answer that ends the search, what to take then, and the answer that goes on.
STEPS = (
    (
        ("Do you want an estimate with", "standard errors and a likelihood?"),
        "yes",
        ("mx.fit(problem, key=key)", "chooses all that follows by rule"),
        "no, an algorithm by hand",
    ),
    (
        ("Do the latents fall into groups that", "are independent given θ and y?"),
        "yes",
        (
            'tuning_free(..., blocks="leading")',
            "a kernel and curvature per group",
            "N: 20, or more than a group's numbers",
        ),
        "no: one block of D numbers",
    ),
    (
        ("Is D at most about 150?",),
        "yes",
        ("tuning_free(...), one block", "N: more than D; fit takes 1.25 D + 2"),
        "no, larger",
    ),
    (
        ("Is D at most about 1,000?",),
        "yes",
        ('the same, blocks="coordinates"', "N: 20; no correlations in the cloud"),
        "no, larger still",
    ),
)
LAST = ("mpgd, started from such a cloud", "N: 20 and more; θ is averaged over steps")


def box(x: float, y: float, lines: tuple[str, ...], colour: str, code: bool) -> tuple[str, float]:
    """A box with lines of text, and where it ends."""
    height = LINE * len(lines) + 16
    drawn = [
        f'<rect x="{x}" y="{y}" width="{WIDTH - MARGIN - x}" height="{height}" rx="7" '
        f'fill="{"#f3faf7" if code else "#f2f7fb"}" stroke="{colour}" stroke-width="1.6"/>'
    ]
    for i, line in enumerate(lines):
        weight = "bold" if code and i == 0 else "normal"
        drawn.append(
            f'<text x="{x + 11}" y="{y + 8 + LINE * (i + 1) - 5}" font-weight="{weight}">'
            f"{escape(line)}</text>"
        )
    return "\n".join(drawn), y + height


def arrow(x: float, y: float, word: str, colour: str) -> tuple[str, float]:
    """An arrow down with a word beside it."""
    end = y + 26
    return (
        f'<path d="M{x} {y} V{end - 2} m-4.5 -5 l4.5 5.5 l4.5 -5.5" fill="none" stroke="{colour}" '
        f'stroke-width="1.6"/>\n<text x="{x + 12}" y="{y + 18}" fill="{colour}" '
        f'font-weight="bold">{escape(word)}</text>',
        end,
    )


def draw() -> str:
    """The whole figure as text."""
    parts, y = [], float(MARGIN)
    for question, word, take, other in STEPS:
        drawn, y = box(MARGIN, y, question, BLUE, code=False)
        parts.append(drawn)
        top = y
        drawn, y = arrow(70, y, word, GREEN)
        parts.append(drawn)
        drawn, y = box(48, y, take, GREEN, code=True)
        parts.append(drawn)
        parts.append(f'<path d="M28 {top} V{y}" stroke="{BLUE}" stroke-width="1.6"/>')
        drawn, y = arrow(28, y, other, BLUE)
        parts.append(drawn)
    drawn, y = box(MARGIN, y, LAST, GREEN, code=True)
    parts.append(drawn)
    height = y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" font-family="sans-serif" font-size="15" '
        f'fill="{INK}">\n<rect width="{WIDTH}" height="{height:g}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


path = Path(__file__).parents[1] / "_static" / "decision.svg"
path.write_text(draw(), encoding="utf-8")
print(path.name, path.stat().st_size, "bytes")

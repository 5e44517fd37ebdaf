"""The table of methods in docs/api/algorithms.md, from the code: `python docs/method_table.py`.

Calls come from the constructors' signatures, papers from the first reference of each file; a
configuration of this library has none of its own.
"""

import inspect
import re
import sys
from pathlib import Path

import marginax as mx

PAGE = Path(__file__).parent / "api" / "algorithms.md"
BEGIN, END = "<!-- made by docs/method_table.py -->\n", "<!-- end of the table -->"
# How theta moves, and how the particles do.
MOVES = {
    "tuning_free": ("accelerated Newton steps", "accelerated Stein flow in the curvature"),
    "m_svgd_em": ("accelerated ascent", "accelerated Stein flow"),
    "svgd_em": ("ascent", "Stein flow"),
    "asvgd_em": ("ascent", "accelerated Stein flow with momenta"),
    "coin_em": ("coin betting", "Stein flow, coin betting"),
    "pgd": ("ascent", "Langevin"),
    "pqn": ("Newton", "Langevin"),
    "mpgd": ("momentum", "underdamped Langevin"),
    "soul": ("ascent", "one Langevin chain"),
    "ipla": ("Langevin", "Langevin"),
    "jala_em": ("weighted ascent", "Langevin with weights"),
    "mcem": ("any M-step", "adjusted Langevin chains"),
    "adjusted_pmgd": ("exact maximum", "adjusted Langevin, all at once"),
    "kipla": ("underdamped Langevin", "underdamped Langevin"),
}


def call(name: str) -> str:
    """The constructor with the arguments that have no default."""
    parameters = inspect.signature(getattr(mx, name)).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty]
    return f"{name}({', '.join(needed)})"


def paper(name: str) -> str:
    """Authors and year of the first reference in the file's docstring."""
    if name == "tuning_free":
        return "here: M-SVGD-EM, nothing to tune"
    words = " ".join((sys.modules[f"marginax.algorithms._{name}"].__doc__ or "").split())
    found = re.search(r"References: (.+?) \((\d{4})\)", words)
    assert found is not None, f"algorithms/_{name}.py has no reference with a year"
    authors, year = found.groups()
    first, *others = re.split(r", | and ", authors)
    return f"{first} {f'and {others[0]}' if len(others) == 1 else 'et al.'} {year}"


def table() -> str:
    """In Markdown."""
    rows = ["| constructor | θ | particles | paper |", "|---|---|---|---|"]
    for name, (theta, particles) in MOVES.items():
        rows.append(f"| `{call(name)}` | {theta} | {particles} | {paper(name)} |")
        if name == "pgd":
            exact = call(name).replace("theta_optimizer", "exact_m_step(maximizer)")
            rows.append(f"| `{exact}` (PMGD) | exact maximum | {particles} | {paper(name)} |")
    return "\n".join(rows) + "\n"


def written(page: str) -> str:
    """The page with the table as it should be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))

"""Figures of `paper.md`, from the reference report's tables: `python docs/figures/paper.py`."""

import csv

import matplotlib.pyplot as plt
import numpy as np
from toy import STATIC, style

from marginax.reproduction.columns import PUBLISHED, WRITTEN, stein_name
from marginax.reproduction.figures.style import line_style, short_name

TABLES = STATIC.parent / "reference" / "paper" / "csv"
STEIN = [stein_name(momentum) for momentum in (0.0, 0.3, 0.5, 0.9)]
NEVER = 1000


def read(name: str) -> dict[str, np.ndarray]:
    """A table of the report, with the variances that the paper's Figure 1 has."""
    with open(TABLES / f"toy_methods_{name}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
    return {key.removesuffix(" | 12/12"): value for key, value in columns.items()}


def methods(column: str) -> list[str]:
    """The labels of a column of the report, from above to below."""
    labels = [f"{column} / {name} / RBF" for name in STEIN]
    labels += [f"{WRITTEN} / PGD", f"{column} / MPGD", f"{column} / SOUL"]
    return labels + ["marginax / default"] * (column == WRITTEN)


def draw_errors(ax, column: str) -> None:
    """The squared error, a mean over the trials, against the step."""
    table = read("squared_error")
    for label in methods(column):
        ax.loglog(table["step"], table[label], label=short_name(label), **line_style(label))
    ax.set(ylim=(1e-9, 1e3), xlabel="step", ylabel="mean squared error of θ")
    ax.legend(loc="lower left", fontsize=10, labelspacing=0.25)


def draw_iterations(ax, column: str) -> None:
    """Steps until theta is near, and their mean over the trials beside the name."""
    table = read("iterations")
    labels = methods(column)[::-1]
    counts = [table[label] for label in labels]
    drawn = ax.boxplot(counts, orientation="horizontal", patch_artist=True, widths=0.6)
    for box, middle, label in zip(drawn["boxes"], drawn["medians"], labels, strict=True):
        box.set_facecolor(line_style(label)["color"])
        box.set_alpha(0.6)
        middle.set_color("black")
    means = [f"{table[label].mean():.0f}" for label in labels]
    names = [f"{short_name(label)}: {mean}" for label, mean in zip(labels, means, strict=True)]
    ax.set_yticks(range(1, len(labels) + 1), names)
    ax.set(xlim=(0, NEVER * 1.02), xlabel="steps until |θ − ȳ| < 0.05")
    ax.set_xticks((0, 250, 500, 750, NEVER))


style()
for column, name, words in (
    (PUBLISHED, "published", "The released code"),
    (WRITTEN, "written", "Algorithm 1 as written, and marginax"),
):
    for kind, draw in (("error", draw_errors), ("iterations", draw_iterations)):
        figure, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
        draw(ax, column)
        ax.set_title(words)
        figure.savefig(STATIC / f"paper_{kind}_{name}.png")
        plt.close(figure)

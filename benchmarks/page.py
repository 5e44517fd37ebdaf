"""The documentation's page of results, `docs/benchmarks.md`, and its figures: made from the JSON.

The words are in `page.md` beside this file. `python -m benchmarks.page` measures nothing anew.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import baseline, compilations, time_to_accuracy
from benchmarks.tables import RESULTS, markdown

__all__ = ["write"]

DOCS = Path(__file__).parents[1] / "docs"
AXES = {"particles": "particles N", "dimension": "dimension D", "groups": "groups G"}
TEMPLATE = Path(__file__).parent / "page.md"


def write(found: dict) -> None:
    """The page and both figures."""
    figures(found)
    committed = baseline.read()
    rows = [{"name": k, "now": v, "before": committed.get(k)} for k, v in found["ratios"].items()]
    columns = {
        "ratio": lambda row: row["name"],
        "this run": lambda row: f"{row['now']:.2f}",
        "baseline": lambda row: "–" if row["before"] is None else f"{row['before']:.2f}",
    }
    growth = {
        "axis": lambda row: row["axis"],
        "precision": lambda row: row["dtype"],
        "size": lambda row: f"{row['size']:,}",
        "seconds a step": lambda row: f"{row['seconds']:.3g}",
        "temporary MB": lambda row: f"{row['bytes'] / 1e6:.1f}",
        "log-log slope": lambda row: f"{row['slope']:.2f}",
        "off the law": lambda row: f"{row['deviation']:+.0%}",
    }
    text = TEMPLATE.read_text().format(
        allowed=baseline.ALLOWED,
        machine=f"Here: JAX {found['jax']}, {found['device']}",
        ratios=markdown(rows, columns),
        growth=markdown(found["growth"], growth),
        accuracy=markdown(found["time_to_accuracy"], time_to_accuracy.COLUMNS),
        compilations=_compilations(found["compilations"]),
    )
    (DOCS / "benchmarks.md").write_text(text)


def _compilations(rows: list[dict]) -> str:
    """Totals in words and the longest programs of the first fit as a table."""
    words = []
    for name in ("first", "other data", "the same again"):
        mine = [row for row in rows if row["fit"] == name]
        count, spent = sum(r["count"] for r in mine), sum(r["seconds"] for r in mine)
        words.append(f"{name}: {count} programs, {spent:.1f} s" if mine else f"{name}: none")
    longest = [row for row in rows if row["seconds"] >= 0.05]
    table = markdown(longest, compilations.COLUMNS)
    return (
        "A Poisson model with 30 groups; the first fit of a process, one of other data with the "
        f"same function, and the same again. {'; '.join(words)}. Those of 0.05 s and more:\n\n"
        f"{table}"
    )


def figures(found: dict) -> None:
    """Time and memory of a step, and its growth over the power law."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    plt.style.use("marginax.interop.figures")
    figure, panels = plt.subplots(2, 3, figsize=(7, 4.6), sharex="col", layout="constrained")
    for column, (axis, label) in enumerate(AXES.items()):
        rows = [row for row in found["scaling"] if row["axis"] == axis]
        sizes = [row["size"] for row in rows]
        for panel, values in zip(
            panels[:, column],
            ([1e3 * r["seconds"] for r in rows], [r["temporary_bytes"] / 1e6 for r in rows]),
            strict=True,
        ):
            panel.loglog(sizes, values, "o-", ms=4)
            panel.grid(alpha=0.3)
            panel.yaxis.set_major_formatter("{x:g}")
            narrow = max(values) < 100 * min(values)  # few powers of ten to label, or none
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
            panel.yaxis.set_minor_formatter("")
        panels[1, column].set_xlabel(label)
    panels[0, 0].set_ylabel("milliseconds a step")
    panels[1, 0].set_ylabel("temporary MB")
    _save(figure, "scaling")

    figure, panels = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
    for panel, axis in zip(panels, ("particles", "groups"), strict=True):
        for dtype in ("float32", "float64"):
            rows = [r for r in found["growth"] if (r["axis"], r["dtype"]) == (axis, dtype)]
            if rows:
                ratio = [1 + r["deviation"] for r in rows]
                panel.semilogx([r["size"] for r in rows], ratio, "o-", ms=4, label=dtype)
        panel.axhspan(0.9, 1.1, color="grey", alpha=0.2, label="within 10 %")
        panel.set(ylim=(0.83, 1.17), xlabel=AXES[axis])
        sizes = [r["size"] for r in found["growth"] if r["axis"] == axis]
        if max(sizes) < 100 * min(sizes):  # one power of ten says little
            panel.set_xticks(sorted(set(sizes)), [f"{size:,}" for size in sorted(set(sizes))])
        panel.xaxis.set_minor_formatter("")
        panel.set_title("time / c N²" if axis == "particles" else "time / c G", fontsize=10)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, ncols=3, loc="lower left", columnspacing=0.9, handlelength=1.5)
    _save(figure, "growth")


def _save(figure: Any, name: str) -> None:
    figure.savefig(DOCS / "_static" / f"{name}.png", dpi=110)


if __name__ == "__main__":
    write(json.loads((RESULTS / "bench.json").read_text()))

"""Where long benchmarks leave their results: a JSON file of rows and the same as Markdown."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

__all__ = ["markdown", "save"]

RESULTS = Path(__file__).parent / "results"

Columns = dict[str, Callable[[dict], str]]


def markdown(rows: list[dict], columns: Columns) -> str:
    """A Markdown table.

    Args:
        rows: one dict each.
        columns: for every heading, how to write its cell of a row.
    """
    lines = [" | ".join(columns), "|".join("---" for _ in columns)]
    lines += [" | ".join(cell(row) for cell in columns.values()) for row in rows]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def save(name: str, words: str, rows: list[dict], columns: Columns, **settings: Any) -> None:
    """Writes `results/name.json` and `results/name.md`; called after every row, so none is lost.

    Args:
        name: of the files.
        words: what stands above the table.
        rows: as in `markdown`.
        columns: as in `markdown`.
        settings: what else the JSON file should hold.
    """
    RESULTS.mkdir(exist_ok=True)
    device = f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores"
    whole = {"jax": jax.__version__, "device": device, **settings, "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    text = f"{words}\n\n{markdown(rows, columns)}\n\njax {jax.__version__}, {device}.\n"
    (RESULTS / f"{name}.md").write_text(text)

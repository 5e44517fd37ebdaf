"""CSV files as columns, strictly: a gap or a stray word in a column of numbers is an error.

Models take what they are given. A missing value that became NaN, or a column of numbers that a
typing error turned into text and then into codes, would be fitted without a murmur.
"""

import csv
import math
from pathlib import Path

import numpy as np

__all__ = ["read_csv"]

GAPS = ("", "na", "nan", "n/a", "null", "none", ".")


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns by the names in the first line, as int64, float64 or text."""
    try:
        header, rows, lines = _rows(path)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8. Save it as CSV in UTF-8.") from None
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file that can be read: {error}.") from None
    if not rows:
        raise ValueError(f"{path} has a header but 0 rows. There is nothing to fit.")
    columns = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        if name:  # R writes the numbers of the rows without one
            columns[name] = _column(path, name, [cell.strip() for cell in cells], lines)
    return columns


def _rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line in the file that every row ends on."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        header = [name.strip() for name in next(reader, [])]
        _check_header(path, header)
        rows, lines = [], []
        empty = 0
        for cells in reader:
            if not cells:
                empty = empty or reader.line_num
                continue
            if empty:
                raise ValueError(f"{path} has an empty line {empty} between rows. Take it out.")
            if len(cells) != len(header):
                raise ValueError(
                    f"{path} has {len(cells)} cells in line {reader.line_num}, but its header has "
                    f"{len(header)} columns. Every row needs as many; text with commas, quotes."
                )
            rows.append(cells)
            lines.append(reader.line_num)
    return header, rows, lines


def _check_header(path: Path, header: list[str]) -> None:
    if not any(header):
        raise ValueError(f"{path} has no names of columns in its first line. Write them there.")
    if len(header) == 1 and any(mark in header[0] for mark in (";", "\t")):
        mark = "semicolons" if ";" in header[0] else "tabs"
        raise ValueError(f"{path} has {mark} between its cells. Save it with commas.")
    twice = [name for name in header if name and header.count(name) > 1]
    if twice:
        raise ValueError(f"{path} has two columns named {twice[0]!r}. Rename one of them.")
    if all(_number(name) is not None for name in header):
        raise ValueError(
            f"{path} has numbers in its first line, where the names of the columns belong. Put a "
            "header there."
        )


def _column(path: Path, name: str, cells: list[str], lines: list[int]) -> np.ndarray:
    """A column of numbers if all its cells are, of text if most are not."""
    numbers = [_number(cell) for cell in cells]
    bad = [i for i, number in enumerate(numbers) if number is None or not math.isfinite(number)]
    if not bad:
        whole = all(isinstance(number, int) and abs(number) < 2**63 for number in numbers)
        return np.array(numbers, np.int64 if whole else np.float64)
    gaps = [i for i in bad if cells[i].lower() in GAPS or numbers[i] is not None]
    words = len(bad) - len(gaps)
    if not words:
        if len(gaps) == len(cells):
            raise ValueError(f"{path}: column {name!r} has no values. Leave it out.")
        raise ValueError(
            f"{path}: column {name!r} has {cells[gaps[0]] or 'nothing'} in {_row(gaps[0], lines)}, "
            "but a model needs a finite number there. Fill it in, or leave the row out."
        )
    if words < len(cells) - len(bad):
        stray = next(i for i in bad if i not in gaps)
        raise ValueError(
            f"{path}: column {name!r} has {cells[stray]!r} in {_row(stray, lines)}, but numbers in "
            "most others. Correct it, or leave the row out; labels should not look like numbers."
        )
    if all(cell.lower() in ("true", "false") for cell in cells):
        return np.array([cell.lower() == "true" for cell in cells], np.int64)
    return np.array(cells, str)


def _row(index: int, lines: list[int]) -> str:
    return f"row {index + 1} (line {lines[index]})"


def _number(cell: str) -> int | float | None:
    if "_" in cell:  # Python reads 1_000 as a number, nobody else does
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return None

"""Data files as columns: .csv, .npz and .parquet, with every reason to refuse one in a sentence.

Strictly: models take what they are given. A missing value that became NaN, or a column of numbers
that a typing error turned into text and then into codes, would be fitted without a murmur.
"""

import csv
import difflib
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from marginax.model.groups import padded

__all__ = [
    "Columns",
    "NoColumn",
    "by_group",
    "check_pyarrow",
    "listed",
    "nearest",
    "read_csv",
    "read_table",
]


MOST_LISTED = 30  # names that a sentence can bear
SAFE_PYARROW = (14, 0, 1)  # before it a file could bring code that was run, CVE-2023-47248


class NoColumn(KeyError, ValueError):
    """A column that is not there; a KeyError too, so that a model may look for it and go on."""

    def __str__(self) -> str:
        return str(self.args[0])


class Columns(dict[str, np.ndarray]):
    """The columns of a table by name; asking for one that is not there names the nearest."""

    def __missing__(self, name: str) -> np.ndarray:
        raise NoColumn(
            f"There is no column {name!r}; there are {listed(self)}.{nearest(name, self)}"
        )


def listed(names: Iterable[str]) -> str:
    """The names in a sentence; of very many, how many there are and the first."""
    names = list(names)
    some = ", ".join(names[:MOST_LISTED])
    return some if len(names) <= MOST_LISTED else f"{some}, ... ({len(names)} in all)"


def nearest(name: str, names: Iterable[str]) -> str:
    """The question whether another name was meant, with a space before it; or nothing."""
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), lower, 1, 0.5)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def read_table(path: Path) -> Columns:
    """The columns of a file, checked: numbers are finite, float64 or int64; text is text."""
    readers = {".csv": read_csv, ".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"{path}: data come from {', '.join(readers)} files. Save the table as one of these."
        )
    try:
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty. Give a file with a header and rows.")
        columns = readers[path.suffix.lower()](path)
    except OSError as error:
        # For whoever types a command a wrong path is bad input, not a failure of the machine.
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{path} cannot be read: {reason}. Check the path after --data.") from None
    if not columns:
        raise ValueError(f"{path} has no columns. Give a file with at least one.")
    return Columns({name: _checked(path, name, values) for name, values in columns.items()})


def by_group(table: Columns, group: str) -> Columns:
    """Rows gathered by the values of one column: [groups, largest group], and a mask.

    The column itself becomes the labels of the groups, one each.
    """
    labels = table[group]
    if "mask" in table:
        raise ValueError(
            "--group makes a column 'mask', 1 for rows and 0 for padding, but the data have one of "
            "that name already. Rename it."
        )
    gathered = Columns({group: np.unique(labels), "mask": padded(labels, {})["mask"]})
    for name, values in table.items():
        if values.shape[:1] != labels.shape:
            raise ValueError(
                f"Column {name!r} has shape {values.shape}, but --group {group} needs a value for "
                f"each of {len(labels)} rows in every column."
            )
        if name != group:
            gathered[name] = padded(labels, {"values": values})["values"]
    return gathered


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array without a name")
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        reason = "it holds Python objects" if "Object arrays" in str(error) else str(error)
        raise ValueError(
            f"{path} is not an .npz file of plain arrays ({reason}). Write it with numpy.savez."
        ) from None


def check_pyarrow(path: Path) -> None:
    """Refuses to read a file by a pyarrow that runs what the file says."""
    try:
        here = version("pyarrow")
    except PackageNotFoundError:
        return
    if tuple(map(int, re.findall(r"\d+", here)[:3])) < SAFE_PYARROW:
        raise ValueError(
            f"{path} is not read: pyarrow {here} may run code from a parquet file "
            "(CVE-2023-47248). `pip install -U pyarrow`, or save the table as .csv."
        )


def _read_parquet(path: Path) -> dict[str, Any]:
    check_pyarrow(path)
    try:
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return _read_parquet_by_pandas(path)
    try:
        table = pyarrow.parquet.read_table(path)
        return {name: table[name].to_numpy() for name in table.column_names}
    except pyarrow.lib.ArrowException as error:
        raise ValueError(f"{path} is not a parquet file that can be read: {error}") from None


def _read_parquet_by_pandas(path: Path) -> dict[str, Any]:
    try:
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]

        frame = pandas.read_parquet(path)
    except ImportError:
        raise ImportError(
            f"Reading {path} needs pyarrow, which is not installed: `pip install pyarrow`, or save "
            "the table as .csv."
        ) from None
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _checked(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """A column as float64, int64 or text, without gaps."""
    if values.size == 0:
        raise ValueError(f"{path} has a column {name!r} with 0 rows. There is nothing to fit.")
    if values.dtype.kind == "O":
        gaps = [i for i, value in enumerate(values) if value is None or value != value]
        if gaps:
            raise ValueError(
                f"{path}: column {name!r} has no value in row {gaps[0] + 1}. Fill it in, or leave "
                "the row out."
            )
        if all(isinstance(value, str) for value in values):
            return np.array(list(values), str)
    if values.dtype.kind not in "fiubU":
        raise ValueError(
            f"{path}: column {name!r} has dtype {values.dtype}, but columns must be real numbers "
            "or text. Convert it first, or leave it out."
        )
    if values.dtype.kind == "f":
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            row = bad[0][0] + 1 if values.ndim else 1
            raise ValueError(
                f"{path}: column {name!r} is {values[tuple(bad[0])]} in row {row}, but a model "
                "needs a finite number there. Fill it in, or leave the row out."
            )
        return values.astype(np.float64)
    return values if values.dtype.kind == "U" else values.astype(np.int64)


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
    counts = Counter(header)
    twice = [name for name in header if name and counts[name] > 1]
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
    if all(number is not None and math.isfinite(number) for number in numbers):
        whole = all(isinstance(number, int) and abs(number) < 2**63 for number in numbers)
        return np.array(numbers, np.int64 if whole else np.float64)
    _check_words(path, name, cells, numbers, lines)
    if all(cell.lower() in ("true", "false") for cell in cells):
        return np.array([cell.lower() == "true" for cell in cells], np.int64)
    return np.array(cells, str)


def _check_words(
    path: Path, name: str, cells: list[str], numbers: list[Any], lines: list[int]
) -> None:
    """Refuses gaps among numbers, and stray words among them; a column of text passes."""
    good = sum(number is not None and math.isfinite(number) for number in numbers)
    gaps = [i for i, cell in enumerate(cells) if _is_gap(cell, numbers[i])]
    without_value = set(gaps)
    words = [i for i, x in enumerate(numbers) if x is None and i not in without_value]
    if len(gaps) == len(cells):
        raise ValueError(f"{path}: column {name!r} has no values. Leave it out.")
    if not words:
        raise ValueError(
            f"{path}: column {name!r} has {cells[gaps[0]] or 'nothing'} in {_row(gaps[0], lines)}, "
            "but a model needs a finite number there. Fill it in, or leave the row out."
        )
    if len(words) < good:
        raise ValueError(
            f"{path}: column {name!r} has {cells[words[0]]!r} in {_row(words[0], lines)}, but "
            "numbers in most others. Correct it, or leave the row out; labels should not look like "
            "numbers."
        )


def _is_gap(cell: str, number: int | float | None) -> bool:
    """Whether a cell has no value: empty, a word for it, or a number that is not finite."""
    return cell.lower() in GAPS or (number is not None and not math.isfinite(number))


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

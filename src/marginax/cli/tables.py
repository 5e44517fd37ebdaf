"""Data files as columns: .csv, .npz and .parquet, with every reason to refuse one in a sentence."""

import difflib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from marginax.cli.csv_columns import read_csv
from marginax.groups import pad_groups

__all__ = ["Columns", "NoColumn", "by_group", "nearest", "read_table"]


class NoColumn(KeyError, ValueError):
    """A column that is not there; a KeyError too, so that a model may look for it and go on."""

    def __str__(self) -> str:
        return str(self.args[0])


class Columns(dict[str, np.ndarray]):
    """The columns of a table by name; asking for one that is not there names the nearest."""

    def __missing__(self, name: str) -> np.ndarray:
        raise NoColumn(
            f"There is no column {name!r}; there are {', '.join(self)}.{nearest(name, self)}"
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """The question whether another name was meant, with a space before it; or nothing."""
    lower = {known.lower(): known for known in names}
    found = difflib.get_close_matches(str(name).lower(), lower, 1, 0.5)
    return f" Did you mean {lower[found[0]]!r}?" if found else ""


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
    gathered = Columns({group: np.unique(labels), "mask": pad_groups(labels)["mask"]})
    for name, values in table.items():
        if values.shape[:1] != labels.shape:
            raise ValueError(
                f"Column {name!r} has shape {values.shape}, but --group {group} needs a value for "
                f"each of {len(labels)} rows in every column."
            )
        if name != group:
            gathered[name] = pad_groups(labels, values=values)["values"]
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


def _read_parquet(path: Path) -> dict[str, Any]:
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

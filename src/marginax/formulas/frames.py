"""Tables: any dataframe in, the columns that a formula names, and tables of the same kind out.

pandas, polars, PyArrow and all else that narwhals knows are read alike, and so is a dict of
columns. Rows with a gap in a column that is used are left out, and said.
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Table", "imported", "read_columns", "table_like"]

MOST_LISTED = 12
HOW = "`pip install 'marginax[mixed]'`"


class Table(NamedTuple):
    """The columns that a formula uses.

    Attributes:
        frame: a pandas DataFrame of them, without rows that have gaps.
        rows: which rows of the given table these are.
        notes: what was left out, in sentences.
        backend: the library of the given table, for results.
    """

    frame: Any
    rows: np.ndarray
    notes: tuple[str, ...]
    backend: Any


def imported(name: str) -> Any:
    """A package of the extra `mixed`, or a sentence about how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"A formula needs {name}, which is not installed: {HOW} brings all it needs."
        ) from None


def read_columns(
    data: Any, names: Mapping[str, str], *, optional: Iterable[str] = (), what: str = "data"
) -> Table:
    """The columns of a table that a formula uses.

    Args:
        data: any dataframe, or a dict of columns.
        names: the columns, each with what it is used for, in words.
        optional: those that need not be there, and whose gaps do not matter.
        what: how to speak of the table.
    """
    pandas = imported("pandas")
    frame, backend = _as_narwhals(data, what)
    if len(frame) == 0:
        raise ValueError(f"The {what} have no rows. There is nothing to do.")
    optional = set(optional)
    there = [name for name in names if name in frame.columns or name not in optional]
    columns = {name: _column(frame, name, names[name], what) for name in there}
    table = pandas.DataFrame(columns)
    gaps = np.zeros(len(table), bool)
    for name in there:
        missing = np.asarray(table[name].isna())
        if missing.all():
            raise ValueError(
                f"The column {name!r} ({names[name]}) has no value in any of {len(table)} rows. "
                "Fill it in, or take it out of the formula."
            )
        gaps |= missing & (name not in optional)
    if gaps.all():
        raise ValueError(
            f"Every row of the {what} has a gap in one of {_listed(there)}: nothing is left. Fill "
            "them in, or take columns out of the formula."
        )
    notes = []
    if gaps.any():
        where = [name for name in there if table[name].isna().any()]
        notes.append(
            f"{gaps.sum()} of {len(table)} rows were left out: they have no value in "
            f"{_listed(where)}."
        )
    rows = np.flatnonzero(~gaps)
    return Table(table.iloc[rows].reset_index(drop=True), rows, tuple(notes), backend)


def _as_narwhals(data: Any, what: str) -> tuple[Any, Any]:
    narwhals, pandas = imported("narwhals"), imported("pandas")
    if isinstance(data, Mapping):
        lengths = {str(name): np.shape(values)[:1] for name, values in data.items()}
        if len(set(lengths.values())) > 1 or () in lengths.values():
            raise ValueError(
                f"The columns of the {what} have different lengths: "
                + ", ".join(f"{name} {size[0] if size else 1}" for name, size in lengths.items())
                + "."
            )
        data = pandas.DataFrame({name: list(values) for name, values in data.items()})
    try:
        frame = narwhals.from_native(data)
    except TypeError:
        raise TypeError(
            f"The {what} are a {type(data).__name__}; they must be a dataframe (pandas, polars, "
            "PyArrow, ...) or a dict of columns."
        ) from None
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame, frame.implementation


def _column(frame: Any, name: str, use: str, what: str) -> Any:
    narwhals, pandas = imported("narwhals"), imported("pandas")
    if name not in frame.columns:
        raise ValueError(
            f"There is no column {name!r} ({use}) in the {what}; there are "
            f"{_listed(frame.columns)}.{_nearest(name, frame.columns)}"
        )
    if list(frame.columns).count(name) > 1:
        raise ValueError(f"The {what} have two columns {name!r}. Rename one of them.")
    series = frame[name]
    kind = series.dtype
    if kind.is_numeric() or kind == narwhals.Boolean:
        values = np.asarray(series.to_numpy())
        if values.dtype == object:  # numbers or booleans with gaps
            values = np.array([np.nan if x is None or x is pandas.NA else x for x in values], float)
        if values.dtype == bool:
            values = values.astype(np.int64)
        _check_finite(values, name, use)
        return values
    if isinstance(kind, narwhals.Categorical | narwhals.Enum):
        return _categories(series)
    if kind not in (narwhals.String, narwhals.Object):
        raise ValueError(
            f"The column {name!r} ({use}) holds {kind}: a formula takes numbers, text and "
            "categories. Convert it first, dates to a number of days for instance."
        )
    return np.array([None if _is_gap(x) else str(x) for x in series.to_list()], object)


def _categories(series: Any) -> Any:
    """Categories in their own order where that is meant, and otherwise sorted."""
    narwhals, pandas = imported("narwhals"), imported("pandas")
    values = [None if _is_gap(x) else str(x) for x in series.to_list()]
    if isinstance(series.dtype, narwhals.Enum):
        levels = [str(x) for x in series.dtype.categories]
    elif series.implementation.is_pandas():
        levels = [str(x) for x in series.to_native().cat.categories]
    else:
        return np.array(values, object)
    seen = set(values)
    # Ordered, since formulae sorts the levels of others.
    return pandas.Categorical(values, [level for level in levels if level in seen], ordered=True)


def _is_gap(value: Any) -> bool:
    return value is None or value != value


def _check_finite(values: np.ndarray, name: str, use: str) -> None:
    if values.dtype.kind == "f" and np.any(np.isinf(values)):
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(
            f"The column {name!r} ({use}) is infinite in row {row + 1} (counted from 1). Correct "
            "it, or leave the row out."
        )


def table_like(columns: Mapping[str, Sequence[Any] | np.ndarray], backend: Any) -> Any:
    """A table of results in the library that the data came in."""
    narwhals = imported("narwhals")
    plain = {name: np.asarray(values).tolist() for name, values in columns.items()}
    return narwhals.from_dict(plain, backend=backend).to_native()


def _listed(names: Iterable[str]) -> str:
    names = [str(name) for name in names]
    some = ", ".join(names[:MOST_LISTED])
    return some if len(names) <= MOST_LISTED else f"{some}, ... ({len(names)} in all)"


def _nearest(name: str, names: Iterable[str]) -> str:
    lower = {str(known).lower(): str(known) for known in names}
    near = difflib.get_close_matches(name.lower(), lower, 1, 0.5)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""

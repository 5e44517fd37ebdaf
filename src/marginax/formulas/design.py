"""From a formula and a table to numbers: response, fixed effects, random effects, offset, weights.

The columns of the fixed effects, and of the left sides of the bars, are made by the formulae
package, which also remembers how, so that new data get the same columns (`Design.columns_of`).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.expressions import (
    labels_of,
    made_of,
    matrix_of,
    matrix_of_new,
    names_of,
    offset_apart,
)
from marginax.formulas.frames import Table, imported, read_columns
from marginax.formulas.parsing import Formula
from marginax.formulas.random_terms import Group, groups_of, groups_of_new
from marginax.formulas.responses import Response, response_of, response_parts

__all__ = ["Columns", "Design", "make_design"]

MOST_LEVELS = 200  # of a categorical column among the fixed effects


class Columns(NamedTuple):
    """What a formula makes of a table, beside the response.

    Attributes:
        fixed: X.
        offset: of every row.
        groups: with their rows.
    """

    fixed: np.ndarray
    offset: np.ndarray
    groups: tuple[Group, ...]


class Design(NamedTuple):
    """A formula with its data.

    Attributes:
        formula: taken apart.
        response: of every row.
        columns: of every row.
        names: of the fixed effects.
        weights: of every row, or None.
        coding: of every categorical column its levels, the first being the reference.
        table: the rows that are used.
        notes: what should be known, in sentences.
        makers: of X, and of Z for every random term, as formulae remembers them.
        uses: the columns that the right side needs, with what for.
    """

    formula: Formula
    response: Response
    columns: Columns
    names: tuple[str, ...]
    weights: np.ndarray | None
    coding: Mapping[str, tuple[str, ...]]
    table: Table
    notes: tuple[str, ...]
    makers: tuple[Any, ...]
    uses: Mapping[str, str]

    @property
    def num_rows(self) -> int:
        """How many rows are used."""
        return len(self.response.values)

    def columns_of(self, data: Any) -> tuple[Columns, Table]:
        """The same columns of other data; levels that were not seen have the code -1.

        Args:
            data: a dataframe with the columns of the right side; grouping columns may be missing.
        """
        grouping = {name for term in self.formula.random for name in term.factors}
        fixed = names_of(self.formula.fixed, "the fixed effects")
        optional = grouping - fixed
        table = read_columns(data, self.uses, optional=optional, what="new data")
        self._check_levels(table.frame)
        new = [matrix_of_new(maker, table.frame) for maker in self.makers]
        offset, columns = offset_apart(self.makers[0], new[0], len(table.frame))
        kept = [k for k, label in enumerate(labels_of(self.makers[0])) if label in self.names]
        groups = groups_of_new(self.columns.groups, self.formula, table.frame, new[1:])
        return Columns(columns[:, kept], offset, groups), table

    def _check_levels(self, frame: Any) -> None:
        for name, levels in self.coding.items():
            if name in frame:
                new = sorted(set(map(str, frame[name])) - set(levels))
                if new:
                    raise ValueError(
                        f"The new data have {new[0]!r} in the column {name!r}, a fixed effect with "
                        f"the levels {', '.join(levels)}: there is no coefficient for it."
                    )


def make_design(formula: Formula, data: Any, weights: Any = None) -> Design:
    """The numbers of a formula, or a sentence about what is wrong with the data.

    Args:
        formula: taken apart.
        data: any dataframe.
        weights: the name of a column, or an array with a number for every row.
    """
    if not formula.random:
        raise ValueError(
            f"The formula {formula.text!r} has no random term: it is no mixed model. Add one, such "
            'as "(1 | g)", or use a package for generalised linear models.'
        )
    uses = _uses(formula)
    given = {**uses}
    for name in names_of(response_parts(formula.response), "the response"):
        given.setdefault(name, "the response")
    if isinstance(weights, str):
        given.setdefault(weights, "the weights")
    table = read_columns(data, given)
    frame = table.frame
    _check_categories(formula.fixed, frame)
    terms = (formula.fixed, *(term.effects for term in formula.random))
    makers = tuple(made_of(term, frame) for term in terms)
    offset, fixed = offset_apart(makers[0], matrix_of(makers[0]), len(frame))
    names = labels_of(makers[0])
    _check_rank(fixed, names)
    groups = groups_of(formula, frame, makers[1:])
    return Design(
        formula=formula,
        response=response_of(formula.response, frame),
        columns=Columns(fixed, offset, groups),
        names=names,
        weights=_weights(weights, table),
        coding=_coding(formula, frame),
        table=table,
        notes=table.notes,
        makers=makers,
        uses=uses,
    )


def _uses(formula: Formula) -> dict[str, str]:
    """The columns of the right side, with what they are for."""
    uses = dict.fromkeys(sorted(names_of(formula.fixed, "the fixed effects")), "fixed effects")
    for term in formula.random:
        for name in sorted(names_of(term.effects, f"the random term {term.text}")):
            uses.setdefault(name, f"the random term {term.text}")
        for name in term.factors:
            uses.setdefault(name, f"the group of {term.text}")
    return uses


def _check_categories(fixed: str, frame: Any) -> None:
    pandas = imported("pandas")
    for name in sorted(names_of(fixed, "the fixed effects")):
        numeric = pandas.api.types.is_numeric_dtype(frame[name])
        if numeric and not re.search(rf"\bC\(\s*{re.escape(name)}\b", fixed):
            continue
        count = frame[name].nunique()
        if count > MOST_LEVELS:
            raise ValueError(
                f"The column {name!r} has {count} levels, each of which would be a fixed effect. "
                f'Make it a random effect, "(1 | {name})"; or if it is a number stored as text, '
                "convert it."
            )
        if count < 2:
            raise ValueError(
                f"The column {name!r} among the fixed effects has one level, "
                f"{frame[name].iloc[0]!r}: it says nothing. Take it out."
            )


def _coding(formula: Formula, frame: Any) -> dict[str, tuple[str, ...]]:
    pandas = imported("pandas")
    coding = {}
    parts = [formula.fixed, *(term.effects for term in formula.random)]
    for name in sorted(set().union(*(names_of(part, "a term") for part in parts))):
        column = frame[name]
        if isinstance(column.dtype, pandas.CategoricalDtype):
            coding[name] = tuple(map(str, column.cat.categories))
        elif not pandas.api.types.is_numeric_dtype(column):
            coding[name] = tuple(sorted(map(str, column.unique())))
    return coding


def _check_rank(fixed: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuses columns that others determine, by name."""
    if fixed.shape[0] < fixed.shape[1]:
        raise ValueError(
            f"There are {fixed.shape[1]} fixed effects and {fixed.shape[0]} rows: they cannot all "
            "be told. Take some out."
        )
    scale = np.sqrt(np.mean(fixed**2, axis=0))
    if np.any(scale == 0):
        name = names[int(np.flatnonzero(scale == 0)[0])]
        raise ValueError(f"The fixed effect {name!r} is 0 in every row. Take it out.")
    from scipy.linalg import qr  # slow to import

    triangle, order = qr(fixed / scale, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle[: fixed.shape[1]]))
    lost = [int(k) for k in order[diagonal < 1e-10 * diagonal.max(initial=0.0)]]
    if lost:
        kept = [int(k) for k in order if k not in lost]
        share = np.linalg.lstsq((fixed / scale)[:, kept], (fixed / scale)[:, lost[0]])[0]
        others = [names[k] for k, x in zip(kept, share, strict=True) if abs(x) > 1e-8]
        raise ValueError(
            f"The fixed effect {names[lost[0]]!r} is determined by {', '.join(others)}: their "
            "effects cannot be told apart. Take one of them out."
        )


def _weights(weights: Any, table: Table) -> np.ndarray | None:
    if weights is None:
        return None
    if isinstance(weights, str):
        found = np.asarray(table.frame[weights])
    else:
        found = np.asarray(weights)
        if found.ndim != 1 or (len(table.rows) and len(found) <= table.rows.max()):
            raise ValueError(
                f"The weights have shape {found.shape}; they must be the name of a column or have "
                "a number for every row of the data."
            )
        found = found[table.rows]
    if found.dtype.kind not in "fiu" or not np.all(np.isfinite(found)) or np.any(found <= 0):
        raise ValueError(
            "The weights must be positive numbers, one of every row. A row that does not count is "
            "left out of the data."
        )
    return found.astype(float)

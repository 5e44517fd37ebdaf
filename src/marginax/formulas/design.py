"""From a formula and a table to numbers: response, fixed effects, random effects, offset, weights.

The columns of the fixed effects, and of the left sides of the bars, are made by the formulae
package, which also remembers how, so that new data get the same columns (`Design.columns_of`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.frames import Table, imported, read_columns
from marginax.formulas.parsing import Formula, RandomTerm

__all__ = ["Columns", "Design", "Group", "Response", "make_design"]

MOST_LEVELS = 200  # of a categorical column among the fixed effects
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "sin", "cos")
}
PAIRS = {"cbind": "failures", "prop": "trials", "p": "trials", "proportion": "trials"}


class Group(NamedTuple):
    """A grouping factor with the effects that vary over its levels.

    Attributes:
        name: as in the formula, "g" or "g:h".
        levels: their labels, sorted.
        codes: of every row, which level it has; -1 for a level that was not seen.
        columns: Z, of every row what each effect is multiplied by.
        effects: the names of the effects.
        blocks: which effects may be correlated with each other, by their places.
    """

    name: str
    levels: np.ndarray
    codes: np.ndarray
    columns: np.ndarray
    effects: tuple[str, ...]
    blocks: tuple[tuple[int, ...], ...]

    @property
    def num_levels(self) -> int:
        """How many levels there are."""
        return len(self.levels)


class Response(NamedTuple):
    """What is explained.

    Attributes:
        name: as written.
        values: a number of every row; of categories their places.
        trials: of binomial counts, how many there were; None for everything else.
        categories: the labels, if the column has them.
    """

    name: str
    values: np.ndarray
    trials: np.ndarray | None = None
    categories: tuple[str, ...] | None = None


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
        fixed = _names_of(self.formula.fixed, "the fixed effects")
        optional = grouping - fixed
        table = read_columns(data, self.uses, optional=optional, what="new data")
        self._check_levels(table.frame)
        new = [_evaluated(maker, table.frame) for maker in self.makers]
        offset, columns = _offset_apart(self.makers[0], new[0], len(table.frame))
        kept = [k for k, label in enumerate(_labels(self.makers[0])) if label in self.names]
        groups = []
        for group, places in zip(self.columns.groups, _places(self.formula.random), strict=True):
            z = np.column_stack([new[1 + i] for i in places])
            term = self.formula.random[places[0]]
            groups.append(
                group._replace(columns=z, codes=_known_codes(term, table.frame, group.levels))
            )
        return Columns(columns[:, kept], offset, tuple(groups)), table

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
    for name in _names_of(_response_parts(formula.response), "the response"):
        given.setdefault(name, "the response")
    if isinstance(weights, str):
        given.setdefault(weights, "the weights")
    table = read_columns(data, given)
    frame = table.frame
    _check_categories(formula.fixed, frame)
    terms = (formula.fixed, *(term.effects for term in formula.random))
    makers = tuple(_made(term, frame) for term in terms)
    offset, fixed = _offset_apart(makers[0], _matrix(makers[0]), len(frame))
    names = _labels(makers[0])
    _check_rank(fixed, names)
    groups = _groups(formula, frame, makers[1:])
    return Design(
        formula=formula,
        response=_response(formula.response, frame),
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
    uses = dict.fromkeys(sorted(_names_of(formula.fixed, "the fixed effects")), "fixed effects")
    for term in formula.random:
        for name in sorted(_names_of(term.effects, f"the random term {term.text}")):
            uses.setdefault(name, f"the random term {term.text}")
        for name in term.factors:
            uses.setdefault(name, f"the group of {term.text}")
    return uses


def _names_of(expression: str | list[str], where: str) -> set[str]:
    """The columns that are named in an expression."""
    formulae = imported("formulae")
    parts = [expression] if isinstance(expression, str) else expression
    try:
        found = {str(name) for one in parts for name in formulae.model_description(one).var_names}
    except Exception as error:  # of formulae's own kinds, which it does not export
        raise ValueError(f"{expression!r}, {where}, cannot be read: {error}") from None
    return {name for name in found if name.isidentifier()}  # keywords leave an empty one


def _made(expression: str, frame: Any) -> Any:
    """What formulae makes of an expression, or None where it has no columns."""
    formulae = imported("formulae")
    try:
        with np.errstate(all="ignore"):  # what is not finite is said below
            made = formulae.design_matrices(
                expression, frame, na_action="error", extra_namespace={**FUNCTIONS, "np": np}
            ).common
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"The term {expression!r} cannot be computed from the data: {reason}"
        ) from None
    _check_numbers(expression, _matrix(made))
    return made


def _check_numbers(expression: str, matrix: np.ndarray) -> None:
    bad = np.flatnonzero(~np.all(np.isfinite(matrix), axis=1))
    if len(bad):
        raise ValueError(
            f"The term {expression!r} is not a finite number in row {bad[0] + 1} of those without "
            "gaps, such as the logarithm of 0. Correct the data, or write another term."
        )


def _matrix(made: Any) -> np.ndarray:
    if made is None:
        return np.zeros((0, 0))
    return np.asarray(made.design_matrix, float)


def _evaluated(made: Any, frame: Any) -> np.ndarray:
    if made is None:
        return np.zeros((len(frame), 0))
    try:
        with np.errstate(all="ignore"):
            matrix = np.asarray(made.evaluate_new_data(frame).design_matrix, float)
    except Exception as error:
        raise ValueError(f"The new data cannot be used: {error}") from None
    _check_numbers(", ".join(made.terms), matrix)
    return matrix


def _offset_apart(made: Any, matrix: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The offset, and the columns without it."""
    if made is None:
        return np.zeros(num_rows), np.zeros((num_rows, 0))
    is_offset = np.zeros(matrix.shape[1], bool)
    for name, term in made.terms.items():
        is_offset[made.slices[name]] = term.kind == "offset"
    return matrix[:, is_offset].sum(axis=1), matrix[:, ~is_offset]


def _labels(made: Any) -> tuple[str, ...]:
    if made is None:
        return ()
    terms = (term for term in made.terms.values() if term.kind != "offset")
    return tuple(str(label) for term in terms for label in term.labels)


def _groups(formula: Formula, frame: Any, makers: tuple[Any, ...]) -> tuple[Group, ...]:
    groups = []
    for places in _places(formula.random):
        term = formula.random[places[0]]
        effects: list[str] = []
        blocks: list[tuple[int, ...]] = []
        for i in places:
            labels = _labels(makers[i])
            if not labels:
                raise ValueError(f"The random term {formula.random[i].text} has no effects.")
            twice = [label for label in labels if label in effects]
            if twice:
                raise ValueError(
                    f"The effect {twice[0]} of the group {term.group} is in two random terms: "
                    "their variances cannot be told apart. Take it out of one, with 0 + ..., or "
                    "write one term."
                )
            here = range(len(effects), len(effects) + len(labels))
            blocks += [tuple(here)] if formula.random[i].correlated else [(k,) for k in here]
            effects += labels
        z = np.column_stack([_matrix(makers[i]) for i in places])
        levels, codes = _levels(term, frame)
        _check_group(term, levels, len(frame))
        groups.append(Group(term.group, levels, codes, z, tuple(effects), tuple(blocks)))
    return tuple(groups)


def _places(random: tuple[RandomTerm, ...]) -> list[list[int]]:
    """The random terms of every grouping factor, in the order in which these first occur."""
    places: dict[tuple[str, ...], list[int]] = {}
    for i, term in enumerate(random):
        places.setdefault(term.factors, []).append(i)
    return list(places.values())


def _levels(term: RandomTerm, frame: Any) -> tuple[np.ndarray, np.ndarray]:
    pandas = imported("pandas")
    labels, codes = None, np.zeros(len(frame), np.int64)
    for name in term.factors:
        own, found = pandas.factorize(frame[name], sort=True)
        found = np.asarray(found.astype(object) if hasattr(found, "astype") else found)
        pairs, codes = np.unique(codes * len(found) + own, return_inverse=True)
        these = found[pairs % len(found)]
        before = None if labels is None else labels[pairs // len(found)]
        labels = these if before is None else _joined(before, these)
    return np.asarray(labels), codes


def _joined(before: np.ndarray, these: np.ndarray) -> np.ndarray:
    return np.array([f"{one}:{other}" for one, other in zip(before, these, strict=True)], object)


def _known_codes(term: RandomTerm, frame: Any, levels: np.ndarray) -> np.ndarray:
    pandas = imported("pandas")
    if any(name not in frame for name in term.factors):
        return np.full(len(frame), -1)
    labels = frame[term.factors[0]].astype(object).to_numpy()
    for name in term.factors[1:]:
        labels = _joined(labels, frame[name].astype(object).to_numpy())
    known = pandas.Index([str(level) for level in levels])
    return np.asarray(known.get_indexer([str(label) for label in labels]))


def _check_group(term: RandomTerm, levels: np.ndarray, num_rows: int) -> None:
    if len(levels) < 2:
        raise ValueError(
            f"The group {term.group!r} of {term.text} has one level, {levels[0]!r}: a variance "
            "between levels needs at least two, and better five or more. Take the term out."
        )


def _check_categories(fixed: str, frame: Any) -> None:
    pandas = imported("pandas")
    for name in sorted(_names_of(fixed, "the fixed effects")):
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
    for name in sorted(set().union(*(_names_of(part, "a term") for part in parts))):
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


def _response_parts(text: str) -> list[str]:
    """The expressions in a response, as formulae reads them."""
    call = re.fullmatch(r"(\w+)\((.*)\)", text, flags=re.DOTALL)
    if call and call.group(1) in PAIRS:
        return [f"0 + I({part})" for part in call.group(2).split(",")]
    return [text if re.fullmatch(r"\w+", text) else f"0 + I({text})"]


def _response(text: str, frame: Any) -> Response:
    pandas = imported("pandas")
    parts = _response_parts(text)
    if parts == [text]:
        column = frame[text]
        if pandas.api.types.is_numeric_dtype(column):
            return Response(text, np.asarray(column, float))
        codes, levels = pandas.factorize(column, sort=True)
        return Response(text, codes.astype(float), None, tuple(map(str, levels)))
    values = [_matrix(_made(part, frame))[:, 0] for part in parts]
    if len(parts) == 1:
        return Response(text, values[0])
    if len(parts) != 2:
        raise ValueError(f"The response {text!r} needs two columns in its brackets.")
    kind = PAIRS[text.split("(")[0]]
    trials = values[0] + values[1] if kind == "failures" else values[1]
    return Response(text, values[0], trials)


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

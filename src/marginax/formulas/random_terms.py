"""Random terms as numbers: the levels of every grouping factor, which one each row has, and Z."""

from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.expressions import labels_of, matrix_of
from marginax.formulas.frames import imported
from marginax.formulas.parsing import Formula, RandomTerm

__all__ = ["Group", "groups_of", "groups_of_new"]


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


def groups_of(formula: Formula, frame: Any, makers: tuple[Any, ...]) -> tuple[Group, ...]:
    """The groups of a formula, or a sentence about what is wrong with them.

    Args:
        formula: taken apart.
        frame: the rows.
        makers: of Z, one of every random term, as formulae made them.
    """
    groups = []
    for places in _places(formula.random):
        term = formula.random[places[0]]
        effects: list[str] = []
        blocks: list[tuple[int, ...]] = []
        for i in places:
            labels = labels_of(makers[i])
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
        z = np.column_stack([matrix_of(makers[i]) for i in places])
        levels, codes = _levels(term, frame)
        _check_group(term, levels, len(frame))
        groups.append(Group(term.group, levels, codes, z, tuple(effects), tuple(blocks)))
    return tuple(groups)


def groups_of_new(
    groups: tuple[Group, ...], formula: Formula, frame: Any, matrices: list[np.ndarray]
) -> tuple[Group, ...]:
    """The same groups with the rows of new data; levels that were not seen have the code -1.

    Args:
        groups: of the formula.
        formula: taken apart.
        frame: the new rows; grouping columns may be missing.
        matrices: Z of the new rows, one of every random term.
    """
    found = []
    for group, places in zip(groups, _places(formula.random), strict=True):
        z = np.column_stack([matrices[i] for i in places])
        term = formula.random[places[0]]
        found.append(group._replace(columns=z, codes=_known_codes(term, frame, group.levels)))
    return tuple(found)


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

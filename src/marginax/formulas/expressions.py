"""What the formulae package makes of an expression: columns, their labels, the same of new data."""

from collections.abc import Callable
from typing import Any

import numpy as np

from marginax.formulas.frames import imported

__all__ = ["labels_of", "made_of", "matrix_of", "matrix_of_new", "names_of", "offset_apart"]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "sin", "cos")
}


def names_of(expression: str | list[str], where: str) -> set[str]:
    """The columns that are named in an expression."""
    formulae = imported("formulae")
    parts = [expression] if isinstance(expression, str) else expression
    try:
        found = {str(name) for one in parts for name in formulae.model_description(one).var_names}
    except Exception as error:  # of formulae's own kinds, which it does not export
        raise ValueError(f"{expression!r}, {where}, cannot be read: {error}") from None
    return {name for name in found if name.isidentifier()}  # keywords leave an empty one


def made_of(expression: str, frame: Any) -> Any:
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
    _check_numbers(expression, matrix_of(made))
    return made


def _check_numbers(expression: str, matrix: np.ndarray) -> None:
    bad = np.flatnonzero(~np.all(np.isfinite(matrix), axis=1))
    if len(bad):
        raise ValueError(
            f"The term {expression!r} is not a finite number in row {bad[0] + 1} of those without "
            "gaps, such as the logarithm of 0. Correct the data, or write another term."
        )


def matrix_of(made: Any) -> np.ndarray:
    """The columns of what was made; no rows where there are none."""
    if made is None:
        return np.zeros((0, 0))
    return np.asarray(made.design_matrix, float)


def matrix_of_new(made: Any, frame: Any) -> np.ndarray:
    """The same columns of new data."""
    if made is None:
        return np.zeros((len(frame), 0))
    try:
        with np.errstate(all="ignore"):
            matrix = np.asarray(made.evaluate_new_data(frame).design_matrix, float)
    except Exception as error:
        raise ValueError(f"The new data cannot be used: {error}") from None
    _check_numbers(", ".join(made.terms), matrix)
    return matrix


def offset_apart(made: Any, matrix: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The offset, and the columns without it."""
    if made is None:
        return np.zeros(num_rows), np.zeros((num_rows, 0))
    is_offset = np.zeros(matrix.shape[1], bool)
    for name, term in made.terms.items():
        is_offset[made.slices[name]] = term.kind == "offset"
    return matrix[:, is_offset].sum(axis=1), matrix[:, ~is_offset]


def labels_of(made: Any) -> tuple[str, ...]:
    """Names of the columns without the offset."""
    if made is None:
        return ()
    terms = (term for term in made.terms.values() if term.kind != "offset")
    return tuple(str(label) for term in terms for label in term.labels)

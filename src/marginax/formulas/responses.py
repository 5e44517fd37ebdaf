"""The left side of a formula as numbers: values, binomial counts with their trials, categories."""

import re
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.expressions import made_of, matrix_of
from marginax.formulas.frames import imported

__all__ = ["Response", "response_of", "response_parts"]

PAIRS = {"cbind": "failures", "prop": "trials", "p": "trials", "proportion": "trials"}


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


def response_of(text: str, frame: Any) -> Response:
    """The response that is written so, of every row."""
    pandas = imported("pandas")
    parts = response_parts(text)
    if parts == [text]:
        column = frame[text]
        if pandas.api.types.is_numeric_dtype(column):
            return Response(text, np.asarray(column, float))
        codes, levels = pandas.factorize(column, sort=True)
        return Response(text, codes.astype(float), None, tuple(map(str, levels)))
    values = [matrix_of(made_of(part, frame))[:, 0] for part in parts]
    if len(parts) == 1:
        return Response(text, values[0])
    if len(parts) != 2:
        raise ValueError(f"The response {text!r} needs two columns in its brackets.")
    kind = PAIRS[text.split("(")[0]]
    trials = values[0] + values[1] if kind == "failures" else values[1]
    return Response(text, values[0], trials)


def response_parts(text: str) -> list[str]:
    """The expressions in a response, as formulae reads them."""
    call = re.fullmatch(r"(\w+)\((.*)\)", text, flags=re.DOTALL)
    if call and call.group(1) in PAIRS:
        return [f"0 + I({part})" for part in call.group(2).split(",")]
    return [text if re.fullmatch(r"\w+", text) else f"0 + I({text})"]

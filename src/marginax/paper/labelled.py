"""Arrays whose axes and entries have names, so that every number can be found again and written."""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Labelled", "stack"]


class Labelled(NamedTuple):
    """A table of any number of dimensions.

    Attributes:
        values: the numbers.
        dims: a name per axis.
        coords: for every axis the names or numbers of its entries.
    """

    values: np.ndarray
    dims: tuple[str, ...]
    coords: dict[str, tuple[Any, ...]]

    def at(self, **labels: Any) -> np.ndarray:
        """The numbers at these labels; axes that are not named stay."""
        index: list[Any] = [slice(None)] * len(self.dims)
        for dim, label in labels.items():
            where = self.coords[dim].index(label)
            index[self.dims.index(dim)] = where
        return np.asarray(self.values[tuple(index)])

    def csv(self) -> str:
        """A row per entry of the last axis, a column per combination of the others."""
        *outer, last = self.dims
        columns = list(product(*(self.coords[dim] for dim in outer)))
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        names = [" | ".join(_text(part) for part in column) for column in columns]
        writer.writerow([last, *(names if outer else ["value"])])
        rows = self.values.reshape(len(columns), -1).T
        for label, row in zip(self.coords[last], rows, strict=True):
            writer.writerow([_text(label), *(_text(float(value)) for value in row)])
        return file.getvalue()


def stack(
    methods: Mapping[str, Mapping[str, np.ndarray]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Sequence[Any]],
) -> dict[str, Labelled]:
    """One `Labelled` per quantity, methods along the first axis.

    Args:
        methods: for every method its quantities.
        dims: for every quantity the names of its axes.
        coords: for every axis the names of its entries.
    """
    named = {"method": tuple(methods)} | {dim: tuple(values) for dim, values in coords.items()}
    return {
        quantity: Labelled(
            np.stack([np.asarray(found[quantity]) for found in methods.values()]),
            ("method", *axes),
            {dim: named[dim] for dim in ("method", *axes)},
        )
        for quantity, axes in dims.items()
    }


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)

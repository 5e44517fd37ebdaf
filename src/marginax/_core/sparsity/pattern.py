"""Which entries of a symmetric matrix may differ from zero, and the probes that tell their values.

Entries are those on and below the diagonal, row by row; the diagonal is always there.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from marginax._core.sparsity.coloring import readings, star_coloring

__all__ = ["Dense", "Pattern"]


@dataclass(frozen=True)
class Dense:
    """No pattern: the matrix is full, or nearly so, or nothing can be said of it.

    Attributes:
        n: of its rows.
        reason: why, in a sentence.
    """

    n: int
    reason: str


@dataclass(frozen=True, eq=False)
class Pattern:
    """The entries of a symmetric matrix that may differ from zero.

    Attributes:
        n: of its rows.
        rows: [entries] of those on and below the diagonal.
        cols: [entries] of these.
    """

    n: int
    rows: np.ndarray
    cols: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, cols: np.ndarray, n: int) -> "Pattern":
        """The pattern with some entries, in any order, each or its mirror image, maybe repeated.

        Args:
            rows: of the entries.
            cols: of these.
            n: of the rows of the matrix.
        """
        diagonal = np.arange(n, dtype=np.int64)
        rows, cols = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
        low, high = np.minimum(rows, cols), np.maximum(rows, cols)
        keys = np.unique(np.concatenate([high * n + low, diagonal * (n + 1)]))
        return cls(n, (keys // n).astype(np.int32), (keys % n).astype(np.int32))

    @property
    def nonzeros(self) -> int:
        """How many entries the whole matrix has, on both sides of the diagonal."""
        return 2 * len(self.rows) - self.n

    @property
    def bandwidth(self) -> int:
        """How far from the diagonal entries are."""
        return int(np.max(self.rows - self.cols, initial=0))

    @cached_property
    def colors(self) -> np.ndarray:
        """[n] the probe that every column is in."""
        return star_coloring(self.rows, self.cols, self.n)

    @property
    def num_colors(self) -> int:
        """How many probes there are."""
        return int(self.colors.max(initial=-1)) + 1

    @cached_property
    def readings(self) -> tuple[np.ndarray, np.ndarray]:
        """Of which probe's product every entry is read, and in which row."""
        return readings(self.rows, self.cols, self.colors)

    def recovered(self, products: Any) -> Any:
        """The values of the entries.

        Args:
            products: [num_colors, n] of the matrix with the probes, which are one in the columns of
                their color.

        Returns:
            [entries].
        """
        probes, rows = self.readings
        return products[probes, rows]

    def matrix(self, values: Any) -> Any:
        """The whole symmetric matrix, sparse.

        Args:
            values: [entries].
        """
        lower = sparse.csr_array((np.asarray(values), (self.rows, self.cols)), (self.n, self.n))
        below = sparse.tril(lower, -1)
        return sparse.csr_array(lower + below.T)

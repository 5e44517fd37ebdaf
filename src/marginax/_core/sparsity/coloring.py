"""Star colorings: few probes that tell every entry of a sparse symmetric matrix.

Columns of one color are added up in one product with a probe. An entry (i, j) is read there in row
i, if no other column of the color of j is in that row, or in row j by the color of i. A coloring
where one of the two is so for every entry, and no two neighbors have the same color, has no path of
four columns in two colors: it is a star coloring. In a model with crossed effects it gives a single
color to all levels of one factor.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

__all__ = ["readings", "star_coloring"]

FEW = 3  # colors, beyond which other orders are tried
SMALL = 100  # neighbors of a column, up to which it is tried to keep all columns apart


def star_coloring(rows: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """A color for every column: the best of some orders to give each the first that is allowed.

    Args:
        rows: of the entries below the diagonal, and on it.
        cols: of these.
        n: how many columns there are.

    Returns:
        [n] the colors, from 0.
    """
    below = rows != cols
    rows, cols = rows[below], cols[below]
    ones = np.ones(2 * len(rows), bool)
    both = (np.concatenate([rows, cols]), np.concatenate([cols, rows]))
    graph = sparse.csr_array((ones, both), shape=(n, n))
    degrees = np.diff(graph.indptr)
    band = int(np.max(rows - cols, initial=0))
    if len(rows) == band * n - band * (band + 1) // 2:  # all of a band, or nothing at all
        return np.arange(n, dtype=np.int32) % np.int32(2 * band + 1)
    ends, flat = graph.indptr.tolist(), graph.indices.tolist()
    neighbors = [flat[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    best = _first_fit(neighbors, range(n))
    if max(best) >= FEW:
        by_degree = np.argsort(-degrees, kind="stable").tolist()
        best = min(best, _first_fit(neighbors, by_degree), key=max)
    if max(best) >= FEW and degrees.max() <= SMALL:
        best = min(best, _first_fit(neighbors, range(n), apart=True), key=max)
    return np.asarray(best, np.int32)


def _first_fit(neighbors: list[list[int]], order: Sequence[int], apart: bool = False) -> list[int]:
    """The first color for each column that makes no path of four in two colors.

    Of the columns that have a color: `around[x]` has the neighbors of x by their color, and
    `closed[w]` the colors of those neighbors of w that have another one of the color of w.

    Args:
        neighbors: of each column.
        order: of the columns.
        apart: whether all columns that share a row are to differ, which is more than is needed but
            comes out better on some grids.
    """
    n = len(neighbors)
    colors = [-1] * n
    around: list[dict[int, list[int]]] = [{} for _ in range(n)]
    closed: list[set[int]] = [set() for _ in range(n)]
    for v in order:
        own = around[v]
        taken = set(own)
        for w in neighbors[v]:
            color = colors[w]
            if apart or (color >= 0 and len(own[color]) > 1):
                # Two neighbors of one color: v must not have that of any neighbor of theirs.
                taken.update(around[w])
            elif color >= 0:
                taken.update(closed[w])
        color = 0
        while color in taken:
            color += 1
        colors[v] = color
        _color(v, color, neighbors[v], colors, around, closed)
    return colors


def _color(
    v: int,
    color: int,
    neighbors: list[int],
    colors: list[int],
    around: list[dict[int, list[int]]],
    closed: list[set[int]],
) -> None:
    """Notes the color of a column with its neighbors."""
    for x in neighbors:
        same = around[x].setdefault(color, [])
        same.append(v)
        if len(same) > 1 and colors[x] >= 0:
            for w in same[:-1] if len(same) == 2 else ():
                closed[w].add(colors[x])
            closed[v].add(colors[x])
    for same in around[v].values():
        if len(same) > 1:
            for w in same:
                closed[w].add(color)


def readings(
    rows: np.ndarray, cols: np.ndarray, colors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where every entry is read: of which color's product, and in which of its rows.

    Args:
        rows: of the entries below the diagonal, and on it.
        cols: of these.
        colors: [n] of all columns, a star coloring.
    """
    count, below = int(colors.max(initial=-1)) + 1, rows != cols
    keys = rows.astype(np.int64) * count + colors[cols]
    other = cols.astype(np.int64) * count + colors[rows]
    every = np.concatenate([keys, other[below]])  # one for every entry of the whole matrix
    found, times = np.unique(every, return_counts=True)
    alone = times[np.searchsorted(found, keys)] == 1
    alone_below = times[np.searchsorted(found, other)] == 1
    if not np.all(alone | alone_below):
        raise ValueError(
            "The colors given are no star coloring of this pattern: an entry cannot be told from "
            "another one. Use the colors of `Pattern.colors`."
        )
    return np.where(alone, colors[cols], colors[rows]), np.where(alone, rows, cols)

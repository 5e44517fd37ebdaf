"""The order of elimination of a sparse pattern, and its fronts: what is done once for a pattern.

The latents are put into an order of minimum degree, by SciPy's SuperLU, and neighbouring columns
of L with nearly the same rows become one front: a small dense matrix of its own latents J and of
the later ones I that they touch.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array, csc_array, csc_matrix
from scipy.sparse.linalg import splu

from marginax._core.factors.base import Pattern

__all__ = ["Front", "Plan", "plan_of"]

# A branch of the elimination tree of up to LEAF latents is one front, and columns join a run while
# no more than a share ZEROS of it is filled in for nothing: zeros cost less than many fronts do. On
# a grid of 300 x 300, branches of 16, 32, 64 gave 10,396, 5,584, 2,903 fronts, 137, 103, 86 ms.
LEAF, ZEROS = 64, 0.25


class Front(NamedTuple):
    """The symbolic part of a front.

    Attributes:
        own: its own latents, in the order of elimination: a slice.
        below: the later ones that they touch.
        parent: the front that the first of these belongs to, or -1.
        inside: where `below` is in the parent's rows.
        entries: which values of the pattern, sorted by front, are its own: a slice.
        places: where they are in the front, column by column.
    """

    own: slice
    below: Int[np.ndarray, " k"]
    parent: int
    inside: Int[np.ndarray, " k"]
    entries: slice
    places: Int[np.ndarray, " entries"]


class Plan(NamedTuple):
    """The symbolic part: an order, the fronts, and which value goes where.

    Attributes:
        order: the latents in the order of elimination.
        by_front: the values' numbers, sorted by front.
        fronts: children before parents.
        children: how many of each front.
        cost: of a factor, in nanoseconds: measured, 20,000 for a front and 1/14 for an operation.
    """

    order: Int[np.ndarray, " n"]
    by_front: Int[np.ndarray, " nnz"]
    fronts: list[Front]
    children: Int[np.ndarray, " fronts"]
    cost: float


def plan_of(pattern: Pattern) -> Plan:
    """The order of elimination and the fronts of a pattern."""
    rows, cols, n = pattern
    place, parents, counts = _elimination(pattern)
    first = _first_columns(parents, counts)
    last = np.append(first[1:], n)
    front_of = np.repeat(np.arange(len(first)), last - first)
    i = np.maximum(place[rows], place[cols])
    j = np.minimum(place[rows], place[cols])
    below = _rows_below(csc_array((np.ones(len(i)), (i, j)), shape=(n, n)), first, last, front_of)
    # Places in fronts, found in one list of all (front, row).
    sizes = np.array([len(one) for one in below]) + last - first
    starts = np.cumsum(sizes) - sizes
    keys = np.concatenate(
        [t * n + np.concatenate([np.arange(first[t], last[t]), one]) for t, one in enumerate(below)]
    )

    def local(front: np.ndarray, row: np.ndarray) -> np.ndarray:
        return np.searchsorted(keys, front * n + row) - starts[front]

    by_front = np.argsort(front_of[j], kind="stable")
    front, i, j = front_of[j][by_front], i[by_front], j[by_front]
    places = (j - first[front]) * sizes[front] + local(front, i)
    ends = np.searchsorted(front, np.arange(len(first) + 1))
    fronts = []
    for t, one in enumerate(below):
        above = int(front_of[one[0]]) if len(one) else -1
        fronts.append(
            Front(
                own=slice(int(first[t]), int(last[t])),
                below=one,
                parent=above,
                inside=local(np.full(len(one), above), one),
                entries=slice(int(ends[t]), int(ends[t + 1])),
                places=places[ends[t] : ends[t + 1]],
            )
        )
    parent = np.array([one.parent for one in fronts])
    children = np.bincount(parent[parent >= 0], minlength=len(fronts))
    own = (last - first).astype(float)
    work = float(np.sum(own**3 / 3 + own * (sizes - own) * sizes))
    return Plan(np.argsort(place), by_front, fronts, children, work / 14 + 2e4 * len(fronts))


def _elimination(pattern: Pattern) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each latent's place in an order of little fill; parents and counts of the columns of L."""
    rows, cols, n = pattern
    off = rows != cols
    degree = np.bincount(rows[off], minlength=n) + np.bincount(cols[off], minlength=n)
    # Minus the graph's Laplacian, nearly: none of the fill cancels or vanishes.
    lower = coo_array((np.where(off, -1.0, 0.0), (rows, cols)), shape=(n, n)).tocsc()
    matrix = lower + lower.T + csc_array((degree + 1e-6, (range(n), range(n))), shape=(n, n))
    lu = splu(
        csc_matrix(matrix),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    columns = lu.L.tocoo()
    low = columns.row > columns.col
    parents = np.full(n, n)
    np.minimum.at(parents, columns.col[low], columns.row[low])
    counts = np.bincount(columns.col[low], minlength=n)
    after = _postorder(parents)
    back = np.argsort(after)
    return after[lu.perm_c], np.append(after, n)[parents[back]], counts[back]


def _branch_sizes(parents: np.ndarray) -> np.ndarray:
    """How many columns are below each in the elimination tree, itself too; then of all roots."""
    sizes = [1] * (len(parents) + 1)
    for j, parent in enumerate(parents.tolist()):
        sizes[parent] += sizes[j]
    return np.array(sizes)


def _postorder(parents: np.ndarray) -> np.ndarray:
    """Places for the columns such that every branch of the tree is together, its root last."""
    n = len(parents)
    sizes = _branch_sizes(parents).tolist()
    place, free = [0] * n, [n - 1] * (n + 1)
    for j in range(n - 1, -1, -1):
        parent = parents[j]
        place[j] = free[parent]
        free[parent] -= sizes[j]
        free[j] = place[j] - 1
    return np.array(place, np.int64)


def _first_columns(parents: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Where fronts begin: whole branches that are small, then runs of columns with like rows."""
    n = len(parents)
    sizes = _branch_sizes(parents)
    sizes[n] = n + LEAF  # no branch ends there
    branch = np.flatnonzero((sizes[:n] <= LEAF) & (sizes[parents] > LEAF))
    in_branch = np.zeros(n, bool)
    starts = np.zeros(n, bool)
    for j in branch.tolist():
        in_branch[j - sizes[j] + 1 : j + 1] = True
        starts[j - sizes[j] + 1] = True
    width, zeros = 0, 0
    for j in np.flatnonzero(~in_branch).tolist():
        # Columns of a run take on the rows of its last one.
        more = int(counts[j] + 1 - counts[j - 1]) * width if j else 0
        joins = width > 0 and parents[j - 1] == j and not in_branch[j - 1]
        if joins and zeros + more <= ZEROS * (width + 1) * (counts[j] + width / 2):
            width, zeros = width + 1, zeros + more
        else:
            starts[j], width, zeros = True, 1, 0
    return np.flatnonzero(starts)


def _rows_below(
    matrix: csc_array, first: np.ndarray, last: np.ndarray, front_of: np.ndarray
) -> list[np.ndarray]:
    """The later latents that each front touches, itself or by what its children hand on."""
    handed: list[list[np.ndarray]] = [[] for _ in first]
    below = []
    for t, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        touched = matrix.indices[matrix.indptr[begin] : matrix.indptr[end]].astype(np.int64)
        rows = np.unique(np.concatenate([touched, *handed[t]]))
        rows = rows[np.searchsorted(rows, end) :]
        handed[t] = []
        if len(rows):
            handed[front_of[rows[0]]].append(rows)
        below.append(rows)
    return below

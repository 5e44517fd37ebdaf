"""Where to cut a pattern: which latents are the border of an arrow, so that the rest is simple."""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from marginax._core.factors.base import Pattern

__all__ = ["Removal", "border_of_chain", "border_of_units", "removal", "two_sides"]


class Removal(NamedTuple):
    """Latents in the order of how many neighbours each has that are still there, most first.

    Attributes:
        order: until none has any.
        degrees: how many neighbours each had when it went.
    """

    order: Int[np.ndarray, " gone"]
    degrees: Int[np.ndarray, " gone"]


def _graph(pattern: Pattern) -> csr_array:
    """Neighbours, without the latents themselves."""
    off = pattern.rows != pattern.cols
    rows, cols = pattern.rows[off], pattern.cols[off]
    ends = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return coo_array((np.ones(len(ends[0])), ends), shape=(pattern.n, pattern.n)).tocsr()


def two_sides(pattern: Pattern) -> Bool[np.ndarray, " n"] | None:
    """The smaller side of two crossed factors, or None where there are more than two sides.

    Every latent is there twice, and neighbours are joined crosswise. A part of the graph has two
    sides if that falls apart into two copies of it; each part has its own larger side.
    """
    n = pattern.n
    off = pattern.rows != pattern.cols
    rows, cols = pattern.rows[off], pattern.cols[off]
    ends = np.concatenate([rows, cols]), np.concatenate([cols, rows]) + n
    doubled = coo_array((np.ones(len(ends[0])), ends), shape=(2 * n, 2 * n)).tocsr()
    labels = connected_components(doubled, directed=False)[1].astype(np.int64)
    one, other = labels[:n], labels[n:]
    if np.any(one == other):
        return None
    # A latent without neighbours is two parts, and on the larger side of both.
    side, part = one > other, np.minimum(one, other)
    smaller = np.bincount(part, weights=np.where(side, 1, -1)) > 0
    return side != smaller[part]


def removal(pattern: Pattern) -> Removal:
    """Takes away the latent with the most neighbours, again and again."""
    graph = _graph(pattern)
    starts, neighbours = graph.indptr.tolist(), graph.indices.tolist()
    degrees = np.diff(graph.indptr).tolist()
    heap = [(-degree, i) for i, degree in enumerate(degrees) if degree]
    heapq.heapify(heap)
    gone: list[int] = []
    had: list[int] = []
    while heap:
        minus, i = heapq.heappop(heap)
        if degrees[i] != -minus:
            continue  # some of its neighbours went meanwhile, and it is further down as well
        gone.append(i)
        had.append(-minus)
        degrees[i] = -1
        for j in neighbours[starts[i] : starts[i + 1]]:
            if degrees[j] > 0:
                degrees[j] -= 1
                if degrees[j]:
                    heapq.heappush(heap, (-degrees[j], j))
    return Removal(np.array(gone, np.int64), np.array(had, np.int64))


def border_of_units(
    pattern: Pattern, order: Int[np.ndarray, " gone"], size: int
) -> Int[np.ndarray, " border"]:
    """As few latents, in the order of removal, as leave no more than `size` that hang together."""
    graph = _graph(pattern)

    def simple(number: int) -> bool:
        left = np.ones(pattern.n, bool)
        left[order[:number]] = False
        labels = connected_components(graph[left][:, left], directed=False)[1]
        return bool(np.max(np.bincount(labels), initial=0) <= size)

    few, enough = -1, len(order)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if simple(middle) else (middle, enough)
    return order[:enough]


def border_of_chain(found: Removal, most: int) -> Int[np.ndarray, " border"]:
    """The few latents with very many neighbours: those before degrees fall most, at least by half.

    Args:
        found: the order of removal.
        most: how many at most.
    """
    degrees = found.degrees[: most + 1].astype(float)
    if len(degrees) < 2:
        return found.order[:0]
    falls = degrees[:-1] / degrees[1:]
    at = int(np.argmax(falls))
    return found.order[: at + 1] if falls[at] > 2 else found.order[:0]

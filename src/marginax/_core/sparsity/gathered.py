"""Products of sparse matrices with vectors, by reading alone.

Adding entries up where they belong is what XLA does slowly on processors, one after the other;
reading them is fast. So rows with about as many entries are put together, each filled up with zeros
to the next power of two, and the rows of every such bucket are read and summed at once.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = ["Bucket", "Gathered", "gathered", "product"]


class Bucket(NamedTuple):
    """Rows of a matrix with about as many entries.

    Attributes:
        columns: [rows, width] of the entries; 0 where a row is filled up.
        values: of the entries; 0 likewise.
    """

    columns: Int[Array, "rows width"]
    values: Float[Array, "rows width"]


class Gathered(NamedTuple):
    """A sparse matrix, as buckets of rows.

    Attributes:
        buckets: the rows, by their lengths.
        places: [m] where each row of the matrix stands in the buckets, one after the other; those
            without entries after all of them.
    """

    buckets: tuple[Bucket, ...]
    places: Int[Array, " m"]


def gathered(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, num_rows: int) -> Gathered:
    """The matrix of some entries, which may be there several times and are then added up.

    Args:
        rows: of the entries.
        columns: of these.
        values: of these.
        num_rows: m.
    """
    order = np.argsort(rows, kind="stable")
    columns, values = columns[order], values[order]
    counts = np.bincount(rows, minlength=num_rows)
    starts = np.cumsum(counts) - counts
    powers = np.where(counts > 0, np.ceil(np.log2(np.maximum(counts, 1))), -1).astype(int)
    places = np.empty(num_rows, np.int32)
    buckets, seen = [], 0
    for power in sorted(set(powers.tolist()) - {-1}):
        which = np.flatnonzero(powers == power)
        offsets = np.arange(2**power)
        filled = offsets[None, :] < counts[which][:, None]
        entries = np.where(filled, starts[which][:, None] + offsets[None, :], 0)
        buckets.append(
            Bucket(
                jnp.asarray(np.where(filled, columns[entries], 0).astype(np.int32)),
                jnp.asarray(np.where(filled, values[entries], 0.0)),
            )
        )
        places[which] = seen + np.arange(len(which))
        seen += len(which)
    places[powers == -1] = seen
    return Gathered(tuple(buckets), jnp.asarray(places))


def product(matrix: Gathered, x: Float[Array, " n"]) -> Float[Array, " m"]:
    """The matrix times a vector."""
    sums = [jnp.sum(one.values * x[one.columns], axis=1) for one in matrix.buckets]
    return jnp.concatenate([*sums, jnp.zeros(1, x.dtype)])[matrix.places]

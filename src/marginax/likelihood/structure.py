"""The sparse curvature of many dependent latents: its pattern, its values and its factors.

One block of very many latents has a Hessian in which few entries differ from zero: neighbours in
time or space, or effects that meet in a row of the data. Here it is found from the trace of the
model, checked against products of the whole Hessian, and said in one line.

    H(theta, x) = -grad^2_x l(theta, x) = A' H_z(theta, A x) A

A is how the rows of the data read the latents (`_core.sparsity.reads`), so that H_z has the pattern
of single rows, and a few probes give its values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import sparse

from marginax._core.factors import Factors, choose
from marginax._core.sparsity import Dense, Pattern, hessian_pattern, hessian_values
from marginax._core.sparsity.hessians import check_pattern
from marginax._core.sparsity.reads import Reads, linear_reads
from marginax.likelihood.blocks import Blocks

__all__ = ["Structure", "find_structure"]

LARGEST_DENSE = 1000  # latents whose whole curvature is affordable where there is no pattern
CHECKS = 2  # points, at random, at which the pattern is held against the whole Hessian


class Maps(NamedTuple):
    """Numbers that a model's data decide, handed to what is compiled.

    Attributes:
        columns: of the entries of A, and
        rows: their rows, and
        factors: their values.
        into: which entry of H every term goes to, and
        entry: which entry of H_z it has, and
        weight: by how much that is multiplied.
    """

    columns: Array
    rows: Array
    factors: Array
    into: Array
    entry: Array
    weight: Array


class Structure(NamedTuple):
    """What is known of the curvature of a block of latents.

    Attributes:
        size: n.
        pattern: where H may differ from zero.
        factors: of such matrices.
        maps: of this data set.
        curvature: `curvature(theta, x, data, maps)`, the values of H on the pattern.
        words: all this in one line.
    """

    size: int
    pattern: Pattern
    factors: Factors
    maps: Maps
    curvature: Callable[[Array, Array, Any, Maps], Float[Array, " entries"]]
    words: str


def find_structure(blocks: Blocks, theta: np.ndarray, kind: str | None = None) -> Structure | str:
    """The structure of a problem that is one block; or why it has none, in a sentence.

    Args:
        blocks: with one block.
        theta: flat, on the reals; around it the pattern is checked.
        kind: of factors, if the user wants another than the cheapest.
    """
    size = blocks.start.shape[1]

    def density(x: Array, theta: Array, data: Any) -> Array:
        return blocks.log_densities(theta, x[None], data)[0]

    unknown = jax.ShapeDtypeStruct(np.shape(theta), blocks.start.dtype)
    reads = linear_reads(density, size, unknown, blocks.data)
    points = reads.matrix.shape[0]
    like = jax.ShapeDtypeStruct((points,), blocks.start.dtype)
    rows = hessian_pattern(reads.rest, like, unknown, blocks.data)
    if isinstance(rows, Dense):
        if size > LARGEST_DENSE:
            return rows.reason
        reads = Reads(sparse.eye_array(size, format="csr"), density)
        points, rows = size, Pattern.of(*np.tril_indices(size), size)
    pattern, maps = _pulled_back(reads.matrix, rows)
    if pattern.nonzeros > size * size / 2 and size > LARGEST_DENSE:
        return f"The curvature of the {size:,} latents is full, or nearly so."
    values = hessian_values(reads.rest, rows)

    def curvature(theta: Array, x: Array, data: Any, maps: Maps) -> Array:
        z = jnp.zeros(points, x.dtype).at[maps.rows].add(maps.factors * x[maps.columns])
        of_rows = values(z, theta, data)
        entries = jnp.zeros(len(pattern.rows), x.dtype)
        return entries.at[maps.into].add(-maps.weight * of_rows[maps.entry])

    factors = choose(pattern.rows, pattern.cols, size, kind=kind)
    words = f"{size:,} latents, {pattern.nonzeros:,} non-zeros, {factors.words}"
    found = Structure(size, pattern, factors, maps, curvature, words)
    return _proof_read(found, density, blocks, theta) or found


def _pulled_back(matrix: sparse.csr_array, rows: Pattern) -> tuple[Pattern, Maps]:
    """The pattern of A' H_z A on and below the diagonal, and of which terms it is made."""
    n = matrix.shape[1]
    counts = np.diff(matrix.indptr)
    # Every entry (k, l) of H_z meets every pair of entries of A's rows k and l.
    pairs = counts[rows.rows].astype(np.int64) * counts[rows.cols]
    entry = np.repeat(np.arange(len(rows.rows)), pairs)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    of_second = counts[rows.cols][entry]
    first = matrix.indptr[rows.rows][entry] + within // np.maximum(of_second, 1)
    second = matrix.indptr[rows.cols][entry] + within % np.maximum(of_second, 1)
    weight = matrix.data[first] * matrix.data[second]
    i, j = matrix.indices[first], matrix.indices[second]
    # H_z has its mirror image too, which the lower half of H sees where i and j are not the same;
    # where they are, both halves of H_z meet in one entry of the diagonal.
    mirrored = rows.rows[entry] != rows.cols[entry]
    weight = np.where(mirrored & (i == j), 2 * weight, weight)
    # A pair within one entry of H_z's diagonal is there as (i, j) and as (j, i): once is enough.
    keep = mirrored | (i >= j)
    i, j, weight, entry = i[keep], j[keep], weight[keep], entry[keep]
    pattern = Pattern.of(i, j, n)
    keys = pattern.rows.astype(np.int64) * n + pattern.cols
    into = np.searchsorted(keys, np.maximum(i, j).astype(np.int64) * n + np.minimum(i, j))
    of_rows = np.repeat(np.arange(matrix.shape[0]), counts)
    parts = (matrix.indices, of_rows, matrix.data, into, entry, weight)
    return pattern, Maps(*(jnp.asarray(part) for part in parts))


def _proof_read(
    found: Structure, density: Callable[..., Array], blocks: Blocks, theta: np.ndarray
) -> str | None:
    """Whether products of the whole Hessian are those of the entries: a sentence if not."""
    rng = np.random.default_rng(0)
    start = np.asarray(blocks.start[0])
    values = jax.jit(found.curvature)
    for _ in range(CHECKS):
        x = jnp.asarray(start + 0.5 * rng.standard_normal(found.size), blocks.start.dtype)
        at = jnp.asarray(theta + 0.1 * rng.standard_normal(np.shape(theta)), blocks.start.dtype)
        sentence = check_pattern(
            lambda x, theta, data: -density(x, theta, data),
            found.pattern,
            [(x, at, blocks.data)],
            values=lambda x, theta, data: values(theta, x, data, found.maps),
        )
        if sentence is not None:
            return sentence
    return None

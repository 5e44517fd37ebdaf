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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy import sparse

from marginax._core.factors import FUNCTIONS, Factors, Raised, choose, raised
from marginax._core.programs import Program
from marginax._core.sparsity import Dense, Pattern, hessian_pattern, hessian_values
from marginax._core.sparsity.gathered import Gathered, gathered, product
from marginax._core.sparsity.hessians import check_pattern
from marginax._core.sparsity.reads import Reads, linear_reads
from marginax.model.problem import Problem

__all__ = ["Maps", "Structure", "find_structure", "structure_of"]

LARGEST_DENSE = 1000  # latents whose whole curvature is affordable where there is no pattern
CHECKS = 2  # points, at random, at which the pattern is held against the whole Hessian


class Maps(NamedTuple):
    """Matrices that a model's data decide, handed to what is compiled.

    Attributes:
        reads: A, of x.
        entries: of the entries of H_z those of H.
        back: its transpose.
    """

    reads: Gathered
    entries: Gathered
    back: Gathered


class Structure(NamedTuple):
    """What is known of the curvature of a block of latents.

    Attributes:
        size: n.
        pattern: where H may differ from zero.
        factors: of such matrices.
        maps: of this data set.
        curvature: `curvature(theta, x, data, maps)`, the values of H on the pattern.
        weighted: `weighted(theta, x, data, maps, weights)`, their weighted sum.
        lift: `lift(entries, share)`, a factor of H with its diagonal raised until there is one: see
            `raised`.
        words: all this in one line.
        identity: what other processes, too, know it by; None if nothing tells: see `LogJoint`.
    """

    size: int
    pattern: Pattern
    factors: Factors
    maps: Maps
    curvature: Callable[[Array, Array, Any, Maps], Float[Array, " entries"]]
    weighted: Callable[[Array, Array, Any, Maps, Array], Float[Array, ""]]
    lift: Callable[[Array, Array], Raised]
    words: str
    identity: str | None = None

    def __repr__(self) -> str:
        return self.words

    def known_as(self, identity: str | None) -> "Structure":
        """The same with programs that other processes find by an identity.

        Args:
            identity: of the model together with its data, which decide the pattern.
        """

        def kept(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            return Program(function, None if identity is None else f"{identity} {name}")

        factors, lift = self.factors, self.lift
        if factors.traceable:
            each: dict[str, Any] = {name: kept(name, getattr(factors, name)) for name in FUNCTIONS}
            factors = factors._replace(**each)
            lift = kept("lift", self.lift)
        return self._replace(
            factors=factors,
            curvature=kept("curvature", self.curvature),
            lift=lift,
            identity=identity,
        )


def structure_of(problem: Problem, kind: str | None = None) -> Structure:
    """The structure of a problem's curvature, for `metrics.curvature(structure=...)`.

    Args:
        problem: without groups.
        kind: "dense", "chain", "arrow" or "sparse", if another than the cheapest is wanted.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):  # a random walk
        ...     return -jnp.sum((x[1:] - x[:-1]) ** 2) - jnp.sum((y - x) ** 2) * jnp.exp(theta)
        >>> problem = mx.Problem(log_joint, 0.0, jnp.zeros(500), jnp.ones(500))
        >>> mx.structure_of(problem)
        500 latents, 1,498 non-zeros, a chain
    """
    if problem.num_groups is not None:
        raise ValueError(
            f"The problem has {problem.num_groups} groups, whose curvature is small and dense: "
            "`metrics.curvature()` is for them. A structure is of a problem without groups."
        )
    theta, unravel_theta = ravel_pytree(problem.start_theta())
    start, unravel = ravel_pytree(problem.start_latent())

    def density(x: Array, theta: Array, data: Any) -> Array:
        return problem.unconstrained_log_joint(unravel_theta(theta), unravel(x), data)

    kind = problem.structure if kind is None else kind
    found = find_structure(density, start, np.asarray(theta), problem.data, kind)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def find_structure(
    density: Callable[[Array, Array, Any], Array],
    start: Array,
    theta: np.ndarray,
    data: Any,
    kind: str | None = None,
    identity: str | None = None,
) -> Structure | str:
    """The structure of a density's curvature; or why it has none, in a sentence.

    Args:
        density: `density(x, theta, data)`, of flat x and flat theta, both on the reals.
        start: an x; around it the pattern is checked, and
        theta: around this.
        data: handed on; indices in it decide which latents meet.
        kind: of factors, if the user wants another than the cheapest.
        identity: of the model together with its data, by which other processes find its programs.
    """
    size = len(start)
    unknown = jax.ShapeDtypeStruct(np.shape(theta), start.dtype)
    reads = linear_reads(density, size, unknown, data)
    like = jax.ShapeDtypeStruct((reads.matrix.shape[0],), start.dtype)
    rows = hessian_pattern(reads.rest, like, unknown, data)
    if isinstance(rows, Dense):
        if size > LARGEST_DENSE:
            return rows.reason
        reads = Reads(sparse.eye_array(size, format="csr"), density)
        rows = Pattern.of(*np.tril_indices(size), size)
    pattern, maps = _pulled_back(reads.matrix, rows)
    if pattern.nonzeros > size * size / 2 and size > LARGEST_DENSE:
        return f"The curvature of the {size:,} latents is full, or nearly so."
    values = hessian_values(reads.rest, rows)

    def curvature(theta: Array, x: Array, data: Any, maps: Maps) -> Array:
        return product(maps.entries, values(product(maps.reads, x), theta, data))

    def weighted(theta: Array, x: Array, data: Any, maps: Maps, weights: Array) -> Array:
        # The weights of H_z's own entries do not change with theta and x: less to differentiate.
        of_rows = product(maps.back, weights)
        return jnp.sum(of_rows * values(product(maps.reads, x), theta, data))

    factors = choose(pattern.rows, pattern.cols, size, kind=kind)
    words = f"{size:,} latents, {pattern.nonzeros:,} non-zeros, {factors.words}"

    def lift(entries: Array, share: Array) -> Raised:
        return raised(factors, entries, share=share)

    found = Structure(size, pattern, factors, maps, curvature, weighted, lift, words)
    found = found.known_as(identity)
    return _proof_read(found, density, start, theta, data) or found


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
    maps = Maps(
        reads=gathered(of_rows, matrix.indices, matrix.data, matrix.shape[0]),
        entries=gathered(into, entry, -weight, len(pattern.rows)),
        back=gathered(entry, into, -weight, len(rows.rows)),
    )
    return pattern, maps


def _proof_read(
    found: Structure,
    density: Callable[..., Array],
    start: Array,
    theta: np.ndarray,
    data: Any,
) -> str | None:
    """Whether products of the whole Hessian are those of the entries: a sentence if not."""
    rng = np.random.default_rng(0)
    for _ in range(CHECKS):
        x = jnp.asarray(np.asarray(start) + 0.5 * rng.standard_normal(found.size), start.dtype)
        at = jnp.asarray(theta + 0.1 * rng.standard_normal(np.shape(theta)), start.dtype)
        sentence = check_pattern(
            lambda x, theta, data: -density(x, theta, data),
            found.pattern,
            [(x, at, data)],
            values=lambda x, theta, data: found.curvature(theta, x, data, found.maps),
        )
        if sentence is not None:
            return sentence
    return None

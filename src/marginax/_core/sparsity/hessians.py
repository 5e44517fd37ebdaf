"""Sparse Hessians of users' functions: their pattern from the trace, their values, and the proof.

The product of the Hessian with a probe is traced, so that JAX's own rules say what the second
derivatives are, a user's rules among them. It is a program that is linear in the probe; which of
the probe's entries each of its results depends on, is the pattern.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy import sparse

from marginax._core.sparsity.facts import Fact, TooManyDependencies
from marginax._core.sparsity.pattern import Dense, Pattern
from marginax._core.sparsity.traces import needed, occurs
from marginax._core.sparsity.walk import Walk

__all__ = ["check_pattern", "hessian_pattern", "hessian_values", "unknown"]


def unknown(tree: PyTree) -> PyTree:
    """The shapes and dtypes of a tree of arrays, for arguments whose values may change."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), _dtype(leaf)), tree)


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype


def hessian_pattern(function: Callable[..., Any], x: PyTree, *args: PyTree) -> Pattern | Dense:
    """The entries of a Hessian that may differ from zero, at any x and whatever is unknown.

    Args:
        function: `function(x, *args)`, a scalar.
        x: a tree of arrays, of which shapes and dtypes count. Its leaves, one after the other and
            row by row, are the rows of the Hessian.
        args: trees of arrays, whose values count (indices, masks, zeros of a design matrix), or of
            `jax.ShapeDtypeStruct` for what is not known: `unknown(theta)`.

    Returns:
        The pattern; `Dense` if it is more than half full or too large to be found.
    """
    leaves = jax.tree.leaves(x)
    sizes = [int(np.prod(np.shape(leaf), dtype=np.int64)) for leaf in leaves]
    n = sum(sizes)
    _refuse_integers(leaves)

    def product(x: Any, probe: Any, *args: Any) -> Any:
        return _curvature(jax.grad(lambda x: function(x, *args)), x)(probe)

    traced = needed(jax.make_jaxpr(product)(unknown(x), unknown(x), *args))
    one = sparse.eye_array(n, dtype=bool, format="csr")
    ends = np.cumsum([0, *sizes])
    probe = [one[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    facts = [
        *(Fact(np.shape(leaf)) for leaf in leaves),
        *(Fact(np.shape(leaf), reach=part) for leaf, part in zip(leaves, probe, strict=True)),
        *(_given(leaf) for leaf in jax.tree.leaves(args)),
    ]
    walk = Walk(n)
    try:
        results = walk.through(traced, facts, n)
    except TooManyDependencies as reason:
        return Dense(n, f"The Hessian is taken to be full: {reason.where} {reason.why}.")
    found = [_coordinates(fact, int(at)) for fact, at in zip(results, ends[:-1], strict=True)]
    none = np.zeros(0, np.int64)
    rows, cols = (np.concatenate([none, *(pair[k] for pair in found)]) for k in range(2))
    pattern = Pattern.of(rows, cols, n)
    return pattern if pattern.nonzeros <= n * n / 2 else Dense(n, _why_full(walk, pattern))


def _refuse_integers(leaves: list[Any]) -> None:
    for leaf in leaves:
        if not jnp.issubdtype(_dtype(leaf), jnp.floating):
            raise TypeError(
                f"Latents of dtype {_dtype(leaf)} were given, which have no second derivatives. "
                "Make them floating-point numbers, or pass them as data."
            )


def _given(leaf: Any) -> Fact:
    """What is known of an argument: its values, unless it is but a shape."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return Fact(leaf.shape)
    if isinstance(_dtype(leaf), np.dtype):
        return Fact(np.shape(leaf), value=np.asarray(leaf).astype(_canonical(leaf)))
    return Fact(np.shape(leaf), value=leaf)


def _canonical(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(_dtype(leaf))


def _coordinates(fact: Fact, start: int) -> tuple[np.ndarray, np.ndarray]:
    if fact.reach is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    counts = np.diff(fact.reach.indptr)
    rows = np.repeat(np.arange(start, start + fact.size, dtype=np.int64), counts)
    return rows, fact.reach.indices.astype(np.int64)


def _why_full(walk: Walk, pattern: Pattern) -> str:
    n, entries = pattern.n, pattern.nonzeros
    start = f"The Hessian is full, or nearly so ({entries:,} of {n * n:,} entries)"
    if walk.mixed:
        return f"{start}: {walk.mixed[0]} was taken to mix all that goes into it."
    return f"{start}." if walk.widest is None else f"{start}: {walk.widest}."


def _curvature(gradient: Callable[..., Any], x: PyTree) -> Callable[..., Any]:
    """The product of the Hessian at x with a probe, a function of that.

    Forward over reverse; where a user's rule for reverse derivatives alone forbids that, reverse
    over reverse, which is the same, since the Hessian is symmetric. JAX refuses it by an error, or
    leaves `custom_lin` in the trace, which nothing can compute.
    """

    def forward(x: Any, probe: Any) -> Any:
        return jax.linearize(gradient, x)[1](probe)

    try:
        allowed = not occurs("custom_lin", jax.make_jaxpr(forward)(unknown(x), unknown(x)))
    except TypeError:
        allowed = False
    if allowed:
        return jax.linearize(gradient, x)[1]
    backward = jax.vjp(gradient, x)[1]
    return lambda probe: backward(probe)[0]


def hessian_values(
    function: Callable[..., Any],
    pattern: Pattern,
    unravel: Callable[..., Any] = lambda flat: flat,
    batch_size: int = 16,
) -> Callable[..., Any]:
    """The values of a Hessian on its pattern, as a function that can be compiled.

    Args:
        function: `function(x, *args)`, a scalar.
        pattern: of its Hessian.
        unravel: makes x of a vector, as `jax.flatten_util.ravel_pytree` gives it.
        batch_size: how many probes are multiplied at a time: more are faster and take more memory.

    Returns:
        `values(flat, *args)`, [entries] in the order of the pattern.
    """
    colors = pattern.colors

    def values(flat: Any, *args: Any) -> Any:
        multiply = _curvature(jax.grad(lambda flat: function(unravel(flat), *args)), flat)
        probes = jnp.arange(pattern.num_colors, dtype=colors.dtype)
        products = jax.lax.map(
            lambda color: multiply((jnp.asarray(colors) == color).astype(flat.dtype)),
            probes,
            batch_size=min(batch_size, pattern.num_colors),
        )
        return pattern.recovered(products)

    return values


def check_pattern(
    function: Callable[..., Any],
    pattern: Pattern,
    points: Iterable[tuple[Any, ...]],
    unravel: Callable[..., Any] = lambda flat: flat,
    seed: int = 0,
    values: Callable[..., Any] | None = None,
) -> str | None:
    """Whether a Hessian is what its pattern says: a sentence if it is not.

    The product of the Hessian with a random vector is compared with that of the entries on the
    pattern, row by row and relative to the absolute values that are added up in the row. The vector
    is in the units of the latents, as the diagonal tells them, so that these do not matter.

    Args:
        function: `function(x, *args)`, a scalar.
        pattern: of its Hessian.
        points: `(flat, *args)`, at which to look, with x as a vector.
        unravel: makes x of a vector.
        seed: of the random vectors.
        values: `values(flat, *args)` on the pattern, if they are found in another way than by
            `hessian_values`.
    """
    generator = np.random.default_rng(seed)
    of_pattern = values or jax.jit(hessian_values(function, pattern, unravel))

    @jax.jit
    def product(flat: Any, probe: Any, *args: Any) -> Any:
        gradient = jax.grad(lambda flat: function(unravel(flat), *args))
        return _curvature(gradient, flat)(probe)

    for flat, *args in points:
        matrix = pattern.matrix(of_pattern(flat, *args))
        probe = _random_probe(matrix, generator).astype(flat.dtype)
        expected = np.asarray(product(flat, jnp.asarray(probe), *args))
        sentence = _difference(matrix, probe, expected)
        if sentence is not None:
            return sentence
    return None


def _random_probe(matrix: Any, generator: np.random.Generator) -> np.ndarray:
    """Random signs and sizes, in units in which the diagonal is one."""
    n = matrix.shape[0]
    curvature = np.abs(matrix.diagonal())
    largest = abs(matrix).max(axis=1)
    largest = np.asarray(largest.todense() if sparse.issparse(largest) else largest).reshape(n)
    scale = np.where(curvature > 0, curvature, largest)
    units = 1 / np.sqrt(np.where((scale > 0) & np.isfinite(scale), scale, 1))
    return units * generator.choice([-1.0, 1.0], n) * generator.uniform(0.5, 1.5, n)


def _difference(matrix: Any, probe: np.ndarray, expected: np.ndarray) -> str | None:
    """The row where a product is not that of the matrix, in a sentence."""
    tolerance = float(np.sqrt(np.finfo(expected.dtype).eps))
    off = np.abs(matrix @ probe - expected)
    allowed = tolerance * (abs(matrix) @ np.abs(probe))
    wrong = np.flatnonzero(~(off <= allowed))
    if len(wrong) == 0:
        return None
    if not np.all(np.isfinite(expected)):
        return (
            "The Hessian is not finite at a point where its pattern was to be checked. "
            "Choose other points."
        )
    row = int(wrong[np.argmax(off[wrong] - allowed[wrong])])
    return (
        f"The pattern misses entries of the Hessian, or that is not symmetric: its product with a "
        f"random vector is {expected[row]:.6g} in row {row}, and {(matrix @ probe)[row]:.6g} by "
        f"the entries of the pattern ({len(wrong):,} of {len(probe):,} rows differ). "
        "Use the whole Hessian, and look at derivative rules of your own."
    )

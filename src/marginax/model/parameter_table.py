"""What tables say of theta: its constrained numbers, their names, and intervals on a fitting scale.

Numbers are in the order in which theta was written, and not in that of JAX, which sorts the keys of
dicts. A leaf is shown entry by entry, except where its transform says otherwise: of a correlation
matrix's Cholesky factor the correlations are shown, not the factor.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import tree_flatten_with_path
from jaxtyping import Array, Float

from marginax._core.disk_cache import kept_on_disk
from marginax._core.programs import KEPT, ById, recent
from marginax._core.trees import unraveler
from marginax.model.inputs import path_name
from marginax.model.problem import Problem
from marginax.model.transforms import Transform, identity
from marginax.model.transforms.trees import forward, is_transform
from marginax.typing import Theta

__all__ = [
    "unconstrained_names",
    "constrained_theta",
    "in_its_precision",
    "intervals",
    "is_free",
    "numbers_and_jacobian",
    "sole_coordinates",
    "displayed",
    "parameter_names",
    "unravel_theta",
]


def _precision_of(problem: Problem) -> AbstractContextManager[Any]:
    """In which a problem's numbers are: float64 also where JAX has it switched off by now."""
    leaves = jax.tree.leaves(problem.theta)
    double = any(np.dtype(leaf.dtype) == np.float64 for leaf in leaves)
    return jax.enable_x64(True) if double else nullcontext()


def in_its_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a problem, computed in the problem's own precision."""

    @wraps(function)
    def wrapped(problem: Problem, *arguments: Any) -> Any:
        with _precision_of(problem):
            return function(problem, *arguments)

    return wrapped


@in_its_precision
def unravel_theta(problem: Problem, flat: np.ndarray) -> Theta:
    """theta on the reals as a tree, from its flat numbers."""
    start, unravel = ravel_pytree(problem.start_theta())
    return unravel(jnp.asarray(flat, start.dtype))


@in_its_precision
def constrained_theta(problem: Problem, theta: Theta) -> Theta:
    """theta on its constrained scale, from the reals."""
    return problem.constrained_theta(theta)


@in_its_precision
def numbers_and_jacobian(problem: Problem, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a table, and their derivatives in those on the reals: [displayed, reals]."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    leaves, structure = jax.tree.flatten(problem.start_theta())
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    program = _with_jacobian(tuple(ById(one, mark=one) for one in transforms), structure, shapes)
    with kept_on_disk():
        numbers, derivatives = program(
            np.asarray(flat, np.result_type(*(leaf.dtype for leaf in leaves)))
        )
    order = _order(problem)
    return np.asarray(numbers, float)[order], np.asarray(derivatives, float)[order]


@lru_cache(KEPT)
def _with_jacobian(transforms: tuple[ById, ...], structure: Any, shapes: tuple[Any, ...]) -> Any:
    """One program of all small operations, for all problems with the same transforms."""
    of_leaves = [one.value for one in transforms]
    like = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*one) for one in shapes])
    unravel = unraveler(like)

    def numbers(flat: Array) -> Array:
        theta = forward(jax.tree.unflatten(structure, of_leaves), unravel(flat))
        return _concatenated(of_leaves, theta)

    return jax.jit(lambda flat: (numbers(flat), jax.jacobian(numbers)(flat)))


@in_its_precision
def displayed(problem: Problem, theta: Theta) -> Float[Array, " displayed"]:
    """The numbers of a table, from theta on the reals."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    return _concatenated(transforms, problem.constrained_theta(theta))[_order(problem)]


def _order(problem: Problem) -> np.ndarray:
    """Where the numbers of a table are when leaves are taken in JAX's order."""
    sizes = [_values(transform, leaf).size for _, transform, leaf, _ in _leaves(problem)]
    ends = np.cumsum(sizes)
    places = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return np.concatenate([places[i] for i in problem.written_order])


def _concatenated(transforms: list[Transform], constrained: Theta) -> Array:
    leaves = jax.tree.leaves(constrained)
    return jnp.concatenate(
        [
            _values(transform, leaf).ravel()
            for transform, leaf in zip(transforms, leaves, strict=True)
        ]
    )


@in_its_precision
def parameter_names(problem: Problem) -> tuple[str, ...]:
    """A name for every number of a table, in the order in which theta was written."""
    names = _names_by_leaf(problem)
    return tuple(names[i] for i in _order(problem))


def _names_by_leaf(problem: Problem) -> list[str]:
    names: list[str] = []
    for base, transform, constrained, _ in _leaves(problem):
        given = problem.names.get(base)
        if given is None:
            given = [base + label for label in _labels(transform, constrained.shape)]
        given = [given] if isinstance(given, str) else [str(x) for x in np.ravel(given)]
        size = _values(transform, constrained).size
        if len(given) != size:
            raise ValueError(
                f"names[{base!r}] has {len(given)} names, but theta has {size} numbers there."
            )
        names += given
    return names


@in_its_precision
def unconstrained_names(problem: Problem) -> tuple[str, ...]:
    """A name for every real of theta: that of the table's where the two correspond."""
    names: list[str] = []
    at, table = 0, _names_by_leaf(problem)
    for base, transform, constrained, on_reals in _leaves(problem):
        size = _values(transform, constrained).size
        here = table[at : at + size]
        alike = transform.elementwise or (transform.display is not None and size == on_reals.size)
        names += here if alike else [f"{base}[{i}]" for i in range(on_reals.size)]
        at += size
    return tuple(names)


@in_its_precision
def sole_coordinates(problem: Problem) -> tuple[int | None, ...]:
    """For every number of a table the one real that it is made of; None if of several."""
    sole: list[int | None] = []
    at = 0
    for _, transform, constrained, on_reals in _leaves(problem):
        size = _values(transform, constrained).size
        alone = transform.elementwise or size == on_reals.size == 1
        sole += [at + i if alone else None for i in range(size)]
        at += on_reals.size
    return tuple(sole[i] for i in _order(problem))


@in_its_precision
def is_free(problem: Problem) -> tuple[bool, ...]:
    """For every number of a table whether it has no constraint."""
    free: list[bool] = []
    for _, transform, constrained, _ in _leaves(problem):
        free += [transform is identity] * _values(transform, constrained).size
    return tuple(free[i] for i in _order(problem))


@in_its_precision
def intervals(
    problem: Problem, estimates: np.ndarray, errors: np.ndarray, quantile: float
) -> np.ndarray:
    """Estimates plus and minus errors, made where numbers are unbounded and mapped back: [n, 2]."""
    leaves = list(_leaves(problem))
    transforms = tuple(ById(transform, mark=transform) for _, transform, _, _ in leaves)
    sizes = tuple(_values(transform, constrained).size for _, transform, constrained, _ in leaves)
    dtype = jnp.result_type(float)
    order = _order(problem)
    back = np.argsort(order)
    by_leaf = (estimates[back].astype(dtype), (quantile * errors)[back].astype(dtype))
    table = np.asarray(_ends(transforms, sizes)(*by_leaf), float)
    return np.sort(table, axis=1)[order]


def _both_ends(
    transforms: tuple[ById, ...], sizes: tuple[int, ...], estimates: Array, halves: Array
) -> Array:
    """One program of all small operations, for all problems with the same transforms."""
    ends, at = [], 0
    for transform, size in zip(transforms, sizes, strict=True):
        here, half = estimates[at : at + size], halves[at : at + size]
        stretch, back = _scale(transform.value)
        # Number by number, so that one direction tells all derivatives.
        middle, slope = jax.jvp(stretch, (here,), (jnp.ones_like(here),))
        # An unbounded error means the whole of what is allowed.
        away = half * jnp.abs(slope)
        ends.append(jnp.stack([back(middle - away), back(middle + away)], axis=1))
        at += size
    return jnp.concatenate(ends)


_ends = recent(_both_ends)


def _leaves(problem: Problem) -> Iterator[tuple[str, Transform, Any, Any]]:
    """(name, transform, constrained leaf, leaf on the reals) of theta."""
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    constrained = tree_flatten_with_path(problem.theta)[0]
    on_reals = jax.tree.leaves(problem.start_theta())
    for transform, (path, leaf), start in zip(transforms, constrained, on_reals, strict=True):
        yield path_name(path), transform, leaf, start


def _values(transform: Transform, constrained: Any) -> Any:
    return constrained if transform.display is None else transform.display.values(constrained)


def _labels(transform: Transform, shape: tuple[int, ...]) -> list[str]:
    if transform.display is not None:
        return transform.display.labels
    if shape == ():
        return [""]
    return [f"[{','.join(map(str, index))}]" for index in np.ndindex(shape)]


def _scale(transform: Transform) -> Any:
    """Where the interval of one number is made, and back: on the reals, if it is on its own."""
    if transform.display is not None:
        return transform.display.stretch, transform.display.unstretch
    if transform.elementwise:
        return transform.inverse, transform.forward
    return (lambda x: x), (lambda u: u)

"""What tables say of theta: its natural numbers, their names, and intervals on a fitting scale.

A leaf is shown entry by entry, except where its bijection says otherwise: of a correlation matrix's
Cholesky factor the correlations are shown, not the factor.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import tree_flatten_with_path
from jaxtyping import Array, Float

from marginax.base import Theta
from marginax.bijections import Bijection
from marginax.constraints import is_map
from marginax.leaves import path_name
from marginax.problem import Problem

__all__ = [
    "free_names",
    "intervals",
    "jacobian",
    "made_of_one",
    "shown",
    "shown_names",
    "unravelled",
]


def unravelled(problem: Problem, flat: np.ndarray) -> Theta:
    """theta on the reals as a tree, from its flat numbers."""
    start, unravel = ravel_pytree(problem.start_theta())
    return unravel(jnp.asarray(flat, start.dtype))


def jacobian(problem: Problem, flat: np.ndarray) -> np.ndarray:
    """Of the numbers of a table in the free ones: [shown, free]."""
    start, unravel = ravel_pytree(problem.start_theta())
    found = jax.jacobian(lambda theta: shown(problem, unravel(theta)))(
        jnp.asarray(flat, start.dtype)
    )
    return np.asarray(found, float)


def shown(problem: Problem, theta: Theta) -> Float[Array, " shown"]:
    """The numbers of a table, from theta on the reals."""
    leaves = jax.tree.leaves(problem.natural_theta(theta))
    maps = jax.tree.leaves(problem.constrain_theta, is_leaf=is_map)
    return jnp.concatenate(
        [_values(to, leaf).ravel() for to, leaf in zip(maps, leaves, strict=True)]
    )


def shown_names(problem: Problem) -> tuple[str, ...]:
    """A name for every number of a table."""
    names: list[str] = []
    for base, to, natural, _ in _leaves(problem):
        given = problem.names.get(base)
        if given is None:
            given = [base + label for label in _labels(to, natural.shape)]
        given = [given] if isinstance(given, str) else [str(x) for x in np.ravel(given)]
        size = _values(to, natural).size
        if len(given) != size:
            raise ValueError(
                f"names[{base!r}] has {len(given)} names, but theta has {size} numbers there."
            )
        names += given
    return tuple(names)


def free_names(problem: Problem) -> tuple[str, ...]:
    """A name for every free number of theta: that of the table's where the two correspond."""
    names: list[str] = []
    at, table = 0, shown_names(problem)
    for base, to, natural, free in _leaves(problem):
        size = _values(to, natural).size
        here = table[at : at + size]
        alike = to.by_entry or (to.shown is not None and size == free.size)
        names += here if alike else [f"{base}[{i}]" for i in range(free.size)]
        at += size
    return tuple(names)


def made_of_one(problem: Problem) -> tuple[int | None, ...]:
    """For every number of a table the one free number that it is made of; None if of several."""
    found: list[int | None] = []
    at = 0
    for _, to, natural, free in _leaves(problem):
        size = _values(to, natural).size
        alone = to.by_entry or size == free.size == 1
        found += [at + i if alone else None for i in range(size)]
        at += free.size
    return tuple(found)


def intervals(
    problem: Problem, estimates: np.ndarray, errors: np.ndarray, quantile: float
) -> np.ndarray:
    """Estimates plus and minus errors, made where each number is free and mapped back: [n, 2]."""
    ends, at = [], 0
    for _, to, natural, _ in _leaves(problem):
        size = _values(to, natural).size
        here, error = estimates[at : at + size], errors[at : at + size]
        stretch, back = _scale(to)
        slope = np.abs(np.asarray(jax.vmap(jax.grad(stretch))(jnp.asarray(here, float))))
        half = quantile * error * slope
        middle = np.asarray(stretch(jnp.asarray(here, float)))
        for sign in (-1, 1):
            # An unbounded error means the whole of what is allowed.
            ends.append((at, sign, np.asarray(back(jnp.asarray(middle + sign * half)))))
        at += size
    table = np.zeros((at, 2))
    for first, sign, values in ends:
        table[first : first + len(values), (sign + 1) // 2] = values
    return np.sort(table, axis=1)


def _leaves(problem: Problem) -> Iterator[tuple[str, Bijection, Any, Any]]:
    """(name, bijection, natural leaf, free leaf) of theta."""
    maps = jax.tree.leaves(problem.constrain_theta, is_leaf=is_map)
    natural = tree_flatten_with_path(problem.theta)[0]
    free = jax.tree.leaves(problem.start_theta())
    for to, (path, leaf), start in zip(maps, natural, free, strict=True):
        yield path_name(path), to, leaf, start


def _values(to: Bijection, natural: Any) -> Any:
    return natural if to.shown is None else to.shown.values(natural)


def _labels(to: Bijection, shape: tuple[int, ...]) -> list[str]:
    if to.shown is not None:
        return to.shown.labels
    if shape == ():
        return [""]
    return [f"[{','.join(map(str, index))}]" for index in np.ndindex(shape)]


def _scale(to: Bijection) -> Any:
    """Where the interval of one number is made, and back: where it is free, if it is on its own."""
    if to.shown is not None:
        return to.shown.stretch, to.shown.unstretch
    if to.by_entry:
        return to.inverse, to.forward
    return (lambda x: x), (lambda u: u)

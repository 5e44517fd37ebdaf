"""Trees of bijections: made from what a user gives, and applied leaf by leaf."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax.bijections import Bijection, identity

__all__ = ["check_inside", "forward", "inverse", "is_map", "log_volume", "maps_for"]


def is_map(value: Any) -> bool:
    """Whether this is a bijection, a leaf among trees of them."""
    return isinstance(value, Bijection)


def maps_for(given: PyTree, like: PyTree, name: str) -> PyTree:
    """A bijection for every leaf of `like`: given ones, and the identity for the rest."""
    if isinstance(given, Bijection):
        return jax.tree.map(lambda _: given, like)
    if given is None:
        return jax.tree.map(lambda _: identity, like)
    if isinstance(given, Mapping) and isinstance(like, Mapping):
        unknown = set(given) - set(like)
        if unknown:
            raise ValueError(
                f"constrain_{name} names {sorted(unknown)}, which {name} does not have; it has "
                f"{sorted(like)}."
            )
        return {key: maps_for(given.get(key), value, name) for key, value in like.items()}
    try:
        return jax.tree.map(
            lambda to, part: jax.tree.map(lambda _: identity if to is None else to, part),
            given,
            like,
            is_leaf=lambda value: value is None or is_map(value),
        )
    except ValueError as error:
        raise ValueError(
            f"constrain_{name} does not fit {name}: give a tree of the same structure, with "
            "bijections or None at its leaves."
        ) from error


def forward(maps: PyTree, tree: PyTree) -> PyTree:
    """From the reals to natural values."""
    return jax.tree.map(lambda to, leaf: to.forward(leaf), maps, tree, is_leaf=is_map)


def log_volume(maps: PyTree, tree: PyTree) -> Array:
    """The log change of volume of `forward`, over the whole tree."""
    parts = jax.tree.map(lambda to, leaf: to.log_volume(leaf), maps, tree, is_leaf=is_map)
    return sum(jax.tree.leaves(parts), start=jnp.zeros(()))


def check_inside(tree: PyTree, maps: PyTree, name: str) -> None:
    """Refuses starting values outside the allowed sets."""

    def check(to: Bijection, leaf: Array) -> None:
        if not bool(to.inside(leaf)):
            raise ValueError(
                f"The start of {name} has {leaf}, which is not inside {to.name}. Start within the "
                "allowed set, not on its edge."
            )

    jax.tree.map(check, maps, tree, is_leaf=is_map)


def inverse(maps: PyTree, tree: PyTree) -> PyTree:
    """From natural values to the reals."""
    return jax.tree.map(lambda to, leaf: to.inverse(leaf), maps, tree, is_leaf=is_map)

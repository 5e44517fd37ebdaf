"""Trees of transforms: made from what a user gives, and applied leaf by leaf."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax._core.checks import is_traced
from marginax.model.transforms.base import Transform, identity

__all__ = [
    "check_contained",
    "forward",
    "inverse",
    "is_transform",
    "log_abs_det_jacobian",
    "transforms_for",
]


def is_transform(value: Any) -> bool:
    """Whether this is a transform, a leaf among trees of them."""
    return isinstance(value, Transform)


def transforms_for(given: PyTree, like: PyTree, name: str) -> PyTree:
    """A transform for every leaf of `like`: given ones, and the identity for the rest."""
    if isinstance(given, Transform):
        return jax.tree.map(lambda _: given, like)
    if given is None:
        return jax.tree.map(lambda _: identity, like)
    if isinstance(given, Mapping) and isinstance(like, Mapping):
        unknown = set(given) - set(like)
        if unknown:
            raise ValueError(
                f"{name}_transforms names {sorted(unknown)}, which {name} does not have; it has "
                f"{sorted(like)}."
            )
        return {key: transforms_for(given.get(key), value, name) for key, value in like.items()}
    try:
        return jax.tree.map(
            lambda transform, part: jax.tree.map(
                lambda _: identity if transform is None else transform, part
            ),
            given,
            like,
            is_leaf=lambda value: value is None or is_transform(value),
        )
    except ValueError as error:
        raise ValueError(
            f"{name}_transforms does not fit {name}: give a tree of the same structure, with "
            "transforms or None at its leaves."
        ) from error


def forward(transforms: PyTree, tree: PyTree) -> PyTree:
    """From the reals to constrained values."""
    return jax.tree.map(
        lambda transform, leaf: transform.forward(leaf), transforms, tree, is_leaf=is_transform
    )


def log_abs_det_jacobian(transforms: PyTree, tree: PyTree) -> Array:
    """The log change of volume of `forward`, over the whole tree."""
    parts = jax.tree.map(
        lambda transform, leaf: transform.log_abs_det_jacobian(leaf),
        transforms,
        tree,
        is_leaf=is_transform,
    )
    return sum(jax.tree.leaves(parts), start=jnp.zeros(()))


def check_contained(tree: PyTree, transforms: PyTree, name: str) -> None:
    """Refuses starting values outside the allowed sets, by the name of the parameter."""
    maps = jax.tree.leaves(transforms, is_leaf=is_transform)
    for (path, leaf), transform in zip(tree_flatten_with_path(tree)[0], maps, strict=True):
        if bool(transform.contains(_on_host(leaf) if transform.elementwise else leaf)):
            continue
        place, value = _first_outside(leaf, transform)
        raise ValueError(
            f"The start of {name}{keystr(path)}{place} is {value}, which is not inside "
            f"{transform.name}{_domain(transform)}. Start within the allowed set, not on its edge."
        )


def _first_outside(leaf: Array, transform: Transform) -> tuple[str, str]:
    """The place and the value of what is not allowed: an entry, where entries stand alone."""
    values = np.asarray(leaf)
    if transform.elementwise and values.ndim:
        for place, value in np.ndenumerate(values):
            if not bool(transform.contains(value)):
                return f"[{', '.join(map(str, place))}]", str(value)
    return "", str(values)


def _domain(transform: Transform) -> str:
    """The allowed set in numbers, if all entries have the same."""
    low, high = transform.limits[0]
    if len(transform.limits) > 1 or low is None or high is None or not transform.elementwise:
        return ""
    return f" (above {low:g})" if math.isinf(high) else f" (between {low:g} and {high:g})"


def inverse(transforms: PyTree, tree: PyTree) -> PyTree:
    """From constrained values to the reals."""

    def of_leaf(transform: Transform, leaf: Any) -> Any:
        if transform is identity or not transform.elementwise or is_traced(leaf):
            return transform.inverse(leaf)
        return jax.device_put(np.asarray(transform.inverse(_on_host(leaf))))

    return jax.tree.map(of_leaf, transforms, tree, is_leaf=is_transform)


def _on_host(leaf: Any) -> Any:
    return leaf if is_traced(leaf) else np.asarray(leaf)

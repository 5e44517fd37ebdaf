"""The leaves that a problem is given: as arrays, in double precision, by name."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax._core.precision import Held, as_numbers, hold
from marginax.typing import Data, Theta

__all__ = [
    "as_starts",
    "as_written",
    "check_names",
    "check_structure",
    "lengths",
    "path_name",
    "widened",
]

STRUCTURES = ("dense", "chain", "arrow", "sparse")


def lengths(data: Data) -> list[tuple[int, ...]]:
    """Of the leading axis of every leaf; none of single numbers."""
    return [np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)]


def check_names(names: Mapping[str, Any], theta: Theta) -> None:
    """Refuses names for what theta does not have."""
    known = [path_name(path) for path, _ in tree_flatten_with_path(theta)[0]]
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"names has {', '.join(unknown)}, which theta does not have; it has {', '.join(known)}."
        )


def check_structure(structure: str | None, num_groups: int | None) -> None:
    """Refuses a structure that there is not, or of groups."""
    if structure is None:
        return
    if structure not in STRUCTURES:
        raise ValueError(
            f"structure is {structure!r}, but it must be one of {', '.join(STRUCTURES)}; leave it "
            "out, and the cheapest that suits the model is taken."
        )
    if num_groups is not None:
        raise ValueError(
            f"structure is {structure!r}, but the problem has {num_groups} groups, which are "
            "integrated over one by one. A structure is of one block of dependent latents."
        )


def path_name(path: Any) -> str:
    """A leaf of theta in words: its keys, names and places, joined by dots."""
    words = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    return ".".join(words) or "theta"


def as_written(tree: PyTree) -> tuple[int, ...]:
    """The places of a tree's leaves in the order in which they were written.

    JAX takes the entries of a dict in the order of their keys; a reader expects them as they stand.
    """
    leaves, structure = jax.tree.flatten(tree)
    places = jax.tree.unflatten(structure, range(len(leaves)))

    def walk(part: Any, places: Any) -> list[int]:
        if type(part) is dict:
            return [place for key in part for place in walk(part[key], places[key])]
        if isinstance(part, list | tuple):
            both = zip(part, places, strict=True)
            return [place for one, other in both for place in walk(one, other)]
        return list(jax.tree.leaves(places))

    return tuple(walk(tree, places))


def widened(tree: PyTree) -> PyTree:
    """Floats in float64, the rest as it is; to be called where x64 is enabled."""

    def widen(leaf: Any) -> Array:
        leaf = np.asarray(leaf)
        return jnp.asarray(leaf, jnp.float64 if leaf.dtype.kind == "f" else leaf.dtype)

    return jax.tree.map(widen, tree)


def as_starts(tree: PyTree, name: str) -> Held:
    """Real arrays of a definite dtype, beside the same as given; refuses what is not real numbers.

    Floats of less than 32 bits become JAX's own: an estimate has to have more digits than that.

    Args:
        tree: where theta, or a latent, starts.
        name: which of them.
    """
    for path, leaf in tree_flatten_with_path(tree)[0]:
        dtype = as_numbers(leaf, f"{name}{keystr(path)}").dtype
        if dtype.kind not in "fiu" or (dtype.kind in "iu" and not isinstance(leaf, int)):
            advice = "A discrete latent has no gradient: sum it out of log_joint."
            advice = "Give floats, `jnp.zeros(3)` or 0.0." if name == "theta" else advice
            raise TypeError(
                f"{name}{keystr(path)} has dtype {dtype}, but {name} must be real numbers. {advice}"
            )
    if not sum(np.size(leaf) for leaf in jax.tree.leaves(tree)):
        advice = "to estimate" if name == "theta" else "to integrate out"
        raise ValueError(
            f"{name} has no numbers in it, so there is nothing {advice}. Give a number, an array "
            f"or a dict of them, such as {name}={{'a': 0.0}}."
        )

    def definite(leaf: Any) -> Any:
        # A definite dtype also for 0 and 0.0, so that nothing compiles twice.
        if isinstance(leaf, jax.Array):
            return jnp.asarray(leaf, leaf.dtype)
        return np.asarray(leaf, float) if isinstance(leaf, int | float) else leaf

    return hold(jax.tree.map(definite, tree), name, spread=False)

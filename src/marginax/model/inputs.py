"""The leaves that a problem is given: as arrays, in double precision, by name."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax.typing import Data, Theta

__all__ = ["as_arrays", "check_names", "lengths", "path_name", "widened"]


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


def path_name(path: Any) -> str:
    """A leaf of theta in words: its keys, names and places, joined by dots."""
    words = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    return ".".join(words) or "theta"


def widened(tree: PyTree) -> PyTree:
    """Floats in float64, the rest as it is; to be called where x64 is enabled."""

    def widen(leaf: Any) -> Array:
        leaf = np.asarray(leaf)
        return jnp.asarray(leaf, jnp.float64 if leaf.dtype.kind == "f" else leaf.dtype)

    return jax.tree.map(widen, tree)


def as_arrays(tree: PyTree, name: str) -> PyTree:
    """Real arrays of a definite dtype; refuses what is not real numbers."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        kind = jnp.asarray(leaf).dtype.kind
        if kind not in "fiu" or (kind in "iub" and not isinstance(leaf, int)):
            advice = "A discrete latent has no gradient: sum it out of log_joint."
            advice = "Give floats, `jnp.zeros(3)` or 0.0." if name == "theta" else advice
            raise TypeError(
                f"{name}{keystr(path)} has dtype {jnp.asarray(leaf).dtype}, but {name} must be "
                f"real numbers. {advice}"
            )

    def as_array(leaf: Any) -> Array:
        dtype = jnp.asarray(leaf).dtype
        # A definite dtype also for 0.0, so that nothing compiles twice.
        return jnp.asarray(leaf, dtype if dtype.kind == "f" else jnp.result_type(leaf, float))

    return jax.tree.map(as_array, tree)

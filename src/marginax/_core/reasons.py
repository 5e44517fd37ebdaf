"""Why a log joint is not finite at the start: by trying what would make it so.

The value alone says nothing of its cause. But if it is finite without the NaN in the data, these
were it; and if it is once a single parameter has moved, that one's start was.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from marginax._core.processes import whole
from marginax.typing import Data, Particles, Theta

__all__ = ["blame_data", "blame_start", "first_few", "not_finite"]

# How far a start is moved, in units of its own size, or of 1 where it is 0.
MOVES = (0.5, -0.5, 2.0, -2.0)
NAMED = 5


Finite = Callable[[Theta, Particles, Data], bool]


def blame_data(is_finite: Finite, theta: Theta, particles: Particles, data: Data) -> str | None:
    """The values of the data at fault in sentences, or None if they are not alone at fault.

    Args:
        is_finite: `is_finite(theta, particles, data)`, whether the log joint is there.
        theta: where it is not.
        particles: likewise.
        data: likewise. It may well hold NaN that the log joint masks.
    """
    bad = not_finite(data)
    if not bad or not is_finite(theta, particles, _mended(data)):
        return None
    return (
        f"{' '.join(bad)} With ordinary numbers there it is finite. Leave these rows out, or mask "
        "them before anything is computed from them: `jnp.where(mask, y, 0.0)`, and the terms by "
        "`mask`."
    )


def blame_start(
    is_finite: Finite, theta: Theta, particles: Particles, data: Data, latent: str
) -> str | None:
    """The part of the start at fault in a sentence, or None if it is no single one.

    Args:
        is_finite: as above.
        theta: as above.
        particles: as above.
        data: as above.
        latent: what the particles are called.
    """
    for name, tree in (("theta", theta), (latent, particles)):
        paths, structure = tree_flatten_with_path(tree)
        leaves = [leaf for _, leaf in paths]
        for (place, (path, leaf)), move in product(enumerate(paths), MOVES):
            there = jax.tree.unflatten(
                structure, [*leaves[:place], _moved(leaf, move), *leaves[place + 1 :]]
            )
            both = (there, particles) if name == "theta" else (theta, there)
            if is_finite(*both, data):
                return (
                    f"It is finite as soon as {name}{keystr(path)} alone is moved: start that "
                    "elsewhere, or keep it in its support by a transform."
                )
    return None


def first_few(places: Any) -> str:
    """Some of the numbers of a list, and that there are more."""
    listed = [str(place) for place in places[:NAMED]]
    return ", ".join(listed) + (", ..." if len(places) > NAMED else "")


def not_finite(data: Data) -> list[str]:
    """The leaves of the data that are not finite, with the first place of each."""
    said = []
    for path, leaf in tree_flatten_with_path(data)[0]:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            continue
        values = whole(leaf)
        wrong = ~np.isfinite(values)
        if np.any(wrong):
            place = np.argwhere(wrong)[0]
            name = f"data{keystr(path)}"
            at = f"{name}[{', '.join(map(str, place))}]" if len(place) else name
            words = "".join(
                f", {word} {index}"
                for word, index in zip(("row", "column"), place, strict=False)
                if len(place) <= 2
            )
            count = int(np.sum(wrong))
            are = "value that is" if count == 1 else "values that are"
            said.append(
                f"{name} has {count} {are} NaN or infinite, the first {at} = "
                f"{values[tuple(place)]}{words}."
            )
    return said


def _mended(data: Data) -> Data:
    """The data with an ordinary value of its leaf wherever one is not finite."""

    def mend(leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        known = jnp.isfinite(leaf)
        usual = jnp.sort(jnp.ravel(jnp.where(known, leaf, jnp.inf)))
        middle = usual[(jnp.sum(known) - 1) // 2] if jnp.size(leaf) else 0.0
        return jnp.where(known, leaf, jnp.where(jnp.isfinite(middle), middle, 0).astype(leaf.dtype))

    return jax.tree.map(mend, data)


def _moved(leaf: Any, move: float) -> Any:
    size = jnp.where(leaf == 0, jnp.ones_like(leaf), jnp.abs(leaf))
    return leaf + jnp.asarray(move, leaf.dtype) * size

r"""How a latent falls into blocks x = (x_1, ..., x_G), and back.

Groups of a mixed model, rows of a matrix, single coordinates: a kernel or a metric that works
block by block asks here for the cloud as matrices, one [N, p] matrix per block. Blocks of one shape
are stacked into a family [G, N, p], so that a `vmap` over the first axis serves them all.

    blocks            what they are
    "leading"         one per index of the leading axis, which all leaves share: a group's latents
    "leaves"          one per leaf
    "coordinates"     one per number
    "whole"           one
    names             a tree like the latent that names the leading axes of every leaf: "group",
                      ("row", "column"), or None for a leaf that is one block. Leaves with the same
                      names are in the same blocks.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax._core import trees
from marginax._core.checks import is_traced
from marginax._core.processes import whole
from marginax.typing import Latent, Particles

__all__ = [
    "Family",
    "BlockSpec",
    "check_blocks",
    "check_spread",
    "families",
    "merge",
    "refine",
    "split",
]

BlockSpec = Any  # one of the four words, or a tree of names
WORDS = ("leading", "leaves", "coordinates", "whole")


class Family(NamedTuple):
    """Blocks of one shape.

    Attributes:
        leaves: which leaves of the latent they are made of.
        num_blocks: G.
        block_size: p, how many numbers a block has.
        name: for messages.
    """

    leaves: tuple[int, ...]
    num_blocks: int
    block_size: int
    name: str


@dataclass(frozen=True, eq=False)
class _Names:
    """A tree of names, which may be a dict, made hashable: equal to others of the same names."""

    tree: Any

    def __repr__(self) -> str:
        return repr(self.tree)

    @property
    def _content(self) -> tuple[Any, ...]:
        leaves, structure = jax.tree.flatten(self.tree, is_leaf=_is_name)
        return structure, *map(repr, leaves)

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Names) and other._content == self._content


def _is_name(value: Any) -> bool:
    """Whether a leaf of the latent is named here: by a word, a tuple of words, or as one block."""
    words = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    return value is None or isinstance(value, str) or (words and len(value) > 0)


def check_blocks(blocks: BlockSpec) -> BlockSpec:
    """The blocks as kernels keep them; a tree of names is checked when the latent is known."""
    if isinstance(blocks, str) and blocks not in WORDS:
        raise ValueError(
            f"blocks is {blocks!r}, but blocks run over {', '.join(map(repr, WORDS))}, or over "
            "axes that you name in a tree like the latent."
        )
    return blocks if isinstance(blocks, str | _Names) else _Names(blocks)


def check_spread(blocks: BlockSpec, particles: Particles) -> None:
    """Refuses a block in one point: a Stein flow would move it as one, to its mode."""
    block_families = families(blocks, trees.first_particle(particles))
    for family, part in zip(block_families, split(block_families, particles), strict=True):
        if part.shape[1] == 1 or is_traced(part):  # inside jit nothing has a value yet
            continue
        rows = whole(part)
        together = np.all(rows == rows[:, :1], axis=(1, 2))
        if np.any(together):
            where = (
                "" if len(together) == 1 else f" in block {np.argmax(together)} of {family.name}"
            )
            raise ValueError(
                f"All {rows.shape[1]} particles start in the same place{where}, and a Stein flow "
                "cannot separate particles that coincide: it would find the joint mode. Spread "
                "them, for example with `jax.random.normal`."
            )


def families(blocks: BlockSpec, latent: Latent) -> tuple[Family, ...]:
    """The blocks of a latent, family by family; leaves without numbers are in none."""
    blocks = blocks.tree if isinstance(blocks, _Names) else blocks
    paths_and_leaves, structure = jax.tree_util.tree_flatten_with_path(latent)
    shapes = [jnp.shape(leaf) for _, leaf in paths_and_leaves]
    paths = [jax.tree_util.keystr(path) or "the latent" for path, _ in paths_and_leaves]
    if isinstance(blocks, str):
        pairs = zip(paths, shapes, strict=True)
        axes = [_axes_by_word(blocks, path, shape) for path, shape in pairs]
    else:
        axes = _named_axes(blocks, structure, latent)

    members: dict[Any, list[int]] = {}
    for leaf, names in enumerate(axes):
        if 0 in shapes[leaf]:
            continue
        key = (None, leaf) if names is None else names
        members.setdefault((names,) if isinstance(names, str) else key, []).append(leaf)
    return tuple(_family(names, leaves, shapes, paths) for names, leaves in members.items())


def refine(block_families: tuple[Family, ...], latent: Latent, largest: int) -> tuple[Family, ...]:
    """Families whose blocks are larger than `largest`, cut into single coordinates."""
    sizes = [int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(latent)]
    refined: list[Family] = []
    for family in block_families:
        if family.block_size <= largest:
            refined.append(family)
        else:
            refined += [Family((leaf,), sizes[leaf], 1, family.name) for leaf in family.leaves]
    return tuple(refined)


def split(
    block_families: tuple[Family, ...], cloud: Particles
) -> tuple[Float[Array, "_ n _"], ...]:
    """The cloud as one [G, N, p] array per family."""
    leaves = jax.tree.leaves(cloud)

    def stacked(family: Family) -> Array:
        parts = [
            leaves[i].reshape(leaves[i].shape[0], family.num_blocks, -1) for i in family.leaves
        ]
        dtype = jnp.result_type(*parts)
        return jnp.moveaxis(jnp.concatenate([p.astype(dtype) for p in parts], axis=2), 1, 0)

    return tuple(stacked(family) for family in block_families)


def merge(
    block_families: tuple[Family, ...], parts: tuple[Float[Array, "_ n _"], ...], like: Particles
) -> Particles:
    """The inverse of `split`: blocks back into the structure, shapes and dtypes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    merged = list(leaves)
    for family, part in zip(block_families, parts, strict=True):
        columns = [
            leaves[i].size // (leaves[i].shape[0] * family.num_blocks) for i in family.leaves
        ]
        parts_of_leaves = jnp.split(jnp.moveaxis(part, 0, 1), np.cumsum(columns)[:-1], axis=2)
        for i, values in zip(family.leaves, parts_of_leaves, strict=True):
            merged[i] = values.reshape(leaves[i].shape).astype(leaves[i].dtype)
    return jax.tree.unflatten(structure, merged)


def _axes_by_word(word: str, path: str, shape: tuple[int, ...]) -> Any:
    """The names of a leaf's leading axes that make its blocks, for one of the four words."""
    every_axis = tuple(f"{path} axis {k}" for k in range(len(shape))) or None
    by_word = {
        "leading": "its leading axis",
        "leaves": None,
        "coordinates": every_axis,
        "whole": (),
    }
    return by_word[word]


def _named_axes(blocks: BlockSpec, structure: Any, latent: Latent) -> list[Any]:
    try:
        axes: list[Any] = structure.flatten_up_to(blocks)
    except ValueError as error:
        raise ValueError(
            f"blocks is {blocks!r}, but the names of the axes must form a tree like the latent, "
            f"which is {jax.tree.map(jnp.shape, latent)}."
        ) from error
    for names in axes:
        listed = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        if not (names is None or isinstance(names, str) or (listed and names)):
            raise ValueError(
                f"blocks has {names!r} where a leaf of the latent is, but there it needs the name "
                "of the leaf's leading axis, a tuple of names, or None for a leaf that is one "
                "block."
            )
    return axes


def _family(
    names: tuple[Any, ...], leaves: list[int], shapes: list[tuple[int, ...]], paths: list[str]
) -> Family:
    is_named = len(names) > 0 and names[0] is not None
    depth = len(names) if is_named else 0
    lengths = {shapes[i][:depth] for i in leaves}
    if len(lengths) > 1 or any(len(shapes[i]) < depth for i in leaves):
        seen = ", ".join(f"{paths[i]} {shapes[i]}" for i in leaves)
        raise ValueError(
            f"Blocks run over {' and '.join(names)} of these leaves, but their shapes do not "
            f"agree in it: {seen}. Name the axes (`blocks={{'a': 'person', 'b': 'item'}}`), or "
            "use blocks='leaves' or blocks='coordinates'."
        )
    num_blocks = int(np.prod(lengths.pop(), dtype=int))
    total = sum(int(np.prod(shapes[i], dtype=int)) for i in leaves)
    name = ", ".join(paths[i] for i in leaves)
    return Family(tuple(leaves), num_blocks, total // max(num_blocks, 1), name)

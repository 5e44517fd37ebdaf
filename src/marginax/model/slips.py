"""Slips that make another model than the user means, in silence: seen at the start of a problem.

Padding that counts as observed, a long table that was not gathered into groups, an index that
starts at 1. What is refused or warned of is found from what the log joint does, and not from names:
it is asked whether its numbers change.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import PyTree

from marginax._core.at_start import evaluate
from marginax._core.checks import warn_user
from marginax._core.indices import indices_outside
from marginax._core.processes import whole
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["check_indices", "moved", "warn_of_long_table", "warn_of_padding"]


def moved(random: np.random.Generator, tree: PyTree, size: float) -> PyTree:
    """A tree at a random distance, where nothing is zero or equal by accident."""

    def move(leaf: Any) -> Any:
        values = whole(leaf)  # NumPy adds without compiling anything
        return jnp.asarray(values + (size * random.normal(size=leaf.shape)).astype(values.dtype))

    return jax.tree.map(move, tree)


def check_indices(log_joint: LogDensity, theta: Theta, latent: Latent, data: Data) -> None:
    """Refuses indices outside of their axes, where they change the log joint.

    Args:
        log_joint: of free theta and latent.
        theta: free.
        latent: free.
        data: handed on, and closed-over arrays, are where indices come from.
    """

    def elsewhere(*start: PyTree) -> tuple[PyTree, ...]:
        random = np.random.default_rng(0)
        return tuple(moved(random, part, 0.3) for part in start)

    found = indices_outside(log_joint, theta, latent, data, elsewhere=elsewhere)
    if not found:
        return
    index, size = found[0]
    named = [
        f"data{keystr(path)}"
        for path, leaf in tree_flatten_with_path(data)[0]
        if np.size(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.number)
        if index in (np.max(whole(leaf)), np.min(whole(leaf)))
    ]
    where = f" (as {' and '.join(named)} has it)" if named else ""
    raise ValueError(
        f"log_joint reads with an index of {index}{where}, which is out of bounds for an axis of "
        f"size {size}: places run from 0 to {size - 1}. JAX would take the nearest one instead, in "
        "silence. Ids that start at 1, as those of R do, need `- 1`; or make the axis longer."
    )


def warn_of_long_table(
    log_joint: LogDensity, theta: Theta, latent: Latent, data: Data, num_groups: int
) -> None:
    """Warns of a long table that is taken for groups of one row each.

    It looks like one if every leaf is a vector and some of them, integers with repeats, are never
    read: labels that were meant to make the groups.

    Args:
        log_joint: of one group.
        theta: as the log joint sees it.
        latent: likewise, of one group.
        data: of all groups.
        num_groups: how many there are.
    """
    leaves = tree_flatten_with_path(data)[0]
    if len(leaves) < 2 or any(np.ndim(leaf) != 1 for _, leaf in leaves):
        return
    unread = _unread(log_joint, theta, latent, jax.tree.map(lambda leaf: leaf[0], data))
    for path, leaf in leaves:
        if path in unread and jnp.issubdtype(leaf.dtype, jnp.integer):
            labels = np.unique(whole(leaf)).size
            if 1 < labels < num_groups:
                warn_user(
                    f"data{keystr(path)} has {labels} different labels, and log_joint never reads "
                    f"it; yet every one of the {num_groups} rows counts as a group of its own. If "
                    "it says which rows belong together, gather them first: data = "
                    "pad_groups(labels, y=y, ...), which makes arrays [groups, rows] and a mask."
                )
                return


def _unread(log_joint: LogDensity, theta: Theta, latent: Latent, data: Data) -> list[Any]:
    """The paths of the leaves of data that the log joint makes nothing of."""
    jaxpr = jax.make_jaxpr(log_joint)(theta, latent, data).jaxpr
    needed = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(equation.outvars) or equation.effects:
            needed.update(v for v in equation.invars if not isinstance(v, Literal))
    paths = [path for path, _ in tree_flatten_with_path(data)[0]]
    places = jaxpr.invars[len(jaxpr.invars) - len(paths) :]
    return [path for path, place in zip(paths, places, strict=True) if place not in needed]


def warn_of_padding(log_joint: LogDensity, theta: Theta, particles: Particles, data: Data) -> None:
    """Warns if the log joint reads what `mask` calls padding.

    The padding is filled with other rows of the same table, valid values all of them, and the log
    joint evaluated again: it must not change.

    Args:
        log_joint: whole, of free theta and latent; as it was evaluated before, so that nothing is
            compiled for this.
        theta: free.
        particles: a cloud of one latent, free.
        data: with the mask of `pad_groups` under its name "mask": 0 or False is padding.
    """
    mask = _mask_of(data)
    if mask is None:
        return
    shared = [name for name in data if np.shape(data[name])[: mask.ndim] == mask.shape]
    padded = {name: data[name] for name in shared if name != "mask"}
    random = np.random.default_rng(0)
    there = moved(random, theta, 0.3), moved(random, particles, 0.5)
    before = evaluate(log_joint, *there, data)
    if not _is_finite(before):
        there = theta, particles  # where it is known to be finite
        before = evaluate(log_joint, *there, data)
    rows = np.flatnonzero(mask)
    donors = rows[random.integers(rows.size, size=int(np.sum(~mask)))]

    def changes(names: Any) -> bool:
        other = {name: _refilled(padded[name], mask, donors) for name in names}
        return _differ(before, evaluate(log_joint, *there, {**data, **other}))

    if not padded or not changes(padded):
        return
    guilty = [name for name in padded if changes([name])] or list(padded)
    warn_user(
        f"log_joint reads padding of {', '.join(repr(name) for name in guilty)}: it changes with "
        f"the {donors.size} entries where data['mask'] is 0, which `pad_groups` has only filled "
        "up and which count as observed so. Multiply every observation's log density by the mask "
        "before the sum, jnp.sum(mask * terms), or use `jnp.where(mask > 0, terms, 0.0)`."
    )


def _is_finite(tree: PyTree) -> bool:
    return all(bool(np.all(np.isfinite(whole(leaf)))) for leaf in jax.tree.leaves(tree))


def _mask_of(data: Data) -> np.ndarray | None:
    """The mask of padded data as booleans, if there is one that masks something."""
    mask = data.get("mask") if isinstance(data, Mapping) else None
    if mask is None or np.ndim(mask) < 2:
        return None
    if isinstance(mask, jax.Array) and not mask.is_fully_addressable:
        return None
    values = np.asarray(mask)
    observed = values == 1
    is_mask = np.all(observed | (values == 0))
    return observed if is_mask and np.any(observed) and not np.all(observed) else None


def _refilled(leaf: Any, mask: np.ndarray, donors: np.ndarray) -> Any:
    """A leaf whose padding has values of other rows, in its own dtype."""
    values = np.array(leaf)
    flat = values.reshape(mask.size, -1)
    flat[np.flatnonzero(~mask)] = flat[donors]
    return jnp.asarray(flat.reshape(values.shape))


def _differ(one: PyTree, other: PyTree) -> bool:
    """Whether some number differs by more than rounding does; NaN in both is no difference."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = whole(a), whole(b)
        known = np.isfinite(a) & np.isfinite(b)
        size = np.max(np.abs(a), where=known, initial=0.0)
        limit = max(1e-9, 16 * float(np.finfo(a.dtype).eps)) * size
        if np.any(np.abs(a - b) > limit, where=known):
            return True
    return False

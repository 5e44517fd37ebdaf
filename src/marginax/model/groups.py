"""Groups: long tables as arrays over them, and checks that a model's groups are what it says."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.at_start import check_shapes
from marginax._core.checks import check_scalar, is_traced
from marginax._core.precision import as_numbers
from marginax.model.slips import moved
from marginax.typing import Data, Latent, LogDensity, Theta

__all__ = [
    "PaddedGroups",
    "check_apart",
    "check_one_each",
    "check_one_number",
    "interacting",
    "pad_groups",
    "padded",
    "shared_axis",
]


class PaddedGroups(dict[str, np.ndarray]):
    """The columns of `pad_groups`, with the labels of the groups beside them.

    A dict like any other; `Problem.grouped` takes the labels from it.

    Attributes:
        labels: of the groups, in their order.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        dict.__init__(self, columns)
        self.labels = labels


# To JAX a dict of another type would be a leaf; what it makes of this one is a plain dict.
jax.tree_util.register_pytree_with_keys(
    PaddedGroups,
    lambda padded: (
        [(jax.tree_util.DictKey(name), padded[name]) for name in sorted(padded)],
        tuple(sorted(padded)),
    ),
    cast(Any, lambda names, leaves: dict(zip(names, leaves, strict=True))),
)


def pad_groups(groups: Any, **columns: Any) -> PaddedGroups:
    """Long tables, one row per observation, as arrays [groups, largest group], with a mask.

    Args:
        groups: the group of every row; groups are ordered as `numpy.unique` orders them.
        columns: values per row, numbers.

    Returns:
        The columns, padded with their own first value in each group, and "mask", 1.0 for what is
        observed and 0.0 for padding: multiply log likelihood terms by it. `Problem.grouped` knows
        it by that name, and warns if the log joint reads padding. The labels of the groups are in
        `.labels`, and from there in `Fit.random_effects()` and figures.

    Example:
        >>> padded = pad_groups(["a", "b", "a"], y=[1.0, 2.0, 3.0])
        >>> padded["y"].tolist(), padded["mask"].tolist()
        ([[1.0, 3.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    if "mask" in columns:
        raise ValueError(
            "A column is called 'mask', but that is the name of what tells observations from "
            "padding in the answer. Give the column another name."
        )
    if np.size(groups) == 0:
        raise ValueError(
            "There are no rows: groups is empty. Give the group of every observation, at least one."
        )
    tables = padded(groups, {name: _numbers(name, column) for name, column in columns.items()})
    return PaddedGroups(tables, np.unique(_labels(groups)))


def padded(groups: Any, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The same of columns that may be of any kind, such as those of a file.

    Args:
        groups: the group of every row.
        columns: values per row, by name.
    """
    labels, index = np.unique(_labels(groups), return_inverse=True)
    counts = np.bincount(index, minlength=len(labels))
    order = np.argsort(index, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.arange(len(index)) - np.repeat(first, counts)
    mask = np.zeros((len(labels), counts.max()))
    mask[index[order], place] = 1.0
    tables = {"mask": mask}
    for name, column in columns.items():
        values = np.asarray(column)
        if len(values) != len(index):
            raise ValueError(
                f"Column {name!r} has {len(values)} rows, but there are {len(index)} group labels."
            )
        table = np.repeat(values[order][first][:, None], counts.max(), axis=1)
        table[index[order], place] = values[order]
        tables[name] = table
    return tables


def _numbers(name: str, column: Any) -> np.ndarray:
    return np.asarray(as_numbers(column, f"Column {name!r}"))


def _labels(groups: Any) -> np.ndarray:
    """The group of every row; refuses rows whose group is missing."""
    labels = np.asarray(groups)
    # What is missing is not even itself (NaN, NaT), or None, or cannot say (pandas.NA).
    kinds = labels.dtype.kind
    missing = np.zeros(labels.shape, bool)
    if kinds in "fcmM":
        missing = labels != labels
    elif kinds == "O":
        missing = np.array([one is None or not _is_itself(one) for one in labels.ravel()])
    if np.any(missing):
        rows = np.flatnonzero(missing)
        raise ValueError(
            f"groups has no label for {rows.size} of {labels.size} rows, the first in row "
            f"{rows[0]} ({labels.ravel()[rows[0]]}): rows without a group belong to none, and not "
            "together. Leave them out, or give them labels."
        )
    return labels


def _is_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except TypeError:
        return False


def shared_axis(data: Data) -> int:
    """How many groups the data have: the leading axis of every leaf."""
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or () in sizes or (0,) in sizes:
        raise ValueError(
            "The leaves of data must share a leading axis over at least one group, but their "
            f"leading axes are {sorted(sizes)}. Use `pad_groups` for groups of different sizes, or "
            "give num_groups and a log_joint of all groups at once."
        )
    ((num_groups,),) = sizes
    return int(num_groups)


def _first_row(leaf: Any) -> Any:
    # On a processor memory is shared, and NumPy compiles nothing.
    on_host = jax.default_backend() == "cpu" and not is_traced(leaf)
    return jax.device_put(np.asarray(leaf)[0]) if on_host else leaf[0]


def check_one_number(log_joint: LogDensity, theta: Theta, latent: Latent, data: Data) -> None:
    """The sum over groups would hide a group's log joint that is not one number."""
    one = jax.tree.map(_first_row, data)
    value = check_shapes(log_joint, theta, latent, one, "log_joint of one group")
    shape = getattr(value, "shape", ())
    if shape != ():
        raise ValueError(
            f"log_joint of one group returns an array of shape {shape}, but it must be one number: "
            "sum over the group's observations."
        )
    check_scalar(value)


def check_one_each(log_joints: LogDensity, theta: Theta, latent: Latent, data: Data) -> None:
    """The same for the log joints of all groups at once."""
    num_groups = jax.tree.leaves(latent)[0].shape[0]
    what = f"log_joint of {num_groups} groups at once"
    value = check_shapes(log_joints, theta, latent, data, what)
    shape = getattr(value, "shape", None)
    if shape != (num_groups,):
        raise ValueError(
            f"{what} returns {'no array' if shape is None else f'an array of shape {shape}'}, but "
            f"it must have one number per group, shape ({num_groups},)."
        )


def check_apart(log_joints: LogDensity, theta: Theta, latent: Latent, data: Data) -> None:
    """Refuses groups that interact: quadrature group by group would be wrong, and not show it.

    At other thetas than the given one too: a coupling may start at 0.

    Args:
        log_joints: one number per group, of free theta and latent.
        theta: free.
        latent: free, of all groups.
        data: handed on.
    """
    random = np.random.default_rng(0)
    find = interacting(log_joints)
    for of_theta, of_latent in ((0.0, 0.1), (0.3, 1.0), (1.0, 3.0)):
        wrong = find(moved(random, theta, of_theta), moved(random, latent, of_latent), data)
        if wrong.size:
            num_groups = jax.tree.leaves(latent)[0].shape[0]
            raise ValueError(
                f"The log joint of {wrong.size} of {num_groups} groups, such as {wrong[0]}, "
                "depends on the latent of another group, but groups must be independent given "
                "theta. Check the index of groups, or fit without groups: `Problem(log_joint, "
                "...)`."
            )


def interacting(log_joints: LogDensity) -> Callable[[Theta, Latent, Data], np.ndarray]:
    """A function that finds the groups whose entry depends on another group's latent.

    If entry g depends on x_g alone, scaling the direction of every group by its own factor scales
    every entry's derivative by that factor.
    """

    @jax.jit
    def both(theta: Theta, latent: Latent, direction: Latent, factors: Any, data: Data) -> Any:
        scaled = jax.tree.map(
            lambda leaf: leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1)), direction
        )
        along = jax.linearize(lambda x: log_joints(theta, x, data), latent)[1]
        return along(direction) * factors, along(scaled)

    def find(theta: Theta, latent: Latent, data: Data) -> np.ndarray:
        random = np.random.default_rng(1)
        direction = jax.tree.map(
            lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), latent
        )
        first = jax.tree.leaves(latent)[0]
        factors = jnp.asarray(random.normal(size=first.shape[0]), first.dtype)
        expected, observed = (
            np.asarray(part, float) for part in both(theta, latent, direction, factors, data)
        )
        known = np.isfinite(expected) & np.isfinite(observed)
        difference = np.where(known, np.abs(expected - observed), 0.0)
        size = np.where(known, np.abs(expected), 0.0)
        limit = np.sqrt(np.finfo(first.dtype).eps) * (size + np.max(size, initial=0.0))
        return np.flatnonzero(difference > limit)

    return find

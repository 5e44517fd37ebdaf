"""Long tables as arrays over groups, whatever the sizes of the groups."""

from typing import Any

import numpy as np

__all__ = ["pad_groups"]


def pad_groups(groups: Any, **columns: Any) -> dict[str, np.ndarray]:
    """Long tables, one row per observation, as arrays [groups, largest group], with a mask.

    Args:
        groups: the group of every row; groups are ordered as `numpy.unique` orders them.
        columns: values per row.

    Returns:
        The columns, padded with their own first value in each group, and "mask", 1.0 for what is
        observed and 0.0 for padding: multiply log likelihood terms by it.

    Example:
        >>> padded = pad_groups(["a", "b", "a"], y=[1.0, 2.0, 3.0])
        >>> padded["y"].tolist(), padded["mask"].tolist()
        ([[1.0, 3.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    labels, index = np.unique(np.asarray(groups), return_inverse=True)
    counts = np.bincount(index, minlength=len(labels))
    order = np.argsort(index, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.arange(len(index)) - np.repeat(first, counts)
    mask = np.zeros((len(labels), counts.max()))
    mask[index[order], place] = 1.0
    padded = {"mask": mask}
    for name, column in columns.items():
        values = np.asarray(column)
        if len(values) != len(index):
            raise ValueError(
                f"Column {name!r} has {len(values)} rows, but there are {len(index)} group labels."
            )
        table = np.repeat(values[order][first][:, None], counts.max(), axis=1)
        table[index[order], place] = values[order]
        padded[name] = table
    return padded

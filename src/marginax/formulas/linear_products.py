"""Products of the columns of a linear mixed model, made once: the rows are never looked at again.

The group with most effects comes first, since it is eliminated (`linear_factors`): its Z'Z is a
small block for every level. Those of all other groups are the border (`borders`).
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.borders import Border, dense_border, sparse_border
from marginax.formulas.random_terms import Group

__all__ = ["LinearModel", "linear_model"]

LARGEST_DENSE = 2500  # effects of a border whose factor is a full matrix


class LinearModel(NamedTuple):
    """Products of the columns of a linear mixed model, in good units.

    X is replaced by an orthonormal basis of its columns and y by what these leave of it, so that
    the products lose no digits.

    Attributes:
        num_rows: n.
        num_fixed: p.
        first: which group is eliminated.
        order: the groups in the order of all that follows, the eliminated one first.
        sizes: of each, in this order, how many levels and effects.
        own: Z'Z of the first group, a block for every level.
        across: Z_1'Z_2, or None without a border.
        border: Z_2'Z_2 as a matrix with its factors, or None.
        right: Z'[X y] of all effects, [effects, p + 1].
        products: [X y]'[X y].
        triangle: R of X = Q R.
        least_squares: beta without random effects.
        unit: of y.
        scales: of the columns of Z, by group.
        log_weights: the sum of the logarithms of the weights.
    """

    num_rows: int
    num_fixed: int
    first: int
    order: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    own: np.ndarray
    across: Any
    border: Border | None
    right: np.ndarray
    products: np.ndarray
    triangle: np.ndarray
    least_squares: np.ndarray
    unit: float
    scales: tuple[np.ndarray, ...]
    log_weights: float

    def split(self, stacked: np.ndarray) -> list[np.ndarray]:
        """What belongs to every group, [levels, effects, ...], of something with all effects."""
        ends = np.cumsum([levels * size for levels, size in self.sizes])
        parts = np.split(stacked, ends[:-1])
        return [
            part.reshape(*size, *stacked.shape[1:])
            for part, size in zip(parts, self.sizes, strict=True)
        ]


def linear_model(
    response: np.ndarray,
    fixed: np.ndarray,
    groups: tuple[Group, ...],
    weights: np.ndarray | None = None,
) -> LinearModel:
    """The products of a model's columns.

    Args:
        response: y without its offset.
        fixed: X, of full rank.
        groups: with Z.
        weights: of the rows: the variance of e is sigma^2 / weight.
    """
    root = np.ones(len(response)) if weights is None else np.sqrt(weights)
    basis, triangle = np.linalg.qr(fixed * root[:, None])
    rotated = basis.T @ (root * response)
    left = root * response - basis @ rotated
    left = left - basis @ (basis.T @ left)
    unit = float(np.sqrt(np.mean(left**2))) or 1.0
    columns = np.column_stack([basis, left / unit])
    scales = tuple(_scales(group.columns) for group in groups)
    z = [group.columns * root[:, None] / s for group, s in zip(groups, scales, strict=True)]
    counts = [group.num_levels * group.columns.shape[1] for group in groups]
    first = int(np.argmax(counts))
    order = (first, *(i for i in range(len(groups)) if i != first))
    own = _own_blocks(groups[first], z[first])
    right = np.concatenate([_right(groups[i], z[i], columns) for i in order])
    across, border = None, None
    if len(groups) > 1:
        sparse_z = [_as_sparse(groups[i], z[i]) for i in order]
        across, border = _with_border(sparse_z)
    return LinearModel(
        num_rows=len(response),
        num_fixed=fixed.shape[1],
        first=first,
        order=order,
        sizes=tuple((groups[i].num_levels, groups[i].columns.shape[1]) for i in order),
        own=own,
        across=across,
        border=border,
        right=right,
        products=columns.T @ columns,
        triangle=triangle,
        least_squares=_solved(triangle, rotated),
        unit=unit,
        scales=tuple(scales[i] for i in order),
        log_weights=0.0 if weights is None else float(np.sum(np.log(weights))),
    )


def _scales(columns: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.mean(columns**2, axis=0))
    return np.where(scale > 0, scale, 1.0)


def _solved(triangle: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.linalg.solve(triangle, right) if len(triangle) else np.zeros(0)


def _own_blocks(group: Group, z: np.ndarray) -> np.ndarray:
    size = z.shape[1]
    own = np.empty((group.num_levels, size, size))
    for a in range(size):
        for b in range(a + 1):
            sums = np.bincount(group.codes, z[:, a] * z[:, b], group.num_levels)
            own[:, a, b] = own[:, b, a] = sums
    return own


def _right(group: Group, z: np.ndarray, columns: np.ndarray) -> np.ndarray:
    size = z.shape[1]
    right = np.empty((group.num_levels, size, columns.shape[1]))
    for a in range(size):
        for c in range(columns.shape[1]):
            right[:, a, c] = np.bincount(group.codes, z[:, a] * columns[:, c], group.num_levels)
    return right.reshape(-1, columns.shape[1])


def _as_sparse(group: Group, z: np.ndarray) -> Any:
    from scipy import sparse

    rows, size = z.shape
    places = group.codes[:, None] * size + np.arange(size)
    ends = np.arange(0, rows * size + 1, size)
    shape = (rows, group.num_levels * size)
    return sparse.csr_array((z.ravel(), places.ravel(), ends), shape=shape)


def _with_border(z: list[Any]) -> tuple[Any, Border]:
    from scipy import sparse

    rest = sparse.hstack(z[1:], format="csr")
    across = sparse.csr_array(z[0].T @ rest)
    products = sparse.csr_array(rest.T @ rest)
    make = dense_border if products.shape[0] <= LARGEST_DENSE else sparse_border
    return across, make(products, across)

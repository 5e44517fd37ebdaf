r"""Linear mixed models: the likelihood with everything but the covariances profiled out.

    y = X beta + Z Lambda u + e,   u ~ N(0, sigma^2 I),   e ~ N(0, sigma^2 I)

Lambda is block diagonal, the same lower triangle for all levels of a group. With
H = Lambda' Z'Z Lambda + I, and r^2 the least penalised sum of squares over beta and u,

    -2 log L = log |H| + n log sigma^2 + r^2 / sigma^2 + n log 2 pi

and for the restricted likelihood log |X'V^-1 X| is added and n becomes n - p. All of it, and the
gradient in Lambda,

    2 Lambda^-T (sum_l I - (H^-1)_ll - u_l u_l' / sigma^2)

needs products of columns only, which are made once: the rows are never looked at again. H is
factored by eliminating the group with most effects, whose part of H has a small block for every
level; what is left, the border, is factored by `borders`.
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.borders import Border, dense_border, sparse_border
from marginax.formulas.design import Group

__all__ = ["Factored", "LinearModel", "Profile", "linear_model"]

LARGEST_DENSE = 2500  # effects of a border whose factor is a full matrix
CHUNK = 4_000_000  # numbers at a time
LEAST = 1e-6  # a diagonal entry of Lambda, in units of sigma and of Z's columns, is at least this


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


class Factored(NamedTuple):
    """H at some Lambda, factored.

    Attributes:
        model: whose.
        covariances: Lambda of every group, in the order of the model.
        lower: L_l of the first group, A_l = L_l L_l'.
        tied: L^-1 Lambda_1' Z_1'Z_2 Lambda_2, sparse, or None.
        rest: the factor of the border, or None.
        log_determinant: of H.
    """

    model: LinearModel
    covariances: tuple[np.ndarray, ...]
    lower: np.ndarray
    inverse: np.ndarray
    tied: Any
    rest: Any
    log_determinant: float

    @classmethod
    def at(cls, model: LinearModel, covariances: tuple[np.ndarray, ...]) -> "Factored":
        """The factors for lower triangles Lambda, one of every group in the model's order."""
        first = covariances[0]
        a = np.einsum("ba,lbc,cd->lad", first, model.own, first, optimize=True)
        a += np.eye(len(first))
        lower = np.linalg.cholesky(a)
        inverse = np.linalg.inv(lower)
        log_determinant = 2 * float(np.sum(np.log(np.diagonal(lower, axis1=1, axis2=2))))
        tied, rest = None, None
        if model.border is not None:
            left = _block_diagonal(inverse @ first.T)
            right = _repeated(covariances[1:], model.sizes[1:])
            tied = left @ model.across @ right
            rest = model.border.factor(right, tied)
            log_determinant += model.border.log_determinant(rest)
        return cls(model, covariances, lower, inverse, tied, rest, log_determinant)

    def half_solved(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(L^-1 Lambda' b) of the first group, and what is left of b for the border."""
        model, count = self.model, self.model.own.shape[0] * self.model.own.shape[1]
        blocks = right[:count].reshape(*self.model.sizes[0], -1)
        first = self.inverse @ (self.covariances[0].T @ blocks)
        flat = first.reshape(count, -1)
        if model.border is None:
            return flat, right[:0]
        scaled = _repeated(self.covariances[1:], model.sizes[1:]).T @ right[count:]
        return flat, scaled - self.tied.T @ flat

    def solved(self, right: np.ndarray) -> np.ndarray:
        """H^-1 Lambda' b for every column of b."""
        first, rest = self.half_solved(right)
        last = np.zeros((0, right.shape[1]))
        if self.model.border is not None:
            last = self.model.border.solve(self.rest, rest)
            first = first - self.tied @ last
        return np.concatenate([self.back(first), last])

    def back(self, first: np.ndarray) -> np.ndarray:
        """L^-T of the first group's part."""
        blocks = first.reshape(*self.model.sizes[0], -1)
        return (np.swapaxes(self.inverse, 1, 2) @ blocks).reshape(len(first), -1)

    def inverse_blocks(self) -> list[np.ndarray]:
        """The blocks on the diagonal of H^-1, by group: [levels, effects, effects]."""
        model = self.model
        first = np.swapaxes(self.inverse, 1, 2) @ self.inverse
        if model.border is None:
            return [first]
        columns = model.border.inverse(self.rest)
        levels, size = model.sizes[0]
        tied = _block_diagonal(np.swapaxes(self.inverse, 1, 2)) @ self.tied
        by_effect = [tied[a::size] for a in range(size)]
        step = max(1, CHUNK // columns.shape[1])
        for begin in range(0, levels, step):
            some = slice(begin, begin + step)
            for a in range(size):
                product = by_effect[a][some] @ columns
                for b in range(size):
                    first[some, a, b] += _row_sums(by_effect[b][some], product)
        return [first, *model.border.blocks(columns, model.sizes[1:])]

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Draws of u around its mean, where sigma is 1: [effects, count]."""
        size = self.model.own.shape[0] * self.model.own.shape[1]
        first = random.standard_normal((size, count))
        if self.model.border is None:
            return self.back(first)
        last = self.model.border.draw(self.rest, random, count)
        return np.concatenate([self.back(first - self.tied @ last), last])


def _row_sums(one: Any, other: Any) -> np.ndarray:
    return np.asarray(one.multiply(other).sum(axis=1)).ravel()


def _block_diagonal(blocks: np.ndarray) -> Any:
    """A sparse matrix of blocks [k, q, q]."""
    from scipy import sparse

    count, size, _ = blocks.shape
    places = np.arange(count), np.arange(count + 1)
    shape = (count * size, count * size)
    return sparse.csr_array(sparse.bsr_array((blocks, *places), shape=shape))


def _repeated(covariances: tuple[np.ndarray, ...], sizes: tuple[tuple[int, int], ...]) -> Any:
    """Lambda of the border's groups, with a block for every level."""
    from scipy import sparse

    blocks = [
        _block_diagonal(np.broadcast_to(one, (levels, size, size)).copy())
        for one, (levels, size) in zip(covariances, sizes, strict=True)
    ]
    return sparse.block_diag(blocks, format="csr")


class Profile(NamedTuple):
    """What is best at some Lambda.

    Attributes:
        factored: H.
        fixed: what is added to the least squares beta, in the basis of X and the unit of y.
        sum_of_squares: r^2, in the unit of y squared.
        triangle: the Cholesky factor of X'V^-1 X, in the basis of X.
        reml: whether the likelihood is the restricted one.
    """

    factored: Factored
    fixed: np.ndarray
    sum_of_squares: float
    triangle: np.ndarray
    reml: bool

    @classmethod
    def at(cls, model: LinearModel, covariances: tuple[np.ndarray, ...], reml: bool) -> "Profile":
        """The profile for lower triangles Lambda, one of every group in the model's order."""
        factored = Factored.at(model, covariances)
        first, rest = factored.half_solved(model.right)
        products = model.products - first.T @ first
        if model.border is not None:
            products = products - rest.T @ model.border.solve(factored.rest, rest)
        p = model.num_fixed
        triangle = np.linalg.cholesky(products[:p, :p]) if p else np.zeros((0, 0))
        half = np.linalg.solve(triangle, products[:p, p]) if p else np.zeros(0)
        fixed = np.linalg.solve(triangle.T, half) if p else half
        squares = float(products[p, p] - half @ half)
        return cls(factored, fixed, squares, triangle, reml)

    @property
    def degrees(self) -> int:
        """n, or n - p for the restricted likelihood."""
        model = self.factored.model
        return model.num_rows - model.num_fixed if self.reml else model.num_rows

    @property
    def variance(self) -> float:
        """The best sigma^2, in the unit of y squared."""
        return self.sum_of_squares / self.degrees

    def deviance(self, variance: float | None = None) -> float:
        """-2 log likelihood, at the best sigma^2 or a given one, in the units of the data."""
        model, degrees = self.factored.model, self.degrees
        variance = self.variance if variance is None else variance
        if variance <= 0:
            return -np.inf
        value = self.factored.log_determinant + degrees * np.log(2 * np.pi * variance)
        value += self.sum_of_squares / variance + 2 * degrees * np.log(model.unit)
        if self.reml:
            value += 2 * float(np.sum(np.log(np.diag(self.triangle))))
            value += 2 * float(np.sum(np.log(np.abs(np.diag(model.triangle)))))
        return float(value - model.log_weights)

    def effects(self) -> np.ndarray:
        """u, of all effects, in the unit of y."""
        model = self.factored.model
        right = model.right[:, -1] - model.right[:, :-1] @ self.fixed
        return self.factored.solved(right[:, None])[:, 0]

    def gradient(self, variance: float | None = None) -> list[np.ndarray]:
        """Of the deviance in every entry of Lambda, by group."""
        model = self.factored.model
        variance = self.variance if variance is None else variance
        right = model.right[:, -1] - model.right[:, :-1] @ self.fixed
        columns = right[:, None] / np.sqrt(variance)
        if self.reml and model.num_fixed:
            of_fixed = np.linalg.solve(self.triangle, model.right[:, :-1].T).T
            columns = np.column_stack([columns, of_fixed])
        solved = model.split(self.factored.solved(columns))
        found = []
        for inverse, u, (levels, size), one in zip(
            self.factored.inverse_blocks(),
            solved,
            model.sizes,
            self.factored.covariances,
            strict=True,
        ):
            inside = levels * np.eye(size) - inverse.sum(axis=0)
            inside -= np.einsum("lak,lbk->ab", u, u)
            found.append(2 * np.linalg.solve(one.T, inside))
        return found

"""H = Lambda' Z'Z Lambda + I of a linear mixed model, factored: log determinant, solutions, draws.

The group with most effects is eliminated, whose part of H has a small block for every level; what
is left, the border, is factored by `borders`.
"""

from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.linear_products import LinearModel

__all__ = ["Factored"]

CHUNK = 4_000_000  # numbers at a time


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

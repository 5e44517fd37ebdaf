r"""Covariances of random effects as numbers: standard deviations and correlations, block by block.

A block of k effects that may be correlated has k standard deviations and k (k - 1) / 2
correlations. Two ways of writing it as numbers that may be anything:

    lambda   the entries of a lower triangle Lambda, Sigma = Lambda Lambda': for climbing, since
             nothing happens where a variance becomes 0
    phi      log sd, and partial correlations through atanh: for intervals, number by number
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Layout", "VarianceName", "correlations", "factor_of_correlations"]


class VarianceName(NamedTuple):
    """What a number about random effects is.

    Attributes:
        group: the grouping factor.
        effects: one effect, for its standard deviation; two, for their correlation.
    """

    group: str
    effects: tuple[str, ...]

    @property
    def is_correlation(self) -> bool:
        """Whether it is a correlation and not a standard deviation."""
        return len(self.effects) == 2

    @property
    def text(self) -> str:
        """The name in tables: `sd(x | g)`, `corr(1, x | g)`."""
        kind = "corr" if self.is_correlation else "sd"
        return f"{kind}({', '.join(self.effects)} | {self.group})"


class Layout(NamedTuple):
    """Which numbers belong where.

    Attributes:
        groups: of every group its name, the names of its effects, and its blocks.
    """

    groups: tuple[tuple[str, tuple[str, ...], tuple[tuple[int, ...], ...]], ...]

    def reordered(self, order: Sequence[int]) -> "Layout":
        """The same with groups in another order."""
        return Layout(tuple(self.groups[i] for i in order))

    def entries(self) -> list[tuple[int, int, int]]:
        """The entries of Lambda that are free: group, row, column."""
        return [
            (g, block[i], block[j])
            for g, (_, _, blocks) in enumerate(self.groups)
            for block in blocks
            for i in range(len(block))
            for j in range(i + 1)
        ]

    def triangles(self, flat: np.ndarray) -> list[np.ndarray]:
        """Lambda of every group."""
        found = [np.zeros((len(effects), len(effects))) for _, effects, _ in self.groups]
        for (g, i, j), value in zip(self.entries(), flat, strict=True):
            found[g][i, j] = value
        return found

    def flat(self, matrices: Sequence[np.ndarray]) -> np.ndarray:
        """The free entries of matrices like Lambda."""
        return np.array([matrices[g][i, j] for g, i, j in self.entries()])

    def is_diagonal(self) -> np.ndarray:
        """Which of the free entries are on the diagonal."""
        return np.array([i == j for _, i, j in self.entries()])

    def names(self) -> list[VarianceName]:
        """Of the numbers of phi: in every block the standard deviations, then correlations."""
        found = []
        for group, block, effects in self._blocks():
            found += [VarianceName(group, (effects[i],)) for i in block]
            found += [VarianceName(group, (effects[j], effects[i])) for i, j in _pairs(block)]
        return found

    def _blocks(self) -> Iterator[tuple[str, tuple[int, ...], tuple[str, ...]]]:
        for group, effects, blocks in self.groups:
            for block in blocks:
                yield group, block, effects

    def phi(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Of covariance matrices, one of every group; variances must be positive."""
        found: list[float] = []
        for g, (_, _, blocks) in enumerate(self.groups):
            for block in blocks:
                part = covariances[g][np.ix_(block, block)]
                sd = np.sqrt(np.diag(part))
                found += list(np.log(sd))
                found += list(_to_partial(part / np.outer(sd, sd)))
        return np.array(found)

    def roots(self, phi: np.ndarray) -> list[np.ndarray]:
        """Lower triangles whose squares are the covariance matrices of phi."""
        found, at = [], 0
        for _, effects, blocks in self.groups:
            root = np.zeros((len(effects), len(effects)))
            for block in blocks:
                size, pairs = len(block), len(block) * (len(block) - 1) // 2
                sd = np.exp(phi[at : at + size])
                part = factor_of_correlations(phi[at + size : at + size + pairs], size)
                root[np.ix_(block, block)] = sd[:, None] * part
                at += size + pairs
            found.append(root)
        return found

    def displayed(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Standard deviations and correlations, as `names` has them; 0 beside a variance of 0."""
        found: list[float] = []
        for g, (_, _, blocks) in enumerate(self.groups):
            for block in blocks:
                part = covariances[g][np.ix_(block, block)]
                matrix = correlations(part)
                found += list(np.sqrt(np.diag(part)))
                found += [matrix[i, j] for i, j in _pairs(range(len(block)))]
        return np.array(found)


def _pairs(block: Sequence[int]) -> list[tuple[int, int]]:
    return [(block[i], block[j]) for i in range(len(block)) for j in range(i)]


def correlations(covariance: np.ndarray) -> np.ndarray:
    """The correlation matrix; 0 beside a variance of 0."""
    sd = np.sqrt(np.diag(covariance))
    safe = np.where(sd > 0, sd, 1.0)
    matrix = covariance / np.outer(safe, safe)
    matrix[np.diag_indices(len(sd))] = 1.0
    return np.asarray(matrix)


def factor_of_correlations(numbers: np.ndarray, size: int) -> np.ndarray:
    """The Cholesky factor of a correlation matrix, from any numbers through tanh."""
    factor, partial, at = np.eye(size), np.tanh(numbers), 0
    for i in range(1, size):
        left = 1.0
        for j in range(i):
            factor[i, j] = partial[at] * np.sqrt(left)
            left *= 1 - partial[at] ** 2
            at += 1
        factor[i, i] = np.sqrt(left)
    return factor


def _to_partial(matrix: np.ndarray) -> list[float]:
    """The reverse, from a correlation matrix; ends of the range are cut off."""
    size = len(matrix)
    lifted = matrix + 1e-14 * np.eye(size)
    factor, found = np.linalg.cholesky(lifted), []
    for i in range(1, size):
        left = 1.0
        for j in range(i):
            one = np.clip(factor[i, j] / np.sqrt(max(left, 1e-30)), -1 + 1e-12, 1 - 1e-12)
            found.append(float(np.arctanh(one)))
            left *= 1 - one**2
    return found

"""The part of a linear mixed model's H that is left when its largest group is eliminated.

    S = Lambda_2' Z_2'Z_2 Lambda_2 + I - T'T

Up to a few thousand effects it is a full matrix; beyond, its pattern decides (`_core.factors`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.factors import choose

__all__ = ["Border", "dense_border", "sparse_border"]


class Border(NamedTuple):
    """How S is factored.

    Attributes:
        words: in one phrase.
        factor: `factor(Lambda_2, T)`.
        log_determinant: of a factor.
        solve: `solve(factor, b)`, for columns b.
        inverse: S^-1, at least on the pattern of S.
        blocks: `blocks(S^-1, sizes)`, those on its diagonal by group.
        draw: `draw(factor, random, count)`, columns of covariance S^-1.
    """

    words: str
    factor: Callable[[Any, Any], Any]
    log_determinant: Callable[[Any], float]
    solve: Callable[[Any, np.ndarray], np.ndarray]
    inverse: Callable[[Any], Any]
    blocks: Callable[[Any, Any], list[np.ndarray]]
    draw: Callable[[Any, np.random.Generator, int], np.ndarray]


def dense_border(products: Any, across: Any) -> Border:
    """S as a full matrix.

    Args:
        products: Z_2'Z_2.
        across: Z_1'Z_2.
    """
    from scipy import linalg

    def factor(right: Any, tied: Any) -> np.ndarray:
        whole = (right.T @ products @ right - tied.T @ tied).toarray()
        whole[np.diag_indices(len(whole))] += 1.0
        return np.asarray(linalg.cholesky(whole, lower=True, overwrite_a=True, check_finite=False))

    def solve(lower: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(linalg.cho_solve((lower, True), b, check_finite=False))

    def inverse(lower: np.ndarray) -> np.ndarray:
        half, _ = linalg.lapack.dpotri(lower, lower=1)
        half = np.tril(half)
        return half + np.tril(half, -1).T

    def draw(lower: np.ndarray, random: np.random.Generator, count: int) -> np.ndarray:
        z = random.standard_normal((len(lower), count))
        return np.asarray(linalg.solve_triangular(lower, z, lower=True, trans=1))

    return Border(
        f"a full matrix of {products.shape[0]:,} effects",
        factor,
        lambda lower: 2 * float(np.sum(np.log(np.diag(lower)))),
        solve,
        inverse,
        _blocks,
        draw,
    )


def sparse_border(products: Any, across: Any) -> Border:
    """S by its pattern.

    Args:
        products: Z_2'Z_2.
        across: Z_1'Z_2.
    """
    from scipy import sparse

    size = products.shape[0]
    touched = abs(products) + abs(across).T @ abs(across) + sparse.eye_array(size)
    lower = sparse.csr_array(sparse.tril(touched))
    lower.sort_indices()
    rows = np.repeat(np.arange(size), np.diff(lower.indptr))
    cols = lower.indices.astype(np.int64)
    keys = rows * size + cols
    with jax.enable_x64(True):
        factors = choose(rows, cols, size)

    def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            with jax.enable_x64(True):
                return function(*arguments)

        return wrapped

    def factor(right: Any, tied: Any) -> Any:
        whole = sparse.coo_array(sparse.tril(right.T @ products @ right - tied.T @ tied))
        values = np.zeros(len(keys))
        places = np.searchsorted(keys, whole.row.astype(np.int64) * size + whole.col)
        np.add.at(values, places, whole.data)
        values[rows == cols] += 1.0
        return factors.factor(jnp.asarray(values))

    def inverse(factored: Any) -> Any:
        values = np.asarray(factors.inverse_on_pattern(factored))
        half = sparse.coo_array((values, (rows, cols)), shape=(size, size)).tocsr()
        return sparse.csr_array(half + sparse.tril(half, -1).T)

    def draw(factored: Any, random: np.random.Generator, count: int) -> np.ndarray:
        z = jnp.asarray(random.standard_normal((count, size)))
        return np.asarray(factors.unwhiten(factored, z)).T

    return Border(
        factors.words,
        in_double(factor),
        in_double(lambda factored: float(factors.log_determinant(factored))),
        in_double(lambda factored, b: np.asarray(factors.solve(factored, jnp.asarray(b.T))).T),
        in_double(inverse),
        _blocks,
        in_double(draw),
    )


def _blocks(inverse: Any, sizes: tuple[tuple[int, int], ...]) -> list[np.ndarray]:
    """The blocks on the diagonal, by group: [levels, effects, effects]."""
    found, at = [], 0
    for levels, size in sizes:
        starts = at + size * np.arange(levels)
        blocks = np.empty((levels, size, size))
        for a in range(size):
            for b in range(size):
                blocks[:, a, b] = np.asarray(inverse[starts + a, starts + b]).ravel()
        found.append(blocks)
        at += levels * size
    return found

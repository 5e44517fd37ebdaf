"""Factors of any sparse pattern, on the host: Cholesky by dense fronts (multifrontal).

A front (`elimination`) is a small dense matrix of its own latents J and of the later ones I that
they touch. Fronts hand what is left of them to their parent, on the way up for the factor, and the
inverse's entries at I to their children, on the way down (Takahashi's recursion: the inverse on the
pattern of L needs no entries but those). So all work is dense linear algebra of some thousand small
matrices (Duff and Reid, 1983; Rue, Martino and Chopin, 2009). The numbers are always in float64.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf, dtrtri

from marginax._core.factors.base import Factors, Pattern
from marginax._core.factors.elimination import Plan, plan_of

__all__ = ["Fronts", "general_factors"]


class Fronts(NamedTuple):
    """The factor: of each front the triangle L_JJ and the block L_IJ below it; None without one."""

    blocks: list[tuple[np.ndarray, np.ndarray]] | None
    dtype: np.dtype


def _factor(plan: Plan, values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]] | None:
    sorted_values = values[plan.by_front]
    handed: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in plan.fronts]
    blocks = []
    for t, front in enumerate(plan.fronts):
        s, k = front.own.stop - front.own.start, len(front.below)
        flat = np.zeros((s + k) ** 2)
        flat[front.places] = sorted_values[front.entries]
        matrix = flat.reshape(s + k, s + k).T
        for inside, update in handed[t]:
            matrix[inside[:, None], inside] += update
        handed[t] = []
        triangle, failed = dpotrf(matrix[:s, :s], lower=1)
        if failed:
            return None
        rest = dtrsm(1.0, triangle, matrix[s:, :s], side=1, lower=1, trans_a=1)
        if k:
            update = dsyrk(-1.0, rest, beta=1.0, c=matrix[s:, s:], lower=1)
            handed[front.parent].append((front.inside, update))
        blocks.append((triangle, rest))
    return blocks


def _forward(plan: Plan, blocks: list, x: np.ndarray) -> np.ndarray:
    """L^-1 x, for columns in the order of elimination."""
    for front, (triangle, rest) in zip(plan.fronts, blocks, strict=True):
        solved = dtrsm(1.0, triangle, x[front.own], lower=1)
        x[front.own] = solved
        x[front.below] -= rest @ solved
    return x


def _backward(plan: Plan, blocks: list, x: np.ndarray) -> np.ndarray:
    """L'^-1 x."""
    for front, (triangle, rest) in zip(reversed(plan.fronts), reversed(blocks), strict=True):
        right = x[front.own] - rest.T @ x[front.below]
        x[front.own] = dtrsm(1.0, triangle, right, lower=1, trans_a=1)
    return x


def _transposed_times(plan: Plan, blocks: list, x: np.ndarray) -> np.ndarray:
    """L' x."""
    for front, (triangle, rest) in zip(plan.fronts, blocks, strict=True):
        x[front.own] = triangle.T @ x[front.own] + rest.T @ x[front.below]
    return x


def _inverse(plan: Plan, blocks: list) -> np.ndarray:
    """The inverse's entries at the pattern's places."""
    found = np.empty(len(plan.by_front))
    waiting = plan.children.copy()
    known: dict[int, np.ndarray] = {}
    for t in reversed(range(len(blocks))):
        front, (triangle, rest) = plan.fronts[t], blocks[t]
        s, k = front.own.stop - front.own.start, len(front.below)
        half, _ = dtrtri(triangle, lower=1)
        inverse = np.empty((s + k, s + k))
        inverse[:s, :s] = half.T @ half
        if k:
            above = known[front.parent]
            waiting[front.parent] -= 1
            if not waiting[front.parent]:
                del known[front.parent]
            gain = rest @ half
            inverse[s:, s:] = above[front.inside[:, None], front.inside]
            beside = inverse[s:, s:] @ gain
            inverse[s:, :s], inverse[:s, s:] = -beside, -beside.T
            inverse[:s, :s] += gain.T @ beside
        found[front.entries] = inverse.reshape(-1)[front.places]  # symmetric: by rows or columns
        if waiting[t]:
            known[t] = inverse
    values = np.empty_like(found)
    values[plan.by_front] = found
    return values


def _on_vectors(plan: Plan, *functions: Callable[..., Any]) -> Callable[[Fronts, Any], np.ndarray]:
    """Functions of columns in the order of elimination, one after the other, of x [n] or [k, n]."""

    def apply(f: Fronts, x: Float[ArrayLike, "*k n"]) -> np.ndarray:
        given = np.asarray(x)
        if f.blocks is None:
            return np.full(given.shape, np.nan, f.dtype)
        columns = given.reshape(-1, given.shape[-1]).T.astype(float)[plan.order]
        for function in functions:
            columns = function(plan, f.blocks, columns)
        back = np.empty_like(columns)
        back[plan.order] = columns
        return back.T.reshape(given.shape).astype(f.dtype)

    return apply


def general_factors(pattern: Pattern, plan: Plan | None = None) -> Factors:
    """Factors of any pattern, on the host."""
    plan = plan_of(pattern) if plan is None else plan

    def factor(values: Float[ArrayLike, " nnz"]) -> Fronts:
        numbers = np.asarray(values)
        return Fronts(_factor(plan, numbers.astype(float)), numbers.dtype)

    def log_determinant(f: Fronts) -> np.ndarray:
        pivots = [np.log(np.diagonal(triangle)) for triangle, _ in f.blocks or []]
        total = 2 * np.sum(np.concatenate(pivots)) if pivots else np.nan
        return np.asarray(total, f.dtype)

    def inverse_on_pattern(f: Fronts) -> np.ndarray:
        if f.blocks is None:
            return np.full(len(pattern.rows), np.nan, f.dtype)
        return _inverse(plan, f.blocks).astype(f.dtype)

    def positive(f: Fronts) -> bool:
        return f.blocks is not None and all(
            np.all(np.isfinite(np.diagonal(triangle))) for triangle, _ in f.blocks
        )

    return Factors(
        kind="sparse",
        words="general sparse",
        pattern=pattern,
        traceable=False,
        cost=plan.cost,
        factor=factor,
        solve=_on_vectors(plan, _forward, _backward),
        half_solve=_on_vectors(plan, _forward),
        log_determinant=log_determinant,
        inverse_on_pattern=inverse_on_pattern,
        whiten=_on_vectors(plan, _transposed_times),
        unwhiten=_on_vectors(plan, _backward),
        positive=positive,
    )

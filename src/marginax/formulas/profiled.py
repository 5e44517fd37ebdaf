r"""Linear mixed models: the likelihood with everything but the covariances profiled out.

    y = X beta + Z Lambda u + e,   u ~ N(0, sigma^2 I),   e ~ N(0, sigma^2 I)

Lambda is block diagonal, the same lower triangle for all levels of a group. With
H = Lambda' Z'Z Lambda + I, and r^2 the least penalised sum of squares over beta and u,

    -2 log L = log |H| + n log sigma^2 + r^2 / sigma^2 + n log 2 pi

and for the restricted likelihood log |X'V^-1 X| is added and n becomes n - p. All of it, and the
gradient in Lambda,

    2 Lambda^-T (sum_l I - (H^-1)_ll - u_l u_l' / sigma^2)

needs products of columns only (`linear_products`), and factors of H (`linear_factors`).
"""

from typing import NamedTuple

import numpy as np

from marginax.formulas.linear_factors import Factored
from marginax.formulas.linear_products import LinearModel

__all__ = ["Profile"]


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

"""What follows from the maximum of a linear mixed model: standard errors, effects, draws.

Standard errors of fixed effects are those at the estimated covariances, as lme4 has them; of
standard deviations and correlations, from the second derivatives of the likelihood in these and the
residual's, the fixed effects following.
"""

import math
from typing import NamedTuple

import numpy as np

from marginax.formulas.covariances import Layout
from marginax.formulas.linear_maximum import Maximum, differences, floored, profile_at
from marginax.formulas.linear_products import LinearModel
from marginax.formulas.solution import Effects, Number

__all__ = ["Inference"]

QUANTILE = 1.959963984540054


class Inference(NamedTuple):
    """What follows from the maximum.

    Attributes:
        model: whose.
        layout: in the model's order of groups.
        top: the maximum.
        reml: whether the likelihood is the restricted one.
        back: where each group of the design is in the model.
    """

    model: LinearModel
    layout: Layout
    top: Maximum
    reml: bool
    back: list[int]

    @property
    def sigma(self) -> float:
        """The residual standard deviation."""
        return math.sqrt(self.top.profile.variance) * self.model.unit

    def covariances(self) -> list[np.ndarray]:
        """Of the random effects, in the units of the data and the model's order."""
        found = []
        triangles = self.layout.triangles(self.top.flat)
        for triangle, scale in zip(triangles, self.model.scales, strict=True):
            root = self.sigma * triangle / scale[:, None]
            found.append(root @ root.T)
        return found

    def phi(self) -> np.ndarray:
        """log sds, correlations and log sigma; very small where a variance is 0."""
        flat = floored(self.layout, self.top.flat)
        covariances = []
        for triangle, scale in zip(self.layout.triangles(flat), self.model.scales, strict=True):
            root = self.sigma * triangle / scale[:, None]
            covariances.append(root @ root.T)
        return np.append(self.layout.phi(covariances), math.log(self.sigma))

    def local(self, model: LinearModel, phi: np.ndarray) -> tuple[float, np.ndarray]:
        """The log likelihood and its gradient in phi, the fixed effects following."""

        def flat_of(phi: np.ndarray) -> np.ndarray:
            roots = self.layout.roots(phi[:-1])
            sigma = math.exp(phi[-1])
            scaled = [s[:, None] * r / sigma for r, s in zip(roots, model.scales, strict=True)]
            return self.layout.flat(scaled)

        flat = flat_of(phi)
        profile = profile_at(model, self.layout, floored(self.layout, flat), self.reml)
        variance = math.exp(2 * phi[-1]) / model.unit**2
        slope = self.layout.flat(profile.gradient(variance))
        gradient = np.empty(len(phi))
        for k in range(len(phi)):
            step = np.zeros(len(phi))
            step[k] = 1e-5
            gradient[k] = slope @ (flat_of(phi + step) - flat_of(phi - step)) / 2e-5
        gradient[-1] += 2 * profile.degrees - 2 * profile.sum_of_squares / variance
        return -0.5 * profile.deviance(variance), -0.5 * gradient

    def free(self) -> np.ndarray:
        """Which numbers of phi are not at a boundary: sd 0, or a block without full rank."""
        zero_of = {
            entry[:2]
            for entry, zero in zip(self.layout.entries(), self.top.is_zero, strict=True)
            if zero
        }
        covariances, free = self.covariances(), []
        for g, (_, _, blocks) in enumerate(self.layout.groups):
            for block in blocks:
                none = [covariances[g][i, i] == 0 for i in block]
                singular = any((g, i) in zero_of for i in block)
                free += [not one for one in none]
                free += [not singular] * (len(block) * (len(block) - 1) // 2)
        return np.array([*free, True])

    def covariance_of_phi(self) -> np.ndarray:
        """Inverse information of phi; NaN for those at a boundary, which are held there."""
        phi, places = self.phi(), np.flatnonzero(self.free())
        hessian = differences(lambda at: self.local(self.model, at)[1][places], phi, places)
        covariance = np.full((len(phi), len(phi)), np.nan)
        covariance[np.ix_(places, places)] = np.linalg.pinv(-hessian, hermitian=True)
        return covariance

    def numbers(self, covariance: np.ndarray) -> list[Number]:
        """Standard deviations and correlations in the model's order, then the residual's."""
        phi, names = self.phi(), self.layout.names()
        shown = [*self.layout.displayed(self.covariances()), self.sigma]

        def display(phi: np.ndarray) -> np.ndarray:
            squares = [root @ root.T for root in self.layout.roots(phi[:-1])]
            return np.append(self.layout.displayed(squares), math.exp(phi[-1]))

        steps = 1e-6 * np.eye(len(phi))
        jacobian = np.array([(display(phi + h) - display(phi - h)) / 2e-6 for h in steps]).T
        free = self.free()
        known = np.where(np.outer(free, free), covariance, 0.0)
        errors = np.sqrt(np.maximum(np.diag(jacobian @ known @ jacobian.T), 0.0))
        found = []
        for k, value in enumerate(shown):
            about = names[k] if k < len(names) else None
            if not free[k]:
                name = about.text if about else "sigma"
                found.append(Number(name, value, None, None, None, about))
                continue
            low, high = _interval(value, errors[k], about is not None and about.is_correlation)
            text = "sigma" if about is None else about.text
            found.append(Number(text, value, float(errors[k]), low, high, about))
        return found

    def fixed(self) -> tuple[np.ndarray, np.ndarray]:
        """beta and its covariance."""
        model, profile = self.model, self.top.profile
        if model.num_fixed == 0:
            return np.zeros(0), np.zeros((0, 0))
        back = np.linalg.inv(model.triangle)
        beta = model.least_squares + back @ profile.fixed * model.unit
        root = back @ np.linalg.inv(profile.triangle).T * self.sigma
        return beta, root @ root.T

    def effects(self) -> tuple[Effects, ...]:
        """Means and standard deviations of the random effects, in the design's order."""
        profile, model = self.top.profile, self.model
        means = model.split(profile.effects())
        blocks = profile.factored.inverse_blocks()
        found = []
        for u, block, scale, root in zip(
            means, blocks, model.scales, profile.factored.covariances, strict=True
        ):
            root = root / scale[:, None]
            variance = np.einsum("ab,lbc,ac->la", root, block, root)
            sd = self.sigma * np.sqrt(np.maximum(variance, 0.0))
            found.append(Effects(model.unit * u @ root.T, sd))
        return tuple(found[i] for i in self.back)

    def draw(self, seed: int, count: int) -> list[np.ndarray]:
        """Draws of the random effects given the data, in the design's order."""
        profile, model = self.top.profile, self.model
        random = np.random.default_rng(seed)
        u = profile.factored.draw(random, count) * math.sqrt(profile.variance)
        parts = model.split(profile.effects()[:, None] + u)
        found = [
            model.unit * np.einsum("lbk,ab->kla", part, root / scale[:, None])
            for part, root, scale in zip(
                parts, profile.factored.covariances, model.scales, strict=True
            )
        ]
        return [found[i] for i in self.back]


def _interval(value: float, error: float, is_correlation: bool) -> tuple[float, float]:
    """On the scale of atanh for correlations and of log for standard deviations."""
    if is_correlation:
        middle, half = math.atanh(value), QUANTILE * error / max(1 - value**2, 1e-12)
        return math.tanh(middle - half), math.tanh(middle + half)
    half = QUANTILE * error / value
    return value * math.exp(-half), value * math.exp(min(half, 700.0))

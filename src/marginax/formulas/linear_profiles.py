"""Profile likelihood intervals of linear mixed models."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.covariances import Layout
from marginax.formulas.design import Design
from marginax.formulas.linear_inference import Inference
from marginax.formulas.linear_maximum import differences
from marginax.formulas.linear_products import LinearModel, linear_model
from marginax.likelihood.newton import Climb, Local, climb
from marginax.likelihood.profile import profile_end

__all__ = ["Profiles"]


class Profiles(NamedTuple):
    """Profile likelihood intervals.

    Attributes:
        inference: at the maximum.
        design: whose.
        response: y without its offset.
    """

    inference: Inference
    design: Design
    response: np.ndarray

    def interval(self, name: str, quantile: float) -> tuple[float, float]:
        """The ends of an interval of a fixed effect, a standard deviation or a correlation."""
        if name in self.design.names:
            return self._of_fixed(self.design.names.index(name), quantile)
        inference = self.inference
        names = [*(one.text for one in inference.layout.names()), "sigma"]
        return self._of_phi(names.index(name), quantile)

    def _of_fixed(self, place: int, quantile: float) -> tuple[float, float]:
        inference, columns = self.inference, self.design.columns
        if inference.reml:
            raise ValueError(
                "The restricted likelihood has no profile of a fixed effect: it does not know "
                "them. Fit with reml=False, or use the intervals of `fixed_effects`."
            )
        beta, covariance = inference.fixed()
        error = math.sqrt(covariance[place, place])
        others = np.delete(columns.fixed, place, axis=1)
        places = np.flatnonzero(inference.free())

        def profiled(value: float, near: np.ndarray) -> Climb:
            moved = self.response - value * columns.fixed[:, place]
            model = linear_model(moved, others, columns.groups, self.design.weights)
            return _climb(inference, model, inference.phi(), places, near)

        top = -0.5 * inference.top.profile.deviance()
        start, middle = inference.phi()[places], float(beta[place])

        def end(sign: float) -> float:
            away = profile_end(
                lambda away, near: profiled(middle + sign * away, near),
                start,
                top,
                quantile,
                quantile * error,
            )
            return middle + sign * away

        return end(-1.0), end(1.0)

    def _of_phi(self, place: int, quantile: float) -> tuple[float, float]:
        inference = self.inference
        free = inference.free()
        names = inference.layout.names()
        is_correlation = place < len(names) and names[place].is_correlation
        if is_correlation and len(_block_of(inference.layout, place)) > 1:
            raise ValueError(
                f"{names[place].text!r} hangs together with the other correlations of its group "
                "and cannot be fixed on its own; `variance_components` has its interval."
            )
        phi = inference.phi()
        covariance = inference.covariance_of_phi()
        error = math.sqrt(covariance[place, place]) if free[place] else 1.0
        others = np.array([k for k in np.flatnonzero(free) if k != place], int)
        top = -0.5 * inference.top.profile.deviance()

        def profiled(value: float, near: np.ndarray) -> Climb:
            moved = phi.copy()
            moved[place] = value
            return _climb(inference, inference.model, moved, others, near)

        def end(sign: float) -> float:
            away = profile_end(
                lambda away, near: profiled(phi[place] + sign * away, near),
                phi[others],
                top,
                quantile,
                quantile * min(error, 2.0),
            )
            return float(phi[place] + sign * away)

        low = end(-1.0) if free[place] else -math.inf
        high = end(1.0)
        if is_correlation:
            return math.tanh(low), math.tanh(high)
        return math.exp(low), math.exp(high)


def _block_of(layout: Layout, place: int) -> list[int]:
    """The places of the correlations that are in one block with another."""
    names = layout.names()
    about = names[place]
    same: list[int] = []
    at = 0
    for _, _, blocks in layout.groups:
        for block in blocks:
            pairs = len(block) * (len(block) - 1) // 2
            here = range(at + len(block), at + len(block) + pairs)
            if about.is_correlation and place in here:
                same = list(here)
            at += len(block) + pairs
    return same


def _climb(
    inference: Inference, model: LinearModel, phi: np.ndarray, places: np.ndarray, near: np.ndarray
) -> Climb:
    """The highest point over some of phi, from near."""

    def evaluate(some: np.ndarray, extra: Any) -> Local:
        moved = phi.copy()
        moved[places] = some
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            value, gradient = inference.local(model, moved)
            hessian = differences(lambda at: inference.local(model, at)[1][places], moved, places)
        return Local(value, gradient[places], hessian.reshape(len(places), -1), None)

    if len(places) == 0:
        value, _ = inference.local(model, phi)
        return Climb(near, Local(value, np.zeros(0), np.zeros((0, 0)), None), 0, True)
    return climb(evaluate, near, None, max_steps=30, negligible=1e-6)

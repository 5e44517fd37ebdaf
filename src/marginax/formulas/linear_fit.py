"""The fit of a linear mixed model: climbs, boundaries, standard errors, intervals.

The climb is in the entries of Lambda (`profiled`), by quasi-Newton steps with exact gradients, and
ends with Newton's. Standard errors of fixed effects are those at the estimated covariances, as lme4
has them; of standard deviations and correlations, from the second derivatives of the likelihood in
these and the residual's, the fixed effects following.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.covariances import Layout
from marginax.formulas.design import Design, Group
from marginax.formulas.profiled import LEAST, LinearModel, Profile, linear_model
from marginax.formulas.solution import Effects, Number, Solution
from marginax.likelihood.newton import Climb, Local, climb
from marginax.likelihood.profile import profile_end

__all__ = ["fit_linear"]

STEP = 1e-4  # of differences of gradients, in entries of Lambda or in phi
LOW, AS_HIGH = 0.03, 1e-6  # an entry that may be 0; a deviance that is no higher there
AT_REST = 1e-5  # in standard errors: Newton's next step
QUANTILE = 1.959963984540054


class _Maximum(NamedTuple):
    """Where the likelihood is highest.

    Attributes:
        flat: the free entries of Lambda, those at the boundary 0.
        profile: there.
        is_zero: which entries are at the boundary.
        settled: whether Newton's next step is negligible.
    """

    flat: np.ndarray
    profile: Profile
    is_zero: np.ndarray
    settled: bool


def fit_linear(design: Design, reml: bool) -> Solution:
    """Maximum likelihood, or restricted maximum likelihood, of a linear mixed model."""
    columns = design.columns
    response = design.response.values - columns.offset
    _check_response(design, response)
    model = linear_model(response, columns.fixed, columns.groups, design.weights)
    if model.unit <= 1e-12 * float(np.max(np.abs(response), initial=0.0)):
        raise ValueError(
            f"The fixed effects explain {design.response.name!r} without a rest: there is nothing "
            "left for random effects. Take some of them out."
        )
    layout = layout_of(columns.groups).reordered(model.order)
    top = _maximum(model, layout, reml)
    inference = _Inference(model, layout, top, reml, _back(model.order))
    return inference.solution(design, response)


def layout_of(groups: tuple[Group, ...]) -> Layout:
    """Which numbers the covariances of groups have."""
    return Layout(tuple((group.name, group.effects, group.blocks) for group in groups))


def _check_response(design: Design, response: np.ndarray) -> None:
    name, groups = design.response.name, design.columns.groups
    if np.ptp(response) == 0:
        raise ValueError(
            f"The response {name!r} is {response[0]:g} in every row: nothing varies that could be "
            "explained."
        )
    for group in groups:
        size = len(group.effects)
        if group.num_levels * size >= len(response):
            raise ValueError(
                f"The group {group.name!r} has {group.num_levels} levels with {size} "
                f"effect{'s' * (size > 1)} each and there are {len(response)} rows: the effects "
                "cannot be told from the residual. Take effects out, or use another group."
            )


def _back(order: tuple[int, ...]) -> list[int]:
    """Where each group of the design is in the model."""
    return [order.index(i) for i in range(len(order))]


def _floored(layout: Layout, flat: np.ndarray) -> np.ndarray:
    """Lambda's entries with a diagonal that is not quite 0, where there are no derivatives."""
    low = layout.is_diagonal() & (np.abs(flat) < LEAST)
    return np.where(low, LEAST, flat)


def _at(model: LinearModel, layout: Layout, flat: np.ndarray, reml: bool) -> Profile:
    return Profile.at(model, tuple(layout.triangles(flat)), reml)


def _maximum(model: LinearModel, layout: Layout, reml: bool) -> _Maximum:
    from scipy.optimize import minimize  # slow to import

    def deviance(flat: np.ndarray) -> tuple[float, np.ndarray]:
        profile = _at(model, layout, _floored(layout, flat), reml)
        return profile.deviance(), layout.flat(profile.gradient())

    # No bounds: Lambda with another sign of a column is the same model, and a bound at 0 would be
    # an end where the way on is through it, to another sign of what is below.
    start = np.where(layout.is_diagonal(), 1.0, 0.0)
    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-7}
    found = minimize(deviance, start, jac=True, method="L-BFGS-B", options=options)
    flat = _with_positive_diagonal(layout, found.x)
    zero = _zeros(model, layout, flat, reml)
    flat = np.where(zero, 0.0, flat)
    flat, settled = _newton(deviance, flat, ~zero)
    flat = _with_positive_diagonal(layout, flat)
    return _Maximum(flat, _at(model, layout, flat, reml), zero, settled)


def _with_positive_diagonal(layout: Layout, flat: np.ndarray) -> np.ndarray:
    """The same covariances, with columns of Lambda that have a positive diagonal."""
    triangles = layout.triangles(flat)
    return layout.flat([one * np.where(np.diag(one) < 0, -1.0, 1.0) for one in triangles])


def _zeros(model: LinearModel, layout: Layout, flat: np.ndarray, reml: bool) -> np.ndarray:
    """Diagonal entries that may as well be 0: the deviance is no higher there."""
    diagonal, zero = layout.is_diagonal(), np.zeros(len(flat), bool)
    here = _at(model, layout, flat, reml).deviance()
    for k in np.flatnonzero(diagonal & (flat < LOW)):
        moved = np.where(zero, 0.0, flat)
        moved[k] = 0.0
        zero[k] = _at(model, layout, moved, reml).deviance() <= here + AS_HIGH
    return zero


def _newton(
    deviance: Callable[[np.ndarray], tuple[float, np.ndarray]], flat: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Newton's last steps in the free entries, and whether the next one is negligible."""
    places = np.flatnonzero(free)
    if len(places) == 0:
        return flat, True
    value, gradient = deviance(flat)
    for _ in range(8):
        hessian = _differences(lambda at: deviance(at)[1][places], flat, places)
        w, v = np.linalg.eigh(hessian)
        along = v.T @ gradient[places]
        w = np.maximum(np.abs(w), 1e-10 * np.abs(w).max())
        if np.max(np.abs(along) / np.sqrt(w)) < AT_REST:
            return flat, True
        step, length = v @ (along / w), 1.0
        for _ in range(10):
            moved = flat.copy()
            moved[places] -= length * step
            there, slope = deviance(moved)
            if there <= value + 1e-9:
                flat, value, gradient = moved, there, slope
                break
            length /= 4
        else:
            return flat, bool(np.max(np.abs(along) / np.sqrt(w)) < 100 * AT_REST)
    return flat, bool(np.max(np.abs(along) / np.sqrt(w)) < 100 * AT_REST)


def _differences(
    gradient: Callable[[np.ndarray], np.ndarray], at: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """The second derivatives in some coordinates, from the gradient in these to either side."""
    rows = []
    for k in places:
        step = np.zeros(len(at))
        step[k] = STEP * max(1.0, abs(at[k]))
        rows.append((gradient(at + step) - gradient(at - step)) / (2 * step[k]))
    found = np.array(rows)
    return (found + found.T) / 2


class _Inference(NamedTuple):
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
    top: _Maximum
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
        flat = _floored(self.layout, self.top.flat)
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
        profile = _at(model, self.layout, _floored(self.layout, flat), self.reml)
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
        hessian = _differences(lambda at: self.local(self.model, at)[1][places], phi, places)
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

    def solution(self, design: Design, response: np.ndarray) -> Solution:
        """All of it, in the design's order of groups."""
        beta, covariance = self.fixed()
        numbers = self.numbers(self.covariance_of_phi())
        in_order = _in_order(numbers, design.columns.groups)
        covariances = self.covariances()
        border = "" if self.model.border is None else f" and {self.model.border.words}"
        kind = "restricted likelihood" if self.reml else "likelihood"
        return Solution(
            fixed=beta,
            fixed_covariance=covariance,
            covariances=tuple(covariances[i] for i in self.back),
            dispersion={"sigma": np.array(self.sigma)},
            numbers=tuple(in_order),
            num_parameters=len(beta) + len(in_order),
            log_likelihood=-0.5 * self.top.profile.deviance(),
            error=0.0,
            method=f"exact {kind}: {self.model.sizes[0][0]:,} levels eliminated one by one{border}",
            effects=self.effects,
            converged=self.top.settled,
            warnings=() if self.top.settled else (NOT_SETTLED,),
            notes=tuple(boundary_notes(in_order)),
            profile=_Profiles(self, design, response).interval,
            draw=self.draw,
        )


NOT_SETTLED = (
    "The climb did not come to rest: the estimate may be a little off. Rescale columns of very "
    "different size, or take random effects out."
)


def _interval(value: float, error: float, is_correlation: bool) -> tuple[float, float]:
    """On the scale of atanh for correlations and of log for standard deviations."""
    if is_correlation:
        middle, half = math.atanh(value), QUANTILE * error / max(1 - value**2, 1e-12)
        return math.tanh(middle - half), math.tanh(middle + half)
    half = QUANTILE * error / value
    return value * math.exp(-half), value * math.exp(min(half, 700.0))


def _in_order(numbers: list[Number], groups: tuple[Group, ...]) -> list[Number]:
    """The numbers by the groups of the design; the residual's last."""
    order = {group.name: i for i, group in enumerate(groups)}
    return sorted(numbers, key=lambda one: order[one.about.group] if one.about else len(order))


def boundary_notes(numbers: list[Number]) -> list[str]:
    """What is at a boundary, in sentences: a finding and no failure."""
    said = []
    for one in numbers:
        if one.about is None or one.standard_error is not None:
            continue
        if not one.about.is_correlation:
            said.append(
                f"{one.name} is 0: the data want no variance there. It has no standard error, the "
                "others' are with it fixed, and a likelihood-ratio test of it is conservative."
            )
        elif abs(one.estimate) > 0.999:
            said.append(
                f"{one.name} is {one.estimate:+.0f}, an end of its range: these effects are one. "
                "It has no standard error, and the others' are with it fixed."
            )
    return said


class _Profiles(NamedTuple):
    """Profile likelihood intervals.

    Attributes:
        inference: at the maximum.
        design: whose.
        response: y without its offset.
    """

    inference: _Inference
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
    inference: _Inference, model: LinearModel, phi: np.ndarray, places: np.ndarray, near: np.ndarray
) -> Climb:
    """The highest point over some of phi, from near."""

    def evaluate(some: np.ndarray, extra: Any) -> Local:
        moved = phi.copy()
        moved[places] = some
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            value, gradient = inference.local(model, moved)
            hessian = _differences(lambda at: inference.local(model, at)[1][places], moved, places)
        return Local(value, gradient[places], hessian.reshape(len(places), -1), None)

    if len(places) == 0:
        value, _ = inference.local(model, phi)
        return Climb(near, Local(value, np.zeros(0), np.zeros((0, 0)), None), 0, True)
    return climb(evaluate, near, None, max_steps=30, negligible=1e-6)

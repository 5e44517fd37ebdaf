"""The fit of a mixed model that is not linear: climbs of its likelihood, judgement, effects.

Only the likelihood is climbed: quadrature where one group has up to three effects, the factors of a
sparse curvature otherwise. There are no particles and no chains; draws are made when asked for.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.disk_cache import kept_on_disk
from marginax._core.memory import memory_explained
from marginax.fitting.boundaries import (
    find_ends,
    with_flat_ridges,
    with_information_inside,
)
from marginax.fitting.directions import rises_for_ever, runaways, with_tested_directions
from marginax.fitting.fit_state import FitState
from marginax.fitting.rough_climbs import few_groups
from marginax.fitting.uncertainty import delta_method, inverse_information
from marginax.fitting.warnings import has_converged, notes_without_particles, warnings_of
from marginax.formulas.design import Design
from marginax.formulas.families import Family
from marginax.formulas.problems import MixedProblem, make_problem
from marginax.formulas.responses import Response
from marginax.formulas.solution import Effects, Number, Solution
from marginax.likelihood.blocks import as_blocks, chunk_of, finite_values
from marginax.likelihood.climbs import Maximum, climb_from_starts, maximum_from
from marginax.likelihood.functions import LikelihoodFunction, modes_of
from marginax.likelihood.further_out import highest_from
from marginax.likelihood.posterior import posterior_sampler
from marginax.likelihood.profile import profile_of
from marginax.likelihood.proposals import as_modes, proposals_by_chunk
from marginax.likelihood.quadrature import nodes_of, quadrature_likelihood, rules
from marginax.likelihood.structured import structured_likelihood
from marginax.model import parameter_table
from marginax.model.model_key import models_as_they_are
from marginax.model.problem import Problem

__all__ = ["fit_by_climbing"]

QUANTILE = 1.959963984540054
MANY_DRAWS = 4000
LARGE = 1.0  # a standard error, of the effect of a column of unit size: it may be at infinity
OTHER_STARTS = (1.2, -1.2)  # added to log standard deviations where there may be several maxima


@kept_on_disk()
@memory_explained("mixed")
def fit_by_climbing(design: Design, family: Family, link: str, response: Response) -> Solution:
    """Maximum likelihood of a mixed model with any family.

    Args:
        design: with X, Z and the offset.
        family: of the response.
        link: its name.
        response: checked.
    """
    # Where a maximum is at infinity, differences of infinite numbers are looked at and refused.
    with jax.enable_x64(True), np.errstate(all="ignore"):
        return _fitted(design, family, link, response)


@models_as_they_are()
def _fitted(design: Design, family: Family, link: str, response: Response) -> Solution:
    mixed = make_problem(design, family, link, response)
    state = _climbed(mixed, family)
    state, sides = _judged(mixed.problem, state)
    return _Told(design, family, mixed, state, sides).solution()


def _judged(problem: Problem, state: FitState) -> tuple[FitState, dict[int, float]]:
    """What is at a boundary or at infinity, as `fit` finds it; signs and groups are known here.

    Returns:
        The state, and on which side each boundary is, on the reals.
    """
    ends = find_ends(problem, state)
    state = state._replace(boundaries=ends.sentences, rises=rises_for_ever(state))
    state = with_flat_ridges(with_information_inside(state, ends.sides), ends.ridges)
    unknown = [*runaways(problem, state, LARGE), *ends.undetermined]
    return with_tested_directions(state.without_information(unknown)), ends.sides


def _climbed(mixed: MixedProblem, family: Family) -> FitState:
    """The maximum, from the start that the data gave and others where there may be several."""
    problem = mixed.problem
    thetas = _starts(problem, family)
    few = few_groups(problem) if mixed.is_grouped else None
    if mixed.is_grouped:
        if few is not None:  # of very many groups, a few say where to begin
            rough = climb_from_starts(_by_quadrature(few, family), thetas)
            thetas = _ends(rough.climbs, thetas)
        function = _by_quadrature(problem, family)
    else:
        found = structured_likelihood(problem, thetas[0])
        if isinstance(found, str):
            raise ValueError(f"The likelihood of this model cannot be computed: {found}")
        function = found
    made = climb_from_starts(function, thetas)
    # Where the density of a row is log-concave there is one start, and no case of a second hill;
    # of very many groups an evaluation takes as long as all climbs of a few.
    looks = mixed.is_grouped and few is None and not family.is_log_concave
    highest = highest_from if looks else maximum_from
    maximum = highest(made.function, _ends(made.climbs, thetas), made.climbs)
    if maximum is None:
        raise ValueError(
            "The likelihood of this model is not finite where the data suggest to begin. Look for "
            "columns with enormous numbers, or rescale them."
        )
    return FitState(theta=thetas[0], start=0).at_maximum(maximum)


def _by_quadrature(problem: Problem, family: Family) -> LikelihoodFunction:
    function = quadrature_likelihood(problem)
    # One mode is all there is where the density of a row is log-concave.
    return function._replace(other_modes=None) if family.is_log_concave else function


def _starts(problem: Problem, family: Family) -> np.ndarray:
    leaves = problem.start_theta()
    flat = {key: np.ravel(leaf).astype(float) for key, leaf in leaves.items()}
    thetas = [np.concatenate([flat[key] for key in sorted(flat)])]
    if family.is_log_concave:
        return np.array(thetas)
    for move in OTHER_STARTS:
        moved = {key: x + move * key.endswith("_sd") for key, x in flat.items()}
        thetas.append(np.concatenate([moved[key] for key in sorted(moved)]))
    return np.array(thetas)


def _ends(climbs: list[Any], thetas: np.ndarray) -> np.ndarray:
    ended = [one for one in climbs if np.isfinite(one.local.value)]
    if not ended:
        return thetas
    return max(ended, key=lambda one: one.local.value).theta[None]


class _Told:
    """What a climb says, in the units of the data."""

    def __init__(
        self,
        design: Design,
        family: Family,
        mixed: MixedProblem,
        state: FitState,
        sides: dict[int, float],
    ) -> None:
        self.design, self.family, self.mixed, self.state = design, family, mixed, state
        self.sides = sides
        self.problem = mixed.problem
        self.boundaries = tuple(state.boundaries)

    @property
    def maximum(self) -> Maximum:
        if self.state.maximum is None:
            raise ValueError("There is no maximum of the likelihood.")
        return self.state.maximum

    def solution(self) -> Solution:
        theta = self._theta()
        likelihood, state = self.maximum.likelihood, self.state
        numbers, covariance = self._numbers()
        is_fixed = [about is None and name in self.design.names for name, about in self._named()]
        places = np.flatnonzero(is_fixed)
        beta = theta["beta"] / self.mixed.scales[0] if "beta" in theta else np.zeros(0)
        return Solution(
            fixed=beta,
            fixed_covariance=covariance[np.ix_(places, places)],
            covariances=tuple(root @ root.T for root in self._roots(theta)),
            dispersion={one.name: theta[f"values_{one.name}"] for one in self.family.parameters},
            numbers=tuple(one for one, fixed in zip(numbers, is_fixed, strict=True) if not fixed),
            num_parameters=len(state.theta),
            log_likelihood=likelihood.log_likelihood,
            error=likelihood.error,
            method="; ".join(filter(None, (likelihood.method, likelihood.quality))),
            effects=self.effects,
            converged=has_converged(None, state),
            warnings=(*warnings_of(self.problem, None, state), *self._without_bound()),
            notes=tuple(notes_without_particles(self.problem, state)),
            profile=self.profile,
            draw=self.draw,
            details=likelihood,
        )

    def _theta(self) -> dict[str, np.ndarray]:
        """The estimate on its constrained scale, in the problem's units."""
        flat = parameter_table.unravel_theta(self.problem, self.state.theta)
        theta = parameter_table.constrained_theta(self.problem, flat)
        return {key: np.asarray(leaf, float) for key, leaf in theta.items()}

    def _named(self) -> list[tuple[str, Any]]:
        return list(zip(self.mixed.names, self.mixed.abouts, strict=True))

    def _roots(self, theta: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Of every group a root of the covariance of its effects, in the units of the data."""
        roots, at = [], 0
        for group, scale in zip(self.design.columns.groups, self.mixed.scales[1], strict=True):
            root = np.zeros((len(group.effects),) * 2)
            for block in group.blocks:
                part = np.diag(theta[f"effects_{at:02d}_a_sd"])
                if len(block) > 1:
                    part = part @ theta[f"effects_{at:02d}_b_corr"]
                root[np.ix_(block, block)] = part
                at += 1
            roots.append(root / scale[:, None])
        return roots

    def _numbers(self) -> tuple[list[Number], np.ndarray]:
        """All numbers of the table, and their covariance, in the units of the data."""
        flat, units = self.state.theta, self.mixed.units
        information = self.state.information
        shown, jacobian = parameter_table.numbers_and_jacobian(self.problem, flat)
        size = len(flat)
        on_reals = (
            np.full((size, size), np.nan)
            if information is None
            else inverse_information(information, self.boundaries)
        )
        covariance = delta_method(jacobian, on_reals)
        errors = np.sqrt(np.diag(covariance))
        ends = parameter_table.intervals(self.problem, shown, errors, QUANTILE)
        found = []
        at_end = self._at_end()
        for k, (name, about) in enumerate(self._named()):
            known = not np.isnan(errors[k])
            low, high = (float(x) * units[k] for x in ends[k]) if known else (None, None)
            value = at_end.get(name, shown[k] * units[k])
            error = float(errors[k] * units[k]) if known else None
            found.append(Number(name, float(value), error, low, high, about))
        return found, covariance * np.outer(units, units)

    def _at_end(self) -> dict[str, float]:
        """Standard deviations at their boundary, which is 0."""
        names = parameter_table.unconstrained_names(self.problem)
        at_zero = [i for i in self.boundaries if self.sides.get(i) == -1.0]
        return {names[i]: 0.0 for i in at_zero if names[i].startswith("sd(")}

    def _without_bound(self) -> list[str]:
        """Standard deviations that grow for ever: every level has one kind of answer only."""
        names = parameter_table.unconstrained_names(self.problem)
        return [
            f"The likelihood is as high however large {names[i]} is: the levels are so different "
            "that no variance describes them (each has one kind of answer only, for instance). "
            "There is no estimate; take the term out, or collect more rows of each level."
            for i in self.boundaries
            if self.sides.get(i) == 1.0 and names[i].startswith("sd(")
        ]

    def effects(self) -> tuple[Effects, ...]:
        """Means and standard deviations of b = root u, where u is known by its moments."""
        likelihood, theta = self.maximum.likelihood, self._theta()
        roots = self._roots(theta)
        mixes = any(np.any(root != np.diag(np.diag(root))) for root in roots)
        if mixes and not self.mixed.is_grouped:  # the Gaussian's weighted draws know correlations
            draws = self.draw(0, MANY_DRAWS)
            return tuple(Effects(part.mean(axis=0), part.std(axis=0)) for part in draws)
        if mixes:
            mean, covariance = self._moments(likelihood)
            (root,) = roots
            variance = np.einsum("ab,lbc,ac->la", root, covariance, root)
            return (Effects(mean @ root.T, np.sqrt(np.maximum(variance, 0.0))),)
        return tuple(
            Effects(u @ root.T, sd @ np.abs(root).T)
            for root, u, sd in zip(
                roots, self._by_group(likelihood.mean), self._by_group(likelihood.sd), strict=True
            )
        )

    def _by_group(self, flat: np.ndarray) -> list[np.ndarray]:
        """What is known of u number by number, [..., levels, effects] of every group."""
        if self.mixed.is_grouped:
            return [flat]
        found, at = [], 0
        for group in self.design.columns.groups:
            shape = (group.num_levels, len(group.effects))
            size = shape[0] * shape[1]
            found.append(flat[..., 0, at : at + size].reshape(*flat.shape[:-2], *shape))
            at += size
        return found

    def _moments(self, likelihood: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances of u, level by level, by the rule that the likelihood is of."""
        with jax.enable_x64(True), kept_on_disk():
            blocks = as_blocks(self.problem)
            size = blocks.start.shape[1]
            rule = next(one for one in rules(size) if one.num_nodes == likelihood.num_nodes)
            modes = as_modes(modes_of(self.maximum.best.local.extra))
            theta, found = self.maximum.best.theta, []

            @jax.jit
            def moments(theta: Array, proposal: Any, data: Any) -> Any:
                points, log_weights, _ = nodes_of(proposal, rule)
                values, _ = finite_values(
                    lambda x: blocks.log_densities(theta, x, data),
                    points,
                    proposal.at.mode[0],
                    log_weights,
                )
                share = jax.nn.softmax(values + log_weights, axis=0)
                mean = jnp.einsum("kb,kbp->bp", share, points)
                away = points - mean[None]
                return mean, jnp.einsum("kb,kbp,kbq->bpq", share, away, away)

            each = proposals_by_chunk(blocks)(theta, modes, len(modes) * len(rule.nodes))
            for rows, proposal, _ in each:
                found.append(moments(theta, proposal, chunk_of(blocks, rows)))
            means, covariances = zip(*found, strict=True)
            return np.concatenate(means), np.concatenate(covariances)

    def profile(self, name: str, quantile: float) -> tuple[float, float]:
        """The ends of a profile interval, in the units of the data."""
        with jax.enable_x64(True), kept_on_disk():
            information = self.state.information
            covariance = (
                np.full((len(self.state.theta),) * 2, np.nan)
                if information is None
                else inverse_information(information, self.boundaries)
            )
            ends = profile_of(
                self.problem, self.maximum, self.state.theta, covariance, name, quantile
            )
        unit = self.mixed.units[self.mixed.names.index(name)]
        return float(ends[0]) * unit, float(ends[1]) * unit

    def draw(self, seed: int, count: int) -> list[np.ndarray]:
        """Draws of the random effects given the data: of every group [count, levels, effects]."""
        with jax.enable_x64(True), kept_on_disk():
            key, best = jax.random.key(seed), self.maximum.best
            if self.maximum.function.draw is not None:
                flat = self.maximum.function.draw(best.theta, best.local.extra, key, count)
                draws = np.asarray(flat)[:, None, :]
            else:
                modes = modes_of(best.local.extra)
                mean = self.maximum.likelihood.mean
                cloud = jnp.asarray(np.broadcast_to(mean, (2, *mean.shape)))
                made = posterior_sampler(self.problem)(best.theta, cloud, key, modes)
                pooled = made.draws.reshape(-1, *made.draws.shape[2:])
                random = np.random.default_rng(seed)
                draws = pooled[random.choice(len(pooled), count, replace=count > len(pooled))]
        roots = self._roots(self._theta())
        return [part @ root.T for part, root in zip(self._by_group(draws), roots, strict=True)]

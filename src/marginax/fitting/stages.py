"""The stages of a fit after its plan; each keeps what there is if Ctrl-C comes in between."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from marginax._core.processes import whole
from marginax.fitting.boundaries import (
    find_ends,
    with_flat_ridges,
    with_information_inside,
)
from marginax.fitting.directions import (
    blind_to_sign,
    interacting_groups,
    rises_for_ever,
    runaways,
    with_tested_directions,
)
from marginax.fitting.fit_state import FitState
from marginax.fitting.starts import Starts, settled
from marginax.fitting.strategies import Strategy
from marginax.likelihood.blocks import flat_latents
from marginax.likelihood.climbs import (
    Maximum,
    as_high,
    gaps_below,
    maximum_from,
)
from marginax.likelihood.from_draws import climb_by_draws, likelihood_from_draws
from marginax.likelihood.functions import modes_of
from marginax.likelihood.further_out import highest_from
from marginax.likelihood.methods import likelihood_of_all
from marginax.likelihood.newton import Climb
from marginax.likelihood.posterior import (
    Posterior,
    can_draw,
    independent_draws,
    posterior_sampler,
    too_many_latents,
)
from marginax.model.problem import Problem, in_double_precision
from marginax.running.result import Run
from marginax.typing import Key

__all__ = [
    "at_top",
    "draw_posterior",
    "ends_of",
    "first_ending",
    "judge",
    "maximize",
    "may_draw",
    "may_follow",
]

ALIKE = 0.05  # thetas of starts that agree: five times the tolerance that runs have by default


def ends_of(ran: Run) -> np.ndarray:
    """Where theta of every start ended, flat, on the reals."""
    leaves = [whole(leaf) for leaf in jax.tree.leaves(ran.theta)]
    rows = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    return np.concatenate(rows, axis=1).astype(float)


def first_ending(ran: Run, strategy: Strategy) -> FitState:
    """What the particles found: the first start that converged, or the first."""
    ends = ends_of(ran)
    good = [i for i, status in enumerate(ran.statuses) if status == "converged"]
    first = good[0] if good else 0
    allowed = ALIKE * np.maximum(1.0, np.abs(ends[first]))
    agreeing = [i for i in good if np.all(np.abs(ends[i] - ends[first]) <= allowed)]
    return FitState(
        theta=ends[first],
        start=first,
        agreeing=max(1, len(agreeing)),
        no_draws=strategy.no_draws,
    )


def maximize(
    problem: Problem, strategy: Strategy, starts: Starts, ran: Run, mesh: Mesh | None
) -> FitState:
    """The likelihood's own maximum, or after Ctrl-C the highest point known before.

    Args:
        problem: what is fitted.
        strategy: whether the starts were climbed on a sample.
        starts: with the likelihood that was climbed.
        ran: where the particles ended.
        mesh: of devices, if any.
    """
    state, climbs = first_ending(ran, strategy), list(starts.climbs)
    if starts.function is None:
        return state
    try:
        with jax.enable_x64(True):
            if strategy.sample is not None:
                return _maximum_of_all(problem, strategy.sample, starts, ran, state, mesh)
            structure = starts.function.structure
            # Particles that move latent by latent do not see how these go together.
            blind = structure is not None and not structure.factors.traceable
            lost = [blind or status in ("diverged", "nonfinite") for status in ran.statuses]
            return state.at_maximum(highest_from(starts.function, ends_of(ran), climbs, lost))
    except KeyboardInterrupt:
        return at_top(state, strategy, climbs)._replace(
            interrupted="Ctrl-C during Newton's last steps: the estimate is from before them, "
            "without a likelihood and posterior draws."
        )


def at_top(state: FitState, strategy: Strategy, climbs: Sequence[Climb]) -> FitState:
    """At the highest known top; without its curvature if that is of a sample of the groups."""
    ended = settled(climbs)
    if not ended:
        return state
    best = max(ended, key=lambda one: one.local.value)
    state = state.at_top_of(ended)._replace(agreeing=sum(as_high(one, best) for one in ended))
    if strategy.sample is None:
        return state
    return state._replace(information=None, score_covariance=None)


def _maximum_of_all(
    problem: Problem,
    sample: Problem,
    starts: Starts,
    ran: Run,
    state: FitState,
    mesh: Mesh | None,
) -> FitState:
    """The maximum for all groups, of which the climbs so far have seen some."""
    finite = [one for one in starts.climbs if np.isfinite(one.local.value)]
    if not finite or starts.function is None:
        return state
    top = max(finite, key=lambda one: one.local.value)
    double, few = in_double_precision(problem), in_double_precision(sample)
    function = likelihood_of_all(double, few, top, mesh)
    if function is None:
        return state
    # No look further out: an evaluation of all groups takes as long as all climbs of a sample.
    state = state.at_maximum(maximum_from(function, ends_of(ran), []))
    agreeing = sum(as_high(one, top) for one in finite)
    lower = gaps_below(starts.function, top, finite)
    return state._replace(agreeing=agreeing, lower_in_sample=lower)


def may_follow(ran: Run, state: FitState) -> bool:
    """Whether the particles are to be carried to the estimate, where a strategy does that."""
    return state.maximum is not None and "interrupted" not in ran.statuses


def may_draw(state: FitState, latent_size: int) -> bool:
    """Whether there can be posterior draws at all."""
    return not (state.no_draws or state.interrupted) and can_draw(latent_size)


def draw_posterior(
    problem: Problem, ran: Run, state: FitState, key: Key, may_climb: bool
) -> FitState:
    """The same with posterior draws, or as it was after Ctrl-C, or where they are too many.

    Args:
        problem: what is fitted.
        ran: the particles, from which chains start.
        state: with the estimate.
        key: for the chains.
        may_climb: whether draws may give the last Newton steps where nothing else could.
    """
    num_latents = problem.latent_size * (problem.num_groups or 1)
    if too_many_latents(num_latents):
        words = f"There are no posterior draws: {num_latents} latents are too many for memory."
        return state._replace(no_draws=words)
    try:
        with jax.enable_x64(True):
            return _with_draws(in_double_precision(problem), ran, state, key, may_climb)
    except KeyboardInterrupt:
        return state._replace(interrupted="Ctrl-C during the posterior draws: there are none.")


def _with_draws(problem: Problem, ran: Run, state: FitState, key: Key, may_climb: bool) -> FitState:
    """Posterior draws at the estimate; the estimate from them where nothing else could give it."""
    particles = jax.tree.map(lambda leaf: whole(leaf)[state.start], ran.particles)
    cloud = jnp.asarray(flat_latents(problem, particles), float)
    reliable = state.likelihood is not None and state.likelihood.is_reliable
    if reliable and state.maximum is not None and state.maximum.function.draw is not None:
        return state._replace(draws=draws_of(state.maximum, key))
    if reliable or not may_climb:
        modes = None if state.maximum is None else modes_of(state.maximum.best.local.extra)
        return state._replace(draws=posterior_sampler(problem)(state.theta, cloud, key, modes))
    climbed = climb_by_draws(problem, state.theta, cloud, key)
    if climbed is None:
        return state._replace(
            no_draws="There are no posterior draws: the chains did not mix, or the model was not "
            "finite where they went."
        )
    value = likelihood_from_draws(problem, climbed.theta, climbed.posterior.draws)
    return state.by_draws(climbed, value)


def draws_of(maximum: Maximum, key: Key) -> Posterior:
    """Independent draws, where the likelihood has them, in as many rows as chains would have."""
    draw, local = maximum.function.draw, maximum.best.local
    size = modes_of(maximum.function.start).shape[-1]

    def some(count: int) -> np.ndarray:
        return draw(maximum.best.theta, local.extra, key, count)  # type: ignore[misc]

    return independent_draws(some, size)


def judge(problem: Problem, ran: Run, state: FitState) -> FitState:
    """What is at a boundary, unbounded, or not independent; after Ctrl-C no more is said of it."""
    try:
        with jax.enable_x64(True):
            double = in_double_precision(problem)
            ends = find_ends(double, state)
            state = state._replace(
                boundaries=ends.sentences,
                rises=rises_for_ever(state),
                blind_to_sign=blind_to_sign(double, state),
                interacting_groups=interacting_groups(double, ran, state),
            )
            state = with_flat_ridges(with_information_inside(state, ends.sides), ends.ridges)
            unknown = [*runaways(double, state), *ends.undetermined]
            return with_tested_directions(state.without_information(unknown))
    except KeyboardInterrupt:
        words = "Ctrl-C before boundaries and unbounded directions were looked for."
        return state._replace(interrupted=state.interrupted or words)

"""The stages of a fit, each of which keeps what there is if Ctrl-C comes in between."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from marginax import stopping
from marginax.base import Key, Particles, Theta
from marginax.checkpoint import Checkpoint
from marginax.inference.blocks import flat_latents
from marginax.inference.boundaries import edges, entangled, runaways
from marginax.inference.findings import Findings
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb
from marginax.inference.polish import (
    as_high,
    believable,
    by_draws,
    by_new_weights,
    is_near,
    likelihood_of,
    posterior_sampler,
)
from marginax.inference.polish import polish as climb_from_ends
from marginax.inference.polish import search as climb_from_starts
from marginax.inference.refresh import too_many
from marginax.many_groups import likelihood_of_all
from marginax.method_choice import Choice
from marginax.problem import Problem, in_double
from marginax.processes import whole
from marginax.result import Run
from marginax.run import run

__all__ = [
    "distinct",
    "first_ending",
    "go",
    "judged",
    "polish",
    "polish_all",
    "refresh",
    "search",
]

ALIKE = 0.05  # thetas of starts that agree: five times the tolerance that runs have by default


def go(
    problem: Problem,
    choice: Choice,
    likelihood: Likelihood | None,
    mesh: Mesh | None,
    theta: Theta,
    cloud: Particles,
    key: Key,
    max_steps: int,
    *,
    checkpoint: str | Path | Checkpoint | None,
    progress: bool | None,
) -> Run:
    """The particles from all starts at once, to rest."""
    polished = likelihood is not None
    num_starts = jax.tree.leaves(theta)[0].shape[0]
    ran = run(
        key,
        choice.algorithm,
        theta,
        cloud,
        problem.data,
        max_steps=max_steps,
        # Newton's method does the last digits far more cheaply than the particles.
        stop=stopping.settled(0.05) if polished and not choice.algorithm.stochastic else None,
        restarts=num_starts,
        progress=progress,
        checkpoint=checkpoint,
        check_cloud=not polished,  # otherwise the likelihood judges
        mesh=mesh,
    )
    if choice.then is None or "interrupted" in ran.statuses:
        return ran
    return run(
        key,
        choice.then(*jax.tree.map(lambda leaf: leaf[0], (ran.theta, ran.particles))),
        ran.theta,
        ran.particles,
        problem.data,
        max_steps=4 * max_steps,
        restarts=num_starts,
        progress=progress,
        checkpoint=_then(checkpoint),
        mesh=mesh,
    )


def _then(checkpoint: str | Path | Checkpoint | None) -> Checkpoint | None:
    """A folder of its own, within the first run's, for the run that goes on from it."""
    if checkpoint is None:
        return None
    first = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return replace(first, directory=Path(first.directory) / "then")


def search(
    problem: Problem, thetas: np.ndarray, mesh: Mesh | None
) -> tuple[Likelihood | None, list[Climb]]:
    """The likelihood as a function, and climbs from the starts, where it can be computed."""
    with jax.enable_x64(True):
        _warn_without_double()
        likelihood = likelihood_of(in_double(problem), thetas[0], mesh)
        return likelihood, [] if likelihood is None else climb_from_starts(likelihood, thetas)


def distinct(thetas: np.ndarray, climbs: list[Climb]) -> np.ndarray:
    """Where the particles start: the tops of the climbs, each once, best first."""
    settled = [found for found in climbs if found.settled and np.isfinite(found.local.value)]
    if not settled:
        return thetas
    tops: list[Climb] = []
    for found in sorted(settled, key=lambda one: -one.local.value):
        if not any(is_near(found.theta, top) for top in tops):
            tops.append(found)
    return np.array([top.theta for top in tops])


def first_ending(ran: Run, ends: np.ndarray) -> Findings:
    """What the particles found: the first start that converged, or the first."""
    good = [i for i, status in enumerate(ran.statuses) if status == "converged"]
    first = good[0] if good else 0
    allowed = ALIKE * np.maximum(1.0, np.abs(ends[first]))
    agreeing = [i for i in good if np.all(np.abs(ends[i] - ends[first]) <= allowed)]
    return Findings(theta=ends[first], start=first, agreeing=max(1, len(agreeing)))


def polish(
    likelihood: Likelihood, ends: np.ndarray, climbs: list[Climb], found: Findings
) -> Findings:
    """The likelihood's own maximum, or after Ctrl-C the highest point known before."""
    try:
        return found.polished_by(climb_from_ends(likelihood, ends, climbs))
    except KeyboardInterrupt:
        words = "Ctrl-C during Newton's last steps: the estimate is from before them, without "
        words += "evidence and posterior draws."
        return found.at_top_of(climbs)._replace(interrupted=words)


def polish_all(
    problem: Problem, few: Problem, ends: np.ndarray, climbs: list[Climb], found: Findings
) -> Findings:
    """The same for very many groups, of which the climbs so far have seen some."""
    settled = [one for one in climbs if np.isfinite(one.local.value)]
    if not settled:
        return found
    top = max(settled, key=lambda one: one.local.value)
    likelihood = likelihood_of_all(problem, few, top)
    if likelihood is None:
        return found
    before = polish(likelihood, ends, [], found)
    lower = tuple(
        top.local.value - one.local.value
        for one in settled
        if one.settled and not as_high(one, top)
    )
    agreeing = sum(as_high(one, top) for one in settled)
    return before._replace(agreeing=agreeing, lower_in_sample=lower)


def refresh(
    problem: Problem, ran: Run, found: Findings, key: Key, *, with_polish: bool
) -> Findings:
    """The same with posterior draws, or as it was after Ctrl-C, or where they are too many."""
    num_latents = problem.latent_size * (problem.num_groups or 1)
    if too_many(num_latents):
        words = f"There are no posterior draws: {num_latents} latents are too many for memory."
        return found._replace(no_draws=words)
    try:
        return _with_draws(problem, ran, found, key, with_polish=with_polish)
    except KeyboardInterrupt:
        return found._replace(interrupted="Ctrl-C during the posterior draws: there are none.")


def judged(problem: Problem, ran: Run, found: Findings) -> tuple[Findings, dict[int, str]]:
    """What is at an edge, unbounded, or entangled; after Ctrl-C nothing more is said of that."""
    try:
        at_edge = edges(problem, found)
        found = found.without_information(runaways(problem, found))
        return found._replace(entangled=entangled(problem, ran, found)), at_edge
    except KeyboardInterrupt:
        words = "Ctrl-C before edges and unbounded directions were looked for."
        return found._replace(interrupted=found.interrupted or words), {}


def _with_draws(
    problem: Problem, ran: Run, found: Findings, key: Key, *, with_polish: bool
) -> Findings:
    """Posterior draws at the estimate; the estimate from them where nothing else could give it."""
    cloud = jax.vmap(partial(flat_latents, problem))(
        jax.tree.map(lambda leaf: jnp.asarray(whole(leaf[found.start]), float), ran.particles)
    )
    if with_polish and not (found.evidence and believable(found.evidence)):
        climbed = by_draws(problem, found.theta, cloud, key)
        if climbed is None:
            words = "There are no posterior draws: the chains did not mix, or the model was not "
            return found._replace(no_draws=words + "finite where they went.")
        return found.climbed_by(climbed, by_new_weights(problem, climbed))
    return found._replace(draws=posterior_sampler(problem)(found.theta, cloud, key))


def _warn_without_double() -> None:
    try:
        double = jnp.zeros((), jnp.float64).dtype == jnp.float64
    except Exception:  # a platform that refuses float64 outright
        double = False
    if not double:
        warnings.warn(
            "This platform has no float64: information and Newton steps are in float32, and "
            "standard errors may be off in the third digit.",
            stacklevel=4,
        )

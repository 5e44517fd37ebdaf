"""From a problem to an estimate: starts, the particles, Newton's last steps, and what to doubt.

    fit(problem, key=key) -> Fit

1. starts: overdispersed, and where the marginal likelihood can be computed (by quadrature, or by
   importance sampling at the modes of the blocks) climbed by Newton steps.
2. particles: the tuning-free M-SVGD-EM from the distinct tops, to rest.
3. polish: the likelihood climbed from where the particles rest, if that is elsewhere. Steps are
   taken only if they do not lower it; its curvature at the top is the observed information.
4. refresh: posterior draws of the latents at the estimate, by BlackJAX chains from the cloud. Where
   the likelihood could not be computed, they give the last Newton steps and the information too.

`many_groups` says how more than 50,000 groups go through these stages.
"""

import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from marginax import stopping
from marginax.base import Algorithm, Key, Particles, Theta
from marginax.checkpoint import Checkpoint
from marginax.estimate import Fit
from marginax.inference.blocks import flat_latents
from marginax.inference.doubts import doubts, edges, entangled, notes, runaways
from marginax.inference.findings import Findings
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb
from marginax.inference.polish import (
    believable,
    by_draws,
    by_new_weights,
    is_near,
    likelihood_of,
    posterior_sampler,
    search,
)
from marginax.inference.polish import polish as climb_from_ends
from marginax.inference.refresh import can_refresh
from marginax.many_groups import (
    TOO_MANY_DRAWS,
    follow,
    has_many_groups,
    in_batches,
    likelihood_of_all,
    sample_of,
)
from marginax.memory import memory_explained
from marginax.method_choice import Choice, choose, overdispersed, start_particles
from marginax.problem import Problem, in_double
from marginax.processes import whole
from marginax.progress import stage
from marginax.result import Run
from marginax.run import run
from marginax.sharding import check_sizes
from marginax.stein import Kernel

__all__ = ["fit"]


@memory_explained("fit")
def fit(
    problem: Problem,
    *,
    key: Key,
    num_particles: int | None = None,
    restarts: int = 3,
    max_steps: int = 500,
    algorithm: Algorithm | None = None,
    kernel: Kernel | None = None,
    polish: bool = True,
    refresh: bool = True,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Fits a latent-variable model by maximum marginal likelihood.

    Args:
        problem: the model and its data.
        key: a `jax.random.key`; the same key gives the same result.
        num_particles: by default 20, or more than the largest block has dimensions.
        restarts: so many starts of theta, the given one first; they must agree to be believed.
        max_steps: the most steps of the particles; the polish goes on from wherever they are.
        algorithm: any algorithm on `problem.free_log_joint` instead of the default.
        kernel: another kernel for the default algorithm.
        polish: climb the marginal likelihood itself at the end, where that can be computed. Without
            it there are no standard errors.
        refresh: draw from the posterior of the latents at the estimate, if BlackJAX is installed.
        checkpoint: a folder, or a `Checkpoint`, for the particles' run.
        progress: show a bar; by default only on a terminal.
        mesh: spreads particles, groups or both over devices, as in `run`; with an axis "groups" the
            likelihood too is evaluated where its groups are.

    Returns:
        A `Fit`; `print(fit)` says everything.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):  # one group: y_i ~ N(x, 1), x ~ N(mean, sd^2)
        ...     prior = -0.5 * ((x - theta["mean"]) / theta["sd"]) ** 2 - jnp.log(theta["sd"])
        ...     return prior - 0.5 * jnp.sum((y - x) ** 2)
        >>> y = jnp.array([[1.0, 2.0], [4.0, 5.0], [2.0, 2.0]])
        >>> start, positive = {"mean": 0.0, "sd": 1.0}, {"sd": mx.bijections.positive}
        >>> problem = mx.Problem.grouped(
        ...     log_joint, y, theta=start, latent=0.0, constrain_theta=positive
        ... )
        >>> found = mx.fit(problem, key=jax.random.key(0))
        >>> round(float(found.theta["mean"]), 3)  # the mean of the groups' means
        2.667
    """
    if restarts < 1:
        raise ValueError(f"restarts is {restarts}, but there must be at least one start.")
    if algorithm is not None and kernel is not None:
        raise ValueError("Give algorithm= or kernel=, not both: an algorithm has its own kernel.")
    timings: dict[str, float] = {}
    start_key, run_key, draw_key = jax.random.split(key, 3)
    climbing = f"Climbing the likelihood from {restarts} start{'s' * (restarts > 1)}"
    with stage(progress, climbing if polish else "Looking for a start", timings, "start"):
        choice = choose(problem, num_particles, kernel)
        if algorithm is not None:
            choice = choice._replace(algorithm=algorithm, words="the given algorithm", then=None)
        check_sizes(mesh, choice.num_particles, problem.num_groups)
        theta_key, particle_key = jax.random.split(start_key)
        flat, unravel = ravel_pytree(problem.start_theta())
        thetas = overdispersed(np.asarray(flat, float), theta_key, restarts)
        many = algorithm is None and kernel is None and has_many_groups(problem) and mesh is None
        few = sample_of(problem, theta_key) if many else problem
        likelihood, climbs = _search(few, thetas, mesh) if polish else (None, [])
        if algorithm is None:  # the particles begin where the likelihood is high
            thetas = _distinct(thetas, climbs)
        thetas = thetas[:1] if many else thetas
        width = 1.0 if many and climbs else 0.1
        cloud = start_particles(problem, thetas, particle_key, choice.num_particles, width)
    with stage(progress, "", timings, "particles"):
        starts = jax.vmap(unravel)(jnp.asarray(thetas, flat.dtype)), cloud
        go = (
            partial(in_batches, problem)
            if many
            else partial(_go, problem, choice, likelihood, mesh)
        )
        ran = go(*starts, run_key, max_steps, checkpoint=checkpoint, progress=progress)
    ends = np.asarray(jax.vmap(lambda theta: ravel_pytree(theta)[0])(ran.theta), float)
    with jax.enable_x64(True):
        double = in_double(problem)
        found = _first_ending(ran, ends)
        if likelihood is not None:
            with stage(progress, "Newton's last steps", timings, "polish"):
                if many:
                    found = _polish_all(double, in_double(few), ends, climbs, found)
                else:
                    found = _polish(likelihood, ends, climbs, found)
    if many and found.polished is not None and "interrupted" not in ran.statuses:
        with stage(progress, "", timings, "particles at the estimate"):
            ran = follow(problem, ran, found.theta, run_key, progress)
    with jax.enable_x64(True):
        if many:
            found = found._replace(no_draws=TOO_MANY_DRAWS)
        elif refresh and can_refresh() and not found.interrupted:
            with stage(progress, "Drawing from the posterior", timings, "refresh"):
                found = _refresh(double, ran, found, draw_key, with_polish=polish)
        found, at_edge = _judged(double, ran, found)
    return Fit(
        problem=problem,
        theta_free=found.theta,
        information=found.information,
        score_covariance=found.score_covariance,
        evidence=found.evidence,
        draws=found.draws,
        run=ran,
        start=found.start,
        num_starts=restarts,
        num_agreeing=found.agreeing if likelihood is not None else restarts,
        edges=tuple(at_edge),
        method=choice.words,
        doubts=doubts(problem, ran, found, at_edge),
        notes=notes(problem, ran, found),
        timings=timings,
        polished=found.polished,
    )


def _go(
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
        mesh=mesh,
    )


def _search(
    problem: Problem, thetas: np.ndarray, mesh: Mesh | None
) -> tuple[Likelihood | None, list[Climb]]:
    """The likelihood as a function, and climbs from the starts, where it can be computed."""
    with jax.enable_x64(True):
        _warn_without_double()
        likelihood = likelihood_of(in_double(problem), thetas[0], mesh)
        return likelihood, [] if likelihood is None else search(likelihood, thetas)


def _distinct(thetas: np.ndarray, climbs: list[Climb]) -> np.ndarray:
    """Where the particles start: the tops of the climbs, each once, best first."""
    settled = [found for found in climbs if found.settled and np.isfinite(found.local.value)]
    if not settled:
        return thetas
    tops: list[Climb] = []
    for found in sorted(settled, key=lambda one: -one.local.value):
        if not any(is_near(found.theta, top) for top in tops):
            tops.append(found)
    return np.array([top.theta for top in tops])


def _first_ending(ran: Run, ends: np.ndarray) -> Findings:
    good = [i for i, status in enumerate(ran.statuses) if status == "converged"]
    first = good[0] if good else 0
    return Findings(theta=ends[first], start=first)


def _polish(
    likelihood: Likelihood, ends: np.ndarray, climbs: list[Climb], found: Findings
) -> Findings:
    """The likelihood's own maximum, or after Ctrl-C the highest point known before."""
    try:
        return found.polished_by(climb_from_ends(likelihood, ends, climbs))
    except KeyboardInterrupt:
        words = "Ctrl-C during Newton's last steps: the estimate is from before them, without "
        words += "evidence and posterior draws."
        return found.at_top_of(climbs)._replace(interrupted=words)


def _polish_all(
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
    before = _polish(likelihood, ends, [], found)
    agreeing = sum(is_near(one.theta, top) for one in settled)
    return before._replace(agreeing=agreeing)


def _refresh(
    problem: Problem, ran: Run, found: Findings, key: Key, *, with_polish: bool
) -> Findings:
    """The same with posterior draws, or as it was after Ctrl-C."""
    try:
        return _with_draws(problem, ran, found, key, with_polish=with_polish)
    except KeyboardInterrupt:
        return found._replace(interrupted="Ctrl-C during the posterior draws: there are none.")


def _judged(problem: Problem, ran: Run, found: Findings) -> tuple[Findings, dict[int, str]]:
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

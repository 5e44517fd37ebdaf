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

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from marginax import stages
from marginax.base import Algorithm, Key
from marginax.checkpoint import Checkpoint
from marginax.estimate import Fit
from marginax.fit_checks import check_fit
from marginax.inference.doubts import doubts, notes
from marginax.inference.refresh import can_refresh
from marginax.many_groups import (
    TOO_MANY_DRAWS,
    follow,
    has_many_groups,
    in_batches,
    sample_of,
)
from marginax.memory import memory_explained
from marginax.method_choice import choose, overdispersed, start_particles
from marginax.problem import Problem, in_double
from marginax.progress import stage
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
        >>> from jax.scipy.stats import norm
        >>> def log_joint(theta, x, y):  # one group: y_i ~ N(x, 1), x ~ N(mean, sd^2)
        ...     return norm.logpdf(x, theta["mean"], theta["sd"]) + jnp.sum(norm.logpdf(y, x, 1.0))
        >>> y = jnp.array([[1.0, 2.0], [4.0, 5.0], [2.0, 2.0]])
        >>> start, positive = {"mean": 0.0, "sd": 1.0}, {"sd": mx.bijections.positive}
        >>> problem = mx.Problem.grouped(
        ...     log_joint, y, theta=start, latent=0.0, constrain_theta=positive
        ... )
        >>> found = mx.fit(problem, key=jax.random.key(0))
        >>> round(float(found.theta["mean"]), 3)  # the mean of the groups' means
        2.667
    """
    counts = {"restarts": restarts, "max_steps": max_steps, "num_particles": num_particles}
    check_fit(problem, key, counts, checkpoint)
    if algorithm is not None and kernel is not None:
        raise ValueError("Give algorithm= or kernel=, not both: an algorithm has its own kernel.")
    timings: dict[str, float] = {}
    start_key, run_key, draw_key = jax.random.split(key, 3)
    climbing = f"Climbing the likelihood from {restarts} start{'s' * (restarts > 1)}"
    with stage(progress, climbing if polish else "Looking for a start", timings, "start"):
        choice = choose(problem, num_particles, kernel, algorithm)
        check_sizes(mesh, choice.num_particles, problem.num_groups)
        theta_key, particle_key = jax.random.split(start_key)
        flat, unravel = ravel_pytree(problem.start_theta())
        thetas = overdispersed(np.asarray(flat, float), theta_key, restarts)
        many = has_many_groups(problem) and not (algorithm or kernel or mesh)
        if many:
            choice = choice._replace(words=f"{choice.words}, in batches")
        few = sample_of(problem, theta_key) if many else problem
        likelihood, climbs = stages.search(few, thetas, mesh) if polish else (None, [])
        if algorithm is None:  # the particles begin where the likelihood is high
            thetas = stages.distinct(thetas, climbs)
        thetas = thetas[:1] if many else thetas
        width = 1.0 if many and climbs else 0.1
        cloud = start_particles(problem, thetas, particle_key, choice.num_particles, width)
    with stage(progress, "", timings, "particles"):
        go = (
            partial(in_batches, problem)
            if many
            else partial(stages.go, problem, choice, likelihood, mesh)
        )
        starts = jax.vmap(unravel)(jnp.asarray(thetas, flat.dtype))
        ran = go(starts, cloud, run_key, max_steps, checkpoint=checkpoint, progress=progress)
    ends = np.asarray(jax.vmap(lambda theta: ravel_pytree(theta)[0])(ran.theta), float)
    with jax.enable_x64(True):
        double = in_double(problem)
        found = stages.first_ending(ran, ends)
        if likelihood is not None:
            with stage(progress, "Newton's last steps", timings, "polish"):
                if many:
                    found = stages.polish_all(double, in_double(few), ends, climbs, found)
                else:
                    found = stages.polish(likelihood, ends, climbs, found)
    if many and found.polished is not None and "interrupted" not in ran.statuses:
        with stage(progress, "", timings, "particles at the estimate"):
            ran = follow(problem, ran, found.theta, run_key, progress)
    with jax.enable_x64(True):
        if many:
            found = found._replace(no_draws=TOO_MANY_DRAWS)
        elif refresh and can_refresh() and not found.interrupted:
            with stage(progress, "Drawing from the posterior", timings, "refresh"):
                found = stages.refresh(double, ran, found, draw_key, with_polish=polish)
        found, at_edge = stages.judged(double, ran, found)
    return Fit(
        problem=problem,
        theta_free=found.theta,
        information=found.information,
        score_covariance=found.score_covariance,
        evidence=found.evidence,
        draws=found.draws,
        run=ran,
        start=found.start,
        num_starts=len(climbs) or len(thetas),
        num_agreeing=found.agreeing,
        edges=tuple(at_edge),
        method=choice.words,
        doubts=doubts(problem, ran, found, at_edge),
        notes=notes(problem, ran, found),
        timings=timings,
        polished=found.polished,
    )

"""From a problem to an estimate: starts, the particles, Newton's last steps, and what to doubt.

    fit(problem, key=key) -> Fit

1. run: the tuning-free M-SVGD-EM from several starts, to rest.
2. polish: the marginal likelihood itself, by quadrature or importance sampling at the modes of the
   blocks, climbed by Newton steps that are taken only if they do not lower it; its curvature there
   is the observed information.
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax import stopping
from marginax.base import Algorithm, Key
from marginax.checkpoint import Checkpoint
from marginax.estimate import Fit
from marginax.inference.by_importance import importance_likelihood
from marginax.inference.by_quadrature import quadrature_likelihood
from marginax.inference.doubts import doubts
from marginax.inference.likelihood import Likelihood
from marginax.inference.newton import Climb, climb
from marginax.inference.quadrature import LARGEST_BLOCK
from marginax.method_choice import choose, overdispersed, start_particles
from marginax.problem import Problem, in_double
from marginax.result import Run
from marginax.run import run

__all__ = ["fit"]


def fit(
    problem: Problem,
    *,
    key: Key,
    num_particles: int | None = None,
    restarts: int = 3,
    max_steps: int = 500,
    algorithm: Algorithm | None = None,
    polish: bool = True,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fits a latent-variable model by maximum marginal likelihood.

    Args:
        problem: the model and its data.
        key: a `jax.random.key`; the same key gives the same result.
        num_particles: by default 20, or more than the largest block has dimensions.
        restarts: so many starts of theta, the given one first; they must agree to be believed.
        max_steps: the most steps of the particles; the polish goes on from wherever they are.
        algorithm: any algorithm on `problem.free_log_joint` instead of the default.
        polish: climb the marginal likelihood itself at the end, where that can be computed. Without
            it there are no standard errors.
        checkpoint: a folder, or a `Checkpoint`, for the particles' run.
        progress: show a bar; by default only on a terminal.

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
    began = time.perf_counter()
    theta_key, particle_key, run_key = jax.random.split(key, 3)
    flat, unravel = ravel_pytree(problem.start_theta())
    choice = choose(problem, num_particles)
    if algorithm is not None:
        choice = choice._replace(algorithm=algorithm, words="the given algorithm")
    particles = start_particles(problem, particle_key, choice.num_particles)
    thetas = jnp.asarray(overdispersed(np.asarray(flat), theta_key, restarts), flat.dtype)
    timings = {"start": time.perf_counter() - began}

    began = time.perf_counter()
    ran = run(
        run_key,
        choice.algorithm,
        jax.vmap(unravel)(thetas),
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (restarts, *leaf.shape)), particles),
        problem.data,
        max_steps=max_steps,
        # Newton's method does the last digits far more cheaply than the particles.
        stop=stopping.settled(0.05) if polish and not choice.algorithm.stochastic else None,
        restarts=restarts,
        progress=progress,
        checkpoint=checkpoint,
    )
    timings["particles"] = time.perf_counter() - began

    began = time.perf_counter()
    ends = np.asarray(jax.vmap(lambda theta: ravel_pytree(theta)[0])(ran.theta), float)
    climbs, likelihood = _polish(problem, ends, ran) if polish else ([], None)
    best = max(climbs, key=lambda found: found.local.value, default=None)
    evidence = None
    if best is not None and likelihood is not None:
        with jax.enable_x64(True):
            best = _finely(likelihood, best)
            evidence = likelihood.describe(best.theta, best.local.extra)
    timings["polish"] = time.perf_counter() - began
    theta = ends[_first_converged(ran)] if best is None else best.theta
    return Fit(
        problem=problem,
        theta_free=theta,
        information=None if best is None else -best.local.hessian,
        evidence=evidence,
        run=ran,
        method=choice.words,
        doubts=doubts(problem, ran, climbs, best, likelihood, evidence),
        timings=timings,
    )


def _polish(problem: Problem, ends: np.ndarray, ran: Run) -> tuple[list[Climb], Likelihood | None]:
    """Climbs from every end that is not where another already led, in double precision."""
    size = problem.latent_size
    by_quadrature = problem.num_groups is not None and size <= LARGEST_BLOCK
    first = _first_converged(ran)
    order = [first, *(i for i in range(len(ends)) if i != first)]
    with jax.enable_x64(True):
        double = in_double(problem)
        if by_quadrature:
            likelihood = quadrature_likelihood(double)
        else:
            likelihood = importance_likelihood(double, ends[first])
        climbs: list[Climb] = []
        for i in order:
            near = any(np.allclose(ends[i], found.theta, atol=0.02, rtol=0.02) for found in climbs)
            if not near:
                climbs.append(climb(likelihood.evaluate, ends[i], likelihood.start))
    return climbs, likelihood


def _finely(likelihood: Likelihood, best: Climb) -> Climb:
    """The last steps with derivatives that have no noise, where others have."""
    if likelihood.evaluate_finely is None:
        return best
    last = climb(likelihood.evaluate_finely, best.theta, best.local.extra, max_steps=6)
    return last._replace(settled=last.settled and best.settled)


def _first_converged(ran: Run) -> int:
    good = [i for i, status in enumerate(ran.statuses) if status == "converged"]
    return good[0] if good else 0

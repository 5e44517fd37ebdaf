"""`fit`: from a problem to an estimate, stage by stage.

    fit(problem) -> Fit

1. starts: overdispersed, and where the marginal likelihood can be computed (by quadrature, or by
   importance sampling at the modes of the blocks) climbed by Newton steps.
2. particles: the tuning-free M-SVGD-EM from the distinct tops, to rest.
3. likelihood: climbed from where the particles rest, if that is elsewhere. Steps are taken only if
   they do not lower it; its curvature at the top is the observed information.
4. posterior: draws of the latents at the estimate, by BlackJAX chains from the cloud. Where the
   likelihood could not be computed, they give the last Newton steps and the information too.

`strategies` says how few and very many groups go through these stages.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from marginax._core.disk_cache import kept_on_disk
from marginax._core.memory import memory_explained
from marginax._core.programs import program
from marginax._core.threads import one_thread_of_blas
from marginax.algorithms.contract import Algorithm
from marginax.fitting import stages
from marginax.fitting.ahead import compile_ahead, nothing_goes_on
from marginax.fitting.arguments import check_fit
from marginax.fitting.interrupts import ended_by_ctrl_c, kept, unless_interrupted
from marginax.fitting.particles import run_particles
from marginax.fitting.plan import Plan, make_plan, structured_plan
from marginax.fitting.result import Fit
from marginax.fitting.starts import Starts, climb_starts, overdispersed
from marginax.fitting.strategies import RunOptions, Strategy, choose_strategy
from marginax.fitting.warnings import has_converged, notes_on, warnings_of
from marginax.kernels import Kernel
from marginax.likelihood.methods import FEW_LATENTS
from marginax.model.model_key import models_as_they_are
from marginax.model.problem import Problem, in_double_precision
from marginax.model.structure import Structure
from marginax.running.checkpoints import Checkpoint
from marginax.running.progress import ctrl_c_noticed, stage
from marginax.running.sharding import check_mesh_divides
from marginax.typing import Key

__all__ = ["fit"]

FEW_STEPS = 20  # of particles in the units of a sparse curvature, which begin at the maximum
LOOSE = 0.05  # tolerance of the particles where Newton's method follows: it is far cheaper


@kept_on_disk()
@one_thread_of_blas()
@memory_explained("fit")
def fit(  # noqa: PLR0913, the front door: all but the first are keywords with defaults
    problem: Problem,
    *,
    key: Key | None = None,
    num_particles: int | None = None,
    num_starts: int = 3,
    max_steps: int = 500,
    algorithm: Algorithm | None = None,
    kernel: Kernel | None = None,
    compute_likelihood: bool = True,
    draw_posterior: bool = True,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: bool | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Fits a latent-variable model by maximum marginal likelihood.

    Args:
        problem: the model and its data.
        key: a `jax.random.key`, by default `jax.random.key(0)`; the same key gives the same result.
        num_particles: by default 20, or more than the largest block has dimensions.
        num_starts: how many starts of theta, the given one first; they must agree to be believed.
        max_steps: the most steps of the particles; Newton's method goes on from wherever they are.
        algorithm: any algorithm on `problem.unconstrained_log_joint` instead of the default.
        kernel: another kernel for the default algorithm.
        compute_likelihood: climb the marginal likelihood itself, where that can be computed.
            Without it there are no standard errors.
        draw_posterior: draw from the posterior of the latents at the estimate, if BlackJAX is
            installed.
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
        >>> start, positive = {"mean": 0.0, "sd": 1.0}, {"sd": mx.transforms.positive}
        >>> problem = mx.Problem.grouped(
        ...     log_joint, y, theta=start, latent=0.0, theta_transforms=positive
        ... )
        >>> fit = mx.fit(problem)
        >>> round(float(fit.theta["mean"]), 3)  # the mean of the groups' means
        2.667
    """
    key = jax.random.key(0) if key is None else key
    counts = {"num_starts": num_starts, "max_steps": max_steps, "num_particles": num_particles}
    given = {"algorithm": algorithm, "kernel": kernel, "mesh": mesh}
    check_fit(problem, key, counts, checkpoint, **given)
    options = RunOptions(max_steps, checkpoint, progress, mesh)
    asked = _Asked(
        options=options,
        num_particles=num_particles,
        num_starts=num_starts,
        algorithm=algorithm,
        kernel=kernel,
        compute_likelihood=compute_likelihood,
        draw_posterior=draw_posterior,
    )
    if problem.loses_digits and jnp.result_type(float) != np.float64:
        with jax.enable_x64(True):
            return _fit(in_double_precision(problem), key, asked)
    return _fit(problem, key, asked)


class _Asked(NamedTuple):
    """What the user asked `fit` for."""

    options: RunOptions
    num_particles: int | None
    num_starts: int
    algorithm: Algorithm | None
    kernel: Kernel | None
    compute_likelihood: bool
    draw_posterior: bool


@models_as_they_are()
@nothing_goes_on()
def _fit(problem: Problem, key: Key, asked: _Asked) -> Fit:
    """Stage by stage, in the precision that JAX has now."""
    options = asked.options
    timings: dict[str, float] = {}
    theta_key, particle_key, run_key, draw_key = _keys(key)
    with stage(options.progress, _first_words(asked), timings, "start"):
        plan = make_plan(problem, asked.num_particles, asked.kernel, asked.algorithm)
        check_mesh_divides(options.mesh, plan.num_particles, problem.num_groups)
        strategy = choose_strategy(problem, plan, theta_key, options.mesh)
        starts = Starts(overdispersed(problem, theta_key, asked.num_starts))
        if _may_compile_ahead(problem, strategy, asked):
            compile_ahead(problem, plan, draws=asked.draw_posterior)
        if asked.compute_likelihood:
            starts = climb_starts(problem, strategy, starts.thetas, options.mesh)
    if starts.function is not None:
        options = options._replace(tolerance=LOOSE)
        structure = starts.function.structure
        if structure is not None and asked.algorithm is None:
            plan, strategy = _in_units_of(problem, plan, structure, theta_key)
            options = options._replace(max_steps=min(options.max_steps, FEW_STEPS))
    ran, state, ended = None, None, False
    with ended_by_ctrl_c():
        unless_interrupted(starts)
        with stage(options.progress, "", timings, "particles"):
            ran = run_particles(
                problem,
                plan,
                strategy,
                starts,
                (particle_key, run_key),
                options,
                from_tops=asked.algorithm is None,  # a given one begins where the user said
            )
        state = stages.first_ending(ran, strategy)
        if starts.function is not None:
            with stage(options.progress, "Newton's last steps", timings, "likelihood"):
                state = stages.maximize(problem, strategy, starts, ran, options.mesh)
        if strategy.follow is not None and stages.may_follow(ran, state):
            with stage(options.progress, "", timings, "particles at the estimate"):
                ran = strategy.follow(ran, state.theta, run_key, options)
        if asked.draw_posterior and stages.may_draw(state, problem.latent_size):
            with stage(options.progress, "Drawing from the posterior", timings, "posterior"):
                may_climb = asked.compute_likelihood
                state = stages.draw_posterior(problem, ran, state, draw_key, may_climb)
        ended = True
    ran, state = kept(problem, strategy, starts, ran, state, ended)
    state = stages.judge(problem, ran, state)
    with ctrl_c_noticed(at_once=False):  # all is there, and what is left takes no time
        return Fit(
            problem=problem,
            unconstrained_theta=state.theta,
            information=state.information,
            score_covariance=state.score_covariance,
            likelihood=state.likelihood,
            draws=state.draws,
            run=ran,
            start=state.start,
            num_starts=len(starts.climbs) or len(ran.statuses),
            num_agreeing=state.agreeing,
            boundaries=tuple(state.boundaries),
            method=plan.words + strategy.words,
            converged=has_converged(ran, state),
            warnings=warnings_of(problem, ran, state),
            notes=notes_on(problem, ran, state),
            timings=timings,
            maximum=state.maximum,
        )


def _may_compile_ahead(problem: Problem, strategy: Strategy, asked: _Asked) -> bool:
    """Whether it is known before the climbs what the particles run: of many latents it is not."""
    few = problem.num_groups is not None or problem.latent_size <= FEW_LATENTS
    return few and asked.algorithm is None and strategy.follow is None and not asked.options.mesh


def _in_units_of(
    problem: Problem, plan: Plan, structure: Structure, key: Key
) -> tuple[Plan, Strategy]:
    """The plan for very many dependent latents, in the precision in which factors are made."""
    with jax.enable_x64(True):
        double = in_double_precision(problem)
        plan = structured_plan(double, plan, structure)
        return plan, choose_strategy(double, plan, key, None)


@program()
def _keys(key: Key) -> tuple[Key, Key, Key, Key]:
    """Of the starts' theta and particles, the run and the draws; in one program."""
    start_key, run_key, draw_key = jax.random.split(key, 3)
    theta_key, particle_key = jax.random.split(start_key)
    return theta_key, particle_key, run_key, draw_key


def _first_words(asked: _Asked) -> str:
    if not asked.compute_likelihood:
        return "Looking for a start"
    return f"Climbing the likelihood from {asked.num_starts} start{'s' * (asked.num_starts > 1)}"

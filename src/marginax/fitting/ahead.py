"""What later stages of a fit run, compiled while the first is at work.

Most of a first fit is compilation, which leaves Python's own thread idle, and on two cores most of
one of them. Nothing depends on it: what is not ready is compiled when it is needed, and what fails
here fails there, in words.
"""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator

import jax
import numpy as np

from marginax._core.executables import options_of_jax
from marginax.fitting.plan import Plan
from marginax.likelihood.blocks import flat_latents, to_latent
from marginax.likelihood.posterior import prepare_draws
from marginax.model.problem import Problem, in_double_precision
from marginax.running.block_programs import prepare_run

__all__ = ["compile_ahead", "nothing_goes_on"]

_started: contextvars.ContextVar[list[tuple[threading.Thread, threading.Event]] | None] = (
    contextvars.ContextVar("_started", default=None)
)


@contextlib.contextmanager
def nothing_goes_on() -> Iterator[None]:
    """When this ends, so have the threads that were started inside: they run the user's model."""
    threads: list[tuple[threading.Thread, threading.Event]] = []
    token = _started.set(threads)
    try:
        yield
    finally:
        _started.reset(token)
        for thread, no_more in threads:
            no_more.set()
            thread.join()


def compile_ahead(problem: Problem, plan: Plan, *, draws: bool) -> None:
    """Starts a thread that compiles the particles' steps, and the draws.

    Args:
        problem: what is fitted, in the precision of the fit.
        plan: what runs.
        draws: whether there are to be any.
    """
    double = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jobs: list[tuple[bool, Callable[[], None]]] = [(double, lambda: _particles(problem, plan))]
    if draws:
        jobs.append((True, lambda: prepare_draws(in_double_precision(problem))))

    options, no_more = options_of_jax(), threading.Event()

    def work() -> None:
        with jax.enable_x64(double):
            if options_of_jax() != options:  # set for one thread, and so for another program
                return
        for in_double, job in jobs:
            if no_more.is_set():
                return
            with contextlib.suppress(Exception), jax.enable_x64(in_double):
                job()

    context = contextvars.copy_context()  # in which the model is known by now
    thread = threading.Thread(target=context.run, args=(work,), name="marginax compiles ahead")
    thread.start()
    started = _started.get()
    if started is not None:
        started.append((thread, no_more))


def _particles(problem: Problem, plan: Plan) -> None:
    """The run from one top: where several starts lead to the same, as they mostly do."""
    theta = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype),
        jax.eval_shape(problem.start_theta),
    )
    start = flat_latents(problem, problem.start_latent())
    cloud = to_latent(problem, np.empty((1, plan.num_particles, *start.shape), start.dtype))
    prepare_run(plan.algorithm, theta, cloud, problem.data)

"""`run`, the function that users call: its arguments checked, the loop set up, its end told.

Stopping, divergence, progress, callbacks, checkpoints and Ctrl-C are handled on the host at the end
of a block, for one synchronisation per block. Inside, theta, particles and state always have a
leading axis over starts; without `num_starts` it has length 1 and is taken off at the end.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from marginax._core.disk_cache import kept_on_disk
from marginax._core.memory import memory_explained
from marginax._core.processes import last_words, spans_processes
from marginax._core.programs import result_shapes
from marginax.algorithms.contract import Algorithm, check_algorithm
from marginax.errors import RunError
from marginax.running import stopping
from marginax.running.arguments import (
    as_data,
    check_backtracking,
    check_declared,
    check_digits,
    check_sizes,
    check_starts,
    start_axis,
)
from marginax.running.backtracking import reset_at_rest
from marginax.running.block_programs import block_of_steps, first_state, keys_of
from marginax.running.checkpoints import (
    Checkpoint,
    Store,
    check_folder,
    open_store,
    run_fingerprints,
)
from marginax.running.loop import (
    Position,
    Setup,
    count_blocks,
    counts_for_device,
    drive,
)
from marginax.running.progress import Report, ctrl_c_noticed, progress_bar
from marginax.running.result import Run, check_clouds, result_of
from marginax.running.sharding import lay_out
from marginax.running.start_log import empty_log, resized
from marginax.running.steps import over_starts
from marginax.running.trajectories import theta_only
from marginax.typing import Count, Data, Key, Particles, Theta

__all__ = ["run"]


@kept_on_disk()
@memory_explained("run")
def run(  # noqa: PLR0913, the other front door: all but four are keywords with defaults
    algorithm: Algorithm,
    theta: Theta,
    particles: Particles,
    data: Data = None,
    *,
    key: Key,
    max_steps: Count,
    stop: stopping.StoppingRule | None = None,
    record: Callable[[Any, Any], PyTree] = theta_only,
    batch_size: Count | None = None,
    group_warmup_steps: Count = 0,
    num_starts: Count | None = None,
    block_size: Count | None = None,
    on_divergence: str = "backtrack",
    progress: bool | None = None,
    callback: Callable[[Report], bool | None] | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    throw: bool = False,
    diagnose: bool = True,
    mesh: Mesh | None = None,
) -> Run:
    """Runs an algorithm until a stopping rule fires, and says how it ended.

    Args:
        algorithm: from any constructor of this library.
        theta: where theta starts.
        particles: where the cloud starts; every leaf has a leading axis over the N particles.
        data: handed to `log_joint` as its third argument.
        key: a `jax.random.key`; the same key gives the same result.
        max_steps: the most steps to take.
        stop: a rule of `marginax.stopping`; by default `settled()` for a deterministic method and
            `averaged()` for a stochastic one or with minibatches.
        record: `record(state, info)` is kept at the end of every block; theta by default.
        batch_size: how many observations a step sees, drawn without replacement within an epoch;
            needs a log joint built by `marginax.minibatched`. With that of a `Problem.grouped`, how
            many groups: only their particles move, and the theta score is rescaled to all groups.
        group_warmup_steps: steps of the sampled groups' particles alone before each step: theta has
            moved on since they were last sampled.
        num_starts: R, if theta and particles hold R starts along an extra leading axis. They run
            together, each with its own status, and the Run says whether they agree.
        block_size: steps per block. By default 10, and twice as many whenever there have been 200
            such blocks, up to 640: by the steps taken, and not by max_steps.
        on_divergence: "backtrack" goes back to the start of the block, halves the step and resets
            the momentum, up to eight times; "stop" ends the run there.
        progress: True or False; by default a bar is shown on a terminal only.
        callback: called with a `Report` after every block; a true answer stops the run, and an
            exception in it reaches you.
        checkpoint: a folder, or a `Checkpoint`; a run that finds its own checkpoint there resumes.
        throw: raise `RunError` for every ending but "converged".
        diagnose: judge the cloud at the end (`Run.cloud_checks`), which compiles a few seconds.
        mesh: spreads the run over the devices of a `jax.make_mesh` with an axis "particles" (the
            leading axis of the particles), "groups" (the axis after it, and the leading axis of
            those leaves of data that have its length), or both. The answer is the same.

    Returns:
        A `Run`: the estimate, the cloud, a status and its reason. Never NaN: a run that diverges
        ends with its last finite state.

    Raises:
        OutOfMemoryError: if the device has too little memory, with advice.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.m_svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
        >>> run = mx.run(method, 0.0, x0, y, max_steps=2000, key=jax.random.key(1))
        >>> run.status, round(float(run.theta), 3)  # the maximum likelihood estimate is 2
        ('converged', 2.0)
    """
    began = time.perf_counter()
    check_algorithm(algorithm)
    checkpoint = check_folder(checkpoint)
    check_digits(theta, particles)
    data = as_data(data)
    size = check_sizes(algorithm, data, max_steps, block_size, batch_size, group_warmup_steps)
    may_backtrack = check_backtracking(on_divergence) and algorithm.rescale is not None
    theta, particles = start_axis(theta, particles, num_starts)
    layout = None if mesh is None else lay_out(mesh, particles)
    theta, particles, data = _spread(layout, theta, particles, data)
    theta, particles = check_starts(algorithm, theta, particles, data)
    data = jax.tree.map(jnp.asarray, data)
    is_noisy = algorithm.stochastic or size.batch_size is not None

    init_keys, step_keys = keys_of(None if num_starts is None else int(num_starts))(key)
    single = num_starts is None or int(num_starts) == 1
    state, start_size = first_state(algorithm, single, init_keys, theta, particles)
    check_declared(algorithm, state)
    program = block_of_steps(algorithm, record, size.batch_size, size.group_warmup_steps, single)
    compiled = program
    if layout is not None:
        state = layout.placed(state, algorithm.replicated)
        compiled = layout.keep(program, state, algorithm.replicated)
    # Under jit, where values are not looked at: a start in one point is refused, but a cloud that
    # has come there is no reason to lose the run.
    init = jax.jit(over_starts(algorithm.init, single=single))
    reset = partial(reset_at_rest, algorithm, init, init_keys)
    setup = Setup(
        advance=partial(compiled, step_keys),
        reset=reset if may_backtrack else None,
        data=data,
        start_size=start_size,
        stop=stop or _usual_rule(is_noisy),
        max_steps=size.max_steps,
        block_size=size.block_size,
        callback=callback,
        together=spans_processes(mesh),
    )
    start, store = _first_position(setup, state, checkpoint, program, step_keys, key)
    timings = {"start": time.perf_counter() - began}
    bar = progress_bar(progress, size.max_steps, int(start.log.num_steps.max()))
    explained = memory_explained("a block of steps", (state, data))
    watched = last_words(setup.together, None if store is None else store.directory)
    with watched, bar, ctrl_c_noticed(not setup.together) as pressed, explained:
        end = drive(setup, start, store, bar, timings, pressed)
    result = result_of(end, timings, is_noisy, setup.stop.tolerance)
    if diagnose:
        result = replace(result, cloud_checks=check_clouds(algorithm, result, data))
    timings["total"] = time.perf_counter() - began
    result = result.without_start_axis() if num_starts is None else result
    if throw and not result.converged:
        raise RunError(result)
    return result


def _spread(layout: Any, theta: Theta, particles: Particles, data: Data) -> Any:
    """theta, particles and data on the devices of a mesh, or as they are without one."""
    return (theta, particles, data) if layout is None else layout.spread(theta, particles, data)


def _usual_rule(is_noisy: bool) -> stopping.StoppingRule:
    return stopping.averaged() if is_noisy else stopping.settled()


def _first_position(
    setup: Setup,
    state: Any,
    checkpoint: Checkpoint | None,
    program: Callable[..., Any],
    step_keys: Array,
    key: Key,
) -> tuple[Position, Store | None]:
    """Where the run begins, or where its checkpoint stands, and the store of its checkpoints.

    Args:
        setup: of the run.
        state: of all starts, before the first step.
        checkpoint: if one was asked for.
        program: the block without its layout, for the fingerprint: a run may go on with another
            number of devices.
        step_keys: its first argument.
        key: of the run.
    """
    num_starts = len(setup.start_size)
    one_block = (state, setup.data, *counts_for_device(*np.ones((3, num_starts))))
    max_blocks = count_blocks(0, setup.max_steps, setup.block_size) + 1
    log = empty_log(result_shapes(program, step_keys, *one_block), max_blocks)
    if checkpoint is None:
        return Position(state, log), None
    fingerprints = run_fingerprints(partial(program, step_keys), one_block, key, setup.block_size)
    store = open_store(checkpoint, fingerprints)
    saved = store.load((state, log))
    if saved is None:
        return Position(state, log), store
    state, log = saved
    # Room for what it has, however it was cut, and for what is still to come.
    left = count_blocks(int(log.num_steps.min()), setup.max_steps, setup.block_size)
    return Position(state, resized(log, int(log.num_blocks.max()) + left + 1)), store

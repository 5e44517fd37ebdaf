"""THE loop: jitted blocks of steps, and between them all that a person needs of a long computation.

Stopping, divergence, progress, callbacks, checkpoints and Ctrl-C are handled on the host at the end
of a block, for one synchronisation per block.
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
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from marginax import fingerprints, stopping
from marginax.base import Algorithm, ById, Count, Data, Key, Particles, Theta
from marginax.block import advance, advance_lanes
from marginax.checkpoint import Checkpoint, open_store
from marginax.checks import check_count
from marginax.divergence import reset_momentum
from marginax.interrupts import ctrl_c_noticed
from marginax.lanes import Lanes, blocks_of, empty_lanes, trim
from marginax.loop import Setup, device_counts, drive, sizes
from marginax.memory import memory_explained
from marginax.minibatch import check_batch
from marginax.processes import last_words, spans_processes
from marginax.progress import Report, progress_bar
from marginax.result import Run, RunError, agreement, check_clouds
from marginax.run_checks import check_catch_up, check_divergence, check_starts
from marginax.sharding import lay_out
from marginax.stopping import Verdict
from marginax.stopping.averages import average_theta
from marginax.trajectory import theta_only

__all__ = ["run"]


@memory_explained("run")
def run(
    key: Key,
    algorithm: Algorithm,
    theta: Theta,
    particles: Particles,
    data: Data = None,
    *,
    max_steps: Count,
    stop: stopping.StoppingRule | None = None,
    record: Callable[[Any, Any], PyTree] = theta_only,
    batch: Count | None = None,
    catch_up: Count = 0,
    restarts: Count | None = None,
    block_size: Count | None = None,
    on_divergence: str = "backtrack",
    progress: bool | None = None,
    callback: Callable[[Report], bool | None] | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    throw: bool = False,
    check_cloud: bool = True,
    mesh: Mesh | None = None,
) -> Run:
    """Runs an algorithm until a stopping rule fires, and says how it ended.

    Args:
        key: a `jax.random.key`; the same key gives the same result.
        algorithm: from any constructor of this library.
        theta: where theta starts.
        particles: where the cloud starts; every leaf has a leading axis over the N particles.
        data: handed to `log_joint` as its third argument.
        max_steps: the most steps to take.
        stop: a rule of `marginax.stopping`; by default `settled()` for a deterministic method and
            `averaged()` for a stochastic one or with minibatches.
        record: `record(state, info)` is kept at the end of every block; theta by default.
        batch: so many observations per step, drawn without replacement within an epoch; needs a
            log joint built by `marginax.minibatched`. With that of a `Problem.grouped`, so many
            groups: only their particles move, and the theta score is rescaled to all groups.
        catch_up: steps of the sampled groups' particles alone before each step, since theta has
            moved on since they were last sampled.
        restarts: R, if theta and particles hold R starts along an extra leading axis. They run
            together, each with its own status, and the Run says whether they agree.
        block_size: steps per block, by default max_steps / 200 but between 10 and 500.
        on_divergence: "backtrack" goes back to the start of the block, halves the step and resets
            the momentum, up to eight times; "stop" ends the run there.
        progress: True or False; by default a bar is shown on a terminal only.
        callback: called with a `Report` after every block; a true answer stops the run, and an
            exception in it reaches you.
        checkpoint: a folder, or a `Checkpoint`; a run that finds its own checkpoint there resumes.
        throw: raise `RunError` for every ending but "converged".
        check_cloud: judge the cloud at the end (`Run.clouds`), which compiles a few seconds.
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
        >>> run = mx.run(jax.random.key(1), method, 0.0, x0, y, max_steps=2000)
        >>> run.status, round(float(run.theta), 3)  # the maximum likelihood estimate is 2
        ('converged', 2.0)
    """
    began = time.perf_counter()
    max_steps = check_count(max_steps, "max_steps")
    block_size = min(500, max(10, max_steps // 200)) if block_size is None else block_size
    block_size = check_count(block_size, "block_size")
    restarts = None if restarts is None else check_count(restarts, "restarts")
    check_divergence(on_divergence)
    catch_up = check_catch_up(catch_up, batch, algorithm)
    layout = None if mesh is None else lay_out(mesh, particles, restarts)
    if layout is not None:
        theta, particles, data = layout.spread(theta, particles, data)
    theta, particles = check_starts(algorithm, theta, particles, data, restarts)
    data = jax.tree.map(jnp.asarray, data)
    if batch is not None:
        batch = check_batch(algorithm.log_joint, data, batch)
    if stop is None:
        noisy = algorithm.stochastic or batch is not None
        stop = stopping.averaged() if noisy else stopping.settled()

    checkpoint = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint

    init_key, step_key = _lane_keys(key, restarts)
    init = algorithm.init if restarts is None else jax.vmap(algorithm.init)
    programs = advance if restarts is None else advance_lanes
    program = compiled = programs(ById(algorithm, mark=algorithm.step), record, batch, catch_up)
    state = init(init_key, theta, particles)
    if layout is not None:
        state = layout.placed(state)
        compiled = layout.keep(program, state)
    setup = Setup(
        call=partial(compiled, step_key),
        # Under jit, where values are not looked at: a start in one point is refused, but a cloud
        # that has come there is no reason to lose the run.
        reset=partial(reset_momentum, jax.jit(init), init_key, restarts),
        data=data,
        start_size=sizes(state, restarts),
        stop=stop,
        max_steps=max_steps,
        block_size=block_size,
        restarts=restarts,
        may_backtrack=on_divergence == "backtrack" and algorithm.rescale is not None,
        is_averaged=algorithm.stochastic or batch is not None,
        callback=callback,
        checkpoint=checkpoint,
        together=spans_processes(mesh),
    )
    max_blocks = -(-max_steps // block_size) + 1
    one_block = (state, data, *device_counts(setup, *np.ones((3, restarts or 1))))
    lanes = empty_lanes(compiled.eval_shape(step_key, *one_block), restarts, max_blocks)
    store = None
    if checkpoint is not None:
        # Of the program without its layout: a run may go on with another number of devices.
        prints = fingerprints.of_run(partial(program, step_key), one_block, key, block_size)
        store = open_store(checkpoint, prints)
        saved = store.load((state, lanes))
        if saved is not None:
            state, lanes = saved[0], trim(saved[1], max_blocks)

    timings = {"start": time.perf_counter() - began}
    bar = progress_bar(progress, max_steps, int(lanes.num_steps.max()))
    folder = None if checkpoint is None else checkpoint.directory
    explained = memory_explained("a block of steps", (state, data))
    watched = last_words(setup.together, folder)
    with watched, bar, ctrl_c_noticed(not setup.together) as pressed, explained:
        state, lanes, endings = drive(setup, state, lanes, store, bar, timings, pressed)
    result = _result(setup, state, lanes, endings, timings)
    clouds = check_clouds(algorithm, result, data, restarts) if check_cloud else ()
    timings["total"] = time.perf_counter() - began
    result = replace(result, clouds=clouds)
    if throw and not result.converged:
        raise RunError(result)
    return result


def _result(
    setup: Setup, state: Any, lanes: Lanes, endings: list[Verdict], timings: dict[str, float]
) -> Run:
    """The Run: averages where the method is noisy, the verdict of every lane, and the history."""
    theta = state.theta
    if setup.is_averaged and np.all(lanes.num_blocks > 0):
        means = [average_theta(blocks_of(lanes, i)) for i in range(len(endings))]
        one, unravel = ravel_pytree(
            theta if setup.restarts is None else jax.tree.map(lambda leaf: leaf[0], theta)
        )
        means = [unravel(jnp.asarray(mean, one.dtype)) for mean in means]
        theta = (
            means[0]
            if setup.restarts is None
            else jax.tree.map(lambda *leaves: jnp.stack(leaves), *means)
        )
    statuses = tuple(ending.status for ending in endings)
    reasons = tuple(ending.reason for ending in endings)
    (status, reason), agree = endings[0], True
    records = jax.tree.map(lambda leaf: leaf[:, : int(lanes.num_blocks.max())], lanes.records)
    if setup.restarts is None:
        records = jax.tree.map(lambda leaf: leaf[0], records)
    else:
        flat = np.stack(
            [
                ravel_pytree(jax.tree.map(lambda leaf, i=i: leaf[i], theta))[0]
                for i in range(setup.restarts)
            ]
        )
        status = next((s for s in statuses if s != "converged"), "converged")
        if setup.restarts > 1:
            agree, reason = agreement(flat, statuses, setup.stop.tolerance or 1e-2)
    return Run(
        theta=theta,
        particles=state.particles,
        state=state,
        history=jax.tree.map(jnp.asarray, records),
        status=status,
        reason=reason,
        num_steps=int(lanes.num_steps.max()),
        timings=timings,
        statuses=statuses,
        reasons=reasons,
        steps=tuple(int(steps) for steps in lanes.num_steps),
        starts_agree=agree,
    )


def _lane_keys(key: Key, restarts: int | None) -> tuple[Array, Array]:
    """Keys of the start and of the steps, those of `trajectory`; with restarts a pair per lane."""
    if restarts is None:
        init_key, step_key = jax.random.split(key)
        return init_key, step_key
    pairs = jax.vmap(jax.random.split)(jax.random.split(key, restarts))
    return pairs[:, 0], pairs[:, 1]

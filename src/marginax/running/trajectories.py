"""The pure loop: a fixed number of steps as one `lax.scan`, for sweeps, papers and tests."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import PyTree

from marginax._core.checks import check_count, check_start
from marginax._core.disk_cache import kept_on_disk
from marginax._core.programs import ById, recent
from marginax.algorithms.contract import Algorithm, check_algorithm
from marginax.running.arguments import check_density
from marginax.typing import Count, Data, Key, Particles, Theta

__all__ = ["Trajectory", "theta_only", "trajectory"]


class Trajectory(NamedTuple):
    """Where a run ended and how it got there.

    Attributes:
        state: the algorithm's final State.
        history: what was recorded, stacked along a leading axis over steps.
    """

    state: Any
    history: PyTree

    @property
    def theta(self) -> Theta:
        """The final estimate."""
        return self.state.theta

    @property
    def particles(self) -> Particles:
        """The final cloud."""
        return self.state.particles


def theta_only(state: Any, info: Any) -> PyTree:
    """What is recorded unless something else is asked for."""
    del info
    return state.theta


def trajectory(
    algorithm: Algorithm,
    theta: Theta,
    particles: Particles,
    data: Data,
    num_steps: Count,
    *,
    key: Key,
    record: Callable[[Any, Any], PyTree] = theta_only,
) -> Trajectory:
    """Runs `num_steps` steps of an algorithm, without looking up.

    A pure function: put it under `jax.vmap` to sweep over seeds, starts, step sizes or anything
    else that the function around it builds the algorithm from. Called again with the same algorithm
    and arrays of the same shapes, it compiles nothing. The particles of every step are not kept
    unless you record them.

    Args:
        algorithm: from any constructor of this library.
        theta: where theta starts, any pytree of floating-point arrays.
        particles: where the cloud starts; every leaf has a leading axis over the N particles.
        data: handed to `log_joint` as its third argument.
        num_steps: how many steps, an integer that is known when it is traced.
        key: a `jax.random.key`; the same key gives the same result.
        record: `record(state, info)` is kept after every step; theta by default, so that `history`
            is theta_1, theta_2, ...

    Returns:
        The final state and the history.

    Example:
        Ten step sizes at once:

        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> def final_theta(step_size):
        ...     method = mx.svgd_em(log_joint, step_size, step_size, mx.kernels.rbf(1.0))
        ...     return mx.trajectory(method, 0.0, x0, y, 300, key=jax.random.key(1)).theta
        >>> jax.vmap(final_theta)(jnp.linspace(0.05, 0.2, 10)).shape
        (10,)
    """
    check_algorithm(algorithm)
    num_steps = check_count(num_steps, "num_steps")
    theta, particles = check_start(theta, particles)
    if algorithm.log_joint is not None:
        check_density(algorithm.log_joint, theta, particles, data)
    init_key, step_key = jax.random.split(key)
    state = algorithm.init(init_key, theta, particles)
    fixed = (ById(algorithm, mark=algorithm), ById(record, mark=record), num_steps)
    arrays = all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(data))
    if not arrays or _trace_state() != _OUTSIDE:
        # Inside jit or vmap the algorithm may hold tracers, and a number in data is a constant.
        return Trajectory(*_scan(*fixed, step_key, state, data))
    with kept_on_disk():
        return Trajectory(*_compiled_scan(*fixed)(step_key, state, data))


def _scan(
    fixed: ById, record: ById, num_steps: int, step_key: Key, state: Any, data: Data
) -> tuple[Any, PyTree]:
    """All steps: the last state, and what was recorded."""
    algorithm: Algorithm = fixed.value

    def step(state: Any, t: jax.Array) -> tuple[Any, PyTree]:
        # Folding in the step number keeps one key in memory instead of one per step.
        state, info = algorithm.step(jax.random.fold_in(step_key, t), state, data)
        return state, record.value(state, info)

    return jax.lax.scan(step, state, jnp.arange(num_steps))


_compiled_scan = recent(_scan)


def _trace_state() -> Any:
    return get_opaque_trace_state(convention="nnx")


_OUTSIDE = _trace_state()  # as it is where this module is imported: no transformation is under way

"""Time and memory of one step against particles N, dimension D and groups G."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import marginax as mx
from benchmarks import many_groups
from benchmarks.timing import interleaved, temporary_bytes
from marginax.fitting.plan import make_plan

__all__ = ["fit_step", "joint_step", "measure"]

Step = tuple[Callable[[], Any], int]  # a call, and the bytes it needs
PARTICLES = (50, 100, 200, 500, 1000, 2000, 4000, 8000)
DIMENSIONS = (10, 20, 50, 100, 200, 500, 1000)
GROUPS = (100, 300, 1000, 3000, 10_000, 30_000)


def joint_step(n: int, d: int = 10) -> Step:
    """SVGD-EM with the joint RBF kernel on a model that costs next to nothing."""

    def log_joint(theta: Any, x: Any, y: Any) -> Any:
        return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

    method = mx.svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf("mean"))
    particles = jax.random.normal(jax.random.key(0), (n, d))
    return _step(method, jnp.zeros(()), particles, jnp.ones(d))


def fit_step(num_groups: int, num_particles: int = 16) -> Step:
    """The algorithm that `fit` chooses for random intercepts and slopes, blockwise."""
    problem = many_groups.problem(many_groups.simulate(num_groups))
    method = make_plan(problem, num_particles).algorithm
    particles = 0.3 * jax.random.normal(jax.random.key(0), (num_particles, num_groups, 2))
    return _step(method, problem.start_theta(), particles, problem.data)


def _step(method: mx.Algorithm, theta: Any, particles: Any, data: Any) -> Step:
    state = method.init(jax.random.key(0), theta, particles)

    def step(state: Any, data: Any) -> Any:
        return method.step(jax.random.key(0), state, data)[0]

    compiled = jax.jit(step).lower(state, data).compile()
    return lambda: compiled(state, data), temporary_bytes(compiled)


def measure() -> list[dict]:
    """A row per size: what grows, how much, seconds of a step, temporary bytes."""
    axes: dict[str, dict[int, Step]] = {
        "particles": {n: joint_step(n) for n in PARTICLES},
        "dimension": {d: joint_step(1000, d) for d in DIMENSIONS},
        "groups": {g: fit_step(g) for g in GROUPS},
    }
    rows = []
    for axis, steps in axes.items():
        best = interleaved({str(size): call for size, (call, _) in steps.items()}, 5, 5.0)
        for size, (_, memory) in steps.items():
            rows.append(
                {"axis": axis, "size": size, "seconds": best[str(size)], "temporary_bytes": memory}
            )
            shown = f"{1e3 * best[str(size)]:9.3f} ms   {memory / 1e6:9.2f} MB"
            print(f"  {axis:<10} {size:>8,}   {shown}", flush=True)
    return rows

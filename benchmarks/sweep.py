"""A learning-rate sweep, 100 step sizes x 5 starts x 1000 steps: one vmapped call or a loop."""

import jax
import jax.numpy as jnp

import marginax as mx
from benchmarks.timing import best_seconds, seconds

STEPS, STARTS = 100, 5


def main() -> None:
    """Prints the times and their ratios."""
    model = mx.models.ToyHierarchical(12.0, 12.0)
    y = model.simulate(jax.random.key(0), 10.0, 20)
    step_sizes = jnp.logspace(-3, 2, STEPS)
    thetas = jax.random.uniform(jax.random.key(1), (STARTS,), minval=-3, maxval=3)
    clouds = jax.random.normal(jax.random.key(2), (STARTS, 20, 20))

    def run(step_size, theta, particles):
        method = mx.svgd_em(model.log_joint, step_size, step_size, kernel)
        return mx.trajectory(jax.random.key(0), method, theta, particles, y, 1000).history

    for kernel in (mx.kernels.rbf(5.0), mx.kernels.rbf("median")):
        sweep = jax.jit(jax.vmap(jax.vmap(run, (None, 0, 0)), (0, None, None)))
        with_compilation = seconds(lambda sweep=sweep: sweep(step_sizes, thetas, clouds))
        single = jax.jit(run)
        compiled_once = best_seconds(lambda single=single: single(0.3, thetas[0], clouds[0]))
        # A fresh jit per run is what a program does that rebuilds its loop for every setting.
        fresh = min(seconds(lambda: jax.jit(run)(0.3, thetas[0], clouds[0])) for _ in range(3))
        total = STEPS * STARTS
        print(f"{total} runs of 1000 steps, SVGD-EM, {kernel}")
        print(f"  one vmapped call, compilation included  {with_compilation:7.2f} s")
        print(
            f"  Python loop, compiled once              {total * compiled_once:7.2f} s"
            f"   ({total * compiled_once / with_compilation:.0f} times as long)"
        )
        print(
            f"  Python loop, compiled for every run     {total * fresh:7.2f} s"
            f"   ({total * fresh / with_compilation:.0f} times as long)"
        )

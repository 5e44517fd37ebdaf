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

    for kernel in (mx.kernels.rbf(5.0), mx.kernels.rbf("median")):

        def run(step_size, theta, particles, kernel=kernel):
            method = mx.svgd_em(model.log_joint, step_size, step_size, kernel)
            return mx.trajectory(method, theta, particles, y, 1000, key=jax.random.key(0)).history

        def fresh_run(run=run):
            # A new function is compiled anew, as in a program that rebuilds its loop per setting.
            return jax.jit(lambda *start: run(*start))(0.3, thetas[0], clouds[0])

        sweep = jax.jit(jax.vmap(jax.vmap(run, (None, 0, 0)), (0, None, None)))
        vmapped = seconds(lambda sweep=sweep: sweep(step_sizes, thetas, clouds))
        single = jax.jit(run)
        loops = {
            "compiled once": best_seconds(lambda f=single: f(0.3, thetas[0], clouds[0])),
            "compiled for every run": min(seconds(fresh_run) for _ in range(3)),
        }
        total = STEPS * STARTS
        print(f"{total} runs of 1000 steps, SVGD-EM, {kernel}")
        print(f"  one vmapped call, compilation included           {vmapped:7.2f} s")
        for name, each in loops.items():
            print(
                f"  Python loop, {name:<22} {total} x {each:.3f} s = {total * each:7.2f} s"
                f"   ({total * each / vmapped:.1f} times as long)"
            )

"""Cost per step of every kernel as a ratio to the joint RBF, and of the metric and EM gradient.

Matrix products against autodiff and against an N x N x D tensor, too.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import marginax as mx
from benchmarks.timing import best_seconds


def naive(x: jax.Array, s: jax.Array) -> jax.Array:
    """phi with all N x N differences in memory, as often written."""
    difference = x[None, :, :] - x[:, None, :]  # [j, i] = x_i - x_j
    gram = jnp.exp(-0.5 * jnp.sum(difference**2, axis=-1))
    return (gram.T @ s + jnp.sum(gram[:, :, None] * difference, axis=0)) / x.shape[0]


def main() -> None:
    """The velocity alone, then whole steps of M-SVGD-EM."""
    velocities()
    print()
    steps()


def velocities() -> None:
    """Prints time and temporary memory of each form as ratios to `rbf(1.0)`."""
    rbf, linear = mx.kernels.rbf("mean"), mx.kernels.linear()

    def in_pairs(kernel: mx.kernels.Kernel) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """Blocks of two coordinates, such as an intercept and a slope."""
        blocks = mx.kernels.blockwise(kernel)
        return lambda x, s: blocks.velocity(
            x.reshape(len(x), -1, 2), s.reshape(len(x), -1, 2)
        ).reshape(x.shape)

    forms = {
        "rbf(1.0)": mx.kernels.rbf(1.0).velocity,
        "rbf('mean')": mx.kernels.rbf("mean").velocity,
        "rbf('median')": mx.kernels.rbf("median").velocity,
        "imq(1.0)": mx.kernels.imq(1.0).velocity,
        "linear('diagonal')": mx.kernels.linear("diagonal").velocity,
        "linear()": linear.velocity,
        "rbf('mean') + linear()": (rbf + linear).velocity,
        "moment_matched": mx.kernels.moment_matched(rbf).velocity,
        "blockwise rbf, p=1": mx.kernels.blockwise(rbf).velocity,
        "blockwise median, p=1": mx.kernels.blockwise(mx.kernels.rbf("median")).velocity,
        "blockwise linear, p=1": mx.kernels.blockwise(linear).velocity,
        "blockwise matched, p=1": mx.kernels.blockwise(mx.kernels.moment_matched(rbf)).velocity,
        "blockwise matched, p=2": in_pairs(mx.kernels.moment_matched(rbf)),
        "N x N x D tensor": naive,
        "from_function": mx.kernels.from_function(
            lambda a, b: jnp.exp(-0.5 * jnp.sum((a - b) ** 2))
        ).velocity,
    }
    for n, d in ((20, 20), (100, 100), (500, 50), (2000, 100)):
        x = jax.random.normal(jax.random.key(0), (n, d)) / d**0.5
        print(f"Stein velocity, N = {n}, D = {d}")
        base_time = base_memory = None
        for name, form in forms.items():
            compiled = jax.jit(form).lower(x, x).compile()
            time = best_seconds(lambda compiled=compiled, x=x: compiled(x, x))
            memory = compiled.memory_analysis().temp_size_in_bytes
            base_time, base_memory = base_time or time, base_memory or memory
            print(
                f"  {name:<22} {1e3 * time:9.3f} ms   time x {time / base_time:6.1f}"
                f"   memory x {memory / base_memory:6.1f}"
            )


def steps() -> None:
    """Prints the time of a whole step as a ratio to the joint RBF with fixed step sizes."""
    model = mx.models.RandomIntercept
    restart = mx.momentum.adaptive_restart()
    rbf = mx.kernels.rbf("mean")
    matched = mx.kernels.blockwise(mx.kernels.moment_matched(rbf))
    configurations = {
        "rbf, fixed steps": (0.01, 0.1, rbf, None),
        "blockwise rbf": (0.01, 0.1, mx.kernels.blockwise(rbf), None),
        "blockwise matched": (0.01, 0.1, matched, None),
        "... with the metric": (0.01, 0.5, matched, mx.metrics.curvature()),
        "... and the EM gradient": (mx.em_gradient(), 0.5, matched, mx.metrics.curvature()),
    }
    for n, num_groups in ((20, 40), (20, 1000), (100, 100)):
        print(f"Step of M-SVGD-EM, random intercept, N = {n}, {num_groups} groups of 5")
        theta = mx.models.RandomInterceptTheta(*(jnp.zeros(()),) * 3)
        y = model.simulate(jax.random.key(0), theta, num_groups, 5)
        x = jax.random.normal(jax.random.key(1), (n, num_groups))
        base = None
        for name, (theta_optimizer, step, kernel, metric) in configurations.items():
            method = mx.m_svgd_em(
                model.log_joint,
                theta_optimizer,
                step,
                kernel,
                theta_momentum=restart,
                particle_momentum=restart,
                particle_metric=metric,
            )
            advance = jax.jit(
                lambda theta, x, y, method=method: (
                    mx.trajectory(method, theta, x, y, 20, key=jax.random.key(2)).state.particles
                )
            )
            advance = advance.lower(theta, x, y).compile()
            given = (theta, x, y)
            time = best_seconds(lambda f=advance, given=given: f(*given)) / 20
            base = base or time
            print(f"  {name:<24} {1e3 * time:8.3f} ms   time x {time / base:5.1f}")


if __name__ == "__main__":
    main()

"""The Stein velocity: matrix products against autodiff and against an N x N x D tensor."""

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
    """Prints time and temporary memory of each form as ratios to `rbf(1.0)`."""
    forms = {
        "rbf(1.0)": mx.kernels.rbf(1.0).velocity,
        "rbf('mean')": mx.kernels.rbf("mean").velocity,
        "rbf('median')": mx.kernels.rbf("median").velocity,
        "imq(1.0)": mx.kernels.imq(1.0).velocity,
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
                f"  {name:<18} {1e3 * time:9.3f} ms   time x {time / base_time:6.1f}"
                f"   memory x {memory / base_memory:6.1f}"
            )

"""How close the RBF velocity comes to the machine's measured ceiling.

`python -m benchmarks.velocity_ceiling` prints TFLOP/s (6 N^2 D operations, the three products) and
the share of the same machine's best square matrix product in the same precision. "As it is" is what
the library does there: on NVIDIA GPUs one program that never writes the Gram matrix.
"""

import argparse
import unittest.mock
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx
from benchmarks.timing import best_seconds
from marginax.kernels import radial

BANDWIDTH = 8.0


def main() -> None:
    """Ceilings, then every form of the velocity."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=65_536)
    parser.add_argument("--dimension", type=int, default=64)
    asked = parser.parse_args()
    n, d = asked.particles, asked.dimension
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, N = {n}, D = {d}, float32")
    ceilings = {name: _ceiling(precision) for name, precision in radial.PRECISIONS.items()}
    for name, found in ceilings.items():
        print(f"ceiling of a square product, {name}: {found:.1f} TFLOP/s")
    x = jax.random.normal(jax.random.key(0), (n, d), jnp.float32)
    s = -x + jax.random.normal(jax.random.key(1), (n, d), jnp.float32)
    exact = _some_rows(x, s)
    print(f"{'form':<44} {'ms':>9} {'TFLOP/s':>9} {'of ceiling':>11} {'error':>9} {'GB':>6}")
    for name, (form, precision) in _forms(n).items():
        try:
            run = jax.jit(form).lower(x, s).compile()
            off = float(np.max(np.abs(np.asarray(run(x, s))[: len(exact)] - exact)))
            seconds = best_seconds(lambda run=run: run(x, s))
            memory = run.memory_analysis().temp_size_in_bytes / 1e9
        except Exception as error:  # a form this machine cannot run
            print(f"{name:<44} failed: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
            continue
        rate = 6 * n**2 * d / seconds / 1e12
        share = rate / ceilings[precision]
        error = off / np.max(np.abs(exact))
        print(
            f"{name:<44} {1e3 * seconds:>9.2f} {rate:>9.1f} {share:>11.0%} {error:>9.1e} "
            f"{memory:>6.2f}",
            flush=True,
        )


def _forms(n: int) -> dict[str, tuple[Callable[..., Any], str]]:
    def tiled(precision: str, dense: int, tile: int) -> Callable[..., Any]:
        def form(x: jax.Array, s: jax.Array) -> jax.Array:
            changed = {
                "DENSE": dense,
                "DENSE_ON_GPU": dense,
                "TILE": tile,
                "TILE_ON_GPU": tile,
                "can_fuse": lambda x: False,
            }
            with unittest.mock.patch.multiple(radial, **changed):
                return mx.kernels.rbf(BANDWIDTH, precision=precision).velocity(x, s)

        return form

    forms: dict[str, tuple[Callable[..., Any], str]] = {}
    for precision in radial.PRECISIONS:
        as_it_is = mx.kernels.rbf(BANDWIDTH, precision=precision).velocity
        forms[f"rbf as it is, {precision}"] = as_it_is, precision
        for power in (22, 24, 26, 28):
            if 2**power <= n**2:
                forms[f"tiles of 2^{power}, {precision}"] = tiled(precision, 0, 2**power), precision
        forms[f"dense, {precision}"] = tiled(precision, 2**62, 0), precision
    return forms


def _ceiling(precision: Any) -> float:
    """TFLOP/s of the best of a few square products."""
    sizes = (2048, 4096, 8192) if jax.default_backend() == "gpu" else (1024, 2048)
    found = []
    for size in sizes:
        a = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
        run = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
        found.append(2 * size**3 / best_seconds(lambda run=run, a=a: run(a, a)) / 1e12)
    return max(found)


def _some_rows(x: jax.Array, s: jax.Array, count: int = 16) -> np.ndarray:
    """The first rows of phi in float64, from the formula."""
    whole, scores = np.asarray(x, np.float64), np.asarray(s, np.float64)
    rows = []
    for i in range(count):
        away = whole[i] - whole
        gram = np.exp(-np.sum(away**2, axis=1) / (2 * BANDWIDTH**2))
        rows.append((gram @ scores + gram @ away / BANDWIDTH**2) / len(whole))
    return np.array(rows)


if __name__ == "__main__":
    main()

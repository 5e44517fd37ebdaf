"""Random batches of the cloud: what they cost and what they lose, for clouds of up to 100,000.

A correlated Gaussian posterior in five dimensions, theta its mean: M-SVGD-EM's particles under
`random_batches(rbf(h), B)` for several N and B. Time is of a step, as a ratio to the whole cloud's
where that was run; the error of theta is of the mean of its last half, the variance ratio that of
the cloud at the end to the posterior's.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx
from benchmarks.tables import save
from benchmarks.timing import best_seconds

D, STEPS, BANDWIDTH = 5, 600, 2.0
SIZES = ((100, (5, 20, 100)), (1000, (10, 100, 1000)), (10_000, (10, 100, 1000, 10_000)))
LARGEST = (100_000, (10, 100, 1000, 100_000))
NOISE_SIZES, NOISE_STEPS = ((100, 5), (1000, 10), (1000, 100)), (0.5, 0.1, 0.02)


def log_joint(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """x ~ N(theta, A), y ~ N(x, 1): the estimate weighs y by the marginal's precision."""
    mixing = jnp.eye(D) + 0.5 * jnp.eye(D, k=1)
    z = mixing @ (x - theta)
    return -0.5 * jnp.sum(z**2) - 0.5 * jnp.sum((y - x) ** 2)


def answers(y: np.ndarray) -> tuple[float, np.ndarray]:
    """The exact estimate and the posterior's covariance."""
    mixing = np.eye(D) + 0.5 * np.eye(D, k=1)
    precision = mixing.T @ mixing
    marginal = np.linalg.inv(np.linalg.inv(precision) + np.eye(D))
    ones = np.ones(D)
    return float(ones @ marginal @ y / (ones @ marginal @ ones)), np.linalg.inv(
        precision + np.eye(D)
    )


def main() -> None:
    """Writes `results/random_batches.md`."""
    y = np.array([1.0, -0.5, 2.0, 0.3, 1.2])
    exact, covariance = answers(y)
    rows: list[dict] = []
    for n, batches in (*SIZES, LARGEST):
        x = jax.random.normal(jax.random.key(0), (n, D))
        whole = None
        for size in sorted(batches, reverse=True):
            kernel = mx.kernels.random_batches(mx.kernels.rbf(BANDWIDTH), size)
            method = mx.m_svgd_em(
                log_joint, 0.05, 0.5, kernel, theta_momentum=0.8, particle_momentum=0.8
            )
            state = method.init(jax.random.key(1), jnp.zeros(()), x)
            step = jax.jit(method.step)
            data = jnp.array(y)
            seconds = best_seconds(
                lambda step=step, state=state, data=data: step(jax.random.key(2), state, data), 3
            )
            whole = seconds if size == n else whole
            row = {"n": n, "size": size, "seconds": seconds, "whole": whole}
            if seconds * STEPS < 250:
                end = mx.trajectory(method, 0.0, x, data, STEPS, key=jax.random.key(3))
                theta = np.asarray(end.history[STEPS // 2 :])
                spread = np.cov(np.asarray(end.particles, np.float64).T)
                row |= {
                    "error": abs(float(theta.mean()) - exact),
                    "wobble": float(theta.std()),
                    "variance": float(np.mean(np.diag(spread) / np.diag(covariance))),
                }
            rows.append(row)
            print(row, flush=True)
            write(rows)


def noise() -> None:
    """Writes `results/random_batches_noise.md`: what smaller steps make of the batches' noise."""
    y = np.array([1.0, -0.5, 2.0, 0.3, 1.2])
    exact, covariance = answers(y)
    rows: list[dict] = []
    for n, size in NOISE_SIZES:
        x = jax.random.normal(jax.random.key(0), (n, D))
        kernel = mx.kernels.random_batches(mx.kernels.rbf(BANDWIDTH), size)
        for step in NOISE_STEPS:
            method = mx.svgd_em(log_joint, 0.05, step, kernel)
            num_steps = int(STEPS * 0.5 / step)
            end = mx.trajectory(method, 0.0, x, jnp.array(y), num_steps, key=jax.random.key(3))
            theta = np.asarray(end.history[num_steps // 2 :])
            spread = np.cov(np.asarray(end.particles, np.float64).T)
            kept = float(np.mean(np.diag(spread) / np.diag(covariance)))
            off = abs(float(theta.mean()) - exact)
            rows.append({"n": n, "size": size, "step": step, "error": off, "variance": kept})
    columns = {
        "N": lambda row: f"{row['n']:,}",
        "B": lambda row: f"{row['size']:,}",
        "step": lambda row: f"{row['step']}",
        "error of theta": lambda row: f"{row['error']:.4f}",
        "variance kept": lambda row: f"{row['variance']:.3f}",
    }
    words = (
        "# Random batches with smaller steps\n\n`python -m benchmarks.random_batches --noise`: the "
        "same posterior, SVGD-EM. A batch is an unbiased estimate of the whole cloud's velocity, "
        "and its noise, like that of any stochastic gradient, falls with the step."
    )
    save("random_batches_noise", words, rows, columns)


def write(rows: list[dict]) -> None:
    """The table so far."""

    def number(name: str, form: str):
        return lambda row: format(row[name], form) if name in row else "not run"

    columns = {
        "N": lambda row: f"{row['n']:,}",
        "B": lambda row: (
            f"{row['size']:,}" + (" (the whole cloud)" if row["size"] == row["n"] else "")
        ),
        "ms a step": lambda row: f"{1e3 * row['seconds']:.2f}",
        "of the whole cloud's": lambda row: (
            f"{row['seconds'] / row['whole']:.3f}" if row["whole"] else ""
        ),
        "error of theta": number("error", ".4f"),
        "theta's sd over steps": number("wobble", ".4f"),
        "variance kept": number("variance", ".3f"),
    }
    words = (
        "# Random batches\n\n`python -m benchmarks.random_batches`: a Gaussian posterior in "
        f"{D} dimensions, `random_batches(rbf({BANDWIDTH}), B)`, {STEPS} steps of 0.5 with "
        "momentum 0.8. What the whole cloud keeps of the variance is the RBF kernel's own loss, "
        "which batches share; what is above 1 is the batches' noise, which smaller steps take away "
        "(`random_batches_noise.md`)."
    )
    save("random_batches", words, rows, columns)


if __name__ == "__main__":
    noise() if "--noise" in sys.argv else main()

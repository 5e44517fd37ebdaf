"""`fit` of many groups of two latents against the exact answer: `python -m benchmarks.many_groups`.

y_gi = x_g0 + x_g1 t_i + noise, x_g ~ N(mean, V), the same times t in every group. The groups' least
squares estimates are independent N(mean, V + s^2 (Z'Z)^-1), and what is left over gives s^2, so the
maximum of the likelihood is known in closed form.
"""

import argparse
import resource
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx

TIMES = np.array([-1.0, -0.5, 0.5, 1.0])
TRUTH = {"mean": np.array([1.0, -0.5]), "sd": np.array([0.8, 0.5]), "noise": 0.6}
CORRELATION = 0.3


class Exact(NamedTuple):
    """The maximum and its standard errors, of the two means, two sds, correlation and noise."""

    theta: np.ndarray
    errors: np.ndarray


def simulate(num_groups: int, seed: int = 0) -> np.ndarray:
    """y, [groups, times]."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(num_groups, 2))
    z[:, 1] = CORRELATION * z[:, 0] + np.sqrt(1 - CORRELATION**2) * z[:, 1]
    x = TRUTH["mean"] + TRUTH["sd"] * z
    noise = TRUTH["noise"] * random.normal(size=(num_groups, len(TIMES)))
    return x[:, :1] + x[:, 1:] * TIMES + noise


def problem(y: np.ndarray) -> mx.Problem:
    """The model, with theta on its own scales."""

    def log_joint(theta: Any, x: Any, y: Any) -> Any:
        z0 = (x[0] - theta["mean"][0]) / theta["sd"][0]
        z1 = (x[1] - theta["mean"][1]) / theta["sd"][1]
        rho = theta["correlation"]
        prior = -0.5 * (z0**2 - 2 * rho * z0 * z1 + z1**2) / (1 - rho**2)
        prior -= jnp.sum(jnp.log(theta["sd"])) + 0.5 * jnp.log1p(-(rho**2))
        left = (y - x[0] - x[1] * jnp.asarray(TIMES, y.dtype)) / theta["noise"]
        return prior - 0.5 * jnp.sum(left**2) - len(TIMES) * jnp.log(theta["noise"])

    return mx.Problem.grouped(
        log_joint,
        y,
        theta={"mean": jnp.zeros(2), "sd": jnp.ones(2), "correlation": 0.0, "noise": 1.0},
        latent=jnp.zeros(2),
        theta_transforms={
            "sd": mx.transforms.positive,
            "noise": mx.transforms.positive,
            "correlation": mx.transforms.interval(-1.0, 1.0),
        },
    )


def exact(y: np.ndarray) -> Exact:
    """In closed form; standard errors from the Wishart and chi-squared laws (delta method)."""
    num_groups, n = y.shape
    design = np.stack([np.ones(n), TIMES], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    found = y @ design @ inverse
    left = y - found @ design.T
    s2 = np.sum(left**2) / (num_groups * (n - 2))
    mean = found.mean(axis=0)
    total = (found - mean).T @ (found - mean) / num_groups
    covariance = total - s2 * inverse
    sd = np.sqrt(np.diag(covariance))
    rho = covariance[0, 1] / (sd[0] * sd[1])
    theta = np.array([*mean, *sd, rho, np.sqrt(s2)])
    # Var of (V00, V11, V01, s2); V = total - s2 C, total ~ Wishart / G.
    pairs = ((0, 0), (1, 1), (0, 1))
    wishart = np.array(
        [
            [(total[i, k] * total[j, m] + total[i, m] * total[j, k]) / num_groups for k, m in pairs]
            for i, j in pairs
        ]
    )
    of_s2 = 2 * s2**2 / (num_groups * (n - 2))
    c = np.array([inverse[i, j] for i, j in pairs])
    joint = np.zeros((4, 4))
    joint[:3, :3] = wishart + of_s2 * np.outer(c, c)
    joint[3, 3] = of_s2
    joint[:3, 3] = joint[3, :3] = -of_s2 * c
    v0, v1, v01 = covariance[0, 0], covariance[1, 1], covariance[0, 1]
    slope = np.array(
        [
            [0.5 / sd[0], 0, 0, 0],
            [0, 0.5 / sd[1], 0, 0],
            [-0.5 * v01 / (v0 * sd[0] * sd[1]), -0.5 * rho / v1, 1 / (sd[0] * sd[1]), 0],
            [0, 0, 0, 0.5 / np.sqrt(s2)],
        ]
    )
    of_rest = np.sqrt(np.diag(slope @ joint @ slope.T))
    of_mean = np.sqrt(np.diag(total) / num_groups)
    return Exact(theta, np.concatenate([of_mean, of_rest]))


def main() -> None:
    """One fit, its time by stage, its memory, and how far it is from the exact answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--num-starts", type=int, default=1)
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--draw-posterior", action=argparse.BooleanOptionalAction, default=True)
    asked = parser.parse_args()
    y = simulate(asked.groups)
    known = exact(y)
    began = time.perf_counter()
    fit = mx.fit(
        problem(y),
        key=jax.random.key(0),
        num_particles=asked.particles,
        num_starts=asked.num_starts,
        draw_posterior=asked.draw_posterior,
    )
    seconds = time.perf_counter() - began
    theta = fit.theta
    found = np.array([*theta["mean"], *theta["sd"], theta["correlation"], theta["noise"]])
    off = np.max(np.abs(found - known.theta) / known.errors)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    stages = ", ".join(f"{name} {value:.1f}" for name, value in fit.timings.items())
    print(f"{asked.groups} groups on {jax.devices()[0].device_kind}: {seconds:.1f} s ({stages})")
    print(f"nothing to warn of: {fit.ok}; peak memory of the process {peak:.2f} GB")
    print(f"largest distance to the exact maximum: {off:.2e} standard errors")
    if not fit.ok:
        print(fit)


if __name__ == "__main__":
    main()

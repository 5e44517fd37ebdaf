"""Does "converged" mean converged? Three models, four methods, 100 seeds each, as a table.

For every seed the run that stopped is compared with where the same run would have ended (a
deterministic flow carried on for ten times as long; a stochastic method's limit is the mean over
all seeds of such runs), and with the exact maximum likelihood estimate, which also shows the bias
of the kernel or the step.
"""

import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import marginax as mx


class Case(NamedTuple):
    """A model with data, its exact answer, starts for every seed and the methods' settings."""

    log_joint: object
    data: object
    exact: np.ndarray
    theta: object
    particles: object
    stein: tuple
    langevin: float
    momentum: tuple


def toy(seeds: int) -> Case:
    """Twenty latents, variances 12 and 12."""
    model = mx.models.ToyHierarchical(12.0, 12.0)
    data = model.simulate(jax.random.key(0), 10.0, 20)
    keys = jax.random.split(jax.random.key(1))
    theta = jax.random.uniform(keys[0], (seeds,), minval=-3.0, maxval=3.0)
    cloud = jax.random.normal(keys[1], (seeds, 20, 20))
    exact = np.array([model.maximum_likelihood(data)])
    stein = (0.3, mx.kernels.rbf(5.0))
    return Case(model.log_joint, data, exact, theta, cloud, stein, 0.2, (0.2, 0.1, 20.0))


def random_intercept(seeds: int) -> Case:
    """Ten groups of ten, theta = (mean, log sd between, log sd within)."""
    model = mx.models.RandomIntercept
    truth = mx.models.RandomInterceptTheta(jnp.array(1.0), jnp.array(0.0), jnp.array(0.0))
    data = model.simulate(jax.random.key(2), truth, 10, 10)
    keys = jax.random.split(jax.random.key(1))
    theta = mx.models.RandomInterceptTheta(*(0.3 * jax.random.normal(keys[0], (3, seeds))))
    cloud = jax.random.normal(keys[1], (seeds, 20, 10))
    exact = np.array(model.maximum_likelihood(data))
    stein = (0.005, mx.kernels.rbf(2.0))
    return Case(model.log_joint, data, exact, theta, cloud, stein, 0.005, (0.02, 1.0, 20.0))


def logistic(seeds: int) -> Case:
    """Wisconsin, prior variance 25; exact by importance sampling."""
    model = mx.models.LogisticRegression(25.0)
    data = mx.models.wisconsin(45).train
    cloud = jax.random.normal(jax.random.key(1), (seeds, 20, 9))
    stein = (0.01, mx.kernels.rbf(5.0))
    exact = np.array([0.998])
    return Case(
        model.log_joint, data, exact, jnp.zeros(seeds), cloud, stein, 0.01, (0.01, 0.3, 300.0)
    )


def methods(case: Case) -> dict:
    """The four methods with this model's settings, and the tolerance asked of each."""
    step, kernel = case.stein
    return {
        "SVGD-EM": (mx.svgd_em(case.log_joint, step, step, kernel), 1e-2),
        "M-SVGD-EM": (mx.m_svgd_em(case.log_joint, step, step, kernel), 1e-2),
        "PGD": (mx.pgd(case.log_joint, case.langevin, case.langevin), 2e-2),
        "MPGD": (mx.mpgd(case.log_joint, *case.momentum), 2e-2),
    }


def measure(case: Case, algorithm: mx.Algorithm, tolerance: float, seeds: int, limit: int) -> dict:
    """Runs all seeds to their stop, and then on; errors in units of the tolerance."""
    key = jax.random.key(7)
    rule = (mx.stopping.averaged if algorithm.stochastic else mx.stopping.settled)(tolerance)
    settings = {"max_steps": limit, "num_starts": seeds, "block_size": 100, "progress": False}
    run = mx.run(algorithm, case.theta, case.particles, case.data, stop=rule, key=key, **settings)
    flat = np.array(jax.vmap(lambda theta: ravel_pytree(theta)[0])(run.theta))
    stop_steps = np.array(run.steps_per_start)
    longer = settings | {"max_steps": max(20_000, 10 * int(np.median(stop_steps)))}
    on = mx.run(
        algorithm,
        case.theta,
        case.particles,
        case.data,
        stop=mx.stopping.never(),
        key=key,
        **longer,
    )
    ends = np.array(jax.vmap(lambda theta: ravel_pytree(theta)[0])(on.theta))
    if algorithm.stochastic:
        ends = ends.mean(axis=0, keepdims=True)
    allowed = tolerance * np.maximum(1.0, np.abs(ends))
    to_limit = np.max(np.abs(flat - ends) / allowed, axis=1)
    allowed = tolerance * np.maximum(1.0, np.abs(case.exact))
    to_exact = np.max(np.abs(flat - case.exact) / allowed, axis=1)
    converged = np.array([status == "converged" for status in run.statuses])
    return {
        "converged": int(converged.sum()),
        "steps": int(np.median(stop_steps)),
        "within": int(np.sum(converged & (to_limit <= 1))),
        "worst": float(np.max(np.where(converged, to_limit, 0))),
        "exact": int(np.sum(converged & (to_exact <= 1))),
        "bias": float(np.max(np.abs(ends.mean(axis=0) - case.exact))),
    }


def main(seeds: int = 100, limit: int = 400_000, only: str = "") -> None:
    """Prints the table in Markdown."""
    print(
        "| model | method | tolerance | converged | median steps | within tolerance of its limit "
        "| worst error / tolerance | within tolerance of the exact estimate | bias of the limit |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for make in (toy, random_intercept, logistic):
        case = make(seeds)
        for name, (algorithm, tolerance) in methods(case).items():
            if only not in f"{make.__name__} {name}":
                continue
            m = measure(case, algorithm, tolerance, seeds, limit)
            print(
                f"| {make.__name__.replace('_', ' ')} | {name} | {tolerance:g} | {m['converged']} "
                f"| {m['steps']} | {m['within']} | {m['worst']:.2f} | {m['exact']} "
                f"| {m['bias']:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--limit", type=int, default=400_000)
    parser.add_argument("--only", default="", help="part of 'model METHOD'")
    main(**vars(parser.parse_args()))

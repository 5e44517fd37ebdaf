"""How often do the 95 % intervals of `mx.fit` hold the truth? Many simulated data sets, as a table.

    python -m benchmarks.coverage [--datasets 200] [--models slopes binomial]

A linear mixed model with correlated random intercepts and slopes, and a binomial one with a random
intercept, 60 groups each. The truth is far from every boundary, so that Wald intervals have a
chance; what is left between their coverage and 95 % is that maximum likelihood takes a finite
number of groups for many. A fit with warnings counts like any other and is reported beside.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import marginax as mx
from benchmarks.tables import markdown, save

# Before the import below, because the oracles' grids are made on import and must be float64.
jax.config.update("jax_enable_x64", True)
# The log joints and the exact marginals that check the simulators live with the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import mixed_models as mm  # noqa: E402
from fit_models import one_group  # noqa: E402

GROUPS = 60
LEVEL = 0.95

WORDS = f"""`python -m benchmarks.coverage`: coverage of {LEVEL:.0%} Wald intervals.

{GROUPS} groups. ± is the binomial standard error of the share."""

COLUMNS = {
    "model": lambda row: row["model"],
    "parameter": lambda row: row["parameter"],
    "truth": lambda row: f"{row['truth']:.3f}",
    "coverage": lambda row: f"{row['coverage']:.3f} ± {row['standard_error']:.3f}",
    "mean error / median standard error": lambda row: f"{row['bias']:+.2f}",
    "data sets": lambda row: str(row["datasets"]),
    "with warnings": lambda row: str(row["with_warnings"]),
    "seconds per fit": lambda row: f"{row['seconds_per_fit']:.1f}",
}


class Setting(NamedTuple):
    """A model with a known truth.

    Attributes:
        log_joint: of all groups at once.
        log_marginal: exact, `log_marginal(theta, data)`.
        truth: theta that `simulate` uses.
        start: where fits start.
        latent: where the latent of one group starts.
        simulate: `simulate(truth, random)`, one data set.
    """

    log_joint: Callable[..., Any]
    log_marginal: Callable[..., Any]
    truth: dict
    start: dict
    latent: Any
    simulate: Callable[[dict, np.random.Generator], mm.Grouped]


# The simulators of the tests draw a new truth for every seed; here it must stay.


def simulate_slopes(truth: dict, random: np.random.Generator, n: int = 8) -> mm.Grouped:
    """Intercepts and slopes from a normal distribution with the covariance of the truth."""
    t = np.tile(np.linspace(-2, 2, n), (GROUPS, 1))
    sd, rho = np.exp(truth["log_sd"]), np.tanh(truth["atanh_rho"])
    covariance = np.outer(sd, sd) * np.array([[1, rho], [rho, 1]])
    u = random.multivariate_normal(np.zeros(2), covariance, GROUPS) + truth["b"]
    noise = np.exp(truth["log_sd_noise"]) * random.normal(size=t.shape)
    return mm.Grouped(jnp.asarray(u[:, :1] + u[:, 1:] * t + noise), jnp.asarray(t))


def simulate_binomial(truth: dict, random: np.random.Generator, n: int = 5) -> mm.Grouped:
    """Six trials each, with a covariate that varies within groups."""
    t = random.normal(size=(GROUPS, n))
    u = np.exp(truth["log_sd"]) * random.normal(size=(GROUPS, 1))
    eta = truth["b"][0] + truth["b"][1] * t + u
    y = random.binomial(mm.TRIALS, 1 / (1 + np.exp(-eta)))
    return mm.Grouped(jnp.asarray(y, float), jnp.asarray(t))


SETTINGS = {
    "slopes": Setting(
        mm.slopes_log_joint,
        mm.slopes_log_marginal,
        {
            "b": np.array([1.0, 0.5]),
            "log_sd": np.log([1.0, 0.8]),
            "atanh_rho": np.arctanh(0.3),
            "log_sd_noise": np.log(1.2),
        },
        mm.slopes_start(),
        jnp.zeros(2),
        simulate_slopes,
    ),
    "binomial": Setting(
        mm.binomial_log_joint,
        mm.binomial_log_marginal,
        {"b": np.array([0.5, -0.7]), "log_sd": np.log(1.0)},
        mm.counts_start(),
        jnp.zeros(()),
        simulate_binomial,
    ),
}


def check_truth(setting: Setting, datasets: Iterable[mm.Grouped]) -> float:
    """Asserts that the data come from the truth: the exact score there has mean zero.

    Returns:
        The largest mean of a coordinate, in its standard errors.
    """
    score = jax.jit(jax.grad(setting.log_marginal))
    truth = jax.tree.map(jnp.asarray, setting.truth)
    scores = np.array([ravel_pytree(score(truth, data))[0] for data in datasets])
    z = scores.mean(axis=0) / (scores.std(axis=0, ddof=1) / len(scores) ** 0.5)
    worst = float(np.max(np.abs(z)))
    assert worst < 4.5, f"The score at what is called the truth has mean {z} standard errors."
    return worst


class Outcome(NamedTuple):
    """One data set: errors, standard errors, which intervals hold the truth, warnings."""

    names: tuple[str, ...]
    errors: np.ndarray
    standard_errors: np.ndarray
    covered: np.ndarray
    warnings: tuple[str, ...]
    seconds: float


def written(setting: Setting) -> np.ndarray:
    """The truth in the order of tables, which is that of the start."""
    return np.concatenate([np.ravel(setting.truth[name]) for name in setting.start])


def simulated(name: str, seed: int) -> mm.Grouped:
    """A data set."""
    setting = SETTINGS[name]
    return setting.simulate(setting.truth, np.random.default_rng(seed))


def fit_one(name: str, seed: int) -> Outcome:
    """Simulates and fits one data set."""
    setting = SETTINGS[name]
    truth = written(setting)
    problem = mx.Problem.grouped(
        one_group(setting.log_joint),
        simulated(name, seed),
        theta=setting.start,
        latent=setting.latent,
    )
    began = time.perf_counter()
    fit = mx.fit(
        problem, key=jax.random.key(seed), num_starts=1, draw_posterior=False, progress=False
    )
    seconds = time.perf_counter() - began
    low, high = fit.confidence_intervals(LEVEL).T
    return Outcome(
        fit.names,
        np.asarray(fit.estimates - truth),
        fit.standard_errors,
        np.asarray((low <= truth) & (truth <= high)),
        fit.warnings,
        seconds,
    )


def measure(name: str, datasets: int, first: int, pool: ProcessPoolExecutor) -> list[dict]:
    """Fits all data sets of one model; a row for every parameter."""
    worst = check_truth(SETTINGS[name], (simulated(name, seed) for seed in range(10_000, 10_500)))
    print(f"{name}: the score at the truth is zero within {worst:.1f} standard errors", flush=True)
    found: list[Outcome] = []
    for outcome in pool.map(partial(fit_one, name), range(first, first + datasets)):
        for warning in outcome.warnings:
            print(f"{name}, data set {first + len(found)}: {warning}", flush=True)
        found.append(outcome)
        if len(found) % 10 == 0:
            share = ", ".join(f"{x:.2f}" for x in np.mean([o.covered for o in found], axis=0))
            print(f"{name}: {len(found)} data sets, coverage {share}", flush=True)
    shares = np.mean([o.covered for o in found], axis=0)
    bias = np.mean([o.errors for o in found], axis=0)
    typical = np.median([o.standard_errors for o in found], axis=0)
    truth = written(SETTINGS[name])
    return [
        {
            "model": name,
            "parameter": parameter,
            "truth": float(truth[i]),
            "coverage": float(shares[i]),
            "standard_error": float(np.sqrt(shares[i] * (1 - shares[i]) / datasets)),
            "bias": float(bias[i] / typical[i]),
            "datasets": datasets,
            "with_warnings": sum(bool(o.warnings) for o in found),
            "seconds_per_fit": float(np.mean([o.seconds for o in found])),
        }
        for i, parameter in enumerate(found[0].names)
    ]


def prepare(folder: str) -> None:
    """In every process: fits trace anew, but a cache on disk finds what is compiled.

    A new problem has new functions; the data are arguments of the compiled programs, which are
    therefore the same.
    """
    # One core each: the threads of many processes would be in each other's way.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def main(datasets: int, first: int, models: list[str], files: str, processes: int) -> None:
    """All models; the files are written anew after each."""
    rows: list[dict] = []
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(processes, spawn, prepare, (folder,)) as pool,
    ):
        for name in models:
            rows += measure(name, datasets, first, pool)
            save(files, WORDS, rows, COLUMNS)
    print(markdown(rows, COLUMNS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--models", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--first", type=int, default=0, help="seed of the first data set")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--files", default="coverage", help="name of the files written")
    main(**vars(parser.parse_args()))

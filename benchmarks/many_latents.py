"""Very many dependent latents: fits of crossed effects, series and fields beside exact answers.

Every fit is made in a process of its own, with an empty cache of compiled programs and then with a
full one. `python -m benchmarks.many_latents crossed volatility binary field chain` runs some.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
import numpy as np

import marginax as mx
from benchmarks import many_latents_models as models
from benchmarks.tables import save

SEEDS = {"crossed": (0, 1), "volatility": (0, 1, 2, 3, 4), "binary": (0, 1), "field": (0,)}
ORACLES = {
    "crossed": models.crossed_log_likelihood,
    "volatility": models.volatility_log_likelihood,
}
THETA = np.array([2.0, -1.0, np.log(0.3)])  # of the chains
CHAINS = (1_000, 10_000, 100_000)


def one(name: str, seed: int) -> dict[str, Any]:
    """One fit, with what it says of itself."""
    problem = getattr(models, name)(seed)
    began = time.perf_counter()
    fit = mx.fit(problem, progress=False)
    seconds = time.perf_counter() - began
    likelihood: Any = fit.likelihood
    end = np.concatenate([np.ravel(leaf[fit.start]) for leaf in jax.tree.leaves(fit.run.theta)])
    information = np.asarray(fit.information)
    away = (end - fit.unconstrained_theta) @ information @ (end - fit.unconstrained_theta)
    return {
        "name": name,
        "seed": seed,
        "seconds": seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "theta": fit.unconstrained_theta.tolist(),
        "information": information.tolist(),
        "value": fit.log_likelihood,
        "error": likelihood.error,
        "laplace": getattr(likelihood, "laplace", None),
        "effective": getattr(likelihood, "effective_draws", None),
        "structure": getattr(likelihood, "structure", likelihood.method),
        "particles": float(np.sqrt(away)),
        "ok": fit.ok,
    }


def in_a_process(name: str, seed: int, cache: str) -> dict[str, Any]:
    """The same in a process of its own; with the whole time, imports included."""
    began = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.many_latents", "--one", name, str(seed)],
        env={**os.environ, "MARGINAX_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    whole = time.perf_counter() - began
    return json.loads(told.stdout.strip().splitlines()[-1]) | {"whole": whole}


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """With what the oracle says: of the value, and how far its own score would move theta."""
    name, seed = row["name"], row["seed"]
    problem, theta = getattr(models, name)(seed), np.array(row["theta"])
    information = np.array(row["information"])
    if name == "binary":
        exact, error = models.binary_log_likelihood(problem, theta)
        return row | {"exact": exact, "exact_error": error}
    if name not in ORACLES:
        return row

    def value(at: np.ndarray) -> float:
        return ORACLES[name](problem, at)

    steps = 0.05 / np.sqrt(np.diag(information))
    score = [(value(theta + m) - value(theta - m)) / (2 * np.max(m)) for m in np.diag(steps)]
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    move = np.abs(np.linalg.solve(information, score)) / errors
    return row | {"exact": value(theta), "move": float(move.max())}


def fits(names: list[str]) -> None:
    """Writes `results/many_latents.md`."""
    rows: list[dict] = []
    for name in names:
        for seed in SEEDS[name]:
            with tempfile.TemporaryDirectory() as cache:
                cold = in_a_process(name, seed, cache)
                warm = in_a_process(name, seed, cache)
            rows.append(judged(warm | {"cold": cold["whole"], "cold_memory": cold["memory"]}))
            print(rows[-1], flush=True)
            write(rows)


def write(rows: list[dict]) -> None:
    """The table so far."""

    def off(row: dict, key: str) -> str:
        return f"{row[key] - row['exact']:+.4f}" if row.get(key) and "exact" in row else ""

    columns = {
        "model": lambda row: f"{row['name']} {row['seed']}",
        "structure": lambda row: row["structure"],
        "log likelihood": lambda row: f"{row['value']:.3f}",
        "stated error": lambda row: f"{row['error']:.4f}",
        "off": lambda row: off(row, "value"),
        "Laplace off": lambda row: off(row, "laplace"),
        "estimate off, SE": lambda row: f"{row['move']:.4f}" if "move" in row else "",
        "particles off, SE": lambda row: f"{row['particles']:.3f}",
        "process, cold / warm, s": lambda row: f"{row['cold']:.1f} / {row['whole']:.1f}",
        "fit, warm, s": lambda row: f"{row['seconds']:.1f}",
        "memory, GB": lambda row: f"{max(row['memory'], row['cold_memory']) / 1e9:.2f}",
        "ok": lambda row: "yes" if row["ok"] else "no",
    }
    words = (
        "# Very many dependent latents\n\n`python -m benchmarks.many_latents`: fits in processes "
        "of their own, cold with an empty cache of compiled programs. *Off* is against an oracle "
        "that shares no code: SciPy's sparse LU (crossed), the filter on a grid (volatility), "
        "importance sampling with 10^6 draws of a t distribution (binary). The estimate "
        "is off by how far the oracle's own score would move it."
    )
    save("many_latents", words, rows, columns)


def chains() -> None:
    """Writes `results/long_chains.md`: what one evaluation and one step of particles cost."""
    from marginax.likelihood.structured import structured_likelihood

    jax.config.update("jax_enable_x64", True)
    rows: list[dict] = []
    for length in CHAINS:
        problem = models.volatility(0, length)
        began = time.perf_counter()
        structure = mx.structure_of(problem)
        found = time.perf_counter() - began
        function: Any = structured_likelihood(problem, THETA)
        known = function.evaluate(THETA, function.start).extra
        moves = iter(1e-3 * np.arange(1, 9))  # its last answer is kept
        evaluate = best(
            lambda f=function, k=known, m=moves: f.evaluate(THETA + next(m), k).gradient
        )
        method = mx.tuning_free(problem.unconstrained_log_joint, structure=structure)
        x = jax.random.normal(jax.random.key(0), (20, length))
        state = method.init(jax.random.key(0), problem.start_theta(), x)
        step = jax.jit(method.step)
        moved = best(lambda s=step, at=state, y=problem.data: s(jax.random.key(0), at, y))
        rows.append({"n": length, "found": found, "evaluate": evaluate, "step": moved})
        print(rows[-1], flush=True)
    columns = {
        "latents": lambda row: f"{row['n']:,}",
        "structure found, s": lambda row: f"{row['found']:.2f}",
        "an evaluation of Laplace's, ms": lambda row: f"{1e3 * row['evaluate']:.1f}",
        "microseconds a latent": lambda row: f"{1e6 * row['evaluate'] / row['n']:.2f}",
        "a step of 20 particles, ms": lambda row: f"{1e3 * row['step']:.1f}",
        "microseconds of a step a latent": lambda row: f"{1e6 * row['step'] / row['n']:.2f}",
    }
    words = (
        "# Long chains\n\n`python -m benchmarks.many_latents chain`: stochastic volatility, value, "
        "gradient and mode of Laplace's approximation at a new theta; and one step of M-SVGD-EM in "
        "the units of the whole curvature."
    )
    save("long_chains", words, rows, columns)


def best(function: Any, repeats: int = 3) -> float:
    """The shortest of some calls after the first, each at the same place."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(function()))
        times.append(time.perf_counter() - began)
    return min(times[1:])


if __name__ == "__main__":
    if "--one" in sys.argv:
        print(json.dumps(one(sys.argv[2], int(sys.argv[3]))))
    else:
        asked = sys.argv[1:] or [*SEEDS, "chain"]
        if [name for name in asked if name != "chain"]:
            fits([name for name in asked if name != "chain"])
        if "chain" in asked:
            chains()

"""Time until theta is, and stays, within a tenth of a standard error of the exact maximum.

    python -m benchmarks.time_to_accuracy

Models with exact answers; every method gets the same density (asserted) and the same start. The
second run of a method uses the programs that the first has compiled.
"""

import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import marginax as mx
from benchmarks import lme4, svi_models
from benchmarks.rivals import RIVALS, Start

__all__ = ["COLUMNS", "measure"]

ENOUGH = 0.1  # standard errors
SEED = 1


def intercept(seed: int) -> Any:
    """A linear model with a random intercept, whose likelihood has a closed form."""
    import fit_models

    ours, theta = mx.models.RandomIntercept, mx.models.RandomInterceptTheta
    truth = theta(jnp.asarray(1.0), jnp.asarray(-0.2), jnp.asarray(0.1))
    y = ours.simulate(jax.random.key(seed), truth, 40, 5)
    problem = mx.Problem.grouped(
        lambda t, x, y: ours.log_joint(theta(**t), x[None], y[None]),
        y,
        theta={"mean": 0.0, "log_sd_between": 0.0, "log_sd_within": 0.0},
        latent=0.0,
    )
    return fit_models.Case(problem, lambda t: ours.log_marginal(theta(**t), y))


def intercept_in_numpyro(y: Any, start: dict) -> None:
    """The same for NumPyro."""
    theta = {name: numpyro.param(name, value) for name, value in start.items()}
    with numpyro.plate("groups", y.shape[0], dim=-2):
        x = numpyro.sample("x", dist.Normal(theta["mean"], jnp.exp(theta["log_sd_between"])))
        with numpyro.plate("within", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(x, jnp.exp(theta["log_sd_within"])), obs=y)


def clock(start: Start, exact: Any) -> dict:
    """Runs to the end; when theta came to stay, and where it ended."""
    began, trace = time.perf_counter(), []
    for theta in start():
        theta = np.asarray(jax.block_until_ready(theta))
        trace.append((time.perf_counter() - began, theta))
    errors = [np.max(np.abs(t - exact.theta) / exact.standard_errors) for _, t in trace]
    inside = [not error > ENOUGH and np.isfinite(error) for error in errors]
    stays = next((i for i in range(len(inside)) if all(inside[i:])), None)
    return {
        "seconds": None if stays is None else trace[stays][0],
        "budget": trace[-1][0],
        "error": float(errors[-1]),
    }


def measure() -> list[dict]:
    """A row per model and method."""
    jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    import fit_models

    svi_models.MODELS["intercept"] = intercept_in_numpyro
    cases = {"intercept": intercept, "poisson": fit_models.CASES["poisson"]}
    rows = []
    for name, make in cases.items():
        case, key = make(SEED), jax.random.key(SEED)
        svi_models.check_density(name, case.problem, key)
        exact = fit_models.exact(case)
        for method, rival in RIVALS.items():
            jax.clear_caches()  # everyone compiles everything
            start = rival(case.problem, svi_models.MODELS[name], key)
            with_compilation, without = clock(start, exact), clock(start, exact)
            rows.append(
                {"model": name, "method": method, "first": with_compilation, "second": without}
            )
            print(f"  {_words(rows[-1])}", flush=True)  # its ratio comes at the end
        rows += lme4.rows(name, case.problem.data, exact)
    add_ratios(rows)
    return rows


def _words(row: dict) -> str:
    return "   ".join(f"{head}: {cell(row)}" for head, cell in COLUMNS.items())


def _seconds(which: str) -> Any:
    def cell(row: dict) -> str:
        found = row[which]
        if found["seconds"] is None:
            return f"never in {found['budget']:.1f}"
        return f"{found['seconds']:.2f}"

    return cell


def _times(row: dict, which: str) -> str:
    """As a ratio to `fit` on the same model, if it came to stay."""
    ratio = row[which].get("times_fit")
    return "–" if ratio is None else f"{ratio:.3g}"


def add_ratios(rows: list[dict]) -> None:
    """To each row, its seconds over those of `fit` on the same model."""
    fits = {row["model"]: row for row in rows if row["method"] == "mx.fit"}
    for row in rows:
        for which in ("first", "second"):
            mine, its = row[which]["seconds"], fits[row["model"]][which]["seconds"]
            row[which]["times_fit"] = None if None in (mine, its) else mine / its


COLUMNS = {
    "model": lambda row: row["model"],
    "method": lambda row: row["method"],
    "seconds": _seconds("first"),
    "× fit's": lambda row: _times(row, "first"),
    "second run": _seconds("second"),
    "× fit's second": lambda row: _times(row, "second"),
    "error at the end": lambda row: f"{row['second']['error']:.1e}",
}


if __name__ == "__main__":
    measure()

"""`mx.fit` beside NumPyro's stochastic variational inference, on models with exact answers.

    python -m benchmarks.fit_beside_svi [--models slopes poisson] [--seeds 1]

Both get the same data, the same density (asserted first) and the same start of theta, in float64.
The variational methods are what NumPyro offers without further thought: `AutoNormal` and
`AutoMultivariateNormal`, theta as `numpyro.param` sites, Adam with a step of 0.01. Where a choice
was open it was made in their favour: they are also judged by the mean of theta over a further tenth
of the steps, which takes out Adam's noise and is not in their time, nor is their final ELBO.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

import marginax as mx
from benchmarks.svi_models import MODELS, check_density
from benchmarks.tables import markdown, save

# Before the import below, because the oracles' grids are made on import and must be float64.
jax.config.update("jax_enable_x64", True)
# The problems and their oracles live with the tests that hold `fit` to them.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import fit_models  # noqa: E402

GUIDES = {"AutoNormal": AutoNormal, "AutoMultivariateNormal": AutoMultivariateNormal}
STEPS = (5_000, 20_000)
LEARNING_RATE = 0.01
ELBO_DRAWS = 1_000

WORDS = f"""`python -m benchmarks.fit_beside_svi`: errors against exact maximum likelihood.

Errors of θ are in exact standard errors, the largest of all coordinates; for SVI at the last step,
and as the mean over a further tenth of the steps. The standard errors' error is relative, the
largest. The log likelihood's error is that of what a method reports for it, `fit`'s value or SVI's
ELBO ({ELBO_DRAWS:,} draws), against the exact maximum. Times are wall times with compilation, one
run each; SVI's are without the further tenth and without the final ELBO."""


def dash(form: str, key: str) -> Any:
    """Writes an entry of a row, or a dash where the method gives none."""
    return lambda row: "–" if row[key] is None else format(row[key], form)


COLUMNS = {
    "model": lambda row: row["model"],
    "method": lambda row: row["method"],
    "error of θ": dash(".1e", "theta_error"),
    "of its mean": dash(".1e", "mean_theta_error"),
    "error of standard errors": dash(".1e", "se_error"),
    "error of log likelihood": dash("+.1e", "likelihood_error"),
    "seconds": dash(".1f", "seconds"),
    "time / fit's": dash(".2f", "time_ratio"),
    "warnings": lambda row: str(len(row["warnings"])) if row["method"] == "mx.fit" else "–",
}


def by_fit(problem: mx.Problem, exact: fit_models.Exact, key: jax.Array) -> dict:
    """One row, without names and ratio."""
    jax.clear_caches()  # everyone compiles everything
    began = time.perf_counter()
    fit = mx.fit(problem, key=key, progress=False)
    seconds = time.perf_counter() - began
    errors = np.sqrt(np.diag(fit.unconstrained_covariance))
    likelihood = fit.likelihood
    return {
        "theta_error": in_standard_errors(fit.unconstrained_theta, exact),
        "mean_theta_error": None,
        "se_error": float(np.max(np.abs(errors / exact.standard_errors - 1))),
        "likelihood_error": likelihood.log_likelihood - exact.log_likelihood,
        "likelihood_own_error": likelihood.error,
        "seconds": seconds,
        "stages": fit.timings,
        "warnings": fit.warnings,
    }


def by_svi(
    name: str, guide: str, steps: int, problem: mx.Problem, exact: fit_models.Exact, key: jax.Array
) -> dict:
    """The same for variational inference."""
    model, arguments = MODELS[name], (problem.data, problem.theta)
    keys = jax.random.split(key)
    jax.clear_caches()
    began = time.perf_counter()
    svi = SVI(model, GUIDES[guide](model), numpyro.optim.Adam(LEARNING_RATE), Trace_ELBO())
    ran = svi.run(keys[0], steps, *arguments, progress_bar=False)
    jax.block_until_ready(ran.params)
    seconds = time.perf_counter() - began

    def advance(carry: Any, _: None) -> Any:
        state, total = carry
        state, _ = svi.update(state, *arguments)
        return (state, jax.tree.map(jnp.add, total, svi.get_params(state))), None

    more = steps // 10
    zeros = jax.tree.map(jnp.zeros_like, ran.params)
    (_, total), _ = jax.lax.scan(advance, (ran.state, zeros), None, length=more)
    mean = jax.tree.map(lambda leaf: leaf / more, total)

    def negative_elbo(key: jax.Array) -> jax.Array:
        return svi.loss.loss(key, mean, model, svi.guide, *arguments)

    draws = -np.asarray(jax.lax.map(negative_elbo, jax.random.split(keys[1], ELBO_DRAWS)))
    theta, mean_theta = (
        ravel_pytree({name: params[name] for name in problem.theta})[0]
        for params in (ran.params, mean)
    )
    return {
        "theta_error": in_standard_errors(theta, exact),
        "mean_theta_error": in_standard_errors(mean_theta, exact),
        "se_error": None,
        "likelihood_error": float(np.mean(draws)) - exact.log_likelihood,
        "likelihood_own_error": float(np.std(draws)) / ELBO_DRAWS**0.5,
        "seconds": seconds,
        "warnings": (),
    }


def in_standard_errors(theta: Any, exact: fit_models.Exact) -> float:
    """The largest error of any coordinate."""
    return float(np.max(np.abs(np.asarray(theta) - exact.theta) / exact.standard_errors))


def main(models: list[str], seeds: list[int], files: str) -> None:
    """All models, seeds and methods; the files are written anew after every model."""
    rows: list[dict] = []
    for name in models:
        for seed in seeds:
            case, key = fit_models.CASES[name](seed), jax.random.key(seed)
            check_density(name, case.problem, key)
            exact = fit_models.exact(case)
            label = name if len(seeds) == 1 else f"{name}, seed {seed}"
            found = {"mx.fit": by_fit(case.problem, exact, key)}
            for guide in GUIDES:
                for steps in STEPS:
                    row = by_svi(name, guide, steps, case.problem, exact, key)
                    found[f"{guide}, {steps:,} steps"] = row
            for method, row in found.items():
                ratio = row["seconds"] / found["mx.fit"]["seconds"]
                rows.append(
                    {"model": label, "method": method, "seed": seed, "time_ratio": ratio, **row}
                )
                print(rows[-1], flush=True)
            settings = {"numpyro": numpyro.__version__, "learning_rate": LEARNING_RATE}
            save(files, WORDS, rows, COLUMNS, **settings)
    print(markdown(rows, COLUMNS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--files", default="fit_beside_svi", help="name of the files written")
    main(**vars(parser.parse_args()))

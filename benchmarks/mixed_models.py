"""Mixed models from formulas beside statsmodels and lme4: seconds and ratios, in one run.

    python -m benchmarks.mixed_models

Every tool runs in a fresh process, with its imports and the reading of its file. `cold` is marginax
with an empty cache of programs, `warm` the same command again. What is not installed is left out.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

RESULTS = Path(__file__).parent / "results" / "mixed_models.md"
SLEEP = Path(__file__).parents[1] / "examples" / "data" / "sleepstudy.csv"

OURS = """
import json, resource, sys, time
began = time.perf_counter()
import marginax as mx
import pandas as pd
formula, file, family = sys.argv[1:4]
fit = mx.mixed(formula, pd.read_csv(file), family)
seconds = time.perf_counter() - began
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps({"seconds": seconds, "fit": fit.seconds, "value": fit.log_likelihood,
                  "ok": fit.ok, "memory": memory, "estimates": fit.estimates.tolist()}))
"""
STATSMODELS = """
import json, sys, time, warnings
began = time.perf_counter()
warnings.simplefilter("ignore")
import pandas as pd
import statsmodels.formula.api as smf
fixed, random, group, file = sys.argv[1:5]
fit = smf.mixedlm(fixed, pd.read_csv(file), groups=group, re_formula=random).fit(reml=False)
print(json.dumps({"seconds": time.perf_counter() - began, "value": fit.llf}))
"""
LME4 = """
began <- proc.time()[["elapsed"]]
suppressMessages(library(lme4))
d <- read.csv("{file}")
m <- {call}
cat(proc.time()[["elapsed"]] - began, sprintf("%.4f", logLik(m)))
"""


def binary(folder):
    """300 groups of 1 to 7 rows, random intercepts with sd 4."""
    random = np.random.default_rng(0)
    g = np.repeat(np.arange(300), random.integers(1, 8, 300))
    x, b = random.normal(size=len(g)), 4 * random.normal(size=300)
    y = random.uniform(size=len(g)) < 1 / (1 + np.exp(-(0.5 + x + b[g])))
    return _saved(folder / "binary.csv", y=y.astype(int), x=x, g=g)


def crossed(folder):
    """3,000 x 1,100 crossed effects, 73,000 rows."""
    random = np.random.default_rng(0)
    s, d = random.integers(0, 3000, 73_000), random.integers(0, 1100, 73_000)
    x = random.normal(size=len(s))
    u, v = 0.33 * random.normal(size=3000), 0.52 * random.normal(size=1100)
    y = 3.3 - 0.1 * x + u[s] + v[d] + 1.18 * random.normal(size=len(s))
    return _saved(folder / "crossed.csv", y=y, x=x, s=s, d=d)


def million(folder):
    """A million rows in 100,000 groups, random intercepts and slopes."""
    random = np.random.default_rng(0)
    g, x = random.integers(0, 100_000, 1_000_000), random.normal(size=1_000_000)
    b = random.normal(size=(100_000, 2)) @ np.array([[1.0, 0.0], [0.3, 0.5]]).T
    y = 1 + 2 * x + b[g, 0] + b[g, 1] * x + random.normal(size=len(g))
    return _saved(folder / "million.csv", y=y, x=x, g=g)


def _saved(path, **columns):
    table = np.column_stack(list(columns.values()))
    whole = ["%d" if values.dtype.kind == "i" else "%.10g" for values in columns.values()]
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt=whole)
    return path


def exact_binary(path, estimates):
    """The log likelihood by the trapezium rule over 20,001 points of every group's effect."""
    table = np.genfromtxt(path, delimiter=",", names=True)
    intercept, slope, sd = estimates
    t = np.linspace(-14, 14, 20_001)
    prior = -0.5 * t**2 - 0.5 * np.log(2 * np.pi) + np.log(28 / 20_000)
    total = 0.0
    for k in np.unique(table["g"]):
        rows = table["g"] == k
        eta = intercept + slope * table["x"][rows][:, None] + sd * t[None]
        sign = np.where(table["y"][rows] > 0, -1.0, 1.0)[:, None]
        total += logsumexp(-np.logaddexp(0, sign * eta).sum(axis=0) + prior)
    return total


def _python(code, *words, cache=None):
    environment = dict(os.environ) | ({} if cache is None else {"MARGINAX_CACHE": str(cache)})
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
    )
    whole = time.perf_counter() - began
    if ran.returncode:
        print(ran.stderr.strip().splitlines()[-1:], flush=True)
        return None
    return json.loads(ran.stdout.strip().splitlines()[-1]) | {"process": whole}


def _lme4(file, call):
    if shutil.which("Rscript") is None:
        return None
    script = LME4.format(file=file, call=call)
    ran = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True)
    if ran.returncode:
        print(ran.stderr.strip().splitlines()[-1:], flush=True)
        return None
    seconds, value = map(float, ran.stdout.split()[-2:])
    return {"seconds": seconds, "value": value}


def cases(folder):
    """Name, file, our formula and family, statsmodels' words, lme4's call."""
    return [
        (
            "sleepstudy",
            SLEEP,
            ("Reaction ~ Days + (Days | Subject)", "gaussian"),
            ("Reaction ~ Days", "~ Days", "Subject"),
            "lmer(Reaction ~ Days + (Days | Subject), d, REML = FALSE)",
        ),
        (
            "binary, 300 groups, sd 4",
            binary(folder),
            ("y ~ x + (1 | g)", "binomial"),
            None,
            "glmer(y ~ x + (1 | g), d, binomial)",
        ),
        (
            "crossed, 3,000 x 1,100, 73,000 rows",
            crossed(folder),
            ("y ~ x + (1 | s) + (1 | d)", "gaussian"),
            None,
            "lmer(y ~ x + (1 | s) + (1 | d), d, REML = FALSE)",
        ),
        (
            "1,000,000 rows, 100,000 groups, slopes",
            million(folder),
            ("y ~ x + (x | g)", "gaussian"),
            None,
            "lmer(y ~ x + (x | g), d, REML = FALSE)",
        ),
    ]


def main():
    """Runs, prints and writes."""
    lines = [
        "| model | cold | warm | of which the fit | memory, GB | log likelihood | statsmodels | "
        "lme4 | statsmodels / warm | lme4 / warm |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    more = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, file, (formula, family), words, call in cases(folder):
            cache = folder / title.split(",")[0].replace(" ", "_")
            cold, warm = (_python(OURS, formula, file, family, cache=cache) for _ in range(2))
            other = None if words is None else _python(STATSMODELS, *words, file)
            lme4 = _lme4(file, call)
            row = [title, *(f"{one['process']:.1f} s" for one in (cold, warm))]
            row += [f"{warm['fit']:.1f} s", f"{warm['memory']:.2f}", f"{warm['value']:.3f}"]
            for one in (other, lme4):
                told = "" if one is None else f"{one['seconds']:.1f} s, {one['value']:.3f}"
                row.append(told or "–")
            for one in (other, lme4):
                row.append("–" if one is None else f"{one['seconds'] / warm['process']:.1f}")
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], flush=True)
            if family == "binomial":
                off = warm["value"] - exact_binary(file, warm["estimates"])
                more.append(
                    "The binary model's log likelihood differs from the trapezium rule over "
                    f"20,001 points by {off:+.1e}; {'CONVERGED' if warm['ok'] else 'warnings'}. "
                    "lme4's is Laplace's approximation."
                )
                print(more[-1], flush=True)
    head = (
        "# Mixed models from formulas\n\n`python -m benchmarks.mixed_models`, every tool in a fresh"
    )
    head += " process on two cores of one machine; seconds do not travel, ratios roughly.\n\n"
    RESULTS.write_text(head + "\n".join(lines) + "\n\n" + "\n".join(more) + "\n")


if __name__ == "__main__":
    main()

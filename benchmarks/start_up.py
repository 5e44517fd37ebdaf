"""The time to a first answer, from the start of a process: `python -m benchmarks.start_up`.

README's fit and the shell's starters, each in fresh processes: with an empty folder of compiled
programs (cold) and with what that left (warm). Times are also given in units of the time that
`import jax` and one small program take in the same round, so that they travel between machines.
Beside them NumPyro's SVI, lme4 and statsmodels on README's data, where they are installed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.tables import save

__all__ = ["measure"]

UNIT = "import jax; jax.jit(lambda x: x + 1)(1.0).block_until_ready()"
ROOT = Path(__file__).parents[1]
README = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[1]
DATA = README.split("problem =")[0]
# JAX says how long it traced, lowered and compiled; a program that is read counts as compiled.
WATCH = """
import atexit, collections, json, sys, time
began, spent = time.perf_counter(), collections.Counter()
import jax
spent["import jax"] = time.perf_counter() - began
EVENTS = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile or read",
}
def listen(event, duration, **_):
    kind = EVENTS.get(event.rsplit("/", 1)[-1])
    if kind:
        spent[kind] += duration
        spent["programs"] += kind == "lower"
jax.monitoring.register_event_duration_secs_listener(listen)
before = time.perf_counter()
import marginax
spent["import marginax"] = time.perf_counter() - before
def tell():
    print("STAGES", json.dumps(spent), file=sys.stderr)
atexit.register(tell)
"""
# Until all three parameters are within a tenth of a standard error of the maximum, which the
# analysis of variance knows for balanced groups.
SVI = (
    DATA
    + """
import jax, numpyro, numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

n = y.shape[1]
within = np.sqrt(y.var(axis=1, ddof=1).mean())
between = np.sqrt(y.mean(axis=1).var() - within**2 / n)
exact = np.array([y.mean(), np.log(between), np.log(within)])
spread = between**2 + within**2 / n
errors = np.array([
    np.sqrt(spread / len(y)),
    np.sqrt(spread**2 / (2 * len(y)) + within**4 / n**2 / (2 * len(y) * (n - 1))) / between**2,
    1 / np.sqrt(2 * len(y) * (n - 1)),
])

def model(y):
    mean = numpyro.param("mean", 0.0)
    sds = [numpyro.param(name, 1.0, constraint=dist.constraints.positive) for name in "bw"]
    with numpyro.plate("groups", len(y), dim=-2):
        x = numpyro.sample("x", dist.Normal(mean, sds[0]).expand([1]).to_event(0))
        with numpyro.plate("rows", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(x, sds[1]), obs=y)

svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO(10))
state = svi.init(jax.random.key(0), jnp.asarray(y))
step = lambda _, state: svi.update(state, jnp.asarray(y))[0]
some = jax.jit(lambda state: jax.lax.fori_loop(0, 100, step, state))
mean = None
for round in range(400):
    state = some(state)
    found = svi.get_params(state)
    theta = np.array([found["mean"], np.log(found["b"]), np.log(found["w"])])
    mean = theta if mean is None else 0.9 * mean + 0.1 * theta
    if np.all(np.abs(mean - exact) < 0.1 * errors):
        break
print(100 * (round + 1), mean, exact, (mean - exact) / errors)
"""
)
STATSMODELS = """
import numpy as np, statsmodels.api as sm
d = np.genfromtxt("{file}", delimiter=",", names=True)
print(sm.MixedLM(d["y"], np.ones(len(d)), d["g"]).fit(reml=False).params)
"""
LME4 = """
suppressMessages(library(lme4)); d <- read.csv("{file}"); d$g <- factor(d$g)
print(summary(lmer(y ~ 1 + (1 | g), d, REML = FALSE)))
"""
STARTERS = ("lmm", "glmm", "irt", "pk")
STAGES = ("import jax", "import marginax", "trace", "lower", "compile or read")
COLUMNS = {
    "what": lambda row: row["what"],
    "seconds": lambda row: f"{row['seconds']:.1f}",
    "in units": lambda row: f"{row['ratio']:.1f}",
    **{stage: lambda row, stage=stage: _cell(row["stages"].get(stage)) for stage in STAGES},
    "programs": lambda row: str(row["stages"].get("programs", "")),
}


def _cell(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


def _seconds(command: list[str], cache: Path | None = None, cwd: Path | None = None) -> dict:
    """Of a process from start to end, and what it says of its stages."""
    hidden = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["MARGINAX_CACHE"] = "off" if cache is None else str(cache)
    began = time.perf_counter()
    ran = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if ran.returncode not in (0, 3):  # 3: with warnings
        raise RuntimeError(f"{command} ended with {ran.returncode}: {ran.stderr[-2000:]}")
    said = [line for line in ran.stderr.splitlines() if line.startswith("STAGES ")]
    stages = json.loads(said[-1].removeprefix("STAGES ")) if said else {}
    return {"seconds": seconds, "stages": stages}


def _several(run: Callable[[], dict], repeats: int) -> dict:
    """The one with the median time."""
    ran = sorted((run() for _ in range(repeats)), key=lambda one: one["seconds"])
    return ran[len(ran) // 2]


def _cold_and_warm(
    name: str, command: list[str], repeats: int, cwd: Path | None = None
) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / str(i) for i in range(repeats)]
        left = iter(caches)
        cold = _several(lambda: _seconds(command, next(left), cwd), repeats)
        warm = _several(lambda: _seconds(command, caches[0], cwd), repeats)
    return [{"what": f"{name}, cold", **cold}, {"what": f"{name}, warm", **warm}]


def _beside(folder: Path, repeats: int) -> list[dict]:
    """lme4 and statsmodels on README's data, from the start of their processes."""
    file = folder / "readme.csv"
    table = DATA + (
        "rows = np.column_stack([np.ravel(y), np.repeat(np.arange(40), 5)])\n"
        f"np.savetxt({str(file)!r}, rows, delimiter=',', header='y,g', comments='')\n"
    )
    _seconds([sys.executable, "-c", table])
    commands = {
        "NumPyro's SVI to 0.1 standard errors": [sys.executable, "-c", SVI],
        "statsmodels": [sys.executable, "-c", STATSMODELS.format(file=file)],
    }
    if shutil.which("Rscript") is not None:
        commands["lme4"] = ["Rscript", "-e", LME4.format(file=file)]
    rows = []
    for name, command in commands.items():
        try:
            rows.append({"what": name, **_several(lambda c=command: _seconds(c), repeats)})
        except RuntimeError as error:
            print(f"{name} left out: {str(error).strip().splitlines()[-1]}")
    return rows


def measure(repeats: int = 3, starters: tuple[str, ...] = STARTERS) -> list[dict]:
    """All rows; the first is the unit."""
    units: list[float] = []

    def unit() -> dict:
        ran = _seconds([sys.executable, "-c", UNIT])
        units.append(ran["seconds"])
        return ran

    rows = [{"what": "`import jax` and a small program: the unit", **_several(unit, repeats)}]
    watched = [sys.executable, "-c", WATCH + README]
    rows += _cold_and_warm("README's fit", watched, repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in starters:
            _several(unit, 1)  # a machine may be busier by now
            shell = "from marginax.cli.app import app; app("
            new = [sys.executable, "-c", f"{shell}['new', '{kind}'])"]
            _seconds(new, cwd=folder)
            fit = f"{shell}['fit', '{kind}.py', '--data', '{kind}.csv', '--out', 'out-{kind}'])"
            command = [sys.executable, "-c", WATCH + fit]
            rows += _cold_and_warm(f"`marginax fit {kind}.py`", command, repeats, folder)
        rows += _beside(folder, repeats)
    for row in rows:
        row["ratio"] = row["seconds"] / median(units)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--starters", default=",".join(STARTERS))
    arguments = parser.parse_args()
    starters = tuple(kind for kind in arguments.starters.split(",") if kind)
    rows = measure(arguments.repeats, starters)
    words = (
        "Seconds from the start of a process to its end, the median of "
        f"{arguments.repeats} (`python -m benchmarks.start_up`). Stages overlap: what is traced "
        "within another trace counts twice."
    )
    save("start_up", words, rows, COLUMNS)
    for row in rows:
        print(" | ".join(cell(row) for cell in COLUMNS.values()))


if __name__ == "__main__":
    main()

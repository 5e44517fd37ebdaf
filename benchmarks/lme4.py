"""The same models by R's lme4, where R is installed: one process, its own clock."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["rows"]

# What each model is called in R, and its estimates in the order of the free theta.
FORMULAS = {
    "intercept": "lmer(y ~ 1 + (1 | g), d, REML = FALSE)",
    "poisson": "glmer(y ~ t + (1 | g), d, poisson, nAGQ = 25)",
}
SCRIPT = """
d <- read.csv("{file}"); d$g <- factor(d$g)
suppressMessages(library(lme4))
time <- system.time(m <- {call})[["elapsed"]]
again <- system.time(m <- {call})[["elapsed"]]
sds <- as.data.frame(VarCorr(m))$sdcor
cat(time, again, {estimates})
"""


def rows(name: str, data: Any, exact: Any) -> list[dict]:
    """One row, or none, with a line that says why."""
    if shutil.which("Rscript") is None:
        print("  lme4 left out: Rscript is not installed")
        return []
    y, t = (data.y, data.t) if hasattr(data, "t") else (data, np.zeros_like(data))
    groups = np.repeat(np.arange(len(y)), y.shape[1])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        table = np.column_stack([np.ravel(y), np.ravel(t), groups])
        np.savetxt(file, table, delimiter=",", header="y,t,g", comments="")
        estimates = "fixef(m), log(sds[1])" if name == "poisson" else "log(sds), fixef(m)"
        script = SCRIPT.format(file=file, call=FORMULAS[name], estimates=estimates)
        ran = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True)
    if ran.returncode:
        print(f"  lme4 left out: {ran.stderr.strip().splitlines()[-1:]}")
        return []
    first, second, *theta = map(float, ran.stdout.split())
    error = float(np.max(np.abs(np.array(theta) - exact.theta) / exact.standard_errors))
    ends = [
        {"seconds": seconds if error <= 0.1 else None, "budget": seconds, "error": error}
        for seconds in (first, second)
    ]
    return [{"model": name, "method": "lme4", "first": ends[0], "second": ends[1]}]

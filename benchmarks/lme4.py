"""The same models by R's lme4 and glmmTMB, where R is installed: one process, its own clock."""

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
IN_TMB = {"intercept": "gaussian()", "poisson": "poisson()"}
SCRIPT = """
d <- read.csv("{file}"); d$g <- factor(d$g)
suppressMessages(library({package}))
time <- system.time(m <- {call})[["elapsed"]]
again <- system.time(m <- {call})[["elapsed"]]
v <- as.data.frame(VarCorr(m){within}); sds <- {sds}
cat(time, again, {estimates})
"""


def rows(name: str, data: Any, exact: Any) -> list[dict]:
    """A row per package, or none, with a line that says why."""
    if shutil.which("Rscript") is None:
        print("  lme4 and glmmTMB left out: Rscript is not installed")
        return []
    y, t = (data.y, data.t) if hasattr(data, "t") else (data, np.zeros_like(data))
    groups = np.repeat(np.arange(len(y)), y.shape[1])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        table = np.column_stack([np.ravel(y), np.ravel(t), groups])
        np.savetxt(file, table, delimiter=",", header="y,t,g", comments="")
        fixed = "fixef(m)" if name == "poisson" else ""
        calls = {"lme4": FORMULAS[name]}
        for package, call in calls.items():
            estimates = f"{fixed}, log(sds[1])" if fixed else "log(sds), fixef(m)"
            script = SCRIPT.format(
                file=file, package=package, call=call, within="", sds="v$sdcor", estimates=estimates
            )
            ran = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True)
            if ran.returncode:
                print(f"  {package} left out: {ran.stderr.strip().splitlines()[-1:]}")
                continue
            first, second, *theta = map(float, ran.stdout.split())
            error = float(np.max(np.abs(np.array(theta) - exact.theta) / exact.standard_errors))
            ends = [
                {"seconds": s if error <= 0.1 else None, "budget": s, "error": error}
                for s in (first, second)
            ]
            found.append({"model": name, "method": package, "first": ends[0], "second": ends[1]})
    return found

"""How a step grows with many particles and many groups: `python -m benchmarks.growth`.

Time against N must be c N^2 (joint RBF) and against G linear (the algorithm that `fit` chooses).
"""

import argparse

import jax
import numpy as np

from benchmarks.scaling import fit_step, joint_step
from benchmarks.timing import interleaved

__all__ = ["deviations", "measure"]

PARTICLES = (2000, 5000, 10_000, 20_000, 50_000)
TURNS = 4
GROUPS = (1000, 10_000, 100_000, 1_000_000)


def deviations(sizes: list[int], times: list[float], power: int) -> tuple[float, list[float]]:
    """The log-log slope, and how far each time is from c size^power (least squares of logs)."""
    logs, log_times = np.log(sizes), np.log(times)
    slope = float(np.polyfit(logs, log_times, 1)[0])
    off = log_times - power * logs
    return slope, [float(value) for value in np.exp(off - np.mean(off)) - 1]


def measure(axis: str, sizes: tuple[int, ...], dtype: str) -> list[dict]:
    """A row per size; all sizes in turns, because other work changes the machine's speed."""
    make, power = {"particles": (joint_step, 2), "groups": (fit_step, 1)}[axis]
    steps = {size: make(size) for size in sizes}
    best = interleaved({str(size): call for size, (call, _) in steps.items()}, TURNS)
    rows: list[dict] = []
    for size, (_, memory) in steps.items():
        found = best[str(size)]
        rows.append({"axis": axis, "dtype": dtype, "size": size, "seconds": found, "bytes": memory})
        shown = f"{found:9.4f} s   {1e9 * found / size**power:9.3f} ns   {memory / 1e6:9.1f} MB"
        print(f"  {axis} {dtype} {size:>9,}   {shown}", flush=True)
    slope, off = deviations(list(sizes), [row["seconds"] for row in rows], power)
    for row, value in zip(rows, off, strict=True):
        row.update(slope=slope, deviation=value)
    print(f"  slope {slope:.3f}, off c size^{power} by {', '.join(f'{v:+.0%}' for v in off)}")
    return rows


def main(dtypes: tuple[str, ...] = ("float32", "float64")) -> list[dict]:
    """Both axes in both precisions."""
    rows = []
    for dtype in dtypes:
        with jax.enable_x64(dtype == "float64"):
            rows += measure("groups", GROUPS, dtype)
            if dtype == "float32":
                rows += measure("particles", PARTICLES, dtype)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    main(tuple(parser.parse_args().dtypes))

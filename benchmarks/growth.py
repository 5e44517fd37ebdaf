"""How a step grows with many particles and many groups: `python -m benchmarks.growth`.

Time against N must be c N^2 (joint RBF) and against G linear (the algorithm that `fit` chooses).
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import numpy as np

from benchmarks.scaling import fit_step, joint_step
from benchmarks.timing import seconds

__all__ = ["deviations", "measure"]

# How to make a step, the power of its law, and the sizes.
AXES = {
    "particles": (joint_step, 2, (2000, 5000, 10_000, 20_000, 50_000)),
    "groups": (fit_step, 1, (1000, 10_000, 100_000, 1_000_000)),
}
PARTS = (("particles", "float32"), ("groups", "float32"), ("groups", "float64"))
TURNS, SECONDS_A_TURN = 5, 3.0


def deviations(sizes: list[int], times: list[float], power: int) -> tuple[float, list[float]]:
    """The log-log slope, and how far each time is from c size^power (least squares of logs)."""
    logs, log_times = np.log(sizes), np.log(times)
    slope = float(np.polyfit(logs, log_times, 1)[0])
    off = log_times - power * logs
    return slope, [float(value) for value in np.exp(off - np.mean(off)) - 1]


def measure(axis: str, dtype: str) -> list[dict]:
    """A row per size; all sizes in turns, because other work changes the machine's speed."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    make, power, sizes = AXES[axis]
    steps = {size: make(size) for size in sizes}
    best = dict.fromkeys(sizes, float("inf"))
    for turn in range(1 + TURNS):
        for size, (call, _) in steps.items():
            # The mean over a turn: the best of many short steps would be compared with that of a
            # few long ones.
            spent, calls = seconds(call), 1
            while spent < SECONDS_A_TURN:
                spent, calls = spent + seconds(call), calls + 1
            best[size] = min(best[size], spent / calls) if turn else best[size]
    rows: list[dict] = []
    for size, (_, memory) in steps.items():
        found = best[size]
        rows.append({"axis": axis, "dtype": dtype, "size": size, "seconds": found, "bytes": memory})
        shown = f"{found:9.4f} s   {1e9 * found / size**power:9.3f} ns   {memory / 1e6:9.1f} MB"
        print(f"  {axis} {dtype} {size:>9,}   {shown}", flush=True)
    slope, off = deviations(list(sizes), list(best.values()), power)
    for row, value in zip(rows, off, strict=True):
        row.update(slope=slope, deviation=value)
    print(f"  slope {slope:.3f}, off c size^{power} by {', '.join(f'{v:+.0%}' for v in off)}")
    return rows


def main() -> list[dict]:
    """Each part in a process of its own: after others in one process, times were up to tripled."""
    rows = []
    for part in PARTS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            rows += alone.submit(measure, *part).result()
    return rows


if __name__ == "__main__":
    main()

"""Which programs one `fit` compiles, and how long each takes: `python -m benchmarks.compilations`.

The first fit of a process, a second of other data with the same function, and a third that repeats
the second. Every table ends with how many there were.
"""

import logging
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

import marginax as mx
from benchmarks.tables import markdown

__all__ = ["count", "measure"]

EVENT = "/jax/core/compile/backend_compile_duration"
COLUMNS = {
    "fit": lambda row: row["fit"],
    "program": lambda row: f"`{row['program']}`",
    "times compiled": lambda row: str(row["count"]),
    "seconds": lambda row: f"{row['seconds']:.2f}",
}


class _Names(logging.Handler):
    """Remembers what JAX says it compiles; a message comes before its duration."""

    def __init__(self) -> None:
        super().__init__()
        self.current = "?"

    def emit(self, record: logging.LogRecord) -> None:
        found = re.match(r"Compiling (\S+)", record.getMessage())
        if found:
            self.current = found[1]


def count(function: Any) -> tuple[list[tuple[str, float]], float]:
    """The name and the seconds of every program compiled in a call, and the call's own time."""
    compiled: list[tuple[str, float]] = []
    names, active = _Names(), [True]
    log = logging.getLogger("jax._src.interpreters.pxla")

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == EVENT and active[0]:
            compiled.append((names.current, duration))

    jax.monitoring.register_event_duration_secs_listener(listen)
    level, propagate = log.level, log.propagate
    log.addHandler(names)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    began = time.perf_counter()
    try:
        function()
    finally:
        active[0] = False
        log.removeHandler(names)
        log.setLevel(level)
        log.propagate = propagate
    return compiled, time.perf_counter() - began


def _problem(seed: int) -> mx.Problem:
    groups, noise = jax.random.split(jax.random.key(seed))
    rate = jnp.exp(0.7 * jax.random.normal(groups, (30, 1)))
    y = jax.random.poisson(noise, rate, (30, 5)).astype(float)
    return mx.Problem.grouped(_log_joint, y, theta={"mean": 0.0, "log_sd": 0.0}, latent=0.0)


def _log_joint(theta: Any, x: Any, y: Any) -> Any:
    prior = norm.logpdf(x, theta["mean"], jnp.exp(theta["log_sd"]))
    return prior + jnp.sum(y * x - jnp.exp(x))


def measure() -> list[dict]:
    """A row per fit and program, the longest first."""
    fits = {"first": _problem(0), "other data": _problem(1)}
    fits["the same again"] = fits["other data"]
    rows = []
    for name, problem in fits.items():
        compiled, seconds = count(
            lambda problem=problem: mx.fit(problem, key=jax.random.key(0), progress=False)
        )
        total: dict[str, list[float]] = {}
        for program, duration in compiled:
            total.setdefault(program, []).append(duration)
        by_time = sorted(total.items(), key=lambda item: -sum(item[1]))
        rows += [
            {"fit": name, "program": program, "count": len(times), "seconds": sum(times)}
            for program, times in by_time
        ]
        spent = sum(duration for _, duration in compiled)
        print(f"  {name}: {len(compiled)} compilations, {spent:.1f} s of the fit's {seconds:.1f} s")
    return rows


if __name__ == "__main__":
    print(markdown(measure(), COLUMNS))

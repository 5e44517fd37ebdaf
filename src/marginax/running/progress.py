"""What a person sees and does while a run goes on: stages, a bar, reports, and Ctrl-C."""

import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from marginax._core.processes import is_first

__all__ = ["Report", "ctrl_c_noticed", "progress_bar", "show", "stage"]


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a notebook without ipywidgets: a bar of text will do
    from tqdm.auto import tqdm


class Report(NamedTuple):
    """What a callback is given after every block, in plain host numbers.

    Attributes:
        num_steps: steps taken so far (of the start that took most).
        seconds: wall time so far.
        theta: mean of theta over the block (without noise, its last value), flattened, a row per
            start.
        velocity: root mean square velocity of the cloud, per start (0 for stochastic methods).
        theta_score: largest absolute theta score at the end of the block, per start.
        factor: what the steps are multiplied by after backtracking, per start.
        statuses: "running", or how the start ended.
    """

    num_steps: int
    seconds: float
    theta: np.ndarray
    velocity: np.ndarray
    theta_score: np.ndarray
    factor: np.ndarray
    statuses: tuple[str, ...]


def progress_bar(progress: bool | None, max_steps: int, num_steps: int) -> Any:
    """A bar over steps: shown if asked, hidden if not wanted, and by default only on a terminal."""
    hidden = None if progress is None else not progress  # None: tqdm looks for a terminal
    hidden = hidden if is_first() else True  # one bar, however many processes
    return tqdm(total=max_steps, initial=num_steps, unit="step", disable=hidden, leave=True)


@contextmanager
def stage(
    progress: bool | None, words: str, timings: dict[str, float], name: str
) -> Iterator[None]:
    """A line that says what is going on and then how long it took, where a bar would be shown.

    Args:
        progress: as for `progress_bar`.
        words: what is going on; empty where a bar says it.
        timings: where the seconds are noted.
        name: under this name.
    """
    shown = words and (sys.stderr.isatty() if progress is None else progress) and is_first()
    began = time.perf_counter()
    if shown:
        print(f"{words} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        timings[name] = time.perf_counter() - began
        if shown:
            print(f" {timings[name]:.1f} s", file=sys.stderr, flush=True)


def show(bar: Any, report: Report) -> None:
    """Moves the bar and writes theta, velocity and status behind it."""
    bar.update(report.num_steps - bar.n)
    if bar.disable:
        return
    theta = np.atleast_1d(report.theta)[0].ravel()
    words = ", ".join(f"{v:.4g}" for v in theta[:3]) + (", ..." if theta.size > 3 else "")
    notes = {"theta": words}
    if np.any(report.velocity):
        notes["velocity"] = f"{np.max(report.velocity):.1e}"
    if np.any(report.factor < 1):
        notes["step"] = f"x{np.min(report.factor):g}"
    ended = [status for status in report.statuses if status != "running"]
    if ended:
        notes["status"] = ended[0] if len(report.statuses) == 1 else f"{len(ended)} ended"
    bar.set_postfix(notes, refresh=False)


@contextmanager
def ctrl_c_noticed(at_once: bool = True) -> Iterator[list[int]]:
    """A list that Ctrl-C adds to, beside raising KeyboardInterrupt as always.

    Python throws an exception away that is raised in a callback of the garbage collector or in a
    finaliser, and JAX has such callbacks. A long loop looks at the list once in a while.

    Args:
        at_once: raise; without it Ctrl-C only adds to the list, for loops that several processes
            must leave together.
    """
    pressed: list[int] = []

    def handler(number: int, frame: object) -> None:
        pressed.append(number)
        if at_once:
            raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    # Whoever has a handler of their own (a notebook server, a test) keeps it.
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

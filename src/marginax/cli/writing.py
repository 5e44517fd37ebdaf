"""The files of a fit, each written whole or not at all, and what had to be left out."""

import base64
import contextlib
import errno
import importlib
import io
import json
import math
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marginax._core.files import write_atomically
from marginax.cli.messages import one_line
from marginax.cli.page import Panel, page
from marginax.fitting.result import Fit
from marginax.interop.arviz import write_netcdf
from marginax.interop.drawing import parts_of

__all__ = [
    "check_writable",
    "import_ahead",
    "summary_of",
    "write_figure",
    "write_results",
    "write_whole",
]

DOTS = 150  # of the figure, per inch
PACKED = {"compress_level": 3}  # quickly; pictures of lines are small anyway


def check_writable(folder: Path) -> None:
    """Refuses a folder that results could not be written to, before any time is spent."""
    here = folder.absolute()
    while not here.exists():
        here = here.parent
    try:
        with tempfile.TemporaryFile(dir=here):  # to root everything looks writable
            pass
    except OSError as error:
        raise OSError(
            error.errno,
            f"Cannot write to {folder}: {here}: {error.strerror}. Choose another place with --out.",
        ) from None


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file whole or not at all, and says what to do where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise OSError(
            error.errno or errno.EIO,
            f"Cannot write {path}: {reason}. Free some space, or choose another place with --out.",
        ) from error


def import_ahead() -> None:
    """Starts to import what drawing and writing need, while something else computes."""

    def work() -> None:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "h5netcdf"):
            with contextlib.suppress(Exception):  # said where it is missed
                importlib.import_module(name)

    threading.Thread(target=work, name="marginax imports ahead").start()


def write_results(
    fit: Fit,
    about: Mapping[str, Any],
    out: Path,
    say: Callable[[], None] = lambda: None,
    draw: Callable[[], Any] | None = None,
) -> list[str]:
    """Writes everything there is to a folder.

    Args:
        fit: the result.
        about: what was fitted to what, with which versions.
        out: the folder.
        say: called as soon as the fit itself is written, which no table or drawing can then lose.
        draw: makes the figure; `fit.plot` by default.

    Returns:
        Sentences about what could not be written.
    """
    write_whole(out / "fit.npz", fit.save)
    say()
    summary = summary_of(fit, about)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / "summary.json", lambda partial: partial.write_text(text, encoding="utf-8"))
    skipped = []
    if fit.draws is None:
        skipped.append("posterior.nc was not written: there are no posterior draws.")
    else:
        skipped += _try("posterior.nc", lambda: _write_posterior(fit, out / "posterior.nc"))
    panels: list[Panel] = []
    skipped += _try(
        "figure.png", lambda: panels.extend(write_figure((draw or fit.plot)(), out / "figure.png"))
    )
    html = page(fit, summary, panels, skipped)
    write_whole(out / "report.html", lambda partial: partial.write_text(html, encoding="utf-8"))
    return skipped


def summary_of(fit: Fit, about: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a fit as plain JSON; null is what has no finite value."""
    table = fit.summary_table()
    facts = dict.fromkeys(("log_likelihood", "aic", "bic", "log_likelihood_by"))
    facts |= {fact.key: fact.value for fact in table.facts}
    error = None if fit.likelihood is None else fit.likelihood.error
    return {
        **about,
        "converged": fit.converged,
        "ok": fit.ok,
        "warnings": list(fit.warnings),
        "notes": list(fit.notes),
        "parameters": table.records,
        "level": table.level,
        **facts,
        "log_likelihood_error": error if error is None or math.isfinite(error) else None,
        "sample_size": fit.problem.sample_size,
        "num_groups": fit.problem.num_groups,
        "method": fit.method,
        "seconds": {name: round(value, 3) for name, value in fit.timings.items()},
    }


def _try(name: str, write: Callable[[], Any]) -> list[str]:
    """What a file that one can do without failed with; a full disk is another matter."""
    try:
        write()
    except OSError:
        raise
    except ImportError as error:
        return [f"{name} was not written: {one_line(error)}"]
    except Exception as error:  # hours of computing must not be lost to a drawing
        return [f"{name} was not written: {type(error).__name__}: {one_line(error)}"]
    return []


def _write_posterior(fit: Fit, path: Path) -> None:
    write_whole(path, lambda partial: write_netcdf(fit, partial))


def write_figure(figure: Any, path: Path) -> list[Panel]:
    """Writes a figure, and returns its panels, which a narrow screen shows one by one."""
    from PIL import Image  # which comes with matplotlib

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DOTS, pil_kwargs=PACKED)
    write_whole(path, lambda partial: partial.write_bytes(drawn.getvalue()))
    # Drawn once, and cut: drawing takes longer than the fit's own arithmetic.
    whole = Image.open(drawn)
    panels = []
    for title, box in parts_of(figure):
        left, right = (round(DOTS * x) for x in (box.x0, box.x1))
        upper, lower = (whole.height - round(DOTS * y) for y in (box.y1, box.y0))
        picture = io.BytesIO()
        whole.crop((left, upper, right, lower)).save(picture, format="png", **PACKED)
        panels.append(Panel(title, base64.b64encode(picture.getvalue()).decode()))
    return panels

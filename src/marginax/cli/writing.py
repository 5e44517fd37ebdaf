"""The files of a fit, each written whole or not at all, and what had to be left out."""

import base64
import errno
import io
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marginax.cli.page import Panel, page
from marginax.cli.plainly import one_line
from marginax.estimate import Fit

__all__ = ["check_writable", "summary_of", "write_results", "write_whole"]


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
    """Calls `write` with a path beside the file, and renames what it wrote."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        partial.replace(path)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise OSError(
            error.errno or errno.EIO,
            f"Cannot write {path}: {reason}. Free some space, or choose another place with --out.",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def write_results(
    fit: Fit, about: Mapping[str, Any], out: Path, say: Callable[[], None] = lambda: None
) -> list[str]:
    """Writes everything there is to a folder.

    Args:
        fit: the result.
        about: what was fitted to what, with which versions.
        out: the folder.
        say: called as soon as the fit itself is written, which no table or drawing can then lose.

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
    skipped += _try("figure.png", lambda: panels.extend(_draw(fit, out / "figure.png")))
    html = page(fit, summary, panels, skipped)
    write_whole(out / "report.html", lambda partial: partial.write_text(html, encoding="utf-8"))
    return skipped


def summary_of(fit: Fit, about: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a fit as plain JSON; null is what has no finite value."""
    missing = np.full(len(fit.names), np.nan)
    known = fit.information is not None
    errors = fit.standard_errors() if known else missing
    ends = fit.confidence_intervals() if known else np.stack([missing, missing], axis=1)
    rows = zip(fit.names, fit.estimates, errors, ends, strict=True)
    evidence = fit.evidence
    return {
        **about,
        "converged": fit.converged,
        "doubts": list(fit.doubts),
        "notes": list(fit.notes),
        "parameters": [
            {
                "name": name,
                "estimate": _plain(x),
                "standard_error": _plain(error),
                "interval_95": [_plain(low), _plain(high)],
            }
            for name, x, error, (low, high) in rows
        ],
        "log_likelihood": None if evidence is None else _plain(evidence.log_likelihood),
        "log_likelihood_error": None if evidence is None else _plain(evidence.error),
        "log_likelihood_by": None if evidence is None else evidence.method,
        "aic": None if evidence is None else _plain(fit.aic),
        "bic": None if evidence is None else _plain(fit.bic),
        "sample_size": fit.problem.sample_size,
        "num_groups": fit.problem.num_groups,
        "method": fit.method,
        "seconds": {name: round(value, 3) for name, value in fit.timings.items()},
    }


def _plain(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


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
    found = fit.to_arviz()
    write_whole(path, lambda partial: found.to_netcdf(str(partial)))


def _draw(fit: Fit, path: Path) -> list[Panel]:
    """Writes the figure, and returns its panels, which a narrow screen shows one by one."""
    figure = fit.plot()
    write_whole(path, lambda partial: figure.savefig(partial, format="png", dpi=150))
    panels = []
    for ax in figure.axes:
        box = ax.get_tightbbox().transformed(figure.dpi_scale_trans.inverted()).padded(0.05)
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150, bbox_inches=box)
        text = base64.b64encode(picture.getvalue()).decode()
        panels.append(Panel(ax.get_title(), text, float(box.width)))
    return panels

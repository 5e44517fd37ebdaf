"""What `marginax fit` does with its options, which `app` declares: from files to results."""

import datetime
import errno
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import typer

from marginax._core.disk_cache import kept_on_disk
from marginax.cli.about import versions
from marginax.cli.datafile import Columns, by_group, listed, read_table
from marginax.cli.messages import errors, one_line, warnings_as_notes
from marginax.cli.modelfile import Model, load_model, predictions, problem_of, read_settings
from marginax.cli.writing import check_writable, import_ahead, write_results
from marginax.errors import CheckpointError
from marginax.fitting.fitter import fit
from marginax.fitting.result import Fit
from marginax.model.problem import Problem

__all__ = ["Request", "fit_from_files"]

WITH_WARNINGS = 3


class Request(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        model: FILE.py or FILE.py:name.
        data: the table.
        settings: `key=value` words for the function.
        group: the column that says which rows belong together, if they are to be gathered.
        out: the folder for results, if not the usual one.
        seed: of the fit.
        num_starts: starts of theta.
        resume: keep checkpoints and go on from them.
    """

    model: str
    data: Path
    settings: list[str]
    group: str | None
    out: Path | None
    seed: int
    num_starts: int
    resume: bool


def fit_from_files(asked: Request) -> int:
    """Reads, fits, prints and writes.

    Returns:
        The exit code: 0 if there is nothing to warn of, 3 otherwise.
    """
    jax.config.update("jax_enable_x64", True)
    with kept_on_disk(), warnings_as_notes():
        settings = read_settings(asked.settings)
        table = read_table(asked.data)
        rows = max(len(values) if values.ndim else 1 for values in table.values())
        _say(f"{asked.data}: {rows} rows of {listed(table)}.")
        model = load_model(asked.model)
        out = asked.out or Path(f"fit-{model.title}")
        check_writable(out)
        problem, remarks = problem_of(model, _grouped(table, asked.group), settings)
        for remark in remarks:
            _say(f"Note: {remark}")
        _say(f"Fitting {model.name}() of {model.path}: {_size(problem)}.")
        _say("Every stage compiles first. Ctrl-C ends one early and keeps what there is.")
        began = time.perf_counter()
        import_ahead()
        fitted = _fitted(problem, asked, out)
        about = _about(asked, model, settings, out, rows, remarks)
        skipped = write_results(
            fitted,
            about,
            out,
            lambda: typer.echo(f"\n{fitted}\n"),
            lambda: _figure(fitted, model),
        )
    for sentence in skipped:
        _say(f"Note: {sentence}")
    seconds = time.perf_counter() - began
    typer.echo(f"Report: {out / 'report.html'} ({seconds:.0f} s in all)")
    return 0 if fitted.ok else WITH_WARNINGS


def _fitted(problem: Problem, asked: Request, out: Path) -> Fit:
    try:
        return fit(
            problem,
            key=jax.random.key(asked.seed),
            num_starts=asked.num_starts,
            checkpoint=out / "checkpoint" if asked.resume else None,
        )
    except (ImportError, OSError):
        raise
    except CheckpointError as error:
        raise ValueError(f"{error} Without --resume it is not looked at.") from error
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise OSError(
                errno.ENOMEM,
                "Memory ran out. Fit fewer groups, or a model with fewer latents, or use a larger "
                "machine.",
            ) from error
        raise ValueError(
            f"The fit failed with {type(error).__name__}: {one_line(error)} (--debug shows where.)"
        ) from error


def _figure(fitted: Fit, model: Model) -> Any:
    """With predictions beside the data where the model file makes them; without is no failure."""
    try:
        made = predictions(model, fitted)
        if made is not None:
            return fitted.plot(made[1], made[0], x=model.along)
    except ImportError:
        raise
    except Exception as error:
        _say(
            f"Note: predictions were not drawn: predict() in {model.path}: "
            f"{type(error).__name__}: {one_line(error)}"
        )
    return fitted.plot()


def _grouped(table: Columns, group: str | None) -> Columns:
    return table if group is None else by_group(table, group)


def _size(problem: Problem) -> str:
    latents = f"{problem.latent_size} latent{'s' * (problem.latent_size != 1)}"
    where = "" if problem.num_groups is None else f" in each of {problem.num_groups} groups"
    count = problem.num_parameters
    return f"{count} parameter{'s' * (count != 1)}, {latents}{where}"


def _about(
    asked: Request,
    model: Model,
    settings: dict[str, Any],
    out: Path,
    rows: int,
    remarks: list[str],
) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "title": model.title,
        "model": str(model.path),
        "function": model.name,
        "data": str(asked.data),
        "rows": rows,
        "group": asked.group,
        "settings": settings,
        "seed": asked.seed,
        "num_starts": asked.num_starts,
        "out": str(out),
        "remarks": remarks,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": " ".join(dict.fromkeys((device.platform, device.device_kind))),
        "versions": versions(),
    }


def _say(words: str) -> None:
    """What is not the result goes where errors go, so that the result can be piped on."""
    errors.print(words, markup=False)

"""Computes the paper's experiments, one file each, and goes on where it was left."""

import platform
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from tqdm.auto import tqdm

from marginax._version import __version__
from marginax.reproduction import results
from marginax.reproduction.experiments import Experiment, chosen
from marginax.reproduction.sizes import SIZES, Size

__all__ = ["reproduce"]


def reproduce(
    which: str = "all",
    *,
    size: str = "standard",
    out: str | Path = "out",
    device: str | None = None,
    progress: bool | None = None,
) -> Path:
    """Runs the experiments of the M-SVGD-EM paper that are not in the folder yet.

    Nothing is drawn: `marginax.reproduction.render(out)` does that, here or on another machine.

    Args:
        which: toy, logistic, network or all.
        size: quick, standard or full.
        out: folder of the results; one file per experiment appears in `out/results/SIZE` when it
            is done. A file with other settings, or of another version, is replaced.
        device: "cpu" or "gpu"; JAX's choice if None.
        progress: show progress bars; by default only on a terminal.

    Returns:
        The folder.
    """
    out = Path(out)
    experiments = chosen(which)
    if size not in SIZES:
        raise ValueError(f"size is {size!r}, but it must be one of {', '.join(SIZES)}.")
    where = _device(device)
    results.prepare(out)
    # Full float32 products also where the device would rather round them: one answer everywhere.
    with jax.default_device(where), jax.default_matmul_precision("float32"):
        for number, experiment in enumerate(experiments, start=1):
            title = f"{experiment.name} ({number} of {len(experiments)})"
            _run(experiment, SIZES[size], out, title, where, progress)
    return out


def _run(
    experiment: Experiment, size: Size, out: Path, title: str, where: Any, progress: bool | None
) -> None:
    settings = experiment.settings(size) | {
        "marginax": __version__,
        "dtype": str(jnp.zeros(()).dtype),
    }
    finished = results.read(out, size.name, experiment.name)
    if finished is not None and results.same_settings(finished, settings):
        tqdm.write(f"{title}: already there, {finished.about['seconds']:.0f} s saved")
        return
    part_size = getattr(size, experiment.part)
    hidden = None if progress is None else not progress
    num_runs = experiment.num_runs(part_size)
    began = time.perf_counter()
    with tqdm(total=num_runs, desc=title, unit="run", disable=hidden) as bar:
        arrays = experiment.compute(part_size, bar.update)
    seconds = time.perf_counter() - began
    about = {
        "settings": settings,
        "size": size.name,
        "seconds": seconds,
        "num_runs": num_runs,
        "date": date.today().isoformat(),
        "device": ": ".join(dict.fromkeys((where.platform, where.device_kind))),
        "dtype": settings["dtype"],
        "python": platform.python_version(),
        "marginax": __version__,
    } | {name: version(name) for name in ("jax", "optax", "numpy")}
    results.write(out, size.name, experiment.name, results.Finished(arrays, about))
    tqdm.write(f"{title}: {num_runs} runs in {seconds:.1f} s")


def _device(name: str | None) -> Any:
    if name is None:
        return jax.devices()[0]
    try:
        return jax.devices(name)[0]
    except RuntimeError as error:
        there = sorted({device.platform for device in jax.devices()} | {"cpu"})
        raise ValueError(
            f"There is no device {name!r} for JAX on this machine, only {', '.join(there)}. "
            "Leave --device out, or install the JAX for your device."
        ) from error

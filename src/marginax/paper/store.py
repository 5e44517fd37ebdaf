"""Results on disk: one file per finished experiment, written whole or not at all."""

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marginax.paper.labelled import Labelled

__all__ = ["Finished", "prepare", "read", "same_settings", "sizes_in", "write", "write_whole"]


class Finished(NamedTuple):
    """A finished experiment.

    Attributes:
        arrays: its numbers.
        about: how they came about: settings, seconds, versions, device.
    """

    arrays: dict[str, Labelled]
    about: dict[str, Any]


def prepare(out: Path) -> None:
    """Makes the folder and proves that it can be written to, before anything is computed."""
    results = out / "results"
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results) as file:
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _cannot_write(out, error) from error


def write(out: Path, size: str, name: str, finished: Finished) -> None:
    """Puts the experiment's file in place in one move."""
    words = {
        "about": finished.about,
        "axes": {key: [array.dims, array.coords] for key, array in finished.arrays.items()},
    }
    arrays: dict[str, Any] = {k: _compact(array.values) for k, array in finished.arrays.items()}
    arrays["__about__"] = np.array(json.dumps(words))
    write_whole(_path(out, size, name), lambda file: np.savez_compressed(file, **arrays))


def read(out: Path, size: str, name: str) -> Finished | None:
    """The experiment, or None if it is not there; a file that cannot be read is passed over."""
    path = _path(out, size, name)
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            words = json.loads(archive["__about__"].item())
            arrays = {key: archive[key] for key in archive.files if key != "__about__"}
        named = {
            key: Labelled(values, tuple(dims), {dim: tuple(at) for dim, at in coords.items()})
            for key, values in arrays.items()
            for dims, coords in [words["axes"][key]]
        }
        return Finished(named, words["about"])
    except Exception as error:  # a damaged archive can fail in a dozen ways, all of them this one
        warnings.warn(f"{path} cannot be read and is ignored: {error!r}", stacklevel=2)
        return None


def sizes_in(out: Path) -> tuple[str, ...]:
    """The sizes of which there are results."""
    return tuple(path.name for path in (out / "results").glob("*") if path.is_dir())


def write_whole(path: Path, write_to: Callable[[Any], Any]) -> None:
    """Writes beside the path and renames, so that no reader ever sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
    except OSError as error:
        raise _cannot_write(path.parent, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            write_to(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's files are for their owner alone; a report is for others too.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path.parent, error) from error
        raise


def same_settings(finished: Finished, settings: Mapping[str, Any]) -> bool:
    """Whether the file was made with these settings, as JSON sees them."""
    return finished.about.get("settings") == json.loads(json.dumps(settings))


def _path(out: Path, size: str, name: str) -> Path:
    return out / "results" / size / f"{name}.npz"


def _compact(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what ran away may go to infinity
        return values.astype(np.float32) if values.dtype == np.float64 else values


def _cannot_write(folder: Path, error: OSError) -> OSError:
    reason = error.strerror or str(error)
    return OSError(
        error.errno,
        f"Cannot write to {folder}: {reason}. Choose a folder you can write to, or free some "
        "space; finished experiments are kept and are not run again.",
    )

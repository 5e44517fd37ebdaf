"""Results: arrays whose axes have names, one file per finished experiment."""

import csv
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marginax._core.files import write_atomically

__all__ = [
    "Finished",
    "Labelled",
    "prepare",
    "read",
    "same_settings",
    "sizes_in",
    "stack",
    "write",
    "write_whole",
]


class Labelled(NamedTuple):
    """A table of any number of dimensions.

    Attributes:
        values: the numbers.
        dims: a name per axis.
        coords: for every axis the names or numbers of its entries.
    """

    values: np.ndarray
    dims: tuple[str, ...]
    coords: dict[str, tuple[Any, ...]]

    def at(self, **labels: Any) -> np.ndarray:
        """The numbers at these labels; axes that are not named stay."""
        index: list[Any] = [slice(None)] * len(self.dims)
        for dim, label in labels.items():
            where = self.coords[dim].index(label)
            index[self.dims.index(dim)] = where
        return np.asarray(self.values[tuple(index)])

    def csv(self) -> str:
        """A row per entry of the last axis, a column per combination of the others."""
        *outer, last = self.dims
        columns = list(product(*(self.coords[dim] for dim in outer)))
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        names = [" | ".join(_text(part) for part in column) for column in columns]
        writer.writerow([last, *(names if outer else ["value"])])
        rows = self.values.reshape(len(columns), -1).T
        for label, row in zip(self.coords[last], rows, strict=True):
            writer.writerow([_text(label), *(_text(float(value)) for value in row)])
        return file.getvalue()


def stack(
    methods: Mapping[str, Mapping[str, np.ndarray]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Sequence[Any]],
) -> dict[str, Labelled]:
    """One `Labelled` per quantity, methods along the first axis.

    Args:
        methods: for every method its quantities.
        dims: for every quantity the names of its axes.
        coords: for every axis the names of its entries.
    """
    named = {"method": tuple(methods)} | {dim: tuple(values) for dim, values in coords.items()}
    return {
        quantity: Labelled(
            np.stack([np.asarray(finished_in[quantity]) for finished_in in methods.values()]),
            ("method", *axes),
            {dim: named[dim] for dim in ("method", *axes)},
        )
        for quantity, axes in dims.items()
    }


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


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
    """Writes a file whole or not at all, and says what to do where that fails."""

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            write_to(file)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    except OSError as error:
        raise _cannot_write(path.parent, error) from error


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

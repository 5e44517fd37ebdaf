"""Files that are written whole or not at all, and folders that can be written to."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["cannot_be_folder", "write_atomically"]


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls `write` with a new file beside the path, and puts what it wrote in place in one move.

    Whatever is at the path stays until then, so that no reader ever sees half a file, and a full
    disk costs nothing that was there before. OSErrors are passed on.

    Args:
        path: of the file.
        write: `write(partial)` writes to the path it is given.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    partial = Path(name)
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp's files are for their owner alone; results are for others too.
        partial.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def cannot_be_folder(path: Path) -> str:
    """Why there cannot be a folder to write to at this absolute path; empty if there can."""
    try:
        here = next(parent for parent in (path, *path.parents) if parent.exists())
        if not here.is_dir():
            return f"{here} is a file"
        with tempfile.TemporaryFile(dir=here):  # to root everything looks writable
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__

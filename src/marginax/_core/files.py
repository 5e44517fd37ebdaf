"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["write_atomically"]


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

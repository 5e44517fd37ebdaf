"""The command `marginax`; needs typer and rich (`pip install "marginax[cli]"`)."""

import atexit
import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Where the console script enters."""
    # Importing and tracing make hundreds of thousands of objects that live to the end of the
    # process. Looking through them for garbage, and once more at the end, took a sixth of a fit.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
    try:
        from marginax.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The command line needs {error.name}, which is not installed: "
            "pip install 'marginax[cli]'. The library itself works without it."
        )
    app()

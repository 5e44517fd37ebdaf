"""The command `marginax`; needs typer and rich (`pip install "marginax[cli]"`)."""

import sys

__all__ = ["main"]


def main() -> None:
    """Where the console script enters."""
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

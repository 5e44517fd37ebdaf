"""How the commands speak of what went wrong: one line, and an exit code that scripts can use."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

__all__ = ["errors", "one_line", "said_plainly", "warnings_as_notes"]

errors = Console(stderr=True, highlight=False, soft_wrap=True)
KEPT = "What is finished is kept; the same command goes on from there."
LONGEST = 600  # of an error from elsewhere; JAX likes to write pages


@contextmanager
def said_plainly(debug: bool, interrupted: str = KEPT) -> Iterator[None]:
    """A line for a traceback: exit code 2 for bad input, 1 for the machine, 130 for Ctrl-C.

    Args:
        debug: show tracebacks after all.
        interrupted: what to say after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        errors.print(f"\nInterrupted. {interrupted}", markup=False)
        raise typer.Exit(130) from None
    except (ValueError, OSError, ImportError) as error:
        if debug:
            raise
        sentence = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        errors.print(f"Error: {sentence}", markup=False)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Warnings as a line each, without the file and the line of code they come from."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: errors.print(
            f"Note: {one_line(message)}", markup=False
        )
        yield


def one_line(error: object) -> str:
    """The first paragraph of what an error says, on one line."""
    words = " ".join(str(error).strip().split("\n\n")[0].split())
    return words if len(words) <= LONGEST else f"{words[:LONGEST]} ..."

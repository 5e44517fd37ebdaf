"""The errors that marginax raises beside Python's own; each carries its advice in its sentence."""

from typing import Any

__all__ = ["CheckpointError", "LostProcessError", "OutOfMemoryError", "RunError"]


class OutOfMemoryError(MemoryError):
    """The device has too little memory for what was asked of it."""


class LostProcessError(RuntimeError):
    """Another process of the same run has died, so that this one cannot go on."""


class CheckpointError(RuntimeError):
    """A checkpoint folder that cannot be used, or a write that failed."""


class RunError(RuntimeError):
    """Raised by `run(..., throw=True)` for every ending but "converged".

    Attributes:
        run: the `Run`, complete as far as it went.
    """

    def __init__(self, run: Any) -> None:
        super().__init__(f"{run.status}: {run.reason}")
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return RunError, (self.run,)  # an exception is made anew from its words otherwise

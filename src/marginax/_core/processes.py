"""Several processes, one computation: what all of them must see alike, and what a lost one leaves.

Every process of a `jax.distributed` job runs the same program. Wherever that program looks at a
clock, a disk or a key press, all must see the same, or one of them would wait for the others in a
collective that they never come to.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from marginax.errors import LostProcessError

__all__ = ["agreed", "is_first", "last_words", "spans_processes", "whole"]

EXIT_CODE = 75  # "try again later", as mail servers say it: a scheduler may start the job anew


def is_first() -> bool:
    """Whether this is the process that writes notes and shows bars."""
    return jax.process_index() == 0


def spans_processes(mesh: Any) -> bool:
    """Whether the devices of a mesh belong to more than one process."""
    return mesh is not None and len({device.process_index for device in mesh.devices.flat}) > 1


def whole(leaf: Any) -> np.ndarray:
    """All of an array on the host, also if parts of it live on the devices of other processes."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)


def agreed(together: bool, seconds: float, *flags: bool) -> tuple[Any, ...]:
    """The first process's clock, and for every flag whether it is raised in any process.

    Args:
        together: whether several processes take part; with one, its own values come back.
        seconds: this process's clock.
        flags: what must not be decided by one process alone.
    """
    if not together:
        return seconds, *flags
    seen = np.asarray(multihost_utils.process_allgather(np.array([seconds, *flags], np.float64)))
    return float(seen[0, 0]), *(bool(flag) for flag in np.any(seen[:, 1:] > 0, axis=0))


@contextmanager
def last_words(together: bool, directory: str | Path | None) -> Iterator[None]:
    """Turns the loss of another process into a sentence: an error, or the last line of this one.

    A collective whose partner has died may raise, and then `LostProcessError` says what to do. Or
    it may wait for ever; then, when the heartbeats have been missing for long enough, JAX's client
    ends this process with `abort`. Handlers of Python's `signal` run in the main thread, which is
    the one that waits, so that the last words need a handler of C's.

    Args:
        together: whether several processes take part; nothing is done with one.
        directory: the folder of the checkpoints, if there are any.
    """
    if not together:
        yield
        return

    def say_and_leave(number: int) -> None:
        words = "JAX has ended this process, as it does when another process of the run is lost."
        os.write(2, f"\nmarginax: {words} {_kept(directory)}\n".encode())
        os._exit(EXIT_CODE)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say_and_leave)
    _handlers.append(handler)
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype = ctypes.c_void_p
    before = set_handler(int(signal.SIGABRT), handler)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # The handler stays: JAX may end the process before this error is shown.
        raise LostProcessError(
            "A computation shared with other processes failed, most likely because one of them "
            f"was lost. {_kept(directory)} JAX said: {error}"
        ) from error
    except BaseException:
        set_handler(int(signal.SIGABRT), ctypes.c_void_p(before))
        raise
    set_handler(int(signal.SIGABRT), ctypes.c_void_p(before))


_handlers: list[Any] = []  # for as long as C may call them


def _kept(directory: str | Path | None) -> str:
    """What is left of the run, and how to go on, in sentences."""
    if directory is None:
        return "No checkpoint was asked for: start the run again, with checkpoint=."
    folder = Path(directory).absolute()
    # A step that is still being written has a longer name.
    steps = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
    if not steps:
        return f"There is no checkpoint yet in {folder}: start the run again."
    return (
        f"The last checkpoint is at step {max(steps)} in {folder}: the same call resumes from it, "
        "with as many processes and devices as you like."
    )

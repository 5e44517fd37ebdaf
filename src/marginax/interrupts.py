"""Ctrl-C that cannot get lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ctrl_c_noticed"]


@contextmanager
def ctrl_c_noticed(at_once: bool = True) -> Iterator[list[int]]:
    """A list that Ctrl-C adds to, beside raising KeyboardInterrupt as always.

    Python throws an exception away that is raised in a callback of the garbage collector or in a
    finaliser, and JAX has such callbacks. A long loop looks at the list once in a while.

    Args:
        at_once: raise; without it Ctrl-C only adds to the list, for loops that several processes
            must leave together.
    """
    pressed: list[int] = []

    def handler(number: int, frame: object) -> None:
        pressed.append(number)
        if at_once:
            raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    # Whoever has a handler of their own (a notebook server, a test) keeps it.
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

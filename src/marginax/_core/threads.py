"""How many threads linear algebra takes, and one thread at a time for functions of users.

OpenBLAS waits for its threads by spinning. On a machine with other work a factor of a thousand rows
then takes a hundred times as long as by one thread, and on an idle one it gains little.

What a function of a user keeps outside itself, such as NumPyro's stack of handlers, is not made for
two threads, and `fit` traces models in two: one climbs while the other compiles what comes later.
"""

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

__all__ = ["ONE_AT_A_TIME", "one_thread_of_blas"]

ONE_AT_A_TIME = threading.RLock()  # held while a function of a user runs


@contextlib.contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """BLAS and LAPACK with one thread; what XLA computes itself has all of them."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield

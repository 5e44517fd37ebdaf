"""How many threads linear algebra takes.

OpenBLAS waits for its threads by spinning. On a machine with other work a factor of a thousand rows
then takes a hundred times as long as by one thread, and on an idle one it gains little.
"""

import contextlib
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

__all__ = ["one_thread_of_blas"]


@contextlib.contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """BLAS and LAPACK with one thread; what XLA computes itself has all of them."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield

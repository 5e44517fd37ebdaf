"""Kernels: how particles share scores and repel each other.

A new kernel of distances goes into `radial`, one of means and covariances into `moments`, a
velocity that is no kernel's into `fields`, any other into a file of its own; it returns a `Kernel`
(`base` says what that is) and has a line here.

They add up: `rbf("mean") + linear()`; `blockwise(...)` applies one to each block alone, and
`random_batches(...)` to some particles at a time.
"""

from marginax.kernels.base import Kernel, from_function
from marginax.kernels.batches import random_batches
from marginax.kernels.blocks import blockwise
from marginax.kernels.distances import energy
from marginax.kernels.fields import blob, gfsd, gfsf
from marginax.kernels.moments import linear, moment_matched
from marginax.kernels.radial import imq, inverse_log, paper_rbf, rbf

__all__ = [
    "Kernel",
    "blob",
    "blockwise",
    "energy",
    "from_function",
    "gfsd",
    "gfsf",
    "imq",
    "inverse_log",
    "linear",
    "moment_matched",
    "paper_rbf",
    "random_batches",
    "rbf",
]

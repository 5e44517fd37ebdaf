"""Kernels: how particles share scores and repel each other. One small file each.

They add up: `rbf("mean") + linear()`; and `blockwise(...)` applies one to each block alone.
"""

from marginax.kernels.blockwise import blockwise
from marginax.kernels.from_function import from_function
from marginax.kernels.imq import imq
from marginax.kernels.linear import linear
from marginax.kernels.moment_matched import moment_matched
from marginax.kernels.rbf import rbf
from marginax.stein import Kernel

__all__ = ["Kernel", "blockwise", "from_function", "imq", "linear", "moment_matched", "rbf"]

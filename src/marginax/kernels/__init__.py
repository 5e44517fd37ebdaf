"""Kernels: how particles share scores and repel each other.

A new kernel of distances goes into `radial`, one of means and covariances into `moments`, any other
into a file of its own; it returns a `Kernel` (`base` says what that is) and has a line here.

They add up: `rbf("mean") + linear()`; and `blockwise(...)` applies one to each block alone.
"""

from marginax.kernels.base import Kernel, from_function
from marginax.kernels.blocks import blockwise
from marginax.kernels.moments import linear, moment_matched
from marginax.kernels.radial import imq, rbf

__all__ = ["Kernel", "blockwise", "from_function", "imq", "linear", "moment_matched", "rbf"]

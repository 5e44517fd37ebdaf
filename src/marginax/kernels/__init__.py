"""Kernels: how particles share scores and repel each other. One small file each."""

from marginax.kernels.from_function import from_function
from marginax.kernels.imq import imq
from marginax.kernels.rbf import rbf
from marginax.stein import Kernel

__all__ = ["Kernel", "from_function", "imq", "rbf"]

"""Sparse Hessians in the latents: which entries there are, and what they are."""

from marginax._core.sparsity.hessians import (
    check_pattern,
    hessian_pattern,
    hessian_values,
    unknown,
)
from marginax._core.sparsity.pattern import Dense, Pattern

__all__ = [
    "Dense",
    "Pattern",
    "check_pattern",
    "hessian_pattern",
    "hessian_values",
    "unknown",
]

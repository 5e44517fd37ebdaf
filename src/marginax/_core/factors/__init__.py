"""Factors of sparse symmetric matrices, behind one small interface.

`choose` looks at a pattern and picks the kind: dense, a chain (of numbers or of blocks), an arrow
(a simple interior and a dense border), all three functions of JAX; or, on the host, general sparse.
"""

from marginax._core.factors.base import (
    FUNCTIONS,
    Factors,
    Pattern,
    Raised,
    multiply,
    pattern_of,
    raised,
    units,
)
from marginax._core.factors.choice import choose

__all__ = [
    "FUNCTIONS",
    "Factors",
    "Pattern",
    "Raised",
    "choose",
    "multiply",
    "pattern_of",
    "raised",
    "units",
]

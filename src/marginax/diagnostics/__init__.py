"""Knowing when to distrust the cloud: measures that need no ground truth, and plain sentences."""

from marginax.diagnostics.cloud import CloudCheck, check
from marginax.diagnostics.cross_block import cross_block_curvature
from marginax.diagnostics.ksd import KSD, kernel_stein_discrepancy
from marginax.diagnostics.measures import (
    SteinSummary,
    effective_dimension,
    spread,
    stein_ratio,
    summarize,
)

__all__ = [
    "KSD",
    "CloudCheck",
    "SteinSummary",
    "check",
    "cross_block_curvature",
    "effective_dimension",
    "kernel_stein_discrepancy",
    "spread",
    "stein_ratio",
    "summarize",
]

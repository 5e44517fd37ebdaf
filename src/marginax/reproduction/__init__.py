"""The source paper's experiments, as written, as its authors' released code runs them, and ours."""

from marginax.reproduction.compute import reproduce
from marginax.reproduction.report import render

__all__ = ["render", "reproduce"]

"""The source paper's experiments, as written, as its authors' released code runs them, and ours."""

from marginax.paper.render import render
from marginax.paper.reproduce import reproduce

__all__ = ["render", "reproduce"]

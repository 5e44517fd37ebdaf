"""The report's figures, one module per model; needs matplotlib."""

import tomllib
from importlib.resources import files

from marginax.reproduction.figures.logistic import LOGISTIC_DRAWINGS
from marginax.reproduction.figures.network import NETWORK_DRAWINGS
from marginax.reproduction.figures.style import Drawing, Results
from marginax.reproduction.figures.toy import TOY_DRAWINGS

__all__ = ["DRAWINGS", "Drawing", "Results", "captions"]

DRAWINGS = (*TOY_DRAWINGS, *LOGISTIC_DRAWINGS, *NETWORK_DRAWINGS)


def captions() -> dict[str, dict[str, str]]:
    """For every figure its title and its words."""
    text = (
        files("marginax.reproduction.figures").joinpath("captions.toml").read_text(encoding="utf-8")
    )
    return tomllib.loads(text)

"""Links between the linear predictor eta and the mean of a response."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["LINKS", "Link"]


class Link(NamedTuple):
    """A link, on the host.

    Attributes:
        name: as the user says it.
        forward: from the mean to eta.
        mean: from eta to the mean.
        slope: d mean / d eta, at eta.
    """

    name: str
    forward: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]


def _ndtr(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr  # slow to import

    return np.asarray(ndtr(x))


def _ndtri(p: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(ndtri(p))


def _expit(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


LINKS = {
    link.name: link
    for link in (
        Link("identity", lambda m: m, lambda x: x, lambda x: np.ones_like(x)),
        Link("log", np.log, np.exp, np.exp),
        Link(
            "logit",
            lambda m: np.log(m) - np.log1p(-m),
            _expit,
            lambda x: _expit(x) * _expit(-x),
        ),
        Link(
            "probit",
            _ndtri,
            _ndtr,
            lambda x: np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi),
        ),
        Link(
            "cloglog",
            lambda m: np.log(-np.log1p(-m)),
            lambda x: -np.expm1(-np.exp(x)),
            lambda x: np.exp(x - np.exp(x)),
        ),
    )
}

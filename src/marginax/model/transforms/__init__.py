r"""Transforms: maps from the reals onto the sets that parameters and latents live in.

Algorithms move on the reals; models speak of constrained values. A transform carries both
directions and the log of its change of volume, which latents need (their density transforms) and
parameters do not (a likelihood does not).

    identity                  all reals
    positive                  x = exp(u)
    lower_bound(a)            x = a + exp(u)
    interval(a, b)            x = a + (b - a) / (1 + exp(-u))
    ordered                   x_1 = u_1, x_k = x_{k-1} + exp(u_k)
    simplex(n)                stick breaking: n numbers that add up to 1, from n - 1
    correlation_cholesky(n)   canonical partial correlations
    covariance_cholesky(n)    logs of standard deviations, and a correlation_cholesky
"""

from marginax.model.transforms.base import (
    Display,
    Transform,
    identity,
    interval,
    lower_bound,
    positive,
    unit_interval,
)
from marginax.model.transforms.cholesky import correlation_cholesky, covariance_cholesky
from marginax.model.transforms.vectors import ordered, simplex

__all__ = [
    "Display",
    "Transform",
    "correlation_cholesky",
    "covariance_cholesky",
    "identity",
    "interval",
    "lower_bound",
    "ordered",
    "positive",
    "simplex",
    "unit_interval",
]

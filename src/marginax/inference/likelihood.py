"""The marginal log likelihood as a smooth function of theta: the face its two ways share.

Quadrature and importance sampling both give an `evaluate` for climbing and a `describe` for what is
reported at the end, so that Newton steps, standard errors and evidence are written once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from marginax.inference.newton import Local

__all__ = ["Evidence", "Likelihood"]


class Evidence(NamedTuple):
    """The likelihood at the estimate, with its own error.

    Attributes:
        method: how it was found, in words.
        log_likelihood: log p_theta(y).
        error: its standard error, or the difference to a finer rule.
        by_group: log p_theta(y_g), or None without groups.
        effective_draws: of the worst group; infinite for quadrature.
        pareto_k: of the worst group; above 0.7 importance sampling cannot be believed. NaN for
            quadrature.
        score_covariance: of the gradient's own error, zero for quadrature.
        mean: posterior means of the latent, on the reals, a row per block.
        sd: posterior standard deviations.
        undefined: the share of points at which the log density was NaN.
    """

    method: str
    log_likelihood: float
    error: float
    by_group: np.ndarray | None
    effective_draws: float
    pareto_k: float
    score_covariance: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    undefined: float = 0.0


class Likelihood(NamedTuple):
    """log p_theta(y) for flat, free theta.

    Attributes:
        method: in words.
        start: what the first evaluation starts its mode search from, [blocks, size].
        evaluate: `evaluate(theta, start) -> Local`.
        describe: `describe(theta, start) -> Evidence`.
        evaluate_finely: the same with a dearer Hessian without the draws' noise, for the last
            steps; None where `evaluate` has none.
        adapt: `adapt(theta, start)` is the same likelihood with draws that suit theta; None where
            there are no draws.
    """

    method: str
    start: Array
    evaluate: Callable[[np.ndarray, Any], Local]
    describe: Callable[[np.ndarray, Any], Evidence]
    evaluate_finely: Callable[[np.ndarray, Any], Local] | None = None
    adapt: "Callable[[np.ndarray, Any], Likelihood] | None" = None

"""The marginal log likelihood as a smooth function of theta: the face its two ways share.

Quadrature and importance sampling both give an `evaluate` for climbing and a `describe` for what is
reported at the end, so that Newton steps, standard errors and evidence are written once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from marginax.inference.modes import Laplace
from marginax.inference.newton import Local
from marginax.problem import Problem

__all__ = ["Evidence", "Likelihood", "compiled_local", "flat_latents", "one_latent"]


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
        mean: posterior means of the latent, on the reals, flat.
        sd: posterior standard deviations.
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


class Likelihood(NamedTuple):
    """log p_theta(y) for flat, free theta.

    Attributes:
        method: in words.
        start: what the first evaluation starts its mode search from, [blocks, size].
        evaluate: `evaluate(theta, start) -> Local`.
        describe: `describe(theta, start) -> Evidence`.
        evaluate_finely: a dearer `evaluate` without the draws' noise in its derivatives, for the
            last steps; None where `evaluate` has none.
    """

    method: str
    start: Array
    evaluate: Callable[[np.ndarray, Any], Local]
    describe: Callable[[np.ndarray, Any], Evidence]
    evaluate_finely: Callable[[np.ndarray, Any], Local] | None = None


def compiled_local(
    locate: Callable[..., Laplace], total: Callable[..., Array]
) -> Callable[..., Local]:
    """Compiles `total(theta, at, data, ...)` with its derivatives, placed by `locate` at theta.

    Args:
        locate: `locate(theta, start, data)`, modes and curvatures of the blocks.
        total: the log likelihood, with the placement held fixed.
    """

    @jax.jit
    def everything(theta: Array, start: Array, data: Any, *more: Array) -> Any:
        at = jax.lax.stop_gradient(locate(theta, start, data))
        value, gradient = jax.value_and_grad(total)(theta, at, data, *more)
        return value, gradient, jax.hessian(total)(theta, at, data, *more), at.mode

    def local(theta: np.ndarray, start: Array, data: Any, *more: Array) -> Local:
        value, gradient, hessian, mode = everything(jnp.asarray(theta), start, data, *more)
        return Local(float(value), np.asarray(gradient), np.asarray(hessian), mode)

    return local


def one_latent(problem: Problem) -> Any:
    """The latent of one block, a group's or the whole, on the reals."""
    whole = problem.start_latent()
    return whole if problem.num_groups is None else jax.tree.map(lambda leaf: leaf[0], whole)


def flat_latents(problem: Problem) -> Array:
    """Where the mode search starts: [blocks, size]."""
    flat = ravel_pytree(one_latent(problem))[0]
    return jnp.tile(flat, (problem.num_groups or 1, 1))

"""The likelihood of a grouped problem with small blocks, by adaptive Gauss-Hermite quadrature."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from marginax.inference.likelihood import Evidence, Likelihood, compiled_local, flat_latents
from marginax.inference.modes import Laplace
from marginax.inference.newton import Local
from marginax.inference.quadrature import ORDERS, place, quadrature
from marginax.problem import Problem

__all__ = ["quadrature_likelihood"]


def quadrature_likelihood(problem: Problem) -> Likelihood:
    """Exact up to the error of the rule, which a finer one tells."""
    flat, unravel = ravel_pytree(problem.start_theta())
    order = ORDERS[problem.latent_size]

    def locate(theta: Array, start: Array, data: Any) -> Laplace:
        return place(problem, unravel(theta), start, data)

    def total(theta: Array, at: Laplace, data: Any) -> Array:
        return jnp.sum(quadrature(problem, unravel(theta), at, data, order).log_marginal)

    local = compiled_local(locate, total)

    def evaluate(theta: np.ndarray, start: Array) -> Local:
        return local(theta, start, problem.data)

    @jax.jit
    def two_rules(theta: Array, start: Array, data: Any) -> Any:
        at = locate(theta, start, data)
        return tuple(
            quadrature(problem, unravel(theta), at, data, nodes) for nodes in (order, order + 4)
        )

    def describe(theta: np.ndarray, start: Array) -> Evidence:
        coarse, fine = two_rules(jnp.asarray(theta), start, problem.data)
        difference = np.abs(np.asarray(fine.log_marginal - coarse.log_marginal))
        return Evidence(
            method=f"adaptive Gauss-Hermite quadrature, {order + 4} nodes per dimension",
            log_likelihood=float(np.sum(fine.log_marginal)),
            error=float(np.sum(difference)),
            by_group=np.asarray(fine.log_marginal),
            effective_draws=math.inf,
            pareto_k=math.nan,
            score_covariance=np.zeros((flat.size, flat.size)),
            mean=np.asarray(fine.mean),
            sd=np.sqrt(np.asarray(fine.variance)),
        )

    return Likelihood("quadrature", flat_latents(problem), evaluate, describe)

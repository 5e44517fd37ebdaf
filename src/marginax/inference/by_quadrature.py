"""The likelihood of a grouped problem with small blocks, by adaptive Gauss-Hermite quadrature."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from marginax.base import ById
from marginax.inference.blocks import as_blocks, in_pieces, piece_of, place
from marginax.inference.likelihood import Evidence, Likelihood
from marginax.inference.modes import Laplace
from marginax.inference.newton import Local
from marginax.inference.quadrature import ORDERS, quadrature
from marginax.problem import Problem
from marginax.processes import whole
from marginax.programs import KEPT

__all__ = ["quadrature_likelihood"]


def quadrature_likelihood(
    problem: Problem, mesh: Mesh | None = None, *, order: int | None = None
) -> Likelihood:
    """Exact up to the error of the rule, which a finer one tells.

    Args:
        problem: grouped, in double precision.
        mesh: of devices that share the groups.
        order: nodes per dimension, if not the usual number.
    """
    blocks = as_blocks(problem, mesh)
    order = order or ORDERS[blocks.start.shape[1]]

    local, two_rules = _compiled(blocks.bare, order)
    pieces = in_pieces(blocks, order ** blocks.start.shape[1])

    def evaluate(theta: np.ndarray, start: Array) -> Local:
        found = [local(jnp.asarray(theta), start[rows], piece_of(blocks, rows)) for rows in pieces]
        values, gradients, hessians, modes = zip(*found, strict=True)
        return Local(
            float(np.sum(jax.device_get(values))),
            np.sum(jax.device_get(gradients), axis=0),
            np.sum(jax.device_get(hessians), axis=0),
            jnp.concatenate(modes),
        )

    def describe(theta: np.ndarray, start: Array) -> Evidence:
        found = [
            two_rules(jnp.asarray(theta), start[rows], piece_of(blocks, rows)) for rows in pieces
        ]
        coarse, fine = jax.tree.map(
            lambda *parts: np.concatenate([whole(part) for part in parts]), *found
        )
        difference = np.abs(np.asarray(fine.log_marginal - coarse.log_marginal))
        num_points = len(difference) * (order + 4) ** start.shape[1]
        return Evidence(
            method=f"adaptive Gauss-Hermite quadrature, {order + 4} nodes per dimension",
            log_likelihood=float(np.sum(fine.log_marginal)),
            error=float(np.sum(difference)),
            by_group=np.asarray(fine.log_marginal),
            effective_draws=math.inf,
            pareto_k=math.nan,
            score_covariance=np.zeros((len(theta), len(theta))),
            mean=np.asarray(fine.mean),
            sd=np.sqrt(np.asarray(fine.variance)),
            undefined=float(np.sum(fine.num_undefined)) / num_points,
        )

    return Likelihood("quadrature", blocks.start, evaluate, describe)


@lru_cache(KEPT)
def _compiled(bare: ById, order: int) -> tuple[Any, Any]:
    """The likelihood with its derivatives, and the likelihood by two rules."""
    blocks = bare.value

    def total(theta: Array, at: Laplace, data: Any) -> Array:
        return jnp.sum(quadrature(blocks, theta, at, data, order).log_marginal)

    @jax.jit
    def local(theta: Array, start: Array, data: Any) -> Any:
        at = place(blocks, theta, start, data)

        def gradient(theta: Array) -> Any:  # once traced for value, gradient and Hessian
            value, slope = jax.value_and_grad(total)(theta, at, data)
            return slope, (value, slope)

        hessian, (value, slope) = jax.jacfwd(gradient, has_aux=True)(theta)
        return value, slope, hessian, at.mode

    @jax.jit
    def two_rules(theta: Array, start: Array, data: Any) -> Any:
        at = place(blocks, theta, start, data)
        return tuple(quadrature(blocks, theta, at, data, nodes) for nodes in (order, order + 4))

    return local, two_rules

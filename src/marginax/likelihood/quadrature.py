r"""log p_theta(y) of a grouped problem by adaptive Gauss-Hermite quadrature, group by group.

    log p_theta(y_g) = log sum_k w_k exp(|xi_k|^2 + l_g(theta, m_g + sqrt(2) R_g xi_k))
                       + (p / 2) log 2 + log |det R_g|

with the mode m_g of the group's posterior and R_g R_g^T the inverse of its curvature. Nodes do not
move in derivatives with respect to theta, which are then those of the integral.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from marginax._core.processes import whole
from marginax._core.programs import KEPT, ById
from marginax.likelihood.blocks import Blocks, as_blocks, chunk_of, finite_values, in_chunks, place
from marginax.likelihood.modes import Laplace
from marginax.likelihood.newton import Local
from marginax.likelihood.results import LikelihoodFunction, QuadratureLikelihood
from marginax.model.problem import Problem
from marginax.typing import Data

__all__ = [
    "GroupMoments",
    "MOST_DIMENSIONS",
    "ORDERS",
    "nodes_and_weights",
    "quadrature",
    "quadrature_likelihood",
]

MOST_DIMENSIONS = 3  # dimensions of a group's latent; beyond it the nodes are too many
ORDERS = {1: 25, 2: 15, 3: 11}  # nodes per dimension


class GroupMoments(NamedTuple):
    """What the quadrature knows of the groups' posteriors.

    Attributes:
        log_marginal: log p_theta(y_g), one per group.
        mean: E[x_g | y_g], on the reals.
        variance: Var[x_g | y_g], coordinate by coordinate.
        num_undefined: nodes at which the log density is NaN.
    """

    log_marginal: Float[Array, " groups"]
    mean: Float[Array, "groups p"]
    variance: Float[Array, "groups p"]
    num_undefined: Any


def nodes_and_weights(size: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """A product rule: nodes [K, size], and log weights that include exp(|xi|^2)."""
    xi, w = np.polynomial.hermite.hermgauss(order)
    grids = np.meshgrid(*[xi] * size, indexing="ij")
    logs = np.meshgrid(*[np.log(w) + xi**2] * size, indexing="ij")
    return (
        np.stack([grid.ravel() for grid in grids], axis=1),
        np.sum([log.ravel() for log in logs], axis=0),
    )


def quadrature(blocks: Blocks, theta: Array, at: Laplace, data: Data, order: int) -> GroupMoments:
    """The groups' log marginal likelihoods and posterior moments, with nodes placed at `at`."""
    size = at.mode.shape[1]
    nodes, log_weights = (
        jnp.asarray(part, at.mode.dtype) for part in nodes_and_weights(size, order)
    )

    at = jax.lax.stop_gradient(at)
    points = at.mode[None] + math.sqrt(2) * jnp.einsum("kq,bpq->kbp", nodes, at.root)
    values, undefined = finite_values(
        lambda x: blocks.log_densities(theta, x, data), points, at.mode
    )
    terms = values + log_weights[:, None]
    total = jax.nn.logsumexp(terms, axis=0)
    share = jnp.exp(terms - total[None])
    mean = jnp.einsum("kb,kbp->bp", share, points)
    variance = jnp.einsum("kb,kbp->bp", share, (points - mean[None]) ** 2)
    return GroupMoments(total + size / 2 * math.log(2) + at.log_root, mean, variance, undefined)


def quadrature_likelihood(
    problem: Problem, mesh: Mesh | None = None, *, order: int | None = None
) -> LikelihoodFunction:
    """Exact up to the error of the rule, which a finer one tells.

    Args:
        problem: grouped, in double precision.
        mesh: of devices that share the groups.
        order: nodes per dimension, if not the usual number.
    """
    blocks = as_blocks(problem, mesh)
    order = order or ORDERS[blocks.start.shape[1]]

    local, two_rules = _compiled(blocks.bare, order)
    chunks = in_chunks(blocks, order ** blocks.start.shape[1])

    def evaluate(theta: np.ndarray, start: Array) -> Local:
        parts = [local(jnp.asarray(theta), start[rows], chunk_of(blocks, rows)) for rows in chunks]
        values, gradients, hessians, modes = zip(*parts, strict=True)
        return Local(
            float(np.sum(jax.device_get(values))),
            np.sum(jax.device_get(gradients), axis=0),
            np.sum(jax.device_get(hessians), axis=0),
            jnp.concatenate(modes),
        )

    def describe(theta: np.ndarray, start: Array) -> QuadratureLikelihood:
        by_chunk = [
            two_rules(jnp.asarray(theta), start[rows], chunk_of(blocks, rows)) for rows in chunks
        ]
        coarse, fine = jax.tree.map(
            lambda *parts: np.concatenate([whole(part) for part in parts]), *by_chunk
        )
        difference = np.abs(np.asarray(fine.log_marginal - coarse.log_marginal))
        num_points = len(difference) * (order + 4) ** start.shape[1]
        return QuadratureLikelihood(
            log_likelihood=float(np.sum(fine.log_marginal)),
            error=float(np.sum(difference)),
            by_group=np.asarray(fine.log_marginal),
            mean=np.asarray(fine.mean),
            sd=np.sqrt(np.asarray(fine.variance)),
            undefined=float(np.sum(fine.num_undefined)) / num_points,
            num_nodes=order + 4,
        )

    return LikelihoodFunction(blocks.start, evaluate, describe)


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

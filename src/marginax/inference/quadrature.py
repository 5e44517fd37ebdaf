r"""log p_theta(y) of a grouped problem by adaptive Gauss-Hermite quadrature, group by group.

    log p_theta(y_g) = log sum_k w_k exp(|xi_k|^2 + l_g(theta, m_g + sqrt(2) R_g xi_k))
                       + (p / 2) log 2 + log |det R_g|

with the mode m_g of the group's posterior and R_g R_g^T the inverse of its curvature. Nodes do not
move in derivatives with respect to theta, which are then those of the integral.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.base import Data
from marginax.inference.blocks import Blocks, finite_values
from marginax.inference.modes import Laplace

__all__ = ["MOST_DIMENSIONS", "ORDERS", "GroupMoments", "nodes_and_weights", "quadrature"]

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

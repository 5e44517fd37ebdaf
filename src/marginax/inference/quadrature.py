r"""log p_theta(y) of a grouped problem by adaptive Gauss-Hermite quadrature, group by group.

    log p_theta(y_g) = log sum_k w_k exp(|xi_k|^2 + l_g(theta, m_g + sqrt(2) R_g xi_k))
                       + (p / 2) log 2 + log |det R_g|

with the mode m_g of the group's posterior and R_g R_g^T the inverse of its curvature. Nodes do not
move in derivatives with respect to theta, which are then those of the integral.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from marginax.base import Data, Theta
from marginax.inference.likelihood import one_latent
from marginax.inference.modes import Laplace, laplace
from marginax.problem import Problem

__all__ = ["LARGEST_BLOCK", "Moments", "nodes_and_weights", "place", "quadrature"]

LARGEST_BLOCK = 3  # dimensions of a group's latent; beyond it the nodes are too many
ORDERS = {1: 25, 2: 15, 3: 11}  # nodes per dimension


class Moments(NamedTuple):
    """What the quadrature knows of the groups' posteriors.

    Attributes:
        log_marginal: log p_theta(y_g), one per group.
        mean: E[x_g | y_g], on the reals.
        variance: Var[x_g | y_g], coordinate by coordinate.
    """

    log_marginal: Float[Array, " groups"]
    mean: Float[Array, "groups p"]
    variance: Float[Array, "groups p"]


def nodes_and_weights(size: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """A product rule: nodes [K, size], and log weights that include exp(|xi|^2)."""
    xi, w = np.polynomial.hermite.hermgauss(order)
    grids = np.meshgrid(*[xi] * size, indexing="ij")
    logs = np.meshgrid(*[np.log(w) + xi**2] * size, indexing="ij")
    return (
        np.stack([grid.ravel() for grid in grids], axis=1),
        np.sum([log.ravel() for log in logs], axis=0),
    )


def place(problem: Problem, theta: Theta, starts: Float[Array, "groups p"], data: Data) -> Laplace:
    """The mode and curvature of every group's posterior at theta, from the given starts."""
    _, unravel = ravel_pytree(one_latent(problem))

    def one(start: Float[Array, " p"], y: Data) -> Laplace:
        return laplace(lambda x: problem.free_group_log_joint(theta, unravel(x), y), start)

    return jax.vmap(one)(starts, data)


def quadrature(problem: Problem, theta: Theta, at: Laplace, data: Data, order: int) -> Moments:
    """The groups' log marginal likelihoods and posterior moments, with nodes placed at `at`."""
    _, unravel = ravel_pytree(one_latent(problem))
    size = at.mode.shape[1]
    nodes, log_weights = (
        jnp.asarray(part, at.mode.dtype) for part in nodes_and_weights(size, order)
    )

    def one(at: Laplace, y: Data) -> Moments:
        points = at.mode[None] + math.sqrt(2) * nodes @ at.root.T
        values = jax.vmap(lambda x: problem.free_group_log_joint(theta, unravel(x), y))(points)
        terms = values + log_weights
        total = jax.nn.logsumexp(terms)
        share = jnp.exp(terms - total)
        mean = share @ points
        variance = share @ (points - mean[None]) ** 2
        return Moments(total + size / 2 * math.log(2) + at.log_root, mean, variance)

    return jax.vmap(one)(jax.lax.stop_gradient(at), data)

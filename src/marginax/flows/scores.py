r"""The two gradients of the log joint over a cloud: all that the methods ever ask of a model.

theta score     (1/N) sum_j grad_theta l(theta, x_j)       an estimate of grad_theta log p_theta(y)
latent scores   grad_x l(theta, x_j), j = 1..N             the score of the posterior p_theta(x | y)

(Those that weigh or reject particles ask for the values l(theta, x_j) too.)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core.checks import check_scalar
from marginax._core.chunks import sum_over_groups
from marginax.model.log_joint import as_log_joint
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["latent_score", "latent_scores", "mean_log_joint", "theta_score", "values_and_scores"]

# Groups times particles whose gradient is taken at a time.
ROWS = 2**14


def mean_log_joint(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> jax.Array:
    """(1/N) sum_j l(theta, x_j): the part of the free energy that theta can change.

    Over a batch of groups it is rescaled to all of them.
    """
    mean = jnp.mean(
        jax.vmap(lambda latent: check_scalar(log_joint(theta, latent, data)))(particles)
    )
    weight = as_log_joint(log_joint).theta_weight(particles)
    return mean if weight == 1 else weight * mean


def theta_score(log_joint: LogDensity, theta: Theta, particles: Particles, data: Data) -> Theta:
    """(1/N) sum_j grad_theta l(theta, x_j), in one backward pass, or one per chunk of groups."""
    density = as_log_joint(log_joint)

    def score(some: Particles, given: Data) -> Theta:
        return jax.grad(lambda theta: mean_log_joint(log_joint, theta, some, given))(theta)

    def share(some: Particles, given: Data) -> Theta:
        # By itself, a chunk would count for all groups.
        part = density.theta_weight(particles) / density.theta_weight(some)
        return jax.tree.map(lambda leaf: part * leaf, score(some, given))

    size = density.chunk_size(particles, ROWS)
    if size is None:
        return score(particles, data)
    return sum_over_groups(share, particles, data, size)


def latent_score(log_joint: LogDensity, theta: Theta, latent: Latent, data: Data) -> Latent:
    """grad_x l(theta, x) of one latent."""
    return jax.grad(lambda latent: check_scalar(log_joint(theta, latent, data)))(latent)


def latent_scores(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> Particles:
    """grad_x l(theta, x_j) for every particle of the cloud."""
    return jax.vmap(lambda latent: latent_score(log_joint, theta, latent, data))(particles)


def values_and_scores(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> tuple[Float[Array, " n"], Particles]:
    """l(theta, x_j) and grad_x l(theta, x_j) for every particle of the cloud."""

    def value(latent: Latent) -> Array:
        return check_scalar(log_joint(theta, latent, data))

    return jax.vmap(jax.value_and_grad(value))(particles)

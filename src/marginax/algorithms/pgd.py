r"""PGD: gradient ascent in theta, independent Langevin particles; and PMGD, with an exact M-step.

    PGD    theta += h (1/N) sum_n grad_theta l(theta, X^n)
           X^n   += h grad_x l(theta, X^n) + sqrt(2h) W^n
    PMGD   theta  = theta*(X) = argmax_theta (1/N) sum_n l(theta, X^n)
           X^n   += h grad_x l(theta*(X), X^n) + sqrt(2h) W^n

PGD is simultaneous: both lines use the old pair (theta_k, X_k). In PMGD the particles see theta*(X)
of the SAME cloud, so theta goes first there.

References:
    Kuntz, Lim and Johansen (2023), Particle algorithms for maximum likelihood training of latent
    variable models, AISTATS.
"""

from typing import NamedTuple

import optax
from jaxtyping import ArrayLike

from marginax import langevin
from marginax.ascent import ExactMStep, Optimiser, as_optimiser, ascend, rescaled
from marginax.base import Algorithm, Data, Key, LogJoint, Particles, Theta
from marginax.checks import check_positive, check_start
from marginax.scores import latent_scores, theta_score

__all__ = ["PGDInfo", "PGDState", "pgd"]


class PGDState(NamedTuple):
    """State of PGD.

    Attributes:
        theta: the estimate.
        particles: the cloud.
        theta_optimiser_state: what the theta optimiser remembers.
    """

    theta: Theta
    particles: Particles
    theta_optimiser_state: optax.OptState


class PGDInfo(NamedTuple):
    """What one step of a Langevin method saw.

    Attributes:
        theta_score: the ascent direction of theta, before any optimiser.
        scores: the latent score of every particle, the drift of its Langevin move.
    """

    theta_score: Theta
    scores: Particles


def pgd(log_joint: LogJoint, theta_optimiser: Optimiser, step_size: ArrayLike) -> Algorithm:
    """Particle gradient descent.

    The particles take no optimiser: it would change the law they sample from.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimiser: any optax optimiser for theta, or a step size; `exact_m_step(...)` gives
            PMGD.
        step_size: h of the Langevin particles.

    Returns:
        The algorithm. It is stochastic: theta fluctuates about the estimate, so average its last
        iterates.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> method = mx.pgd(log_joint, 0.1, 0.1)
        >>> end = mx.trajectory(jax.random.key(0), method, 0.0, x0, y, 1000)
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    theta_first = isinstance(theta_optimiser, ExactMStep)
    theta_optimiser = as_optimiser(theta_optimiser, "theta_optimiser")
    check_positive(step_size, "step_size")

    def init(key: Key, theta: Theta, particles: Particles) -> PGDState:
        del key
        theta, particles = check_start(theta, particles)
        return PGDState(theta, particles, theta_optimiser.init(theta))

    def step(key: Key, state: PGDState, data: Data) -> tuple[PGDState, PGDInfo]:
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta, theta_optimiser_state = ascend(
            theta_optimiser,
            direction,
            state.theta_optimiser_state,
            state.theta,
            log_joint=log_joint,
            particles=state.particles,
            data=data,
        )
        theta_seen = theta if theta_first else state.theta
        scores = latent_scores(log_joint, theta_seen, state.particles, data)
        particles = langevin.overdamped(key, state.particles, scores, step_size)
        return PGDState(theta, particles, theta_optimiser_state), PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return pgd(log_joint, rescaled(theta_optimiser, factor), step_size * factor)

    return Algorithm(init, step, log_joint, rescale, stochastic=True)

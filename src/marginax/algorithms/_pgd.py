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

from marginax._core.checks import check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import ExactMStep, Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import latent_scores, theta_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["PGDInfo", "PGDState", "pgd"]


class PGDState(NamedTuple):
    """State of PGD.

    Attributes:
        theta: the estimate.
        particles: the cloud.
        theta_optimizer_state: what the theta optimizer remembers.
    """

    theta: Theta
    particles: Particles
    theta_optimizer_state: optax.OptState


class PGDInfo(NamedTuple):
    """What one step of a Langevin method saw.

    Attributes:
        theta_score: the ascent direction of theta, before any optimizer.
        scores: the latent score of every particle, the drift of its Langevin move.
    """

    theta_score: Theta
    scores: Particles


def pgd(log_joint: LogDensity, theta_optimizer: Optimizer, step_size: ArrayLike) -> Algorithm:
    """Particle gradient descent.

    The particles take no optimizer: it would change the law they sample from.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size; `exact_m_step(...)` gives
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
        >>> end = mx.trajectory(method, 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    theta_first = isinstance(theta_optimizer, ExactMStep)
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")

    def init(key: Key, theta: Theta, particles: Particles) -> PGDState:
        del key
        theta, particles = check_start(theta, particles)
        return PGDState(theta, particles, theta_optimizer.init(theta))

    def step(key: Key, state: PGDState, data: Data) -> tuple[PGDState, PGDInfo]:
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer,
            direction,
            state.theta_optimizer_state,
            state.theta,
            log_joint=log_joint,
            particles=state.particles,
            data=data,
        )
        theta_seen = theta if theta_first else state.theta
        scores = latent_scores(log_joint, theta_seen, state.particles, data)
        particles = langevin.overdamped(key, state.particles, scores, step_size)
        return PGDState(theta, particles, theta_optimizer_state), PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return pgd(log_joint, rescaled(theta_optimizer, factor), step_size * factor)

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        replicated=("theta", "theta_optimizer_state"),
    )

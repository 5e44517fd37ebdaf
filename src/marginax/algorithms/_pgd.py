r"""PGD: gradient ascent in theta, independent Langevin particles; and PMGD, with an exact M-step.

    PGD    theta += h (1/N) sum_n grad_theta l(theta, X^n)
           X^n   += h grad_x l(theta, X^n) + sqrt(2h) W^n
    PMGD   theta  = theta*(X) = argmax_theta (1/N) sum_n l(theta, X^n)
           X^n   += h grad_x l(theta*(X), X^n) + sqrt(2h) W^n

    MYPGD  PGD with grad f - (z - prox_lambda(z)) / lambda in the place of grad l, z = (theta, X^n),
           where l = f - g and g has no gradient everywhere but a proximal map (`flows.proximal`)

PGD is simultaneous: both lines use the old pair (theta_k, X_k). In PMGD the particles see theta*(X)
of the SAME cloud, so theta goes first there.

References:
    Kuntz, Lim and Johansen (2023), Particle algorithms for maximum likelihood training of latent
    variable models, AISTATS.
    Encinar, Crucinio and Akyildiz (2025), Proximal interacting particle Langevin algorithms, UAI.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike

from marginax._core.checks import check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, maximizes, rescaled
from marginax.flows.proximal import Prox, as_smooth
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


def pgd(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    step_size: ArrayLike,
    *,
    prox: Prox | None = None,
    smoothing: float | None = None,
) -> Algorithm:
    """Particle gradient descent.

    The particles take no optimizer: it would change the law they sample from.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data;
            with `prox`, its smooth part f.
        theta_optimizer: any optax optimizer for theta, or a step size; `exact_m_step(...)` gives
            PMGD.
        step_size: h of the Langevin particles.
        prox: `prox(theta, latent, scale) -> (theta, latent)`, the proximal map of the part g that
            has no gradient everywhere: MYPGD.
        smoothing: lambda, which it needs; h < 2 / (L + 1 / lambda).

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
    theta_first = maximizes(theta_optimizer)
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")
    smooth = as_smooth(prox, smoothing)
    if prox is not None and smooth is None:
        raise ValueError(
            "prox is given without smoothing: pgd takes it by its Moreau envelope, whose lambda "
            "you choose with smoothing=. `ipla(..., prox=prox)` takes proximal steps themselves."
        )

    def init(key: Key, theta: Theta, particles: Particles) -> PGDState:
        del key
        theta, particles = check_start(theta, particles)
        return PGDState(theta, particles, theta_optimizer.init(theta))

    def step(key: Key, state: PGDState, data: Data) -> tuple[PGDState, PGDInfo]:
        direction = theta_score(log_joint, state.theta, state.particles, data)
        if smooth is not None:
            pull, _ = smooth.pulls(state.theta, state.particles)
            direction = jax.tree.map(jnp.add, direction, pull)
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
        if smooth is not None:
            scores = jax.tree.map(jnp.add, scores, smooth.pulls(theta_seen, state.particles)[1])
        particles = langevin.overdamped(key, state.particles, scores, step_size)
        return PGDState(theta, particles, theta_optimizer_state), PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return pgd(
            log_joint,
            rescaled(theta_optimizer, factor),
            step_size * factor,
            prox=prox,
            smoothing=smoothing,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        replicated=("theta", "theta_optimizer_state"),
    )

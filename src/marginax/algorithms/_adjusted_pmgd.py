r"""Metropolis-adjusted PMGD: the exact M-step at every cloud, and no bias from the step.

PMGD's cloud is one Langevin chain on all particles together, as theta*(X) is where theta's gradient
vanishes:

    pi(X) ~ exp(sum_n l(theta*(X), X^n)),    grad_{X^n} log pi = grad_x l(theta*(X), X^n)

so that its moves can be kept or refused, all particles at once, as in MALA:

    Y^n = X^n + h grad_x l(theta*(X), X^n) + sqrt(2h) W^n
    X  <- Y with probability min(1, pi(Y) q(Y, X) / (pi(X) q(X, Y)));   theta = theta*(X)

References:
    Kuntz, Lim and Johansen (2023), Particle algorithms for maximum likelihood training of latent
    variable models, AISTATS: PMGD, and Metropolis-Hastings steps for it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from marginax._core.checks import check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import ExactMStep, ascend
from marginax.flows.scores import theta_score, values_and_scores
from marginax.model.log_joint import as_log_joint, require_density
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["AdjustedPMGDInfo", "AdjustedPMGDState", "adjusted_pmgd"]


class AdjustedPMGDState(NamedTuple):
    """State of Metropolis-adjusted PMGD.

    Attributes:
        theta: theta*(X) of this cloud; before the first step, what was given.
        particles: the cloud.
    """

    theta: Theta
    particles: Particles


class AdjustedPMGDInfo(NamedTuple):
    """What one step of Metropolis-adjusted PMGD saw.

    Attributes:
        theta_score: the gradient of the mean log joint at the theta before, over the cloud before.
        scores: the latent scores at the cloud before, the drift of the proposed move.
        acceptance: min(1, ratio) of the proposed move.
    """

    theta_score: Theta
    scores: Particles
    acceptance: Array


def adjusted_pmgd(log_joint: LogDensity, m_step: ExactMStep, step_size: ArrayLike) -> Algorithm:
    """PMGD whose moves are kept or refused, so that its law does not depend on the step.

    One answer for the whole cloud: the more particles and latents, the smaller the step must be for
    moves to be kept. Watch `info.acceptance`.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        m_step: `exact_m_step(maximizer)`, the argmax over all of theta.
        step_size: h of the moves.

    Returns:
        The algorithm. It is stochastic: theta fluctuates about the estimate, so average its last
        iterates.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((20, 3))
        >>> m_step = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
        >>> method = mx.adjusted_pmgd(log_joint, m_step, 0.1)
        >>> end = mx.trajectory(method, 0.0, x0, y, 3000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    if not isinstance(m_step, ExactMStep):
        raise TypeError(
            f"m_step is {m_step!r}, but adjusted_pmgd needs `exact_m_step(maximizer)`: its law is "
            "that of clouds with the maximum over all of theta at each. Without one take `pgd`."
        )
    check_positive(step_size, "step_size")
    require_density(log_joint, "adjusted_pmgd compares its values at different theta")

    def init(key: Key, theta: Theta, particles: Particles) -> AdjustedPMGDState:
        del key
        return AdjustedPMGDState(*check_start(theta, particles))

    def step(
        key: Key, state: AdjustedPMGDState, data: Data
    ) -> tuple[AdjustedPMGDState, AdjustedPMGDInfo]:
        if as_log_joint(log_joint).theta_weight(state.particles) != 1:
            raise ValueError(
                "adjusted_pmgd was given a batch of the groups, but a move is kept by the density "
                "of all of them: run it without batch_size, or take `pgd`."
            )
        move_key, accept_key = jax.random.split(key)
        direction = theta_score(log_joint, state.theta, state.particles, data)

        def best(cloud: Particles) -> Theta:
            return ascend(m_step, direction, (), state.theta, particles=cloud, data=data)[0]

        theta = best(state.particles)
        here = (state.particles, *values_and_scores(log_joint, theta, state.particles, data))
        proposed = langevin.overdamped(move_key, state.particles, here[2], step_size)
        theta_there = best(proposed)
        there = (proposed, *values_and_scores(log_joint, theta_there, proposed, data))
        ratio = jnp.sum(langevin.log_acceptance(here, there, step_size))
        accepted = jnp.log(jax.random.uniform(accept_key, (), ratio.dtype)) < ratio
        after = AdjustedPMGDState(
            langevin.keep(accepted, theta_there, theta),
            langevin.keep(accepted, proposed, state.particles),
        )
        return after, AdjustedPMGDInfo(direction, here[2], jnp.exp(jnp.minimum(ratio, 0)))

    def rescale(factor: ArrayLike) -> Algorithm:
        return adjusted_pmgd(log_joint, m_step, step_size * factor)

    return Algorithm(init, step, log_joint, rescale, stochastic=True)

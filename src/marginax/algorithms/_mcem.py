r"""MCEM: an E-step by Markov chains that are exact, and then any M-step over their cloud.

    X^n         K Metropolis-adjusted Langevin moves of step h at theta_t, every particle its own
    theta_{t+1} the step of the theta slot over the moved cloud: `exact_m_step`, or ascent

Chains go on where they were, so that few moves a step are enough once theta moves little. With
`conditional_m_steps` in the slot it is Monte Carlo ECM, or ECME.

References:
    Wei and Tanner (1990), A Monte Carlo implementation of the EM algorithm, JASA.
    Meng and Rubin (1993), Maximum likelihood estimation via the ECM algorithm, Biometrika.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike

from marginax._core.checks import check_count, check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import theta_score, values_and_scores
from marginax.typing import Count, Data, Key, LogDensity, Particles, Theta

__all__ = ["MCEMInfo", "MCEMState", "mcem"]


class MCEMState(NamedTuple):
    """State of MCEM.

    Attributes:
        theta: the estimate.
        particles: the last state of every chain.
        theta_optimizer_state: what the theta optimizer remembers.
    """

    theta: Theta
    particles: Particles
    theta_optimizer_state: optax.OptState


class MCEMInfo(NamedTuple):
    """What one step of MCEM saw.

    Attributes:
        theta_score: the ascent direction of theta over the moved cloud, before any optimizer.
        scores: the latent score of every particle of the moved cloud.
        acceptance: the share of moves that were kept. About 0.57 is best in many dimensions.
    """

    theta_score: Theta
    scores: Particles
    acceptance: Array


def mcem(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    step_size: ArrayLike,
    num_moves: Count = 10,
) -> Algorithm:
    """Monte Carlo EM.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: `exact_m_step(...)`, `conditional_m_steps(...)`, or any optax optimizer or
            step size for a generalised EM.
        step_size: h of the moves. They are adjusted, so that it decides how fast chains mix and
            not what they sample from.
        num_moves: K, moves of every chain between two steps of theta.

    Returns:
        The algorithm. It is stochastic: theta fluctuates about the estimate, so average its last
        iterates.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> m_step = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
        >>> method = mx.mcem(log_joint, m_step, 0.5, num_moves=5)
        >>> end = mx.trajectory(method, 0.0, x0, y, 500, key=jax.random.key(0))
        >>> bool(abs(end.history[100:].mean() - 2.0) < 0.05)  # the maximum likelihood estimate is 2
        True
    """
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")
    num_moves = check_count(num_moves, "num_moves")

    def init(key: Key, theta: Theta, particles: Particles) -> MCEMState:
        del key
        theta, particles = check_start(theta, particles)
        return MCEMState(theta, particles, theta_optimizer.init(theta))

    def step(key: Key, state: MCEMState, data: Data) -> tuple[MCEMState, MCEMInfo]:
        def at(cloud: Particles) -> tuple[Particles, Array, Particles]:
            return (cloud, *values_and_scores(log_joint, state.theta, cloud, data))

        def move(
            here: tuple[Particles, Array, Particles], key: Key
        ) -> tuple[tuple[Particles, Array, Particles], Array]:
            move_key, accept_key = jax.random.split(key)
            x, values, scores = here
            there = at(langevin.overdamped(move_key, x, scores, step_size))
            ratio = langevin.log_acceptance(here, there, step_size)
            height = jax.random.uniform(accept_key, ratio.shape, ratio.dtype)
            accepted = jnp.log(height) < ratio
            return langevin.keep(accepted, there, here), jnp.mean(accepted.astype(ratio.dtype))

        keys = jax.random.split(key, num_moves)
        (particles, _, scores), accepted = jax.lax.scan(move, at(state.particles), keys)
        direction = theta_score(log_joint, state.theta, particles, data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer,
            direction,
            state.theta_optimizer_state,
            state.theta,
            log_joint=log_joint,
            particles=particles,
            data=data,
        )
        after = MCEMState(theta, particles, theta_optimizer_state)
        return after, MCEMInfo(direction, scores, jnp.mean(accepted))

    def rescale(factor: ArrayLike) -> Algorithm:
        slower = rescaled(theta_optimizer, factor)
        return mcem(log_joint, slower, step_size * factor, num_moves)

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        replicated=("theta", "theta_optimizer_state"),
    )

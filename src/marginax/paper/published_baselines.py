"""The paper's released baselines where they differ from their own papers; used nowhere else.

MPGD: theta forgets the drift c1 m of its momentum, so that momentum only moves the point at which
the gradient is taken. SOUL: theta climbs the average over the chain BEFORE, not the new one.
"""

import optax
from jaxtyping import ArrayLike

from marginax import _tree, langevin
from marginax.algorithms import mpgd, soul
from marginax.algorithms.mpgd import MPGDState
from marginax.algorithms.pgd import PGDInfo
from marginax.algorithms.soul import SOULState
from marginax.base import Algorithm, Data, Key, LogJoint
from marginax.scores import latent_scores, theta_score

__all__ = ["mpgd_as_published", "soul_as_published"]


def mpgd_as_published(
    log_joint: LogJoint, step_size: ArrayLike, friction: ArrayLike, inverse_mass: ArrayLike
) -> Algorithm:
    """MPGD without the drift of theta's momentum."""
    coefficients = langevin.underdamped_coefficients(step_size, friction, inverse_mass)
    written = mpgd(log_joint, step_size, friction, inverse_mass)

    def step(key: Key, state: MPGDState, data: Data) -> tuple[MPGDState, PGDInfo]:
        ahead = _tree.add_scaled(state.theta, coefficients.drift, state.theta_momentum)
        direction = theta_score(log_joint, ahead, state.particles, data)
        moved, theta_momentum = langevin.underdamped(
            None, state.theta, state.theta_momentum, direction, coefficients
        )
        # moved = ahead + c2 G; the released code has theta + c2 G.
        theta = _tree.add_scaled(state.theta, 1.0, _tree.difference(moved, ahead))
        scores = latent_scores(log_joint, theta, state.particles, data)
        particles, particle_momentum = langevin.underdamped(
            key, state.particles, state.particle_momentum, scores, coefficients
        )
        state = MPGDState(theta, particles, theta_momentum, particle_momentum)
        return state, PGDInfo(direction, scores)

    return Algorithm(written.init, step, log_joint, stochastic=True)


def soul_as_published(log_joint: LogJoint, step_size: ArrayLike) -> Algorithm:
    """SOUL whose theta sees the chain of the step before."""
    chain = soul(log_joint, optax.set_to_zero(), step_size)

    def step(key: Key, state: SOULState, data: Data) -> tuple[SOULState, PGDInfo]:
        direction = theta_score(log_joint, state.theta, state.particles, data)
        after, info = chain.step(key, state, data)
        theta = _tree.add_scaled(state.theta, step_size, direction)
        return after._replace(theta=theta), PGDInfo(direction, info.scores)

    return Algorithm(chain.init, step, log_joint, stochastic=True, over=None)

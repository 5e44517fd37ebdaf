r"""Joint ascent: theta climbs the mean score, every particle its own at the NEW theta.

    theta_{t+1} = theta_t + h (1/N) sum_j grad_theta l(theta_t, x_t^j)
    x_{t+1}^j   = x_t^j + h grad_x l(theta_{t+1}, x_t^j)

A skeleton to copy, and not a method to use: particles that neither repel each other nor
are shaken all end at the posterior's mode, so that theta is right only where the mode is
as good as the mean.

References:
    The paper, its year, where it appeared, and the number of its algorithm.
"""

from typing import NamedTuple

from jaxtyping import ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows.scores import latent_scores, theta_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["JointAscentInfo", "JointAscentState", "joint_ascent"]


class JointAscentState(NamedTuple):
    """State of joint ascent; what a method remembers comes after these two, a line each.

    Attributes:
        theta: the estimate.
        particles: the cloud.
    """

    theta: Theta
    particles: Particles


class JointAscentInfo(NamedTuple):
    """What one step saw.

    Attributes:
        theta_score: the ascent direction of theta; zero at a fixed point.
        velocity: in which every particle moved; zero at a fixed point. A stochastic method
            has `scores` in its place: import `PGDInfo`.
    """

    theta_score: Theta
    velocity: Particles


def joint_ascent(log_joint: LogDensity, step_size: ArrayLike) -> Algorithm:
    """Gradient ascent of theta and of every particle.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and
            the data.
        step_size: h, of theta and of the particles.

    Returns:
        The algorithm. It is deterministic, so the keys are not used.
    """
    check_positive(step_size, "step_size")

    def init(key: Key, theta: Theta, particles: Particles) -> JointAscentState:
        del key
        return JointAscentState(*check_start(theta, particles))

    def step(
        key: Key, state: JointAscentState, data: Data
    ) -> tuple[JointAscentState, JointAscentInfo]:
        del key
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta = trees.add_scaled(state.theta, step_size, direction)
        # At the new theta: with the old one this would be another method.
        velocity = latent_scores(log_joint, theta, state.particles, data)
        particles = trees.add_scaled(state.particles, step_size, velocity)
        return JointAscentState(theta, particles), JointAscentInfo(direction, velocity)

    def rescale(factor: ArrayLike) -> Algorithm:
        return joint_ascent(log_joint, step_size * factor)

    return Algorithm(init, step, log_joint, rescale)

r"""What the released code of the M-SVGD-EM paper computes, for comparison; used nowhere else.

It differs from Algorithm 1 of the paper in its kernel, its momentum and its order:

    theta_{t+1}  = theta~_t + gamma (1/N) sum_j grad_theta l(theta~_t, x~_t^j)
    x_{t+1}      = x~_t + gamma phi-(x~_t; theta~_t)                  at the OLD pair, both of them
    theta~_{t+1} = theta_{t+1} + alpha (theta_{t+1} - theta~_{t-1})   a heavy ball
    x~_{t+1}     = x_{t+1} + alpha (x_{t+1} - x~_t)                   no memory at all

The particles' "momentum" is plain SVGD with step (1 + alpha) gamma.

phi- has the gradient of the kernel in its other argument, so that the particles attract each other
and the cloud collapses to the mode of the joint. What is recorded is the extrapolated pair.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike

from marginax._core import linalg, trees
from marginax._core.checks import check_start
from marginax.algorithms import mpgd, soul
from marginax.algorithms._mpgd import MPGDState
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms._soul import SOULState
from marginax.algorithms._svgd_em import SVGDEMInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend
from marginax.flows.scores import latent_scores, theta_score
from marginax.kernels import radial
from marginax.kernels.base import Kernel
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = [
    "AsPublishedState",
    "as_published",
    "attracting_rbf",
    "mpgd_as_published",
    "soul_as_published",
]


class AsPublishedState(NamedTuple):
    """State of the released code.

    Attributes:
        theta: the extrapolated theta~_t, which is what the released code records.
        particles: the extrapolated cloud x~_t.
        theta_before: theta~_{t-1}.
        theta_optimizer_state: what the theta optimizer remembers.
        particle_optimizer_state: what the particle optimizer remembers.
    """

    theta: Theta
    particles: Particles
    theta_before: Theta
    theta_optimizer_state: optax.OptState
    particle_optimizer_state: optax.OptState


def as_published(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    particle_optimizer: Optimizer,
    kernel: Kernel,
    *,
    theta_momentum: ArrayLike,
    particle_momentum: ArrayLike,
) -> Algorithm:
    """The released code's "momentum SVGD-EM", to be given `attracting_rbf(5.0)`.

    Args:
        log_joint: `log_joint(theta, latent, data)`.
        theta_optimizer: a step size, or any optax optimizer.
        particle_optimizer: likewise, for the cloud.
        kernel: its closed-form RBF and median kernels had the right sign, its default one not.
        theta_momentum: alpha of the heavy ball.
        particle_momentum: alpha of the longer step.
    """
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    particle_optimizer = as_optimizer(particle_optimizer, "particle_optimizer")

    def init(key: Key, theta: Theta, particles: Particles) -> AsPublishedState:
        del key
        theta, particles = check_start(theta, particles)
        return AsPublishedState(
            theta,
            particles,
            theta,
            theta_optimizer.init(theta),
            particle_optimizer.init(particles),
        )

    def step(key: Key, state: AsPublishedState, data: Data) -> tuple[AsPublishedState, SVGDEMInfo]:
        del key
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer, direction, state.theta_optimizer_state, state.theta
        )
        scores = latent_scores(log_joint, state.theta, state.particles, data)
        velocity = kernel.velocity(state.particles, scores)
        particles, particle_optimizer_state = ascend(
            particle_optimizer, velocity, state.particle_optimizer_state, state.particles
        )
        state = AsPublishedState(
            trees.add_scaled(theta, theta_momentum, trees.difference(theta, state.theta_before)),
            trees.add_scaled(
                particles, particle_momentum, trees.difference(particles, state.particles)
            ),
            state.theta,
            theta_optimizer_state,
            particle_optimizer_state,
        )
        return state, SVGDEMInfo(direction, velocity)

    own = ("theta", "theta_before", "theta_optimizer_state")
    return Algorithm(init, step, log_joint, replicated=own)


def attracting_rbf(bandwidth: float) -> Kernel:
    """exp(-r^2 / (2 h^2)) with its gradient taken at x_i instead of x_j: the repulsion's sign."""

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        gram = jnp.exp(-linalg.squared_distances(x) / (2 * bandwidth**2))
        strength = jnp.asarray(-1 / bandwidth**2, x.dtype)
        return trees.unravel_cloud(radial.radial_velocity(x, s, gram, gram, strength), particles)

    return Kernel(velocity, f"attracting_rbf({bandwidth})")


def mpgd_as_published(
    log_joint: LogDensity, step_size: ArrayLike, friction: ArrayLike, inverse_mass: ArrayLike
) -> Algorithm:
    """MPGD without the drift of theta's momentum, whose particles see the theta before the step.

        ahead = theta + c1 m;   G = (1/N) sum_n grad_theta l(ahead, X^n)
        s = grad_x l(theta, X)           at the OLD theta; MPGD has it at the new one
        theta <- theta + c2 G            without c1 m; MPGD has ahead + c2 G

    The rest is `mpgd`.
    """
    coefficients = langevin.underdamped_coefficients(step_size, friction, inverse_mass)
    written = mpgd(log_joint, step_size, friction, inverse_mass)

    def step(key: Key, state: MPGDState, data: Data) -> tuple[MPGDState, PGDInfo]:
        ahead = trees.add_scaled(state.theta, coefficients.drift, state.theta_momentum)
        direction = theta_score(log_joint, ahead, state.particles, data)
        moved, theta_momentum = langevin.underdamped(
            None, state.theta, state.theta_momentum, direction, coefficients
        )
        # moved = ahead + c2 G; the released code has theta + c2 G.
        theta = trees.add_scaled(state.theta, 1.0, trees.difference(moved, ahead))
        scores = latent_scores(log_joint, state.theta, state.particles, data)
        particles, particle_momentum = langevin.underdamped(
            key, state.particles, state.particle_momentum, scores, coefficients
        )
        state = state._replace(
            theta=theta,
            particles=particles,
            theta_momentum=theta_momentum,
            particle_momentum=particle_momentum,
        )
        return state, PGDInfo(direction, scores)

    return Algorithm(written.init, step, log_joint, stochastic=True)


def soul_as_published(log_joint: LogDensity, step_size: ArrayLike) -> Algorithm:
    """SOUL whose theta sees the chain of the step before."""
    chain = soul(log_joint, optax.set_to_zero(), step_size)

    def step(key: Key, state: SOULState, data: Data) -> tuple[SOULState, PGDInfo]:
        direction = theta_score(log_joint, state.theta, state.particles, data)
        after, info = chain.step(key, state, data)
        theta = trees.add_scaled(state.theta, step_size, direction)
        return after._replace(theta=theta), PGDInfo(direction, info.scores)

    return Algorithm(chain.init, step, log_joint, stochastic=True, blocks=None)

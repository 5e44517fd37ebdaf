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

from marginax import _tree, stein
from marginax.algorithms.svgd_em import SVGDEMInfo
from marginax.ascent import Optimiser, as_optimiser, ascend
from marginax.base import Algorithm, Data, Key, LogJoint, Particles, Theta
from marginax.checks import check_start
from marginax.scores import latent_scores, theta_score

__all__ = ["AsPublishedState", "as_published", "attracting_rbf"]


class AsPublishedState(NamedTuple):
    """State of the released code.

    Attributes:
        theta: the extrapolated theta~_t, which is what the released code records.
        particles: the extrapolated cloud x~_t.
        theta_before: theta~_{t-1}.
        theta_optimiser_state: what the theta optimiser remembers.
        particle_optimiser_state: what the particle optimiser remembers.
    """

    theta: Theta
    particles: Particles
    theta_before: Theta
    theta_optimiser_state: optax.OptState
    particle_optimiser_state: optax.OptState


def as_published(
    log_joint: LogJoint,
    theta_optimiser: Optimiser,
    particle_optimiser: Optimiser,
    kernel: stein.Kernel,
    *,
    theta_momentum: ArrayLike,
    particle_momentum: ArrayLike,
) -> Algorithm:
    """The released code's "momentum SVGD-EM", to be given `attracting_rbf(5.0)`.

    Args:
        log_joint: `log_joint(theta, latent, data)`.
        theta_optimiser: a step size, or any optax optimiser.
        particle_optimiser: likewise, for the cloud.
        kernel: its closed-form RBF and median kernels had the right sign, its default one not.
        theta_momentum: alpha of the heavy ball.
        particle_momentum: alpha of the longer step.
    """
    theta_optimiser = as_optimiser(theta_optimiser, "theta_optimiser")
    particle_optimiser = as_optimiser(particle_optimiser, "particle_optimiser")

    def init(key: Key, theta: Theta, particles: Particles) -> AsPublishedState:
        del key
        theta, particles = check_start(theta, particles)
        return AsPublishedState(
            theta,
            particles,
            theta,
            theta_optimiser.init(theta),
            particle_optimiser.init(particles),
        )

    def step(key: Key, state: AsPublishedState, data: Data) -> tuple[AsPublishedState, SVGDEMInfo]:
        del key
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta, theta_optimiser_state = ascend(
            theta_optimiser, direction, state.theta_optimiser_state, state.theta
        )
        scores = latent_scores(log_joint, state.theta, state.particles, data)
        velocity = stein.velocity(kernel, state.particles, scores)
        particles, particle_optimiser_state = ascend(
            particle_optimiser, velocity, state.particle_optimiser_state, state.particles
        )
        state = AsPublishedState(
            _tree.add_scaled(theta, theta_momentum, _tree.difference(theta, state.theta_before)),
            _tree.add_scaled(
                particles, particle_momentum, _tree.difference(particles, state.particles)
            ),
            state.theta,
            theta_optimiser_state,
            particle_optimiser_state,
        )
        return state, SVGDEMInfo(direction, velocity)

    return Algorithm(init, step, log_joint)


def attracting_rbf(bandwidth: float) -> stein.Kernel:
    """exp(-r^2 / (2 h^2)) with its gradient taken at x_i instead of x_j: the repulsion's sign."""

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        gram = jnp.exp(-stein.squared_distances(x) / (2 * bandwidth**2))
        strength = jnp.asarray(-1 / bandwidth**2, x.dtype)
        return _tree.unravel_cloud(stein.radial_velocity(x, s, gram, gram, strength), particles)

    return stein.Kernel(velocity, f"attracting_rbf({bandwidth})")

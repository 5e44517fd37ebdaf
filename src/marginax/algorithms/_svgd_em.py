r"""SVGD-EM: theta climbs the mean score, the cloud follows its Stein velocity at the NEW theta.

    theta_{t+1} = theta_t + gamma (1/N) sum_j grad_theta l(theta_t, x_t^j)
    x_{t+1}     = x_t + gamma phi(x_t; theta_{t+1})

References:
    Sharrock, Dodd and Nemeth (2024), Tuning-free maximum likelihood training of latent variable
    models via coin betting, AISTATS; in the semi-implicit order of Rozzio, Athanasiades and
    Akyildiz (2026).
"""

from typing import Any, NamedTuple

import optax
from jaxtyping import ArrayLike

from marginax._core.checks import check_start
from marginax._core.partition import check_spread
from marginax.algorithms.contract import Algorithm
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import theta_score
from marginax.flows.stein import carried, flow, memory_of
from marginax.flows.units import Metric, check_metric
from marginax.kernels.base import Kernel, check_kernel
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["SVGDEMInfo", "SVGDEMState", "svgd_em"]


class SVGDEMState(NamedTuple):
    """State of SVGD-EM.

    Attributes:
        theta: the estimate.
        particles: the cloud.
        theta_optimizer_state: what the theta optimizer remembers.
        particle_optimizer_state: what the particle optimizer remembers, for every particle
            coordinate.
        metric_state: what the metric remembers of the units before.
    """

    theta: Theta
    particles: Particles
    theta_optimizer_state: optax.OptState
    particle_optimizer_state: optax.OptState
    metric_state: Any = ()


class SVGDEMInfo(NamedTuple):
    """What one step of a Stein method saw.

    Attributes:
        theta_score: the ascent direction of theta, before any optimizer; zero at a fixed point.
        velocity: the Stein velocity of every particle, before any optimizer; zero at a fixed
            point. Under a metric H it is H phi, which has the units of the scores too.
    """

    theta_score: Theta
    velocity: Particles


def svgd_em(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    particle_optimizer: Optimizer,
    kernel: Kernel,
    *,
    particle_metric: Metric | None = None,
) -> Algorithm:
    """Stein variational gradient descent EM.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size (plain gradient ascent).
        particle_optimizer: any optax optimizer for the cloud, which it sees as one [N, ...] array
            per leaf, or a step size.
        kernel: from `marginax.kernels`.
        particle_metric: `metrics.curvature()` lets every block of particles move in its own
            curvature.

    Returns:
        The algorithm. It is deterministic, so the keys are not used.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
        >>> end = mx.trajectory(method, 0.0, x0, y, 500, key=jax.random.key(1))
        >>> round(float(end.theta), 2)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    check_kernel(kernel)
    check_metric(particle_metric)
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    particle_optimizer = as_optimizer(particle_optimizer, "particle_optimizer")

    def init(key: Key, theta: Theta, particles: Particles) -> SVGDEMState:
        del key
        theta, particles = check_start(theta, particles)
        check_spread(kernel.blocks, particles)
        return SVGDEMState(
            theta,
            particles,
            theta_optimizer.init(theta),
            particle_optimizer.init(particles),
            memory_of(particle_metric, particles),
        )

    def step(key: Key, state: SVGDEMState, data: Data) -> tuple[SVGDEMState, SVGDEMInfo]:
        del key
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
        # The particles see theta_{t+1}, not theta_t.
        metric_state, (before,) = carried(
            particle_metric, state.metric_state, theta, (state.particles,), data
        )
        velocity, uphill = flow(
            kernel, particle_metric, log_joint, theta, before, data, metric_state
        )
        particles, particle_optimizer_state = ascend(
            particle_optimizer, velocity, state.particle_optimizer_state, before
        )
        state = SVGDEMState(
            theta, particles, theta_optimizer_state, particle_optimizer_state, metric_state
        )
        return state, SVGDEMInfo(direction, uphill)

    def rescale(factor: ArrayLike) -> Algorithm:
        return svgd_em(
            log_joint,
            rescaled(theta_optimizer, factor),
            rescaled(particle_optimizer, factor),
            kernel,
            particle_metric=particle_metric,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=kernel.random,
        blocks=kernel.blocks,
        frame=None if particle_metric is None else particle_metric.frame,
        replicated=("theta", "theta_optimizer_state", "metric_state"),
    )

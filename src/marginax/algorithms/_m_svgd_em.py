r"""M-SVGD-EM: SVGD-EM with Nesterov acceleration of both theta and the particles. The flagship.

Start with theta~_0 = theta_0, x~_0 = x_0, and repeat:

    theta_{t+1}  = theta~_t + gamma (1/N) sum_j grad_theta l(theta~_t, x_t^j)
    theta~_{t+1} = theta_{t+1} + alpha_theta (theta_{t+1} - theta_t)
    x_{t+1}      = x~_t + gamma phi(x~_t; theta_{t+1})
    x~_{t+1}     = x_{t+1} + alpha_X (x_{t+1} - x_t)

References:
    Rozzio, Athanasiades and Akyildiz (2026), Momentum SVGD-EM for accelerated maximum marginal
    likelihood estimation, AISTATS, Algorithms 1 (a step size in both slots) and 2 (AdaGrad in both
    slots).
"""

from typing import Any, NamedTuple

import optax
from jaxtyping import ArrayLike

from marginax._core.checks import check_start
from marginax._core.partition import check_spread
from marginax.algorithms._svgd_em import SVGDEMInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import momentum
from marginax.flows.momentum import MomentumRule, as_rule, look_ahead
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import theta_score
from marginax.flows.stein import carried, flow, memory_of
from marginax.flows.units import Metric, check_metric
from marginax.kernels.base import Kernel, check_kernel
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["MSVGDEMState", "m_svgd_em"]


class MSVGDEMState(NamedTuple):
    """State of M-SVGD-EM.

    Attributes:
        theta: the estimate, theta_t; report this, never the look-ahead.
        particles: the cloud, x_t.
        theta_ahead: theta~_t, where the next theta gradient is taken.
        particles_ahead: x~_t, where the next velocity is taken.
        theta_optimizer_state: what the theta optimizer remembers.
        particle_optimizer_state: what the particle optimizer remembers, for every particle
            coordinate.
        theta_momentum_state: what the momentum rule of theta remembers.
        particle_momentum_state: what the momentum rule of the particles remembers.
        metric_state: what the metric remembers of the units before.
    """

    theta: Theta
    particles: Particles
    theta_ahead: Theta
    particles_ahead: Particles
    theta_optimizer_state: optax.OptState
    particle_optimizer_state: optax.OptState
    theta_momentum_state: Any
    particle_momentum_state: Any
    metric_state: Any


def m_svgd_em(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    particle_optimizer: Optimizer,
    kernel: Kernel,
    *,
    theta_momentum: MomentumRule | ArrayLike = 0.9,
    particle_momentum: MomentumRule | ArrayLike = 0.9,
    particle_metric: Metric | None = None,
) -> Algorithm:
    """Momentum Stein variational gradient descent EM.

    With both momenta 0 this is `svgd_em`, bit for bit. With `optax.set_to_zero()` in the theta slot
    it is the sampler SVGD-WNes of Liu et al. (2019), a cloud that runs to the posterior at the
    given theta; SVGD-WAG with `momentum.wag()` for the particles, and SVGD-RAGD with
    `momentum.riemannian(0.9)`.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size. It is given the look-ahead
            theta~_t as its params, and the momentum is applied after its update.
        particle_optimizer: the same for the cloud, which it sees as one [N, ...] array per leaf.
        kernel: from `marginax.kernels`.
        theta_momentum: a number in [0, 1) or a rule of `marginax.momentum`.
        particle_momentum: likewise, for the particles.
        particle_metric: `metrics.curvature()` lets every block of particles move in its own
            curvature, with a step of a quarter to a half whatever the model (`tuning_free`).

    Returns:
        The algorithm. It is deterministic, so the keys are not used.

    Example:
        The estimate, and then the sampler: with theta held fixed the cloud alone moves.

        >>> import jax, jax.numpy as jnp, optax, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (20, 3))
        >>> method = mx.m_svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
        >>> end = mx.trajectory(method, 0.0, x0, y, 200, key=jax.random.key(1))
        >>> round(float(end.theta), 2)  # the maximum likelihood estimate is the mean of y
        2.0
        >>> sampler = mx.m_svgd_em(log_joint, optax.set_to_zero(), 0.1, mx.kernels.rbf(1.0))
        >>> end = mx.trajectory(sampler, 0.0, x0, y, 200, key=jax.random.key(1))
        >>> end.theta.item(), end.particles.mean(0).round(2).tolist()  # the posterior mean is y / 2
        (0.0, [0.5, 1.0, 1.5])

        Algorithm 2 of the paper is AdaGrad in both slots, each with an accumulator of its own:

        >>> adagrad = optax.adagrad(0.5, initial_accumulator_value=0.0, eps=0.0)
        >>> method = mx.m_svgd_em(log_joint, adagrad, adagrad, mx.kernels.rbf(1.0))
    """
    check_kernel(kernel)
    check_metric(particle_metric)
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    particle_optimizer = as_optimizer(particle_optimizer, "particle_optimizer")
    theta_rule = as_rule(theta_momentum, "theta_momentum")
    particle_rule = as_rule(particle_momentum, "particle_momentum")
    if theta_rule.match is not None:
        raise ValueError(
            "theta_momentum is momentum.riemannian(...), which matches particles with those of the "
            "step before; theta is none. Give theta the rule itself."
        )

    def init(key: Key, theta: Theta, particles: Particles) -> MSVGDEMState:
        del key
        theta, particles = check_start(theta, particles)
        check_spread(kernel.blocks, particles)
        return MSVGDEMState(
            theta=theta,
            particles=particles,
            theta_ahead=theta,
            particles_ahead=particles,
            theta_optimizer_state=theta_optimizer.init(theta),
            particle_optimizer_state=particle_optimizer.init(particles),
            theta_momentum_state=momentum.start(theta_rule, theta),
            particle_momentum_state=momentum.start(particle_rule, particles),
            metric_state=memory_of(particle_metric, particles),
        )

    def step(key: Key, state: MSVGDEMState, data: Data) -> tuple[MSVGDEMState, SVGDEMInfo]:
        del key
        # The gradient is taken at the look-ahead theta~_t, but over the particles x_t, not x~_t.
        direction = theta_score(log_joint, state.theta_ahead, state.particles, data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer,
            direction,
            state.theta_optimizer_state,
            state.theta_ahead,
            log_joint=log_joint,
            particles=state.particles,
            data=data,
        )
        theta_ahead, theta_momentum_state = look_ahead(
            theta_rule, state.theta_momentum_state, direction, theta, state.theta, state.theta_ahead
        )
        metric_state, (before, before_ahead) = carried(
            particle_metric,
            state.metric_state,
            theta,
            (state.particles, state.particles_ahead),
            data,
        )
        # The velocity is taken at x~_t, and with theta_{t+1}, not its look-ahead.
        velocity, uphill = flow(
            kernel, particle_metric, log_joint, theta, before_ahead, data, metric_state
        )
        particles, particle_optimizer_state = ascend(
            particle_optimizer, velocity, state.particle_optimizer_state, before_ahead
        )
        particles_ahead, particle_momentum_state = look_ahead(
            particle_rule,
            state.particle_momentum_state,
            uphill,
            particles,
            before,
            before_ahead,
        )
        state = MSVGDEMState(
            theta,
            particles,
            theta_ahead,
            particles_ahead,
            theta_optimizer_state,
            particle_optimizer_state,
            theta_momentum_state,
            particle_momentum_state,
            metric_state,
        )
        return state, SVGDEMInfo(direction, uphill)

    def rescale(factor: ArrayLike) -> Algorithm:
        return m_svgd_em(
            log_joint,
            rescaled(theta_optimizer, factor),
            rescaled(particle_optimizer, factor),
            kernel,
            theta_momentum=theta_rule,
            particle_momentum=particle_rule,
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
        reset_on_backtrack=(
            "theta_ahead",
            "particles_ahead",
            "theta_momentum_state",
            "particle_momentum_state",
        ),
        replicated=(
            "theta",
            "theta_ahead",
            "theta_optimizer_state",
            "theta_momentum_state",
            "metric_state",
        ),
    )

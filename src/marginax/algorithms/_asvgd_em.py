r"""ASVGD-EM: theta climbs, and the cloud follows an accelerated Stein flow, a heavy ball.

    theta_{t+1} = theta_t + gamma (1/N) sum_j grad_theta l(theta_t, x_t^j)
    Y_{t+1}     = alpha_k Y_t + sqrt(tau) phi(x_t; theta_{t+1})              Y_0 = 0
    x_{t+1}     = x_t + sqrt(tau) Y_{t+1}

alpha_k = k / (k + 3), k = 0, 1, ... counted since the last restart. Unlike M-SVGD-EM, which takes
its velocity at a look-ahead, momentum is kept in Y here. The terms of the paper that are quadratic
in V = N (K + N eps I)^-1 Y are left out; on a Gaussian target they made no difference.

References:
    Stein and Li (2025), Accelerated Stein variational gradient flow.
    Su, Boyd and Candes (2016), A differential equation for modeling Nesterov's accelerated gradient
    method: the speed restart.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax._core.partition import check_spread
from marginax.algorithms._svgd_em import SVGDEMInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import latent_scores, theta_score
from marginax.kernels.base import Kernel, check_kernel
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["ASVGDEMState", "asvgd_em"]


class ASVGDEMState(NamedTuple):
    """State of ASVGD-EM.

    Attributes:
        theta: the estimate.
        particles: the cloud.
        particle_velocity: Y, what the cloud remembers of its motion.
        momentum_count: k, the steps since the last restart.
        momentum_speed: the length of the cloud's last move, for the speed restart; 0 after one.
        theta_optimizer_state: what the theta optimizer remembers.
    """

    theta: Theta
    particles: Particles
    particle_velocity: Particles
    momentum_count: Array
    momentum_speed: Array
    theta_optimizer_state: optax.OptState


def asvgd_em(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    step_size: ArrayLike,
    kernel: Kernel,
    *,
    restart: bool = True,
) -> Algorithm:
    """Accelerated Stein variational gradient flow, with theta climbing beside it.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size.
        step_size: tau of the cloud; both updates of a step carry its root.
        kernel: from `marginax.kernels`.
        restart: start the count k again whenever the cloud slows down (speed restart).

    Returns:
        The algorithm. It is deterministic, so the keys are not used.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.asvgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
        >>> end = mx.trajectory(method, 0.0, x0, y, 300, key=jax.random.key(1))
        >>> round(float(end.theta), 2)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    check_kernel(kernel)
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")

    def init(key: Key, theta: Theta, particles: Particles) -> ASVGDEMState:
        del key
        theta, particles = check_start(theta, particles)
        check_spread(kernel.blocks, particles)
        at_rest = jax.tree.map(jnp.zeros_like, particles)
        return ASVGDEMState(
            theta=theta,
            particles=particles,
            particle_velocity=at_rest,
            momentum_count=jnp.zeros((), jnp.int32),
            momentum_speed=jnp.zeros_like(trees.inner(at_rest, at_rest)),
            theta_optimizer_state=theta_optimizer.init(theta),
        )

    def step(key: Key, state: ASVGDEMState, data: Data) -> tuple[ASVGDEMState, SVGDEMInfo]:
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
        scores = latent_scores(log_joint, theta, state.particles, data)
        velocity = kernel.velocity(state.particles, scores)
        root = jnp.sqrt(jnp.asarray(step_size))
        k = state.momentum_count.astype(state.momentum_speed.dtype)
        kept = jax.tree.map(lambda y: (k / (k + 3)).astype(y.dtype) * y, state.particle_velocity)
        particle_velocity = trees.add_scaled(kept, root, velocity)
        particles = trees.add_scaled(state.particles, root, particle_velocity)
        speed = jnp.sqrt(trees.inner(particle_velocity, particle_velocity))
        slower = (speed < state.momentum_speed) if restart else jnp.zeros((), bool)
        # Without momentum the next move is shorter still: it must not count as slowing down again.
        speed = jnp.where(slower, 0, speed)
        state = ASVGDEMState(
            theta,
            particles,
            particle_velocity,
            jnp.where(slower, 0, state.momentum_count + 1),
            speed,
            theta_optimizer_state,
        )
        return state, SVGDEMInfo(direction, velocity)

    def rescale(factor: ArrayLike) -> Algorithm:
        return asvgd_em(
            log_joint,
            rescaled(theta_optimizer, factor),
            step_size * factor,
            kernel,
            restart=restart,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        blocks=kernel.blocks,
        reset_on_backtrack=("particle_velocity", "momentum_count", "momentum_speed"),
        replicated=("theta", "theta_optimizer_state"),
    )

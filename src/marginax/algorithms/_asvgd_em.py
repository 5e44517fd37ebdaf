r"""ASVGD-EM: theta climbs, and the cloud follows an accelerated Stein flow, a heavy ball.

    theta_{t+1} = theta_t + gamma (1/N) sum_j grad_theta l(theta_t, x_t^j)
    Y_{t+1}     = alpha_k Y_t + sqrt(tau) [ phi(x_t; theta_{t+1}) + Q(x_t, Y_t) ]       Y_0 = 0
    x_{t+1}     = x_t + sqrt(tau) Y_{t+1}

alpha_k = k / (k + 3), k = 0, 1, ... counted since the last restart, or a constant. Unlike
M-SVGD-EM, which takes its velocity at a look-ahead, momentum is kept in Y here. Q are the terms
that are quadratic in V = N (K + N eps I)^-1 Y: see `flows.accelerated`. Without them the method is
a heavy ball. A restart sets k to 0, so that Y is forgotten in the next step:

    "speed"      the cloud moves less than in the step before (for all particles together)
    "particles"  likewise, every particle for itself
    "gradient"   the cloud moves against its velocity, sum_i <phi_i, Y_i> < 0

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
from marginax.flows.accelerated import QUADRATIC, quadratic_terms
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
        momentum_count: k, the steps since the last restart; of every particle if each has its own.
        momentum_speed: the length of the last move, likewise; 0 after a restart.
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
    quadratic: str | None = "exact",
    ridge: float = 0.1,
    damping: float | None = None,
    restart: str | None = "speed",
) -> Algorithm:
    """Accelerated Stein variational gradient flow, with theta climbing beside it.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size.
        step_size: tau of the cloud; both updates of a step carry its root.
        kernel: from `marginax.kernels`; of the distance, or `blockwise` of one, for the quadratic
            terms.
        quadratic: the terms Q: "exact", "as_released" for those of the authors' file, or None to
            leave them out.
        ridge: eps in V; the smaller, the closer to the flow and the worse its matrix.
        damping: alpha as a constant between 0 and 1; by default it grows as k / (k + 3).
        restart: when k starts again: "speed", "particles" or "gradient" as above; None for never.

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
    check_positive(ridge, "ridge")
    _check_options(kernel, quadratic, damping, restart)

    def init(key: Key, theta: Theta, particles: Particles) -> ASVGDEMState:
        del key
        theta, particles = check_start(theta, particles)
        check_spread(kernel.blocks, particles)
        at_rest = jax.tree.map(jnp.zeros_like, particles)
        speed = _speed(at_rest, restart)
        return ASVGDEMState(
            theta=theta,
            particles=particles,
            particle_velocity=at_rest,
            momentum_count=jnp.zeros(speed.shape, jnp.int32),
            momentum_speed=speed,
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
        push = velocity
        if quadratic is not None:
            bent = quadratic_terms(
                kernel, state.particles, state.particle_velocity, ridge, quadratic
            )
            push = trees.add_scaled(velocity, 1.0, bent)
        k = state.momentum_count.astype(state.momentum_speed.dtype)
        alpha = k / (k + 3) if damping is None else jnp.where(k > 0, damping, 0).astype(k.dtype)
        kept = jax.tree.map(lambda y: _per_particle(alpha, y) * y, state.particle_velocity)
        particle_velocity = trees.add_scaled(kept, root, push)
        particles = trees.add_scaled(state.particles, root, particle_velocity)
        speed = _speed(particle_velocity, restart)
        again = jnp.zeros(k.shape, bool)
        if restart == "gradient":
            again = trees.inner(velocity, particle_velocity) < 0
        elif restart is not None:
            again = speed < state.momentum_speed
        # Without momentum the next move is shorter still: it must not count as slowing down again.
        speed = jnp.where(again, 0, speed)
        state = ASVGDEMState(
            theta,
            particles,
            particle_velocity,
            jnp.where(again, 0, state.momentum_count + 1),
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
            quadratic=quadratic,
            ridge=ridge,
            damping=damping,
            restart=restart,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=kernel.random,
        blocks=kernel.blocks,
        reset_on_backtrack=("particle_velocity", "momentum_count", "momentum_speed"),
        replicated=("theta", "theta_optimizer_state"),
    )


RESTARTS = ("speed", "particles", "gradient")


def _check_options(
    kernel: Kernel, quadratic: str | None, damping: float | None, restart: str | None
) -> None:
    for name, value, known in (
        ("quadratic", quadratic, QUADRATIC),
        ("restart", restart, RESTARTS),
    ):
        if value is not None and value not in known:
            words = ", ".join(map(repr, known))
            raise ValueError(f"{name} is {value!r}, but it must be {words} or None.")
    if quadratic is not None and kernel.matrices is None:
        raise ValueError(
            f"kernel is {kernel.name}, but the quadratic terms of asvgd_em are known for kernels "
            "of the distance alone (`rbf`, `imq`, `inverse_log`, and `blockwise` of one). Give one "
            "of these, or quadratic=None."
        )
    if damping is not None and not 0 <= damping < 1:
        raise ValueError(f"damping is {damping!r}, but it must be between 0 and 1.")


def _speed(velocity: Particles, restart: str | None) -> Array:
    """The length of a move: of the whole cloud, or of every particle."""
    if restart != "particles":
        return jnp.sqrt(trees.inner(velocity, velocity))
    return jnp.linalg.norm(trees.ravel_cloud(velocity), axis=1)


def _per_particle(alpha: Array, leaf: Array) -> Array:
    """One number for all, or for every particle, to be multiplied with a leaf of the cloud."""
    return alpha.reshape(alpha.shape + (1,) * (leaf.ndim - alpha.ndim)).astype(leaf.dtype)

r"""Coin-EM: SVGD-EM without a learning rate; every coordinate bets on its gradients as on a coin.

Both blocks move at once, from the old pair (theta_t, x_t). For each coordinate, with g its
gradient, L the largest |g| so far, G the sum of |g|, and R the reward max(R + g (w - w_0), 0) so
far:

    w_{t+1} = w_0 + sum g / (L max(G + L, a L)) * (L + R)

with the damping a = 0 of the paper; its authors' runs on networks have 100, which makes the first
bets small. Marginal Coin-EM has theta at the exact maximum over the old cloud, and its particles
see that theta: `theta_optimizer=exact_m_step(...)`.

References:
    Sharrock, Dodd and Nemeth (2024), Tuning-free maximum likelihood training of latent variable
    models via coin betting, AISTATS. Orabona and Tommasi (2017) for the betting strategy (optax's
    `cocob`).
"""

import math

import optax

from marginax._core.checks import check_start
from marginax._core.partition import check_spread
from marginax.algorithms._svgd_em import SVGDEMInfo, SVGDEMState
from marginax.algorithms.contract import Algorithm
from marginax.flows.optimizers import ExactMStep, as_optimizer, ascend
from marginax.flows.scores import latent_scores, theta_score
from marginax.kernels.base import Kernel, check_kernel
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["coin_em"]


def coin_em(
    log_joint: LogDensity,
    kernel: Kernel,
    *,
    damping: float = 0.0,
    theta_optimizer: ExactMStep | None = None,
) -> Algorithm:
    """Stein variational EM by coin betting: nothing to tune but the kernel.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        kernel: from `marginax.kernels`.
        damping: a; for how many steps the bets are held small. 100 in the authors' code for
            networks, where first gradients are large.
        theta_optimizer: `exact_m_step(...)`, for marginal Coin-EM; by default theta bets too.

    Returns:
        The algorithm. It is deterministic, so the keys are not used.

    Warning:
        The bets oscillate around the answer before they settle: average the last iterates or run
        long.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.coin_em(log_joint, mx.kernels.rbf(1.0))
        >>> end = mx.trajectory(method, 0.0, x0, y, 2000, key=jax.random.key(1))
        >>> round(float(end.theta), 1)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    check_kernel(kernel)
    if not (math.isfinite(damping) and damping >= 0):
        raise ValueError(f"damping is {damping!r}, but it must be a number of 0 or more.")
    if theta_optimizer is not None and not isinstance(theta_optimizer, ExactMStep):
        raise TypeError(
            "theta_optimizer of coin_em is `exact_m_step(...)`, or left out: theta then bets. For "
            "other optimizers of theta take `svgd_em`."
        )
    # optax's default alpha of 100 damps the first bets; the paper has no such term.
    coin = as_optimizer(optax.contrib.cocob(alpha=damping), "coin")
    of_theta = coin if theta_optimizer is None else as_optimizer(theta_optimizer, "theta_optimizer")

    def init(key: Key, theta: Theta, particles: Particles) -> SVGDEMState:
        del key
        theta, particles = check_start(theta, particles)
        check_spread(kernel.blocks, particles)
        return SVGDEMState(theta, particles, of_theta.init(theta), coin.init(particles))

    def step(key: Key, state: SVGDEMState, data: Data) -> tuple[SVGDEMState, SVGDEMInfo]:
        del key
        direction = theta_score(log_joint, state.theta, state.particles, data)
        theta, theta_coin = ascend(
            of_theta,
            direction,
            state.theta_optimizer_state,
            state.theta,
            particles=state.particles,
            data=data,
        )
        # Simultaneous: both directions are taken at the old pair, unless theta is its cloud's own.
        theta_seen = state.theta if theta_optimizer is None else theta
        scores = latent_scores(log_joint, theta_seen, state.particles, data)
        velocity = kernel.velocity(state.particles, scores)
        particles, particle_coin = ascend(
            coin, velocity, state.particle_optimizer_state, state.particles
        )
        state = SVGDEMState(theta, particles, theta_coin, particle_coin)
        return state, SVGDEMInfo(direction, velocity)

    return Algorithm(
        init,
        step,
        log_joint,
        stochastic=kernel.random,
        blocks=kernel.blocks,
        replicated=("theta", "theta_optimizer_state", "metric_state"),
    )

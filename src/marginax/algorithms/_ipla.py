r"""IPLA: the interacting particle Langevin algorithm; PGD with noise on theta as well.

    theta += h (1/N) sum_n grad_theta l(theta, X^n) + sqrt(2h/N) W^0
    X^n   += h grad_x l(theta, X^n) + sqrt(2h) W^n                  both from the old pair

The noise makes theta a sample too: its stationary law is proportional to p_theta(y)^N, which closes
in on the maximum as N grows.

Where l = f - g, and g has no gradient everywhere but a proximal map (`flows.proximal`):

    MYIPLA   grad f - (z - prox_lambda(z)) / lambda in the place of grad l, z = (theta, X^n)
    PIPGLA   the step above along f, and then prox_h of every (theta, X^n); theta takes the mean

References:
    Akyildiz, Crucinio, Girolami, Johnston and Sabanis (2025), Interacting particle Langevin
    algorithm for maximum marginal likelihood estimation, ESAIM: Probability and Statistics.
    Encinar, Crucinio and Akyildiz (2025), Proximal interacting particle Langevin algorithms, UAI.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.proximal import Prox, as_smooth, proximal_step
from marginax.flows.scores import latent_scores, theta_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["IPLAState", "ipla"]


class IPLAState(NamedTuple):
    """State of IPLA.

    Attributes:
        theta: the current draw of theta; average it over time for the estimate.
        particles: the cloud.
    """

    theta: Theta
    particles: Particles


def ipla(
    log_joint: LogDensity,
    step_size: ArrayLike,
    *,
    prox: Prox | None = None,
    smoothing: float | None = None,
) -> Algorithm:
    """Interacting particle Langevin algorithm.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data;
            with `prox`, its smooth part f.
        step_size: h, of theta and of the particles.
        prox: `prox(theta, latent, scale) -> (theta, latent)`, the proximal map of the part g that
            has no gradient everywhere, such as `proximal.of_latent(proximal.soft_threshold(1.0))`.
        smoothing: lambda, for MYIPLA, which needs h < 2 / (L + 1 / lambda); without it PIPGLA.

    Returns:
        The algorithm. It is stochastic: average the last iterates of theta.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> end = mx.trajectory(mx.ipla(log_joint, 0.1), 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    check_positive(step_size, "step_size")
    smooth = as_smooth(prox, smoothing)

    def init(key: Key, theta: Theta, particles: Particles) -> IPLAState:
        del key
        return IPLAState(*check_start(theta, particles))

    def step(key: Key, state: IPLAState, data: Data) -> tuple[IPLAState, PGDInfo]:
        theta_key, particle_key = jax.random.split(key)
        direction = theta_score(log_joint, state.theta, state.particles, data)
        scores = latent_scores(log_joint, state.theta, state.particles, data)
        if smooth is not None:
            pulls = smooth.pulls(state.theta, state.particles)
            direction, scores = jax.tree.map(jnp.add, (direction, scores), pulls)
        # Temperature 1/N: the more particles, the less theta is shaken.
        temperature = 1 / trees.cloud_size(state.particles)
        theta = langevin.overdamped(theta_key, state.theta, direction, step_size, temperature)
        particles = langevin.overdamped(particle_key, state.particles, scores, step_size)
        if prox is not None and smooth is None:
            theta, particles = proximal_step(prox, theta, particles, step_size)
        return IPLAState(theta, particles), PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return ipla(log_joint, step_size * factor, prox=prox, smoothing=smoothing)

    return Algorithm(init, step, log_joint, rescale, stochastic=True)

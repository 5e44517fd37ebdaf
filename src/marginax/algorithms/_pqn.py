r"""PQN: PGD with a Newton step in theta, for a theta of moderate dimension.

    theta -= h [sum_n grad^2_theta l(theta, X^n)]^{-1} sum_n grad_theta l(theta, X^n)
    X^n   += h grad_x l(theta, X^n) + sqrt(2h) W^n                  both from the old pair

References:
    Kuntz, Lim and Johansen (2023), Particle algorithms for maximum likelihood training of latent
    variable models, AISTATS.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.scores import latent_scores, mean_log_joint, theta_score
from marginax.model.log_joint import require_density
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["PQNState", "pqn"]


class PQNState(NamedTuple):
    """State of PQN.

    Attributes:
        theta: the estimate.
        particles: the cloud.
    """

    theta: Theta
    particles: Particles


def pqn(log_joint: LogDensity, step_size: ArrayLike) -> Algorithm:
    """Particle quasi-Newton.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data. It
            must be strictly concave in theta where the method goes: the Newton step is taken as it
            is, and a singular Hessian gives NaN.
        step_size: h, of the Newton step and of the Langevin particles.

    Returns:
        The algorithm. It is stochastic: theta fluctuates about the estimate, so average its last
        iterates.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> end = mx.trajectory(mx.pqn(log_joint, 0.1), 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    check_positive(step_size, "step_size")
    require_density(log_joint, "pqn divides by its second derivatives in theta")

    def init(key: Key, theta: Theta, particles: Particles) -> PQNState:
        del key
        return PQNState(*check_start(theta, particles))

    def step(key: Key, state: PQNState, data: Data) -> tuple[PQNState, PGDInfo]:
        flat, unravel = ravel_pytree(state.theta)

        def objective(flat: Array) -> Array:
            return mean_log_joint(log_joint, unravel(flat), state.particles, data)

        direction = theta_score(log_joint, state.theta, state.particles, data)
        # The 1/N of the mean is in both the gradient and the Hessian, and cancels.
        newton = jnp.linalg.solve(jax.hessian(objective)(flat), ravel_pytree(direction)[0])
        theta = trees.add_scaled(state.theta, -jnp.asarray(step_size), unravel(newton))
        scores = latent_scores(log_joint, state.theta, state.particles, data)
        particles = langevin.overdamped(key, state.particles, scores, step_size)
        return PQNState(theta, particles), PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return pqn(log_joint, step_size * factor)

    return Algorithm(init, step, log_joint, rescale, stochastic=True)

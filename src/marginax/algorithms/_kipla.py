r"""KIPLA: kinetic interacting particle Langevin, the underdamped IPLA, in its two discretisations.

Unit mass, friction g, temperature T = 1/N for theta and 1 for the particles; q is either block, v
its velocity, s its score (the mean theta score, or a particle's latent score). Both blocks move at
once.

KIPLMC1, the exact step of `flows.langevin` for a frozen score at the old pair:

    q <- q + psi1 v + psi2 s + e_q,   v <- psi0 v + psi1 s + e_v

KIPLMC2, the splitting O-B-A-B-O with d = exp(-g h / 2):

    q' = q + h (d v + sqrt(T (1 - d^2)) e_1) + (h^2/2) s_old
    v' = d^2 v + (d h/2) (s_old + s_new) + sqrt(T (1 - d^2)) (d e_1 + e_2)

with s_old at the old pair and s_new at the new one.

References:
    Oliva and Akyildiz (2024), Kinetic interacting particle Langevin Monte Carlo.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.scores import latent_scores, theta_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["KIPLAState", "kipla"]


class KIPLAState(NamedTuple):
    """State of KIPLA.

    Attributes:
        theta: the current draw of theta; average it over time for the estimate.
        particles: the cloud.
        theta_velocity: v of theta.
        particle_velocity: v of every particle.
    """

    theta: Theta
    particles: Particles
    theta_velocity: Theta
    particle_velocity: Particles


def kipla(
    log_joint: LogDensity,
    step_size: ArrayLike,
    friction: ArrayLike,
    *,
    discretization: str = "kiplmc1",
) -> Algorithm:
    """Kinetic interacting particle Langevin algorithm.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        step_size: h.
        friction: g.
        discretization: "kiplmc1" (exponential integrator, one gradient a step) or "kiplmc2"
            (splitting, two gradients a step, with a bias of order h^2).

    Returns:
        The algorithm. It is stochastic: average the last iterates of theta.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> method = mx.kipla(log_joint, 0.1, friction=2.0, discretization="kiplmc2")
        >>> end = mx.trajectory(method, 0.0, x0, y, 2000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    check_positive(step_size, "step_size")
    check_positive(friction, "friction")
    steps = {"kiplmc1": _exponential, "kiplmc2": _splitting}
    if discretization not in steps:
        raise ValueError(
            f"discretization is {discretization!r}, but it must be one of "
            f"{', '.join(map(repr, steps))}."
        )
    move = steps[discretization]

    def init(key: Key, theta: Theta, particles: Particles) -> KIPLAState:
        theta, particles = check_start(theta, particles)
        theta_key, particle_key = jax.random.split(key)
        theta_scale = 1 / jnp.sqrt(jnp.asarray(trees.cloud_size(particles), float))
        theta_velocity = trees.add_scaled(
            jax.tree.map(jnp.zeros_like, theta), theta_scale, trees.normal_like(theta_key, theta)
        )
        return KIPLAState(
            theta, particles, theta_velocity, trees.normal_like(particle_key, particles)
        )

    def step(key: Key, state: KIPLAState, data: Data) -> tuple[KIPLAState, PGDInfo]:
        def scores_at(theta: Theta, particles: Particles) -> PGDInfo:
            return PGDInfo(
                theta_score(log_joint, theta, particles, data),
                latent_scores(log_joint, theta, particles, data),
            )

        return move(key, state, scores_at, step_size, friction)

    def rescale(factor: ArrayLike) -> Algorithm:
        return kipla(log_joint, step_size * factor, friction, discretization=discretization)

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        reset_on_backtrack=("theta_velocity", "particle_velocity"),
        replicated=("theta", "theta_velocity"),
    )


def _exponential(
    key: Key,
    state: KIPLAState,
    scores_at: Callable[[Theta, Particles], PGDInfo],
    step_size: ArrayLike,
    friction: ArrayLike,
) -> tuple[KIPLAState, PGDInfo]:
    theta_key, particle_key = jax.random.split(key)
    coefficients = langevin.underdamped_coefficients(step_size, friction)
    scores = scores_at(state.theta, state.particles)
    theta, theta_velocity = langevin.underdamped(
        theta_key,
        state.theta,
        state.theta_velocity,
        scores.theta_score,
        coefficients,
        temperature=1 / trees.cloud_size(state.particles),
    )
    particles, particle_velocity = langevin.underdamped(
        particle_key, state.particles, state.particle_velocity, scores.scores, coefficients
    )
    return KIPLAState(theta, particles, theta_velocity, particle_velocity), scores


def _splitting(
    key: Key,
    state: KIPLAState,
    scores_at: Callable[[Theta, Particles], PGDInfo],
    step_size: ArrayLike,
    friction: ArrayLike,
) -> tuple[KIPLAState, PGDInfo]:
    theta_before, cloud_before, theta_after, cloud_after = jax.random.split(key, 4)
    half = jnp.asarray(step_size) / 2
    cold = 1 / trees.cloud_size(state.particles)
    # The scores at the old pair were known at the end of the last step, but of the last step's
    # data: with minibatches they would be stale, so they are computed again.
    scores = scores_at(state.theta, state.particles)

    v = langevin.thermostat(theta_before, state.theta_velocity, half, friction, cold)
    v = trees.add_scaled(v, half, scores.theta_score)
    theta = trees.add_scaled(state.theta, step_size, v)

    u = langevin.thermostat(cloud_before, state.particle_velocity, half, friction)
    u = trees.add_scaled(u, half, scores.scores)
    particles = trees.add_scaled(state.particles, step_size, u)

    new_scores = scores_at(theta, particles)
    v = langevin.thermostat(
        theta_after, trees.add_scaled(v, half, new_scores.theta_score), half, friction, cold
    )
    u = langevin.thermostat(
        cloud_after, trees.add_scaled(u, half, new_scores.scores), half, friction
    )
    return KIPLAState(theta, particles, v, u), new_scores

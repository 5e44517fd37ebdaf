r"""MPGD, momentum particle gradient descent: theta and the particles have momentum and friction.

With h the step, g friction, e inverse mass, and the coefficients of `flows.langevin` (exact for
a frozen gradient), m the momentum of theta and U those of the particles:

    ahead = theta + c1 m;   G = (1/N) sum_n grad_theta l(ahead, X^n)
    theta <- ahead + c2 G;  m <- w m + k G
    s = grad_x l(theta, X)                              # at the NEW theta, frozen at X
    X <- X + c1 U + c2 s + e_X;  U <- w U + k s + e_U

Start: m = 0, U ~ N(0, 1/e). theta may have a step, a friction and a mass of its own, with their own
c1, c2, w and k, and G may be rescaled entry by entry before it is used (RMSProp, for networks).

References:
    Lim, Kuntz, Power and Johansen (2024), Momentum particle maximum likelihood, ICML.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive, check_start, is_traced
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import as_optimizer
from marginax.flows.scores import latent_scores, theta_score
from marginax.typing import Data, Key, LogDensity, Particles, Theta

__all__ = ["MPGDState", "mpgd"]


class MPGDState(NamedTuple):
    """State of MPGD.

    Attributes:
        theta: the estimate.
        particles: the cloud.
        theta_momentum: m, like theta.
        particle_momentum: U, like the cloud.
        theta_preconditioner_state: what the preconditioner of theta remembers.
    """

    theta: Theta
    particles: Particles
    theta_momentum: Theta
    particle_momentum: Particles
    theta_preconditioner_state: optax.OptState


def mpgd(
    log_joint: LogDensity,
    step_size: ArrayLike,
    friction: ArrayLike,
    inverse_mass: ArrayLike,
    theta_scale: Theta | ArrayLike = 1.0,
    *,
    theta_step_size: ArrayLike | None = None,
    theta_friction: ArrayLike | None = None,
    theta_inverse_mass: ArrayLike | None = None,
    theta_preconditioner: optax.GradientTransformation | None = None,
) -> Algorithm:
    """Momentum particle gradient descent.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        step_size: h.
        friction: how fast momentum is lost; the M-SVGD-EM paper calls it epsilon.
        inverse_mass: eta. The authors' heuristic: eta = (1 - mu) / (friction * h) for a momentum mu
            of 0.5, 0.7, 0.9 or 0.95.
        theta_scale: theta moves as if it were measured in these units, a number or a tree like
            theta: for a theta whose curvature differs much from the particles'.
        theta_step_size: h of theta; by default that of the particles, and likewise
        theta_friction: its friction, and
        theta_inverse_mass: its inverse mass.
        theta_preconditioner: an optax transformation of theta's gradient before it becomes a force,
            as `optax.scale_by_rms(0.9, 1e-8)` in the authors' networks.

    Returns:
        The algorithm. It is stochastic: theta fluctuates about the estimate, so average its last
        iterates.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> method = mx.mpgd(log_joint, 0.1, friction=1.0, inverse_mass=5.0)
        >>> end = mx.trajectory(method, 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    of_particles = (step_size, friction, inverse_mass)
    own = (theta_step_size, theta_friction, theta_inverse_mass)
    of_theta = tuple(
        value if given is None else given for value, given in zip(of_particles, own, strict=True)
    )
    names = ("step_size", "friction", "inverse_mass")
    for name, value, given in zip(names, of_particles, own, strict=True):
        check_positive(value, name)
        if given is not None:
            check_positive(given, f"theta_{name}")
    if theta_preconditioner is None:
        theta_preconditioner = optax.identity()
    preconditioner = as_optimizer(theta_preconditioner, "theta_preconditioner")
    for leaf in jax.tree.leaves(theta_scale):
        if not is_traced(leaf) and not np.all(np.isfinite(leaf) & (np.asarray(leaf) > 0)):
            raise ValueError(
                f"theta_scale has {leaf} in it, but units must be positive and finite."
            )
    coefficients = langevin.underdamped_coefficients(*of_particles)
    theta_coefficients = langevin.underdamped_coefficients(*of_theta)

    def init(key: Key, theta: Theta, particles: Particles) -> MPGDState:
        theta, particles = check_start(theta, particles)
        trees.number_or_like(theta_scale, theta, "theta_scale")  # refused here if it is not
        at_rest = jax.tree.map(jnp.zeros_like, theta)
        thermal = trees.add_scaled(
            jax.tree.map(jnp.zeros_like, particles),
            1 / jnp.sqrt(jnp.asarray(inverse_mass)),
            trees.normal_like(key, particles),
        )
        return MPGDState(theta, particles, at_rest, thermal, preconditioner.init(theta))

    def step(key: Key, state: MPGDState, data: Data) -> tuple[MPGDState, PGDInfo]:
        scale = trees.number_or_like(theta_scale, state.theta, "theta_scale")
        ahead = trees.add_scaled(
            state.theta, theta_coefficients.drift, _times(scale, state.theta_momentum)
        )
        direction = theta_score(log_joint, ahead, state.particles, data)
        descent, preconditioner_state = preconditioner.update(
            jax.tree.map(jnp.negative, direction), state.theta_preconditioner_state, ahead
        )
        force = jax.tree.map(jnp.negative, descent)
        # The noiseless exact step from (theta, m) is ahead + c2 G: the c1 m term stays in theta.
        at_rest = jax.tree.map(jnp.zeros_like, state.theta)
        moved, theta_momentum = langevin.underdamped(
            None, at_rest, state.theta_momentum, _times(scale, force), theta_coefficients
        )
        theta = trees.add_scaled(state.theta, 1.0, _times(scale, moved))
        scores = latent_scores(log_joint, theta, state.particles, data)
        particles, particle_momentum = langevin.underdamped(
            key, state.particles, state.particle_momentum, scores, coefficients
        )
        state = MPGDState(theta, particles, theta_momentum, particle_momentum, preconditioner_state)
        return state, PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return mpgd(
            log_joint,
            step_size * factor,
            friction,
            inverse_mass,
            theta_scale,
            theta_step_size=of_theta[0] * factor,
            theta_friction=theta_friction,
            theta_inverse_mass=theta_inverse_mass,
            theta_preconditioner=theta_preconditioner,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        reset_on_backtrack=("theta_momentum", "particle_momentum"),
        replicated=("theta", "theta_momentum", "theta_preconditioner_state"),
    )


def _times(scale: Theta, tree: Theta) -> Theta:
    return jax.tree.map(jnp.multiply, scale, tree)

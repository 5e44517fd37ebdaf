r"""The EM gradient: one Newton step of the M-step in theta, limited where Newton would overshoot.

With Q(theta) = (1/N) sum_j l(theta, x_j), gradient g and H = -grad^2 Q:

    D = diag|H|,   D^-1/2 H D^-1/2 = V w V',   q = V' D^-1/2 g
    d_k = q_k / |w_k|, but no longer than 2 |w_k| / |c_k|,   c_k = third derivative of Q along v_k
    theta <- theta + D^-1/2 V d

The limit is where the third derivative says that the curvature itself would change by twice its
size: the quadratic that Newton believes in ends there. It leaves a location alone, whose log
density is quadratic, and holds a log standard deviation to a change of 1 at a time, whatever
the units of either.

References:
    Lange (1995), A gradient algorithm locally equivalent to the EM algorithm, JRSS B.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from marginax import stein
from marginax.base import Data, Latent, LogJoint, Particles, Theta
from marginax.minibatch import theta_weight
from marginax.scores import mean_log_joint

__all__ = ["em_gradient"]

Objective = Callable[[Float[Array, " p"]], Float[Array, ""]]
Derivative = Callable[[Objective], Array]

# Eigenvalues of the scaled H below this are raised to it: a flat direction.
FLOOR = 1e-6
# How much the curvature may change along a step, relative to itself.
LIMIT = 2.0
# Groups times particles that a piece has: small enough for a core's own cache, and for XLA to fuse
# the whole derivative into one loop. A GPU wants more to do at a time.
ROWS, ROWS_ON_GPU = 512, 2**18
# Beyond this, p x p second derivatives of every particle are no longer moderate.
LARGEST_THETA = 256


def em_gradient(
    curvature_particles: int | None = None, *, by_groups: bool = False
) -> optax.GradientTransformationExtraArgs:
    """Newton's step towards the maximum over the current cloud, for the `theta_optimiser` slot.

    It needs no step size and does not depend on the units of theta. For theta of up to a few
    hundred numbers; beyond that use `optax.adagrad`, or `exact_m_step` where the maximum is known.

    Args:
        curvature_particles: take second derivatives over the first so many particles only, which
            changes how theta gets there but not where it rests: they cost p times the gradient.
            By default over all.
        by_groups: `log_joint` is a sum over groups, and it may be called with some of them: every
            leaf of the latent and of the data has a leading axis over groups. Second and third
            derivatives are then added up some groups at a time, in little memory.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.m_svgd_em(
        ...     log_joint,
        ...     mx.em_gradient(),
        ...     0.5,
        ...     mx.kernels.blockwise(mx.kernels.linear()),
        ...     particle_metric=mx.metrics.curvature(),
        ...     theta_momentum=mx.momentum.adaptive_restart(),
        ...     particle_momentum=mx.momentum.adaptive_restart(),
        ... )
        >>> end = mx.trajectory(jax.random.key(1), method, 0.0, x0, y, 30)
        >>> round(float(end.theta), 4)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    if curvature_particles is not None and curvature_particles < 1:
        raise ValueError(
            f"curvature_particles is {curvature_particles}, but it must be at least 1, or None."
        )

    def init(params: Theta) -> optax.OptState:
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        if size > LARGEST_THETA:
            raise ValueError(
                f"theta has {size} numbers, but em_gradient solves a dense system and is meant for "
                f"at most {LARGEST_THETA}. Use `optax.adagrad(0.1)`, or `exact_m_step` if the "
                "maximum over the cloud is known."
            )
        return optax.EmptyState()

    def update(
        updates: Theta,
        state: optax.OptState,
        params: Theta | None = None,
        *,
        log_joint: LogJoint,
        particles: Particles,
        data: Data,
        **extra: Any,
    ) -> tuple[Theta, optax.OptState]:
        del extra
        flat, unravel = ravel_pytree(params)
        gradient = -ravel_pytree(updates)[0]  # optax descends

        few = jax.tree.map(lambda leaf: leaf[:curvature_particles], particles)

        def whole(derivative: Derivative) -> Array:
            return derivative(lambda flat: mean_log_joint(log_joint, unravel(flat), few, data))

        def in_pieces(derivative: Derivative) -> Array:
            of_some = partial(_of_flat, log_joint, unravel)
            return theta_weight(log_joint, few) * _over_groups(derivative, of_some, few, data)

        # Where devices share the cloud, each has few enough, and every piece would be sent about.
        spread = jax.typeof(jax.tree.leaves(particles)[0]).sharding.mesh.size > 1
        total = in_pieces if by_groups and not spread else whole
        return unravel(_limited_newton(total, flat, gradient).astype(flat.dtype)), state

    return optax.GradientTransformationExtraArgs(init, update)


def _of_flat(
    log_joint: LogJoint, unravel: Any, latent: Latent, data: Data, flat: Float[Array, " p"]
) -> Float[Array, ""]:
    return log_joint(unravel(flat), latent, data)


def _over_groups(derivative: Derivative, of: Any, particles: Particles, data: Data) -> Array:
    """The sum of a derivative over all groups, a piece of them at a time."""
    num_particles, num_groups = jax.tree.leaves(particles)[0].shape[:2]
    rows = ROWS_ON_GPU if jax.default_backend() == "gpu" else ROWS
    size = min(num_groups, max(1, rows // num_particles))

    def piece(first: Array | int, size: int) -> Array:
        # All particles of these groups side by side, as if they were so many groups of one latent.
        def side_by_side(leaf: Array) -> Array:
            some = jax.lax.dynamic_slice_in_dim(leaf, first, size, 1)
            return some.reshape(num_particles * size, *leaf.shape[2:])

        def repeated(leaf: Array) -> Array:
            some = jax.lax.dynamic_slice_in_dim(leaf, first, size, 0)
            return jnp.tile(some, (num_particles,) + (1,) * (leaf.ndim - 1))

        latent, given = jax.tree.map(side_by_side, particles), jax.tree.map(repeated, data)
        return derivative(lambda flat: of(latent, given, flat) / num_particles)

    whole_pieces, left = divmod(num_groups, size)
    total = piece(whole_pieces * size, left) if left else piece(0, size)
    # What is left over, or else the first piece, is in the total already.
    return jax.lax.fori_loop(
        0 if left else 1, whole_pieces, lambda i, total: total + piece(i * size, size), total
    )


def _limited_newton(
    total: Callable[[Derivative], Array], theta: Float[Array, " p"], gradient: Float[Array, " p"]
) -> Float[Array, " p"]:
    """The step, where `total(derivative)` is a derivative of Q."""

    def second_derivatives(objective: Objective) -> Array:
        # One column after the other: side by side they would need p times the memory.
        return jax.lax.map(
            lambda unit: jax.jvp(jax.grad(objective), (theta,), (unit,))[1],
            jnp.eye(theta.size, dtype=theta.dtype),
        )

    hessian = -total(second_derivatives)
    diagonal = jnp.abs(jnp.diagonal(hessian))
    # A coordinate without curvature has no scale of its own; 1 keeps it finite.
    scale = 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    values, vectors = jnp.linalg.eigh(scale[:, None] * hessian * scale[None, :])
    along = stein.matmul(vectors.T, scale * gradient)
    values = jnp.maximum(jnp.abs(values), FLOOR)
    directions = scale[:, None] * vectors

    def third_derivatives(objective: Objective) -> Array:
        def along_one(direction: Float[Array, " p"]) -> Array:
            def derivative(f: Any) -> Any:
                return lambda point: jax.jvp(f, (point,), (direction,))[1]

            return derivative(derivative(derivative(objective)))(theta)

        return jax.lax.map(along_one, directions.T)

    third = jnp.abs(total(third_derivatives))
    longest = LIMIT * values / jnp.where(third > 0, third, 1)
    newton = along / values
    limited = jnp.where(third > 0, jnp.clip(newton, -longest, longest), newton)
    return stein.matmul(directions, limited)

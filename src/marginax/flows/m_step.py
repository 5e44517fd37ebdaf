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

from marginax._core import linalg, trees
from marginax._core.checks import check_count
from marginax._core.chunks import sum_over_groups
from marginax._core.linalg import eigh
from marginax.flows.scores import mean_log_joint
from marginax.model.log_joint import as_log_joint, require_density
from marginax.typing import Count, Data, Latent, LogDensity, Particles, Theta

__all__ = ["em_gradient"]

Objective = Callable[[Float[Array, " p"]], Float[Array, ""]]
Derivative = Callable[[Objective], Array]
# Eigenvalues of the scaled H below this are raised to it: a flat direction.
FLOOR = 1e-6
# How much the curvature may change along a step, relative to itself.
LIMIT = 2.0
# Groups times particles that a chunk has: small enough for a core's own cache, and for XLA to fuse
# the whole derivative into one loop.
ROWS = 2**9
# Beyond this, p x p second derivatives of every particle are no longer moderate.
LARGEST_THETA = 256


def em_gradient(
    curvature_particles: Count | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Newton's step towards the maximum over the current cloud, for the `theta_optimizer` slot.

    It needs no step size and does not depend on the units of theta. For theta of up to a few
    hundred numbers; beyond that use `optax.adagrad`, or `exact_m_step` where the maximum is known.
    With the `unconstrained_log_joint` of a `Problem.grouped`, derivatives are added up some groups
    at a time, in little memory.

    Args:
        curvature_particles: take second derivatives over this many particles only, which
            changes how theta gets there but not where it rests: they cost p times the gradient.
            By default over all.

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
        >>> end = mx.trajectory(method, 0.0, x0, y, 30, key=jax.random.key(1))
        >>> round(float(end.theta), 4)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    if curvature_particles is not None:
        curvature_particles = check_count(curvature_particles, "curvature_particles")

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
        log_joint: LogDensity,
        particles: Particles,
        data: Data,
        **extra: Any,
    ) -> tuple[Theta, optax.OptState]:
        del extra
        require_density(log_joint, "em_gradient divides by its second derivatives in theta")
        flat, unravel = ravel_pytree(params)
        gradient = -ravel_pytree(updates)[0]  # optax descends

        few = jax.tree.map(lambda leaf: leaf[:curvature_particles], particles)

        def whole(derivative: Derivative) -> Array:
            return derivative(lambda flat: mean_log_joint(log_joint, unravel(flat), few, data))

        density = as_log_joint(log_joint)
        size = density.chunk_size(few, ROWS)

        def in_chunks(size: int, derivative: Derivative) -> Array:
            weight = density.theta_weight(few) / trees.cloud_size(few)

            def of_some(particles: Particles, data: Data) -> Array:
                latent, given = _side_by_side(particles, data)
                return derivative(lambda flat: weight * log_joint(unravel(flat), latent, given))

            return sum_over_groups(of_some, few, data, size)

        total = whole if size is None else partial(in_chunks, size)
        return unravel(_limited_newton(total, flat, gradient).astype(flat.dtype)), state

    return optax.GradientTransformationExtraArgs(init, update)


def _side_by_side(particles: Particles, data: Data) -> tuple[Latent, Data]:
    """All particles of some groups as if each were a group of its own."""
    num_particles = trees.cloud_size(particles)
    latent = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), particles)
    return latent, jax.tree.map(
        lambda leaf: jnp.tile(leaf, (num_particles,) + (1,) * (leaf.ndim - 1)), data
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
    # Not LAPACK for a small theta: over several starts its batched calls can wait for ever.
    values, vectors = eigh(scale[:, None] * hessian * scale[None, :])
    along = linalg.matmul(vectors.T, scale * gradient)
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
    return linalg.matmul(directions, limited)

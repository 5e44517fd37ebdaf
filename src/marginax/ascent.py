"""One uphill step with any optax optimiser: where a direction uphill becomes optax's descent.

optax minimises; every method here climbs. (`em_gradient`, which is an optax transformation itself,
turns the sign back, and `pqn` divides by a negative Hessian.) `ascend` hands the optimiser minus
the direction and adds what comes back:

    updates, state = optimiser.update(-direction, state, point)
    new point      = point + updates             (sgd(gamma): point + gamma * direction)
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike, PyTree

from marginax import _tree
from marginax.base import Data, Particles, Theta
from marginax.checks import check_positive, is_number

__all__ = ["ExactMStep", "Optimiser", "as_optimiser", "ascend", "exact_m_step", "rescaled"]

Optimiser: TypeAlias = optax.GradientTransformation | ArrayLike


def as_optimiser(optimiser: Optimiser, name: str) -> optax.GradientTransformationExtraArgs:
    """Any optax optimiser as it is; a plain number as `optax.sgd(number)`."""
    if isinstance(optimiser, optax.GradientTransformation):
        return optax.with_extra_args_support(optimiser)
    if isinstance(optimiser, int | float) and optimiser == 0:
        raise ValueError(
            f"{name} is 0, but a step must be positive. To hold theta or the particles where they "
            "are, use `optax.set_to_zero()`."
        )
    if not is_number(optimiser):
        raise TypeError(
            f"{name} is {optimiser!r}, but it must be a step size or an optax optimiser such as "
            "`optax.adam(0.1)`; a schedule goes into one, as in `optax.sgd(schedule)`."
        )
    return optax.with_extra_args_support(optax.sgd(check_positive(optimiser, name)))


def ascend(
    optimiser: optax.GradientTransformationExtraArgs,
    direction: PyTree,
    optimiser_state: optax.OptState,
    point: PyTree,
    **extra: Any,
) -> tuple[PyTree, optax.OptState]:
    """One step uphill from `point`; `extra` is for transformations that ask for more."""
    descent = jax.tree.map(jnp.negative, direction)
    updates, optimiser_state = optimiser.update(descent, optimiser_state, point, **extra)
    return optax.apply_updates(point, updates), optimiser_state


def rescaled(
    optimiser: optax.GradientTransformationExtraArgs, factor: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """The same optimiser, its state unchanged, with every update multiplied by `factor`."""
    if isinstance(optimiser, ExactMStep):
        return optimiser  # it has no step to shrink

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, optax.OptState]:
        updates, state = optimiser.update(updates, state, params, **extra)
        return jax.tree.map(lambda u: jnp.asarray(factor).astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(optimiser.init, update)


class ExactMStep(optax.GradientTransformationExtraArgs):
    """What `exact_m_step` makes: a type of its own, so that `pgd` can let theta go first."""


def exact_m_step(maximiser: Callable[[Particles, Data], Theta]) -> ExactMStep:
    r"""Replaces the gradient step in theta by the closed-form maximiser over the current cloud.

    theta*(X) = argmax_theta (1/N) sum_j l(theta, x_j), as an optax transformation whose update is
    theta*(X) - theta, so that it fits the theta slot of every method that has one. In `pgd` it
    gives PMGD, where the particles see theta*(X) of the SAME cloud.

    Args:
        maximiser: `maximiser(particles, data) -> theta`, in the structure of theta.

    Returns:
        A transformation for a `theta_optimiser` slot. (Wrapped in `optax.chain`, say to damp it, it
        is an ordinary optimiser again, and `pgd` treats it as one.)

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> m_step = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
        >>> pmgd = mx.pgd(log_joint, m_step, step_size=0.1)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((50, 3))
        >>> end = mx.trajectory(jax.random.key(0), pmgd, 0.0, x0, y, 200)
        >>> bool(abs(end.theta - 2.0) < 0.5)
        True

    References:
        Kuntz, Lim and Johansen (2023), Particle algorithms for maximum likelihood training of
        latent variable models,
        AISTATS: PMGD.
    """

    def init(params: Theta) -> optax.OptState:
        del params
        return optax.EmptyState()

    def update(
        updates: Theta,
        state: optax.OptState,
        params: Theta | None = None,
        *,
        particles: Particles,
        data: Data,
        **extra: Any,
    ) -> tuple[Theta, optax.OptState]:
        del updates, extra  # the gradient is not needed: the maximum is known
        best = maximiser(particles, data)
        if _shapes(best) != _shapes(params):
            raise ValueError(
                "The maximiser given to exact_m_step returned theta of shapes "
                f"{jax.tree.map(jnp.shape, best)}, but theta has "
                f"{jax.tree.map(jnp.shape, params)}. It must return a full theta, in the same "
                "structure."
            )
        return _tree.difference(best, params), state

    return ExactMStep(init, update)


def _shapes(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]

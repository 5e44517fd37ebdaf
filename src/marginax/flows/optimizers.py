"""One uphill step with any optax optimizer: where a direction uphill becomes optax's descent.

optax minimises; every method here climbs. (`em_gradient`, which is an optax transformation itself,
turns the sign back, and `pqn` divides by a negative Hessian.) `ascend` hands the optimizer minus
the direction and adds what comes back:

    updates, state = optimizer.update(-direction, state, point)
    new point      = point + updates             (sgd(gamma): point + gamma * direction)
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike, PyTree

from marginax._core import trees
from marginax._core.checks import check_positive, is_number
from marginax.typing import Data, Particles, Theta

__all__ = ["ExactMStep", "Optimizer", "as_optimizer", "ascend", "exact_m_step", "rescaled"]

Optimizer: TypeAlias = optax.GradientTransformation | ArrayLike


def as_optimizer(optimizer: Optimizer, name: str) -> optax.GradientTransformationExtraArgs:
    """Any optax optimizer as it is; a plain number as `optax.sgd(number)`."""
    if isinstance(optimizer, optax.GradientTransformation):
        return optax.with_extra_args_support(optimizer)
    if isinstance(optimizer, int | float) and optimizer == 0:
        raise ValueError(
            f"{name} is 0, but a step must be positive. To hold theta or the particles where they "
            "are, use `optax.set_to_zero()`."
        )
    if not is_number(optimizer):
        raise TypeError(
            f"{name} is {optimizer!r}, but it must be a step size or an optax optimizer such as "
            "`optax.adam(0.1)`; a schedule goes into one, as in `optax.sgd(schedule)`."
        )
    return optax.with_extra_args_support(optax.sgd(check_positive(optimizer, name)))


def ascend(
    optimizer: optax.GradientTransformationExtraArgs,
    direction: PyTree,
    optimizer_state: optax.OptState,
    point: PyTree,
    **extra: Any,
) -> tuple[PyTree, optax.OptState]:
    """One step uphill from `point`; `extra` is for transformations that ask for more."""
    descent = jax.tree.map(jnp.negative, direction)
    updates, optimizer_state = optimizer.update(descent, optimizer_state, point, **extra)
    return optax.apply_updates(point, updates), optimizer_state


def rescaled(
    optimizer: optax.GradientTransformationExtraArgs, factor: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """The same optimizer, its state unchanged, with every update multiplied by `factor`."""
    if isinstance(optimizer, ExactMStep):
        return optimizer  # it has no step to shrink

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, optax.OptState]:
        updates, state = optimizer.update(updates, state, params, **extra)
        return jax.tree.map(lambda u: jnp.asarray(factor).astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


class ExactMStep(optax.GradientTransformationExtraArgs):
    """What `exact_m_step` makes: a type of its own, so that `pgd` can let theta go first."""


def exact_m_step(maximizer: Callable[[Particles, Data], Theta]) -> ExactMStep:
    r"""Replaces the gradient step in theta by the closed-form maximizer over the current cloud.

    theta*(X) = argmax_theta (1/N) sum_j l(theta, x_j), as an optax transformation whose update is
    theta*(X) - theta, so that it fits the theta slot of every method that has one. In `pgd` it
    gives PMGD, where the particles see theta*(X) of the SAME cloud.

    Args:
        maximizer: `maximizer(particles, data) -> theta`, in the structure of theta.

    Returns:
        A transformation for a `theta_optimizer` slot. (Wrapped in `optax.chain`, say to damp it, it
        is an ordinary optimizer again, and `pgd` treats it as one.)

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> m_step = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
        >>> pmgd = mx.pgd(log_joint, m_step, step_size=0.1)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((50, 3))
        >>> end = mx.trajectory(pmgd, 0.0, x0, y, 200, key=jax.random.key(0))
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
        best = maximizer(particles, data)
        if _shapes(best) != _shapes(params):
            raise ValueError(
                "The maximizer given to exact_m_step returned theta of shapes "
                f"{jax.tree.map(jnp.shape, best)}, but theta has "
                f"{jax.tree.map(jnp.shape, params)}. It must return a full theta, in the same "
                "structure."
            )
        return trees.difference(best, params), state

    return ExactMStep(init, update)


def _shapes(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]

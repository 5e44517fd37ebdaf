"""One uphill step with any optax optimizer: where a direction uphill becomes optax's descent.

optax minimises; every method here climbs. (`em_gradient`, which is an optax transformation itself,
turns the sign back, and `pqn` divides by a negative Hessian.) `ascend` hands the optimizer minus
the direction and adds what comes back:

    updates, state = optimizer.update(-direction, state, point)
    new point      = point + updates             (sgd(gamma): point + gamma * direction)
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike, PyTree

from marginax._core import trees
from marginax._core.checks import check_positive, is_number
from marginax.typing import Data, Particles, Theta

__all__ = [
    "ConditionalMSteps",
    "ExactMStep",
    "Optimizer",
    "as_optimizer",
    "ascend",
    "conditional_m_steps",
    "exact_m_step",
    "maximizes",
    "rescaled",
]

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
    if maximizes(optimizer):
        return optimizer  # it has no step to shrink

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, optax.OptState]:
        updates, state = optimizer.update(updates, state, params, **extra)
        return jax.tree.map(lambda u: jnp.asarray(factor).astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def maximizes(optimizer: Any) -> bool:
    """Whether theta is set to a maximum over the cloud, so that particles are to see it at once."""
    return isinstance(optimizer, ExactMStep | ConditionalMSteps)


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
        _check_full_theta(best, params, "The maximizer given to exact_m_step")
        return trees.difference(best, params), state

    return ExactMStep(init, update)


class ConditionalMSteps(optax.GradientTransformationExtraArgs):
    """What `conditional_m_steps` makes: like `ExactMStep`, but no maximum over all of theta."""


def conditional_m_steps(
    *maximizers: Callable[[Theta, Particles, Data], Theta],
    likelihood_steps: Sequence[Callable[[Theta, Data], Theta]] = (),
) -> ConditionalMSteps:
    r"""Parts of theta in turn, each set to its maximum with the others held: ECM, and ECME.

    Every maximizer sees what the ones before it have made of theta, and returns all of theta with
    its own part replaced. With one maximizer of all of theta it is `exact_m_step`.

    ECME sets some parts to the maximum of the marginal likelihood itself, where that is known.
    These come after all others: a maximum over the cloud that is taken at a theta which has moved
    on since the cloud was made may lower the likelihood.

    Args:
        *maximizers: `maximizer(theta, particles, data) -> theta`, each the argmax over its part of
            (1/N) sum_j l(theta, x_j).
        likelihood_steps: `step(theta, data) -> theta`, each the argmax over its part of
            log p_theta(y).

    Returns:
        A transformation for a `theta_optimizer` slot: of `mcem` for ECM by Monte Carlo, of `pgd`,
        or of a Stein method.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):  # y_d ~ N(x_d, 1), x_d ~ N(mean, exp(log_variance))
        ...     spread = jnp.sum((x - theta["mean"]) ** 2) * jnp.exp(-theta["log_variance"])
        ...     return -0.5 * (spread + x.size * theta["log_variance"] + jnp.sum((y - x) ** 2))
        >>> def mean(theta, particles, data):
        ...     return theta | {"mean": jnp.mean(particles)}
        >>> def log_variance(theta, particles, data):
        ...     return theta | {"log_variance": jnp.log(jnp.mean((particles - theta["mean"]) ** 2))}
        >>> ecm = mx.mcem(log_joint, mx.conditional_m_steps(mean, log_variance), 0.5, 5)
        >>> theta, y = {"mean": 0.0, "log_variance": 0.0}, jnp.array([1.0, 2.0, 6.0])
        >>> end = mx.trajectory(ecm, theta, jnp.zeros((500, 3)), y, 200, key=jax.random.key(0))
        >>> bool(abs(end.theta["mean"] - 3.0) < 0.3)  # the maximum likelihood estimate is the mean
        True

    References:
        Meng and Rubin (1993), Maximum likelihood estimation via the ECM algorithm, Biometrika.
        Liu and Rubin (1994), The ECME algorithm, Biometrika.
    """
    if not maximizers and not likelihood_steps:
        raise ValueError("conditional_m_steps was given nothing to maximize: give one function.")

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
        del updates, extra  # no gradient is needed: the maxima are known
        theta = params
        for number, maximizer in enumerate(maximizers, 1):
            theta = maximizer(theta, particles, data)
            _check_full_theta(theta, params, f"Maximizer {number} of conditional_m_steps")
        for number, step in enumerate(likelihood_steps, 1):
            theta = step(theta, data)
            _check_full_theta(theta, params, f"Likelihood step {number} of conditional_m_steps")
        return trees.difference(theta, params), state

    return ConditionalMSteps(init, update)


def _check_full_theta(best: Theta, params: Theta, who: str) -> None:
    if _shapes(best) != _shapes(params):
        raise ValueError(
            f"{who} returned theta of shapes {jax.tree.map(jnp.shape, best)}, but theta has "
            f"{jax.tree.map(jnp.shape, params)}. It must return a full theta, in the same "
            "structure."
        )


def _shapes(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]

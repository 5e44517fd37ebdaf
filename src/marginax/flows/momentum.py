r"""How far to look ahead: rules for the Nesterov coefficient alpha of the accelerated methods.

    ahead_{t+1} = new_{t+1} + alpha (new_{t+1} - new_t)

A rule is asked once per step and per block (theta and the particles each keep their own), after the
new iterate is known and before it is extrapolated. It sees the alignment <g, new_{t+1} - new_t> of
the raw ascent direction g (before any optimizer) with the move just made: negative means that the
momentum now carries the iterate downhill.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from marginax._core import trees
from marginax._core.checks import is_number, is_traced

__all__ = [
    "MomentumRule",
    "adaptive_restart",
    "as_rule",
    "constant",
    "liu",
    "look_ahead",
    "nesterov",
    "per_group",
    "schedule",
    "start",
]


class MomentumRule(NamedTuple):
    """A rule for alpha.

    Attributes:
        init: `init() -> state`.
        update: `update(state, alignment) -> (alpha, state)`.
        by_group: whether every group of the particles has a state and an alpha of its own.
    """

    init: Callable[[], Any]
    update: Callable[[Any, Array], tuple[ArrayLike, Any]]
    by_group: bool = False


def constant(alpha: ArrayLike) -> MomentumRule:
    """The same alpha at every step, 0 <= alpha < 1; 0 switches the acceleration off."""
    return as_rule(alpha, "momentum")


def schedule(alpha_of: Callable[[Array], ArrayLike]) -> MomentumRule:
    """alpha = alpha_of(k) at step k = 1, 2, ..."""

    def init() -> Array:
        return jnp.zeros((), jnp.int32)

    def update(count: Array, alignment: Array) -> tuple[ArrayLike, Array]:
        count = count + 1
        return alpha_of(count.astype(alignment.dtype)), count

    return MomentumRule(init, update)


def nesterov() -> MomentumRule:
    """Nesterov's schedule for convex problems, alpha = (k - 1) / (k + 2) at step k = 1, 2, ..."""
    return schedule(lambda k: (k - 1) / (k + 2))


def liu(step_size: ArrayLike, strong_convexity: ArrayLike) -> MomentumRule:
    r"""The constant of Liu et al. (2019) for a mu-strongly convex objective and a step gamma.

        alpha = (2 + b - R) / (2 + b + R)
        b = 0.2 sqrt(mu gamma),   R = sqrt(b^2 + 4 (1 + b) mu gamma)

    References:
        Liu, Zhuo, Cheng, Zhang and Zhu (2019), Understanding and accelerating particle-based
        variational inference, ICML.
    """
    product = jnp.asarray(step_size) * strong_convexity
    if not is_traced(product) and not (product.ndim == 0 and 0 < float(product) < 1):
        raise ValueError(
            f"step_size * strong_convexity is {product}, but this constant needs it strictly "
            "between 0 and 1."
        )
    b = 0.2 * jnp.sqrt(product)
    root = jnp.sqrt(b**2 + 4 * (1 + b) * product)
    return constant((2 + b - root) / (2 + b + root))


def adaptive_restart() -> MomentumRule:
    """Momentum that grows until it carries the iterate downhill, then starts again.

    k starts at 0; at every step k <- 0 if the alignment is negative and k + 1 otherwise, and alpha
    = k / (k + 3) of the new k is used in that same step. So the first alpha is 1/4, and a restart
    sets the look-ahead to the iterate itself.

    References:
        O'Donoghue and Candes (2015), Adaptive restart for accelerated gradient schemes.
    """

    def init() -> Array:
        return jnp.zeros((), jnp.int32)

    def update(count: Array, alignment: Array) -> tuple[ArrayLike, Array]:
        count = jnp.where(alignment < 0, 0, count + 1)
        k = count.astype(alignment.dtype)
        return k / (k + 3), count

    return MomentumRule(init, update)


def per_group(rule: MomentumRule | ArrayLike) -> MomentumRule:
    """The rule for every group on its own, for particles whose leaves are [N, groups, ...].

    Groups that are independent given theta come to rest at different times, and with batches of
    groups are not even sampled together: each then restarts by itself.
    """
    return as_rule(rule, "momentum")._replace(by_group=True)


def as_rule(momentum: Any, name: str) -> MomentumRule:
    """A rule as it is; a plain number as `constant(number)`."""
    if isinstance(momentum, MomentumRule):
        return momentum
    if not is_traced(momentum):
        if not is_number(momentum):
            called = "; call it" if callable(momentum) else ""
            raise TypeError(
                f"{name} is {momentum!r}, but it must be a number or a rule of "
                f"`marginax.momentum`, such as `adaptive_restart()`{called}."
            )
        if np.ndim(momentum) != 0 or not 0 <= float(momentum) < 1:
            raise ValueError(
                f"{name} is {momentum}, but it must be one number with 0 <= {name} < 1."
            )
    return MomentumRule(init=tuple, update=lambda state, alignment: (momentum, state))


def look_ahead(
    rule: MomentumRule, rule_state: Any, direction: PyTree, new: PyTree, old: PyTree
) -> tuple[PyTree, Any]:
    """Extrapolates from `new` along new - old: iterates both, never a look-ahead."""
    move = trees.difference(new, old)
    if rule.by_group:
        return _look_ahead_by_group(rule, rule_state, direction, new, move)
    alpha, rule_state = rule.update(rule_state, trees.inner(direction, move))
    return trees.add_scaled(new, alpha, move), rule_state


def start(rule: MomentumRule, iterate: PyTree) -> Any:
    """What the rule remembers before the first step of `iterate`."""
    state = rule.init()
    if not rule.by_group:
        return state
    shapes = [leaf.shape for leaf in jax.tree.leaves(iterate)]
    if any(len(shape) < 2 for shape in shapes) or len({shape[1] for shape in shapes}) != 1:
        raise ValueError(
            f"momentum.per_group was given leaves of the shapes {shapes}, but it is for particles "
            "whose leaves are [N, groups, ...] with the same groups; theta has none. Use the rule "
            "without per_group there."
        )
    num_groups = shapes[0][1]
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_groups, *leaf.shape)), state)


def _look_ahead_by_group(
    rule: MomentumRule, rule_state: Any, direction: PyTree, new: PyTree, move: PyTree
) -> tuple[PyTree, Any]:
    def of_groups(g: Array, m: Array) -> Array:
        return jnp.sum(g * m, axis=(0, *range(2, m.ndim)))

    alignment = sum(
        jax.tree.leaves(jax.tree.map(of_groups, direction, move)),
        jnp.zeros((), jax.tree.leaves(move)[0].dtype),
    )
    alphas, rule_state = jax.vmap(rule.update)(rule_state, alignment)
    alpha = jnp.asarray(alphas)

    def extrapolated(leaf: Array, m: Array) -> Array:
        return leaf + alpha.reshape(1, -1, *[1] * (m.ndim - 2)).astype(leaf.dtype) * m

    return jax.tree.map(extrapolated, new, move), rule_state

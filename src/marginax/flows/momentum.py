r"""How far to look ahead: rules for the Nesterov coefficient alpha of the accelerated methods.

    ahead_{t+1} = new_{t+1} + alpha (new_{t+1} - new_t)

A rule is asked once per step and per block (theta and the particles each keep their own), after the
new iterate is known and before it is extrapolated. It sees the alignment <g, new_{t+1} - new_t> of
the raw ascent direction g (before any optimizer) with the move just made: negative means that the
momentum now carries the iterate downhill.

The move has two parts, the lead that the last look-ahead had and the step taken from there,

    new_{t+1} - new_t = (ahead_t - new_t) + (new_{t+1} - ahead_t)

and a rule may carry them on by different factors (`wag`). Particles may also be matched anew with
those of the step before, instead of each with itself (`riemannian`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, PyTree

from marginax._core import linalg, trees
from marginax._core.checks import is_number, is_traced

__all__ = [
    "LeadAndStep",
    "MomentumRule",
    "adaptive_restart",
    "as_rule",
    "constant",
    "liu",
    "look_ahead",
    "nesterov",
    "per_group",
    "riemannian",
    "schedule",
    "start",
    "wag",
]


class LeadAndStep(NamedTuple):
    """Two factors in the place of one alpha.

    Attributes:
        lead: how much of the last look-ahead's lead, ahead_t - new_t, is kept.
        step: how much of the step from there, new_{t+1} - ahead_t, is added once more.
    """

    lead: ArrayLike
    step: ArrayLike


class MomentumRule(NamedTuple):
    """A rule for alpha.

    Attributes:
        init: `init() -> state`.
        update: `update(state, alignment) -> (alpha, state)`; alpha is a number, or a `LeadAndStep`.
        by_group: whether every group of the particles has a state and an alpha of its own.
        match: `match(new, old) -> old`, the old particles in the order in which they belong to the
            new ones; None if each belongs to itself.
    """

    init: Callable[[], Any]
    update: Callable[[Any, Array], tuple[ArrayLike | LeadAndStep, Any]]
    by_group: bool = False
    match: Callable[[PyTree, PyTree], PyTree] | None = None


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


def wag(acceleration: ArrayLike = 4.0) -> MomentumRule:
    r"""Wasserstein accelerated gradient, with a lead and a step that are carried on unequally.

        ahead_k = new_k + (k - 1)/k (ahead_{k-1} - new_{k-1}) + (k + a - 2)/k (new_k - ahead_{k-1})

    at step k = 1, 2, ..., with a > 3 the acceleration. Its momentum tends to 1 and never restarts,
    so that on a strongly concave log joint it swings where `adaptive_restart` does not.

    References:
        Liu, Zhuo, Cheng, Zhang and Zhu (2019), Understanding and accelerating particle-based
        variational inference, ICML.
    """
    known = not is_traced(acceleration)
    if known and not (is_number(acceleration) and float(np.asarray(acceleration)) > 3):
        raise ValueError(f"acceleration is {acceleration!r}, but wag needs a number above 3.")

    def init() -> Array:
        return jnp.zeros((), jnp.int32)

    def update(count: Array, alignment: Array) -> tuple[LeadAndStep, Array]:
        k = (count + 1).astype(alignment.dtype)
        a = jnp.asarray(acceleration, alignment.dtype)
        return LeadAndStep((k - 1) / k, (k + a - 2) / k), count + 1

    return MomentumRule(init, update)


def riemannian(rule: MomentumRule | ArrayLike) -> MomentumRule:
    r"""The rule along geodesics between clouds (SVGD-RAGD): for the particles alone.

        ahead_{t+1} = x_{t+1} + alpha (x_{t+1} - T(x_{t+1}))

    where T is the optimal transport from the cloud x_{t+1} to the cloud x_t: the assignment of all
    particles to those before with the least sum of squared distances. Where no two particles pass
    each other in a step every particle is assigned to itself, and this is the rule as it is. An
    assignment takes up to N^3 operations: for clouds of up to some hundreds of particles.

    References:
        Zhang and Sra (2018), An estimate sequence for geodesically convex optimization, COLT.
        Liu, Zhuo, Cheng, Zhang and Zhu (2019), as above: inverse exponential maps between clouds.
    """
    return as_rule(rule, "momentum")._replace(match=_transported)


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
    rule: MomentumRule, rule_state: Any, direction: PyTree, new: PyTree, old: PyTree, ahead: PyTree
) -> tuple[PyTree, Any]:
    """Extrapolates from `new` along new - old: iterates both, never a look-ahead.

    `ahead` is the look-ahead from which the step to `new` was taken, for rules that part the two.
    """
    if rule.match is not None:
        match = jax.vmap(rule.match, 1, 1) if rule.by_group else rule.match
        old = match(new, old)
    move = trees.difference(new, old)
    if rule.by_group:
        alignment = _alignment_by_group(direction, move)
        alpha, rule_state = jax.vmap(rule.update)(rule_state, alignment)
    else:
        alpha, rule_state = rule.update(rule_state, trees.inner(direction, move))
    if not isinstance(alpha, LeadAndStep):
        return _add(new, alpha, move, rule.by_group), rule_state
    leading = _add(new, alpha.lead, trees.difference(ahead, old), rule.by_group)
    return _add(leading, alpha.step, trees.difference(new, ahead), rule.by_group), rule_state


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


def _alignment_by_group(direction: PyTree, move: PyTree) -> Array:
    def of_groups(g: Array, m: Array) -> Array:
        return jnp.sum(g * m, axis=(0, *range(2, m.ndim)))

    return sum(
        jax.tree.leaves(jax.tree.map(of_groups, direction, move)),
        jnp.zeros((), jax.tree.leaves(move)[0].dtype),
    )


def _add(tree: PyTree, alpha: ArrayLike, move: PyTree, by_group: bool) -> PyTree:
    """Tree + alpha * move, with one alpha for all or one for every group."""
    if not by_group:
        return trees.add_scaled(tree, alpha, move)

    def extrapolated(leaf: Array, m: Array) -> Array:
        each = jnp.asarray(alpha).reshape(1, -1, *[1] * (m.ndim - 2))
        return leaf + each.astype(leaf.dtype) * m

    return jax.tree.map(extrapolated, tree, move)


def _transported(new: PyTree, old: PyTree) -> PyTree:
    """The old particles, each where the new one stands that it is transported to."""
    x, y = trees.ravel_cloud(new), trees.ravel_cloud(old)
    center = jnp.mean(x, axis=0, keepdims=True)
    x, y = x - center, y - center
    # |x - y|^2 without x^2 and y^2, which no assignment can change.
    costs = (-2 * linalg.matmul(x, y.T)).astype(jnp.result_type(float))  # which optax computes in
    rows, columns = optax.assignment.hungarian_algorithm(costs)
    order = jnp.zeros_like(columns).at[rows].set(columns)
    return jax.tree.map(lambda leaf: leaf[order], old)

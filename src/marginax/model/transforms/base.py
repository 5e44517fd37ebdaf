"""What a transform is, and those that take every entry on its own: bounds on numbers."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

__all__ = [
    "Display",
    "Limits",
    "Transform",
    "identity",
    "interval",
    "lower_bound",
    "positive",
    "unit_interval",
]

Limits = tuple[float | None, float | None]


class Display(NamedTuple):
    """How a leaf looks in a table, where not entry by entry.

    Attributes:
        values: from the constrained leaf to the numbers displayed.
        labels: a label for each, added to the leaf's name.
        stretch: from the numbers displayed to reals, number by number, where intervals are made.
        unstretch: back.
    """

    values: Callable[[Array], Array]
    labels: list[str]
    stretch: Callable[[Array], Array]
    unstretch: Callable[[Array], Array]


class Transform(NamedTuple):
    """A smooth one-to-one map of a leaf.

    Attributes:
        name: in words, for tables and errors.
        forward: from unconstrained reals to constrained values.
        inverse: back.
        log_abs_det_jacobian: the log of the absolute derivative of `forward`, over the leaf.
        contains: `contains(constrained)` is whether all values are allowed.
        display: how tables show the leaf; entry by entry by default.
        elementwise: whether `forward` and `inverse` take every entry on its own, so that they may
            be called with one. Not so where entries hang together (ordered, on a simplex), or have
            bounds of their own.
        limits: what a value tends to where its real goes to minus and to plus infinity: a pair for
            every real of the leaf, or one for all; None where that is not known.
    """

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    log_abs_det_jacobian: Callable[[Array], Array]
    contains: Callable[[Any], Any]
    display: Display | None = None
    elementwise: bool = False
    limits: tuple[Limits, ...] = ((None, None),)

    def __repr__(self) -> str:
        return self.name


identity = Transform(
    "real",
    lambda u: u,
    lambda x: x,
    lambda u: jnp.zeros((), u.dtype),
    lambda x: True,
    elementwise=True,
    limits=((-math.inf, math.inf),),
)


def _log(x: Any) -> Any:
    """On the host where x is there: a small program takes longer to find than to run."""
    return np.log(x) if isinstance(x, np.ndarray | np.generic) else jnp.log(x)


def _all(conditions: Any) -> Any:
    """Likewise whether all are met."""
    return conditions.all() if isinstance(conditions, jax.Array) else bool(np.all(conditions))


positive = Transform(
    "positive",
    jnp.exp,
    _log,
    jnp.sum,
    lambda x: _all(x > 0),
    elementwise=True,
    limits=((0.0, math.inf),),
)


def lower_bound(low: float) -> Transform:
    """Above a finite bound, by a shifted exponential function."""
    if not math.isfinite(low):
        raise ValueError(
            f"lower_bound({low}): the bound must be a finite number. Leave the transform out for "
            "a parameter without one."
        )
    return Transform(
        f"lower_bound({low:g})",
        lambda u: low + jnp.exp(u),
        lambda x: _log(x - low),
        jnp.sum,
        lambda x: _all(x > low),
        elementwise=True,
        limits=((low, math.inf),),
    )


def interval(low: float, high: float) -> Transform:
    """Between two finite ends, by a scaled logistic function."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"interval({low}, {high}) is empty or not finite: give two finite ends, the smaller "
            "first. For a half line use `positive` or `lower_bound`."
        )
    width = high - low

    def log_abs_det_jacobian(u: Array) -> Array:
        return jnp.sum(math.log(width) + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u))

    return Transform(
        f"interval({low:g}, {high:g})",
        lambda u: low + width * jax.nn.sigmoid(u),
        lambda x: _log(x - low) - _log(high - x),
        log_abs_det_jacobian,
        lambda x: _all((x > low) & (x < high)),
        elementwise=True,
        limits=((low, high),),
    )


unit_interval = interval(0.0, 1.0)

"""Maps from the reals onto the sets parameters live in: positive, intervals, correlations.

Algorithms move on the reals; models speak of natural values. A map carries both directions and the
log of its volume change, which latents need (their density transforms) and parameters do not (a
likelihood does not).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = [
    "Bijection",
    "Shown",
    "correlation_cholesky",
    "identity",
    "interval",
    "positive",
    "unit_interval",
]


class Shown(NamedTuple):
    """How a leaf looks in a table, where not entry by entry.

    Attributes:
        values: from the natural leaf to the numbers shown.
        labels: a label for each, added to the leaf's name.
        stretch: from a number shown to the reals, where its interval is made.
        unstretch: back.
    """

    values: Callable[[Array], Array]
    labels: list[str]
    stretch: Callable[[Array], Array]
    unstretch: Callable[[Array], Array]


class Bijection(NamedTuple):
    """A smooth one-to-one map of a leaf.

    Attributes:
        name: in words, for tables and errors.
        forward: from unconstrained reals to natural values.
        inverse: back.
        log_volume: the log of the absolute derivative of `forward`, summed over the leaf.
        inside: `inside(natural)` is whether all values are allowed.
        shown: how tables show the leaf; entry by entry by default.
        by_entry: whether `forward` and `inverse` take every entry on its own, so that they may be
            called with one. Not so where entries hang together (ordered, on a simplex), or have
            bounds of their own.
    """

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    log_volume: Callable[[Array], Array]
    inside: Callable[[Any], Any]
    shown: Shown | None = None
    by_entry: bool = False

    def __repr__(self) -> str:
        return self.name


identity = Bijection(
    "real",
    lambda u: u,
    lambda x: x,
    lambda u: jnp.zeros((), u.dtype),
    lambda x: True,
    by_entry=True,
)
positive = Bijection("positive", jnp.exp, jnp.log, jnp.sum, lambda x: jnp.all(x > 0), by_entry=True)


def interval(low: float, high: float) -> Bijection:
    """Between two finite ends, by a scaled logistic function."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"interval({low}, {high}) is empty or not finite: give two finite ends, the smaller "
            "first. For a half line use `positive` and a shift in the model."
        )
    width = high - low

    def log_volume(u: Array) -> Array:
        return jnp.sum(math.log(width) + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u))

    return Bijection(
        f"interval({low:g}, {high:g})",
        lambda u: low + width * jax.nn.sigmoid(u),
        lambda x: jnp.log(x - low) - jnp.log(high - x),
        log_volume,
        lambda x: jnp.all((x > low) & (x < high)),
        by_entry=True,
    )


unit_interval = interval(0.0, 1.0)


def correlation_cholesky(size: int) -> Bijection:
    """Onto lower Cholesky factors of size x size correlation matrices.

    The unconstrained leaf is a vector of size (size - 1) / 2 inverse hyperbolic tangents of
    canonical partial correlations, row by row. Tables show the correlations.
    """
    if size < 2:
        raise ValueError(f"correlation_cholesky({size}): a correlation needs a size of at least 2.")
    rows, columns = jnp.tril_indices(size, -1)

    def left_over(u: Array) -> tuple[Array, Array]:
        """The log of sqrt(1 - tanh^2) of every entry, and its sum over those before it in a row."""
        # Of u itself: near 1 the difference 1 - tanh^2 has no digits, and its root no gradient.
        log_left = jnp.zeros((size, size), u.dtype)
        log_left = log_left.at[rows, columns].set(math.log(2) - u - jax.nn.softplus(-2 * u))
        return log_left, jnp.cumsum(log_left, axis=1) - log_left

    def forward(u: Array) -> Array:
        partial = jnp.eye(size, dtype=u.dtype).at[rows, columns].set(jnp.tanh(u))
        # Entry (i, j) is the partial correlation times what the entries before it left over.
        return jnp.tril(partial * jnp.exp(left_over(u)[1]))

    def inverse(factor: Array) -> Array:
        left = 1 - jnp.cumsum(factor**2, axis=1)
        before = jnp.concatenate([jnp.ones((size, 1), factor.dtype), left[:, :-1]], axis=1)
        return jnp.arctanh(factor[rows, columns] / jnp.sqrt(before[rows, columns]))

    def log_volume(u: Array) -> Array:
        # d L_ij / d u_ij, and L depends on u triangularly: the diagonal is the determinant.
        log_left, before = left_over(u)
        return jnp.sum((2 * log_left + before)[rows, columns])

    def inside(factor: Any) -> Any:
        unit = jnp.allclose(jnp.sum(factor**2, axis=1), 1.0, atol=1e-5)
        return unit & jnp.all(jnp.diag(factor) > 0)

    shown = Shown(
        lambda factor: (factor @ factor.T)[rows, columns],
        [f"[{i},{j}]" for i, j in zip(rows.tolist(), columns.tolist(), strict=True)],
        jnp.arctanh,
        jnp.tanh,
    )
    return Bijection(f"correlation_cholesky({size})", forward, inverse, log_volume, inside, shown)

r"""Bandwidths h: a fixed number, or a rule that reads it off the cloud at every step.

    fixed     h
    "median"  h^2 = median(r^2) / (2 log(N + 1))
    "mean"    h^2 = mean(r^2)   / (2 log(N + 1))

Median and mean run over all N^2 entries of the matrix of squared distances, its zero diagonal
included.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from marginax.checks import check_positive

__all__ = ["Bandwidth", "as_rule", "median_of_nonnegative"]

Bandwidth = float | str | Array


def as_rule(bandwidth: Bandwidth) -> Callable[[Float[Array, "n n"]], Float[Array, ""]]:
    """Turns what the user wrote into a function from squared distances to h^2."""
    if isinstance(bandwidth, str):
        if bandwidth not in _RULES:
            raise ValueError(
                f"bandwidth is {bandwidth!r}, but the rules are {' and '.join(map(repr, _RULES))}; "
                "or give a positive number."
            )
        return _RULES[bandwidth]
    check_positive(bandwidth, "bandwidth")
    return lambda squared: _fixed(bandwidth, squared)


def _fixed(bandwidth: ArrayLike, squared: Float[Array, "n n"]) -> Float[Array, ""]:
    return jnp.asarray(bandwidth).astype(squared.dtype) ** 2


def _median(squared: Float[Array, "n n"]) -> Float[Array, ""]:
    # More than half of the distances are 0 if most particles coincide: then the mean still has a
    # scale.
    median = median_of_nonnegative(squared)
    return _per_particle(jnp.where(median > 0, median, jnp.mean(squared)), squared.shape[0])


def _mean(squared: Float[Array, "n n"]) -> Float[Array, ""]:
    return _per_particle(jnp.mean(squared), squared.shape[0])


def median_of_nonnegative(values: Float[Array, "..."]) -> Float[Array, ""]:
    """The exact median without a sort, which would cost ten to forty times the rest of a step.

    Non-negative floats are ordered as their bit patterns are, so the lower middle value is found
    bit by bit from the top, each bit settled by counting how many values lie below.
    """
    lower_middle, upper_middle = (values.size - 1) // 2, values.size // 2
    num_bits = jnp.finfo(values.dtype).bits
    patterns = jax.lax.bitcast_convert_type(values, f"int{num_bits}")

    def settle(i: Array, found: Array) -> Array:
        candidate = found | (jnp.ones_like(found) << (num_bits - 2 - i).astype(found.dtype))
        return jnp.where(jnp.sum(patterns < candidate) <= lower_middle, candidate, found)

    found = jax.lax.fori_loop(0, num_bits - 1, settle, jnp.zeros((), patterns.dtype))
    lower = jax.lax.bitcast_convert_type(found, values.dtype)
    next_above = jnp.min(jnp.where(values > lower, values, jnp.inf))
    upper = jnp.where(jnp.sum(values <= lower) > upper_middle, lower, next_above)
    return (lower + upper) / 2


def _per_particle(typical: Float[Array, ""], n: int) -> Float[Array, ""]:
    h2 = typical / (2 * math.log(n + 1))
    # Particles that all coincide have no scale; any h then gives the same kernel, and 0 would give
    # NaN.
    return jnp.where(h2 > 0, h2, 1)


_RULES = {"median": _median, "mean": _mean}

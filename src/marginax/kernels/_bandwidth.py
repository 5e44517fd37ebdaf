r"""Bandwidths h: a fixed number, or a rule that reads it off the cloud at every step.

    fixed     h
    "median"  h^2 = median(r^2) / (2 log(N + 1))
    "mean"    h^2 = mean(r^2)   / (2 log(N + 1))

Median and mean run over all N^2 entries of the matrix of squared distances, its zero diagonal
included. The median is exact up to N = 256; beyond, it is that of 2^16 pairs in which every
particle appears equally often, whose rank lay between 0.495 and 0.505 in every cloud tried (h^2
within 2 %, unless the distances have a gap in the middle), and costs little beside the step.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from marginax.checks import check_positive

__all__ = ["Bandwidth", "as_rule", "median_of_nonnegative"]

Bandwidth = float | str | Array
LARGEST_EXACT = 256
NUM_PAIRS = 2**16


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
    n = squared.shape[0]
    if n <= LARGEST_EXACT:
        median = median_of_nonnegative(squared)
    else:
        # Every particle with the same number of others, at random, so that no order of the
        # particles matters. The zero diagonal is not among them: leaving out the share 1/n of
        # zeros moves the median's rank.
        offsets = np.random.default_rng(0).integers(1, n, size=(n, max(1, NUM_PAIRS // n)))
        others = (np.arange(n)[:, None] + offsets) % n
        rank = (0.5 - 1 / n) / (1 - 1 / n)
        median = median_of_nonnegative(jnp.take_along_axis(squared, others, axis=1), rank)
    # More than half of the distances are 0 if most particles coincide: then the mean still has a
    # scale.
    return _per_particle(jnp.where(median > 0, median, jnp.mean(squared)), squared.shape[0])


def _mean(squared: Float[Array, "n n"]) -> Float[Array, ""]:
    return _per_particle(jnp.mean(squared), squared.shape[0])


def median_of_nonnegative(values: Float[Array, "..."], rank: float = 0.5) -> Float[Array, ""]:
    """The exact median without a sort, which would cost ten to forty times the rest of a step.

    With another rank in (0, 1), that quantile.

    Non-negative floats are ordered as their bit patterns are, so the lower middle value is found
    bit by bit from the top, each bit settled by counting how many values lie below.
    """
    if rank == 0.5:
        lower_middle, upper_middle = (values.size - 1) // 2, values.size // 2
    else:
        lower_middle = upper_middle = int(rank * values.size)
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

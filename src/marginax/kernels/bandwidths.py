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

from marginax._core import linalg
from marginax._core.checks import check_positive

__all__ = ["Bandwidth", "Rule", "as_rule", "median_of_nonnegative"]

Bandwidth = float | str | Array
# From the cloud, and its squared distances where these are at hand, to h^2.
Rule = Callable[[Float[Array, "n d"], Float[Array, "n n"] | None], Float[Array, ""]]
LARGEST_EXACT = 256
NUM_PAIRS = 2**16


def as_rule(bandwidth: Bandwidth) -> Rule:
    """Turns what the user wrote into a function of the cloud."""
    if isinstance(bandwidth, str):
        if bandwidth not in _RULES:
            raise ValueError(
                f"bandwidth is {bandwidth!r}, but the rules are {' and '.join(map(repr, _RULES))}; "
                "or give a positive number."
            )
        return _RULES[bandwidth]
    check_positive(bandwidth, "bandwidth")
    return lambda x, squared: _fixed(bandwidth, x)


def _fixed(bandwidth: ArrayLike, x: Float[Array, "n d"]) -> Float[Array, ""]:
    return jnp.asarray(bandwidth).astype(x.dtype) ** 2


def _median(x: Float[Array, "n d"], squared: Float[Array, "n n"] | None) -> Float[Array, ""]:
    n = x.shape[0]
    if n <= LARGEST_EXACT:
        # Also where the caller holds no distances: so few do no harm.
        squared = linalg.squared_distances(x) if squared is None else squared
        median = median_of_nonnegative(squared)
    else:
        # Every particle with the same number of others, at random, so that no order of the
        # particles matters. The zero diagonal is not among them: leaving out the share 1/n of
        # zeros moves the median's rank.
        offsets = np.random.default_rng(0).integers(1, n, size=(n, max(1, NUM_PAIRS // n)))
        others = (np.arange(n)[:, None] + offsets) % n
        rank = (0.5 - 1 / n) / (1 - 1 / n)
        some = (
            _distances_to(x, others)
            if squared is None
            else jnp.take_along_axis(squared, others, axis=1)
        )
        median = median_of_nonnegative(some, rank)
    # More than half of the distances are 0 if most particles coincide: then the mean still has a
    # scale.
    return _per_particle(jnp.where(median > 0, median, _mean_distance(x, squared)), n)


def _mean(x: Float[Array, "n d"], squared: Float[Array, "n n"] | None) -> Float[Array, ""]:
    return _per_particle(_mean_distance(x, squared), x.shape[0])


def _mean_distance(x: Float[Array, "n d"], squared: Float[Array, "n n"] | None) -> Float[Array, ""]:
    """The mean of r^2 over all pairs, which is twice the cloud's total variance."""
    if squared is not None:
        return jnp.mean(squared)
    z = x - jnp.mean(x, axis=0, keepdims=True)
    return 2 * jnp.mean(jnp.sum(z**2, axis=1))


def _distances_to(x: Float[Array, "n d"], others: np.ndarray) -> Float[Array, "m n"]:
    """r^2 from every particle to some others, a column of `others` at a time."""
    return jax.lax.map(
        lambda column: jnp.sum((x - jnp.take(x, column, axis=0)) ** 2, axis=1),
        jnp.asarray(others.T),
    )


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

    def settle(i: Array, settled: Array) -> Array:
        candidate = settled | (jnp.ones_like(settled) << (num_bits - 2 - i).astype(settled.dtype))
        return jnp.where(jnp.sum(patterns < candidate) <= lower_middle, candidate, settled)

    settled = jax.lax.fori_loop(0, num_bits - 1, settle, jnp.zeros((), patterns.dtype))
    lower = jax.lax.bitcast_convert_type(settled, values.dtype)
    next_above = jnp.min(jnp.where(values > lower, values, jnp.inf))
    upper = jnp.where(jnp.sum(values <= lower) > upper_middle, lower, next_above)
    return (lower + upper) / 2


def _per_particle(typical: Float[Array, ""], n: int) -> Float[Array, ""]:
    h2 = typical / (2 * math.log(n + 1))
    # Particles that all coincide have no scale; any h then gives the same kernel, and 0 would give
    # NaN.
    return jnp.where(h2 > 0, h2, 1)


_RULES = {"median": _median, "mean": _mean}

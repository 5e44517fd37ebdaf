r"""Jumps of a chain between and around the modes of its block: an independence sampler.

    u' ~ q = sum_m a_m t_5(c_m, w A_m),   accepted with probability  p(u') q(u) / (p(u) q(u'))

In the coordinates of the first mode, x = m_1 + R_1 u, in which mode m is at c_m with the root A_m.
Heavier in the tails than the posterior, so that no chain stays out there for long.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.likelihood.proposals import Proposal, inverses, log_standard_t
from marginax.typing import Key

__all__ = ["Jumps", "jump", "jumps_between"]

DEGREES = 5.0  # of freedom of the t distributions
# Most are about as wide as the mode; some wider, for posteriors with shoulders.
WIDTHS, SHARES = (1.0, 3.0, 10.0), (0.7, 0.2, 0.1)


class Jumps(NamedTuple):
    """The mixture that jumps are drawn from, a leading axis over blocks.

    Attributes:
        log_share: log a_m.
        center: c_m.
        root: A_m.
        inverse: of the root.
        log_root: log |det A_m|.
    """

    log_share: Float[Array, "*blocks modes"]
    center: Float[Array, "*blocks modes p"]
    root: Float[Array, "*blocks modes p p"]
    inverse: Float[Array, "*blocks modes p p"]
    log_root: Float[Array, "*blocks modes"]


def jumps_between(proposal: Proposal) -> Jumps:
    """The modes of a proposal in the coordinates of the first."""
    at = proposal.at
    to_first = inverses(at.root[0])
    root = jnp.einsum("bpq,mbqr->bmpr", to_first, at.root)
    center = jnp.einsum("bpq,mbq->bmp", to_first, at.mode - at.mode[0][None])
    log_root = jnp.where(jnp.isfinite(at.log_root), at.log_root, 0.0)
    return Jumps(
        proposal.log_share.T, center, root, inverses(root), (log_root - log_root[0][None]).T
    )


def jump(key: Key, state: Any, density: Callable[[Array], Array], jumps: Jumps) -> Any:
    """The chain after a proposed jump, taken or not.

    Args:
        key: a key.
        state: with `position`, `logdensity` and `logdensity_grad`.
        density: the log density of a position.
        jumps: of this block.
    """
    mode_key, normal_key, scale_key, accept_key = jax.random.split(key, 4)
    u = state.position
    which = jax.random.categorical(mode_key, jumps.log_share)
    wide_key, scale_key = jax.random.split(scale_key)
    wide = jax.random.choice(wide_key, jnp.asarray(WIDTHS, u.dtype), p=jnp.asarray(SHARES))
    heavy = jnp.sqrt(DEGREES / (2 * jax.random.gamma(scale_key, DEGREES / 2, dtype=u.dtype)))
    z = wide * heavy * jax.random.normal(normal_key, u.shape, u.dtype)
    proposed = jumps.center[which] + jumps.root[which] @ z
    value, gradient = jax.value_and_grad(density)(proposed)
    log_ratio = value - state.logdensity + _log_q(jumps, u) - _log_q(jumps, proposed)
    # A density that is not finite there is none; a NaN compares as false.
    taken = jnp.log(jax.random.uniform(accept_key, dtype=u.dtype)) < log_ratio
    after = state._replace(position=proposed, logdensity=value, logdensity_grad=gradient)
    return jax.tree.map(lambda new, old: jnp.where(taken, new, old), after, state)


def _log_q(jumps: Jumps, u: Float[Array, " p"]) -> Array:
    inside = jnp.einsum("mpq,mq->mp", jumps.inverse, u[None] - jumps.center)
    of_widths = [
        log_standard_t(inside / width, jnp.asarray(DEGREES, u.dtype))
        + (math.log(share) - u.size * math.log(width))
        for width, share in zip(WIDTHS, SHARES, strict=True)
    ]
    parts = jax.nn.logsumexp(jnp.stack(of_widths), axis=0) - jumps.log_root
    parts = jnp.where(jnp.isneginf(jumps.log_share), -jnp.inf, parts + jumps.log_share)
    return jax.nn.logsumexp(parts)

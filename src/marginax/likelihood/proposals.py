r"""Where the nodes or draws of a block go: around every mode of its posterior that is known.

    q(x) = sum_m a_m q_m(x),   q_m of the mode m_m and the root R_m;   x = m_m + R_m z

    p_theta(y) = sum_m a_m E_{q_m}[ exp(l(theta, x)) / q(x) ]

With one mode that is adaptive quadrature, or importance sampling, as usual; with several, each
expectation is taken over its own nodes or draws, and the parts add up to the whole. The integral
does not depend on the places, so that they stand still in derivatives.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax._core.linalg import solve_positive
from marginax.likelihood.blocks import Blocks, chunk_of, in_chunks, placing, points_of_a_climb
from marginax.likelihood.modes import Laplace

__all__ = [
    "Proposal",
    "as_modes",
    "gaussian_log_density",
    "inverses",
    "log_densities_of",
    "log_standard_t",
    "points_of",
    "proposals_by_chunk",
    "proposer",
]

SMALLEST_SHARE = -7.0  # log: even a mode that seems negligible is looked at
SAME = 0.5  # modes closer than this, in units of the higher one's width, are one


class Proposal(NamedTuple):
    """For every block a mixture with a part for each mode.

    Attributes:
        at: modes and roots, with a leading axis over modes.
        log_share: log a_m of every block; -inf where a mode repeats one before it.
    """

    at: Laplace
    log_share: Float[Array, "modes blocks"]


def as_modes(start: Array) -> Float[Array, "modes blocks p"]:
    """Starts of modes with an axis over them, which a single one may lack."""
    return start if start.ndim == 3 else start[None]


def proposer(blocks: Blocks) -> Callable[[np.ndarray, Array, slice], tuple[Proposal, Array]]:
    """`propose(theta, starts, rows)` for some of the blocks, compiled once for all uses.

    theta is flat, on the reals, and starts [modes, blocks, p] where the modes of these blocks are
    climbed to from. It returns the mixture at theta, and what the next search is to start from.
    """
    find = placing(blocks.bare)

    def propose(theta: np.ndarray, starts: Array, rows: slice) -> tuple[Proposal, Array]:
        data = chunk_of(blocks, rows)
        if len(starts) == 1:
            at = find(theta, starts, data).at
            log_share = np.zeros(at.log_root.shape, at.log_root.dtype)
            return Proposal(at, jax.device_put(log_share)), at.mode
        tops = [find(theta, starts[k : k + 1], data) for k in range(len(starts))]
        return _mixture(*jax.tree.map(lambda *parts: jnp.concatenate(parts), *tops)[:2], starts)

    return propose


def proposals_by_chunk(
    blocks: Blocks,
) -> Callable[[np.ndarray, Array, int], Iterator[tuple[slice, Proposal, Array]]]:
    """`each(theta, modes, points_per_block)`: rows, mixture and further starts of every chunk.

    Chunks are as large as so many points of each block allow. Modes are climbed to in larger ones:
    that takes few points, and every size of a chunk is another program.
    """
    propose = proposer(blocks)

    def each(
        theta: np.ndarray, modes: Array, points_per_block: int
    ) -> Iterator[tuple[slice, Proposal, Array]]:
        chunks = in_chunks(blocks, points_per_block)
        together = in_chunks(blocks, points_of_a_climb(blocks))
        on_host = blocks.mesh is None and jax.default_backend() == "cpu"
        if not on_host or len(chunks) <= len(together):
            for rows in chunks:
                yield rows, *propose(theta, modes[:, rows], rows)
            return
        parts = [propose(theta, modes[:, rows], rows) for rows in together]
        whole = jax.tree.map(
            lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves], axis=1), *parts
        )
        for rows in chunks:
            yield rows, *jax.tree.map(lambda leaf, rows=rows: leaf[:, rows], whole)

    return each


@jax.jit
def _mixture(
    at: Laplace, values: Float[Array, "modes blocks"], starts: Float[Array, "modes blocks p"]
) -> tuple[Proposal, Array]:
    """The parts weighed by their mass, and starts for the next search."""
    mass = values + at.log_root
    repeats = _repeats(at, mass)
    mass = jnp.where(repeats | jnp.isnan(mass), -jnp.inf, mass)
    # The first is kept whatever its mass, so that a block without any is -inf and not NaN.
    share = jnp.maximum(mass - jnp.max(mass, axis=0)[None], SMALLEST_SHARE)
    share = jnp.where(jnp.isneginf(mass) & (jnp.arange(len(mass)) > 0)[:, None], -jnp.inf, share)
    share = jnp.where(jnp.isnan(share), 0.0, share)
    log_share = share - jax.nn.logsumexp(share, axis=0)[None]
    # A mode that has merged with another may part from it again elsewhere.
    onwards = jnp.where(repeats[:, :, None], starts, at.mode)
    # What has no share may have no numbers either, and NaN times 0 is NaN: the first stands for it.
    lost = jnp.isneginf(log_share) & ~jnp.all(jnp.isfinite(at.root), axis=(2, 3))

    def replaced(leaf: Array) -> Array:
        return jnp.where(lost.reshape(lost.shape + (1,) * (leaf.ndim - 2)), leaf[:1], leaf)

    return Proposal(jax.tree.map(replaced, at), log_share), onwards


def _repeats(at: Laplace, mass: Float[Array, "modes blocks"]) -> Array:
    """Which modes are within the width of one before it."""
    inverse = inverses(at.root)
    seen: list[Array] = []
    for m in range(len(mass)):
        same = jnp.zeros(mass.shape[1], bool)
        for k in range(m):
            away = jnp.einsum("bpq,bq->bp", inverse[k], at.mode[m] - at.mode[k])
            same = same | ((jnp.linalg.norm(away, axis=1) < SAME) & ~seen[k])
        seen.append(same)
    return jnp.stack(seen)


def inverses(root: Float[Array, "*b p p"]) -> Float[Array, "*b p p"]:
    """R^-1 of every root."""
    if root.shape[-1] == 1:
        return 1 / root
    # In units of the rows, for R^T R of latents in units 1e9 apart has no inverse in numbers.
    units = jnp.linalg.norm(root, axis=-1, keepdims=True)
    units = jnp.where(units > 0, units, 1)
    scaled = root / units
    transposed = jnp.swapaxes(scaled, -1, -2)
    return solve_positive(transposed @ scaled, transposed) / jnp.swapaxes(units, -1, -2)


def points_of(proposal: Proposal, z: Float[Array, "k p"]) -> Float[Array, "n blocks p"]:
    """m_m + R_m z for every mode and z, the modes one after the other."""
    points = proposal.at.mode[:, None] + jnp.einsum("kq,mbpq->mkbp", z, proposal.at.root)
    return points.reshape(-1, *points.shape[2:])


def gaussian_log_density(z: Float[Array, "*n p"]) -> Float[Array, "*n"]:
    """Of the standard Gaussian."""
    return -0.5 * jnp.sum(z**2, axis=-1) - z.shape[-1] / 2 * math.log(2 * math.pi)


def log_standard_t(z: Float[Array, "*n p"], degrees: Array) -> Float[Array, "*n"]:
    """The log density of the standard multivariate t; of the Gaussian for infinite degrees."""
    size, squared = z.shape[-1], jnp.sum(z**2, axis=-1)
    finite = jnp.where(jnp.isinf(degrees), 1.0, degrees)
    gamma = jax.scipy.special.gammaln
    constant = gamma((finite + size) / 2) - gamma(finite / 2) - size / 2 * jnp.log(finite * math.pi)
    heavy = constant - (finite + size) / 2 * jnp.log1p(squared / finite)
    return jnp.where(jnp.isinf(degrees), gaussian_log_density(z), heavy)


def log_densities_of(
    proposal: Proposal,
    z: Float[Array, "k p"],
    log_standard: Callable[[Array], Array],
    log_q: Float[Array, " k"] | None = None,
    sharpness: float = 1.0,
) -> tuple[Float[Array, "n blocks"], Float[Array, "n blocks"]]:
    """log q of every point of `points_of`, and the log share of the mode it belongs to.

    Args:
        proposal: the mixture.
        z: standard points.
        log_standard: the log density of the standard distribution, Gaussian or t.
        log_q: that of z, if it is known already.
        sharpness: above 1, a point between a narrow mode and a wide one is the narrow one's in a
            larger part. What is returned as log q is then no density, and still makes the parts of
            all modes add up to the whole.
    """
    at, shares = proposal
    num_modes, num_blocks = shares.shape
    own = log_standard(z) if log_q is None else log_q
    if num_modes == 1:
        return own[:, None] - at.log_root, jnp.zeros((len(z), num_blocks), at.mode.dtype)
    points = at.mode[:, None] + jnp.einsum("kq,mbpq->mkbp", z, at.root)
    inverse = inverses(at.root)
    parts = []
    for m in range(num_modes):
        inside = jnp.einsum("bpq,nkbq->nkbp", inverse[m], points - at.mode[m][None, None])
        parts.append(log_standard(inside) + sharpness * (shares[m] - at.log_root[m])[None, None])
    # Where a mode repeats another its root may be anything; without a share it counts for nothing.
    parts = [
        jnp.where(jnp.isneginf(shares[m])[None, None], -jnp.inf, part)
        for m, part in enumerate(parts)
    ]
    log_q = jax.nn.logsumexp(jnp.stack(parts), axis=0)
    heights = jnp.where(jnp.isneginf(shares), 0, shares - at.log_root)
    log_q = log_q + (1 - sharpness) * heights[:, None]
    of_point = jnp.broadcast_to(shares[:, None], (num_modes, len(z), num_blocks))
    return log_q.reshape(-1, num_blocks), of_point.reshape(-1, num_blocks)

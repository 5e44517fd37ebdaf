r"""Posterior draws of blocks of few latents: cells of a grid, corrected by Metropolis-Hastings.

The nodes of `quadrature.far_reaching` around every mode are centres of cells, x = m_m + R_m z(t)
with t in a cube. A cell is drawn with the mass that the quadrature gives it, and a point of it
evenly in t. That is nearly the posterior itself:

    q(x) = sum_m (mass of x's cell around mode m) / (its volume),

    accepted from x to x' with probability  p(x') q(x) / (p(x) q(x')).

So draws are all but independent, no chain can be lost in a tail or in one mode of several, and
nothing is adapted. All proposals are evaluated at once; only accepting goes step by step.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marginax._core.processes import whole
from marginax._core.programs import KEPT, ById, Program, program
from marginax._core.random_numbers import split_key
from marginax.likelihood.blocks import MOST_POINTS, Blocks, chunk_of, in_chunks
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal, inverses, proposals_by_chunk
from marginax.likelihood.quadrature import (
    BEND,
    MOST_DIMENSIONS,
    Rule,
    far_reaching,
    nodes_of,
)
from marginax.typing import Data, Key

__all__ = ["can_use_grid", "grid_draws", "prepare_grid_draws"]

# Spacing and reach of t by dimension: wide cells are rejected more often, far ones cost.
CELLS = {1: (0.25, 16.0), 2: (0.4, 10.4), 3: (0.6, 7.2)}
WARM_UP = 20  # draws before the first that is kept
LEAK = (
    0.05  # of a cell's mass that goes to each neighbour, which may hold more than its centre says
)


class _Cells(NamedTuple):
    """What is drawn from, for every block.

    Attributes:
        mass: of every cell around every mode, [modes * cells, blocks].
        at: modes and roots.
        inverse: of the roots.
    """

    mass: Float[Array, "n blocks"]
    at: Any
    inverse: Float[Array, "modes blocks p p"]


def can_use_grid(size: int) -> bool:
    """Whether blocks of this many latents have few enough cells."""
    return size <= MOST_DIMENSIONS


def grid_draws(
    blocks: Blocks, num_chains: int, num_draws: int
) -> Callable[[np.ndarray, Array, Key], tuple[np.ndarray, float]]:
    """`draw(theta, modes, key)`: theta flat and free, modes [modes, blocks, size] near theirs.

    It gives draws [chains, draws, blocks, size], and the share of proposals that were accepted.
    """
    size = blocks.start.shape[1]
    rule = far_reaching(size, *CELLS[size])
    proposals = num_chains * (WARM_UP + num_draws)
    sample = _compiled(blocks.bare, size, num_chains, num_draws)
    each_chunk = proposals_by_chunk(blocks)

    def draw(theta: np.ndarray, modes: Array, key: Key) -> tuple[np.ndarray, float]:
        points = max(len(modes) * len(rule.nodes), proposals)
        keys = split_key(key, len(in_chunks(blocks, points)))
        parts = []
        for place, (rows, proposal, _) in enumerate(each_chunk(theta, modes, points)):
            at = np.int32(place)
            drawn, accepted = sample(theta, proposal, keys, at, chunk_of(blocks, rows))
            parts.append((whole(drawn), whole(accepted)))
        draws, acceptance = zip(*parts, strict=True)
        return np.concatenate(draws, axis=2), float(np.mean(np.concatenate(acceptance)))

    return draw


def prepare_grid_draws(blocks: Blocks, num_chains: int, num_draws: int, num_theta: int) -> None:
    """Has ready what draws of blocks with one mode each compile."""
    size = blocks.start.shape[1]
    nodes = len(far_reaching(size, *CELLS[size]).nodes)
    chunks = in_chunks(blocks, max(nodes, num_chains * (WARM_UP + num_draws)))
    first, end, _ = chunks[0].indices(len(blocks.start))
    num_blocks = end - first
    sample = _compiled(blocks.bare, size, num_chains, num_draws)

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, blocks.start.dtype)

    at = Laplace(shape(1, num_blocks, size), shape(1, num_blocks, size, size), shape(1, num_blocks))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(chunks)))
    proposal, data = Proposal(at, shape(1, num_blocks)), chunk_of(blocks, chunks[0])
    sample.prepare(shape(num_theta), proposal, keys, np.int32(0), data)


@lru_cache(KEPT)
def _compiled(bare: ById, size: int, num_chains: int, num_draws: int) -> Program:
    blocks, rule = bare.value, far_reaching(size, *CELLS[size])

    @program(bare, size, num_chains, num_draws)
    def sample(theta: Array, proposal: Proposal, keys: Array, place: Array, data: Data) -> Any:
        cells = _cells(blocks, theta, proposal, data, rule)
        cell_key, inside_key, accept_key = jax.random.split(keys[place], 3)
        length = WARM_UP + num_draws
        points = _proposed(cells, rule, cell_key, inside_key, num_chains * length)
        num_blocks = points.shape[1]
        log_ratio = _values(blocks, theta, points, data) - _log_q(cells, rule, points)
        # Outside the support there is no density, and what is not a number there is none either.
        log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
        shape = (length, num_chains, num_blocks)
        chosen = _accepted(log_ratio.reshape(shape), accept_key)
        steps = points.reshape(*shape, size)
        draws = jnp.take_along_axis(steps, chosen[..., None], axis=0)[WARM_UP:]
        moved = jnp.mean(chosen[1:] != chosen[:-1], axis=(0, 1))
        return jnp.swapaxes(draws, 0, 1), moved

    return sample


def _values(blocks: Blocks, theta: Array, points: Array, data: Data) -> Float[Array, "n blocks"]:
    """The log densities at points [n, blocks, p], as many at once as there is room for."""
    some = max(1, MOST_POINTS // points.shape[1])
    return jax.lax.map(lambda x: blocks.log_densities(theta, x, data), points, batch_size=some)


def _cells(blocks: Blocks, theta: Array, proposal: Proposal, data: Data, rule: Rule) -> _Cells:
    """The quadrature's terms as masses, some of each leaked to its neighbours."""
    points, log_weights, log_share = nodes_of(proposal, rule)
    num_modes, num_blocks, size = proposal.at.mode.shape
    terms = _values(blocks, theta, points, data) + log_weights
    nothing = jnp.isneginf(log_share) | jnp.isnan(terms) | (terms == jnp.inf)
    share = jax.nn.softmax(jnp.where(nothing, -jnp.inf, terms), axis=0)
    grid = share.reshape(num_modes, *(rule.num_nodes,) * size, num_blocks)
    for axis in range(1, size + 1):
        inner = 1.0 - 2 * LEAK
        grid = inner * grid + LEAK * (_shifted(grid, axis, 1) + _shifted(grid, axis, -1))
    mass = grid.reshape(-1, num_blocks)
    return _Cells(mass, proposal.at, inverses(proposal.at.root))


def _shifted(grid: Array, axis: int, by: int) -> Array:
    """Moved by one cell; what falls off one end comes in at the other, where next to nothing is."""
    return jnp.roll(grid, by, axis)


def _proposed(
    cells: _Cells, rule: Rule, cell_key: Key, inside_key: Key, num: int
) -> Float[Array, "num blocks p"]:
    """Points of q: a cell by its mass, and evenly in t inside."""
    num_blocks, size = cells.at.mode.shape[1:]
    dtype = cells.mass.dtype
    up_to = jnp.cumsum(cells.mass, axis=0)
    heights = up_to[-1][None] * jax.random.uniform(cell_key, (num, num_blocks), dtype)
    find = jax.vmap(lambda a, v: jnp.searchsorted(a, v, side="right"), (1, 1), 1)
    which = jnp.minimum(find(up_to, heights), len(up_to) - 1)
    mode, cell = which // len(rule.nodes), which % len(rule.nodes)
    spacing, _ = CELLS[size]
    centre = jnp.asarray(np.arcsinh(BEND * rule.nodes) / BEND, dtype)[cell]
    away = jax.random.uniform(inside_key, (num, num_blocks, size), dtype) - 0.5
    z = jnp.sinh(BEND * (centre + spacing * away)) / BEND
    own = jnp.arange(num_blocks)
    return cells.at.mode[mode, own[None]] + jnp.einsum(
        "nbpq,nbq->nbp", cells.at.root[mode, own[None]], z
    )


def _log_q(
    cells: _Cells, rule: Rule, points: Float[Array, "num blocks p"]
) -> Float[Array, "num blocks"]:
    """The log density of q, up to a constant: the masses of the cells a point is in, by volume."""
    num_blocks, size = points.shape[1:]
    spacing, _ = CELLS[size]
    own, side = jnp.arange(num_blocks), rule.num_nodes
    total = jnp.zeros(points.shape[:2], points.dtype)
    for m in range(len(cells.at.mode)):
        z = jnp.einsum("bpq,nbq->nbp", cells.inverse[m], points - cells.at.mode[m][None])
        t = jnp.arcsinh(BEND * z) / BEND
        index = jnp.round(t / spacing) + side // 2
        inside = jnp.all((index >= 0) & (index < side), axis=-1)
        strides = side ** np.arange(size)[::-1]
        flat = jnp.sum(
            jnp.where(inside[..., None], index, 0).astype(int) * strides[None, None], axis=-1
        )
        mass = cells.mass[m * side**size + flat, own[None]]
        # dx = |R| cosh(b t) dt
        volume = cells.at.log_root[m][None] + jnp.sum(jnp.log(jnp.cosh(BEND * t)), axis=-1)
        total += jnp.where(
            inside & (mass > 0), mass * jnp.exp(cells.at.log_root[0][None] - volume), 0
        )
    return jnp.log(total)


def _accepted(
    log_ratio: Float[Array, "length chains blocks"], key: Key
) -> Int[Array, "length chains blocks"]:
    """Which proposal every chain is at, step by step; log_ratio is log p - log q."""
    uniform = jnp.log(jax.random.uniform(key, log_ratio.shape, log_ratio.dtype))

    def step(carry: Any, proposed: Any) -> Any:
        index, value, now = carry
        other, u = proposed
        # The first with a density is taken from one without.
        taken = (u < other - value) | (jnp.isneginf(value) & ~jnp.isneginf(other))
        carry = (jnp.where(taken, now, index), jnp.where(taken, other, value), now + 1)
        return carry, carry[0]

    nowhere = jnp.zeros(log_ratio.shape[1:], int)
    first = (nowhere, jnp.full_like(log_ratio[0], -jnp.inf), jnp.zeros((), int))
    return jax.lax.scan(step, first, (log_ratio, uniform))[1]

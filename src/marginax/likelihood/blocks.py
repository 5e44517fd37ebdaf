"""A problem as independent blocks with flat latents: its groups, or the whole as one block.

Quadrature, importance sampling, mode search and posterior sampling all go block by block; here is
the one place that knows how a problem falls into them.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from marginax._core.checks import is_traced
from marginax._core.programs import KEPT, ById, program
from marginax._core.trees import unraveler
from marginax.likelihood.modes import LogDensities, Top, climb_blocks
from marginax.model.model_key import shared_model
from marginax.model.problem import Problem
from marginax.model.transforms.trees import inverse
from marginax.running.sharding import num_shards, over_groups
from marginax.typing import Data, Latent

__all__ = [
    "Blocks",
    "as_blocks",
    "finite_values",
    "flat_latents",
    "in_chunks",
    "chunk_of",
    "placing",
    "points_of_a_climb",
    "to_latent",
]

MOST_LATENTS = 400  # latents in one block whose dense curvature is affordable
NOTHING = 46.0  # by how much a log term may be lower than the largest and still be added
# Of many blocks with many points each: whatever their number, one program serves all chunks.
MANY_BLOCKS, MANY_POINTS_EACH, USUAL_CHUNK = 1_000, 200, 250
FEW_CHUNKS, POINTS_OF_A_CLIMB = 80, 16
MOST_POINTS = 2**20  # nodes or draws of all blocks together that are evaluated at once


class Blocks(NamedTuple):
    """Blocks that are independent given theta.

    Attributes:
        log_densities: `log_densities(theta, x, data)`, one per block: flat free theta, a row of x
            per block with its flat free latent. Row g of x matters to entry g only.
        data: handed on.
        start: where a mode search starts, [blocks, size].
        divisible: whether the data have a leading axis over blocks, so that some blocks can be
            evaluated alone.
        mesh: over whose devices the groups are spread, if any.
        identity: of the model, for other processes: see `LogJoint`.
    """

    log_densities: Callable[[Array, Array, Any], Array]
    data: Data
    start: Float[Array, "blocks size"]
    divisible: bool
    mesh: Mesh | None = None
    identity: str | None = None

    @property
    def bare(self) -> ById:
        """Without data and start, and equal to others of the same model: to compile for."""
        alone = self._replace(data=None, start=cast(Any, None))
        return ById(alone, mark=self.log_densities, identity=self.identity)


def as_blocks(problem: Problem, mesh: Mesh | None = None) -> Blocks:
    """The blocks of a problem, groups spread over the devices of a mesh that has such an axis."""
    mesh = None if problem.num_groups is None else mesh
    start = jax.device_put(flat_latents(problem, problem.start_latent()))
    model = shared_model(problem if mesh is not None else _of_two_groups(problem))
    return Blocks(
        _log_densities(model),
        over_groups(mesh, len(start), problem.data),
        over_groups(mesh, len(start), start),
        divisible=problem.group_log_joint is not None,
        mesh=mesh,
        identity=model.unconstrained_log_joint.identity,
    )


def _of_two_groups(problem: Problem) -> Problem:
    """The same model, of as many groups whatever their number: what is compiled serves them all."""
    if problem.group_log_joint is None or problem.num_groups is None:
        return problem
    return problem.with_groups(np.array([0, min(1, problem.num_groups - 1)]))


@lru_cache(KEPT)
def _log_densities(problem: Problem) -> Callable[[Array, Array, Any], Array]:
    unravel = unraveler(jax.eval_shape(problem.start_theta))

    def log_densities(theta: Array, x: Array, data: Data) -> Array:
        latent = to_latent(problem, x)
        if problem.num_groups is None:
            return problem.unconstrained_log_joint(unravel(theta), latent, data)[None]
        return problem.unconstrained_group_log_joints(unravel(theta), latent, data)

    return log_densities


@lru_cache(KEPT)
def placing(bare: ById) -> Callable[..., Top]:
    """`climb_blocks` of these blocks, compiled: `find(theta, start, data)`.

    start, and all that is found, have a leading axis of 1, that of one mode of several.
    """
    blocks = bare.value

    @program(bare)
    def find(theta: Array, start: Array, data: Data) -> Top:
        top = climb_blocks(lambda x: blocks.log_densities(theta, x, data), start[0])
        return jax.tree.map(lambda leaf: leaf[None], top)

    return find


def in_chunks(blocks: Blocks, points_per_block: int) -> list[slice]:
    """Which blocks to evaluate together, so that memory does not grow with their number.

    Blocks that are known all at once only are one chunk; `finite_values` then divides the points.
    """
    num_blocks = len(blocks.start)
    shards = num_shards(blocks.mesh)
    most = shards * max(1, MOST_POINTS // points_per_block)
    if num_blocks >= MANY_BLOCKS and points_per_block >= MANY_POINTS_EACH:
        most = min(most, shards * USUAL_CHUNK)
    if not blocks.divisible or num_blocks <= most:
        return [slice(0, num_blocks)]
    # Of one size, if there is one not too small: another for the last would be another program.
    even = [size for size in range(most, most // 2, -1) if num_blocks % size == 0]
    size = even[0] if even else -(-num_blocks // -(-num_blocks // most))
    size = -(-size // shards) * shards  # which every device has the same share of
    return [slice(first, first + size) for first in range(0, num_blocks, size)]


def points_of_a_climb(blocks: Blocks) -> int:
    """What a block counts for in `in_chunks` when its mode is climbed to.

    Few points, but chunks of the usual size have their program already; very many of them would
    take longer than to compile for larger ones.
    """
    few = len(blocks.start) <= FEW_CHUNKS * USUAL_CHUNK
    return MANY_POINTS_EACH if few else POINTS_OF_A_CLIMB


def chunk_of(blocks: Blocks, rows: slice) -> Data:
    """The data of some blocks."""
    if not blocks.divisible:
        return blocks.data
    data = jax.tree.map(lambda leaf: leaf[rows], blocks.data)
    first, end, _ = rows.indices(len(blocks.start))
    return over_groups(blocks.mesh, end - first, data)


def flat_latents(
    problem: Problem, latent: Latent
) -> Float[Array | np.ndarray, "*some blocks size"]:
    """Whole free latents as a row per block; on the host, unless they are traced."""
    leaves = jax.tree.leaves(latent)
    host = np if not any(is_traced(leaf) for leaf in leaves) else jnp
    ones = _one_latent(problem)
    blocks = () if problem.num_groups is not None else (1,)
    rows = [
        host.reshape(leaf, (*leaf.shape[: leaf.ndim - len(one.shape)], *blocks, -1))
        for leaf, one in zip(leaves, ones, strict=True)
    ]
    return host.concatenate(rows, axis=-1)


def to_latent(problem: Problem, flat: Float[Array | np.ndarray, "*some blocks size"]) -> Latent:
    """The reverse of `flat_latents`."""
    ones = _one_latent(problem)
    before = flat.shape[:-1] if problem.num_groups is not None else flat.shape[:-2]
    ends = np.cumsum([math.prod(one.shape) for one in ones]).tolist()
    leaves = [
        flat[..., first:end].reshape((*before, *one.shape)).astype(one.dtype)
        for first, end, one in zip([0, *ends[:-1]], ends, ones, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(problem.latent), leaves)


def _one_latent(problem: Problem) -> list[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the free latent of one group, or of all without groups."""
    shapes = jax.eval_shape(partial(inverse, problem.latent_transforms), problem.latent)
    return jax.tree.leaves(shapes)


def finite_values(
    log_densities: LogDensities,
    points: Float[Array, "n blocks p"],
    inside: Float[Array, "blocks p"],
    log_weights: Float[Array, "n blocks"],
) -> tuple[Float[Array, "n blocks"], Bool[Array, "n blocks"]]:
    """The log densities at points some of which may lie where they are -inf or NaN.

    Such points count as zero density, and so do those that add nothing: far out, derivatives may be
    NaN, and NaN times 0 would spoil the sum's. The density is differentiated at a point inside
    instead, and that term then left out.

    Args:
        log_densities: of a row per block.
        points: where.
        inside: of every block a point where its density is finite.
        log_weights: what is added to the values in the sum of their exponentials.

    Returns:
        The values, and which were NaN or +inf rather than -inf.
    """
    num_points, num_blocks, _ = points.shape

    def at_all(points: Array) -> Array:
        if num_points * num_blocks <= MOST_POINTS:
            return jax.vmap(log_densities)(points)
        # Blocks that cannot be taken apart: some points at a time, computed anew for derivatives.
        some = max(1, MOST_POINTS // num_blocks)
        return jax.lax.map(jax.checkpoint(log_densities), points, batch_size=some)

    seen = jax.lax.stop_gradient(at_all(points))
    terms = jnp.where(jnp.isfinite(seen), seen + jax.lax.stop_gradient(log_weights), -jnp.inf)
    good = jnp.isfinite(seen) & (terms > jnp.max(terms, axis=0)[None] - NOTHING)
    values = at_all(jnp.where(good[..., None], points, inside[None]))
    return jnp.where(good, values, -jnp.inf), ~jnp.isfinite(seen) & ~jnp.isneginf(seen)

r"""The units of a sparse curvature: one large block of latents, whitened as a whole.

H(theta, m) = M M' at the cloud's mean m, by the factors of a `Structure`, and

    u = M' (x - m),   t = M^-1 s,   phi = M'^-1 phi_u(u, t)

A kernel that goes latent by latent in x cannot see how they go together; in u there is little left
to see. When theta changes M, the cloud is carried along,

    x <- m + M_new'^-1 M_old' (x - m),

so that u stays: else M would leave correlations in u, which such a kernel does not see either. For
the same reason a first cloud that was drawn latent by latent is taken for u.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from marginax._core.factors import multiply, raised
from marginax._core.partition import BlockSpec
from marginax._core.trees import first_particle, ravel_cloud, unravel_cloud
from marginax.flows.units import Frame, Metric, Units
from marginax.model.structure import Maps, Structure
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["Memory", "sparse_curvature"]


class Memory(NamedTuple):
    """Of the units before.

    Attributes:
        factor: M, as the structure's factors have it.
        entries: of H on its pattern, raised where it was not positive definite.
        is_known: False before the first step, when there is no M yet.
        maps: of the structure, in the cloud's precision.
    """

    factor: Any
    entries: Float[Array, " entries"]
    is_known: Bool[Array, ""]
    maps: Maps


def sparse_curvature(structure: Structure) -> Metric:
    """The metric of a structure; see `metrics.curvature`."""
    if not structure.factors.traceable:
        raise ValueError(
            f"The structure is {structure.words}, whose factors are computed on the host, outside "
            'of compiled steps. Ask for `structure_of(problem, "arrow")` or another kind, or go '
            "without a structure."
        )
    name = f"curvature(structure={structure!r})"
    return Metric(
        partial(_units, structure),
        name,
        None,
        0,  # no group moves alone: its units are made of all latents
        partial(_start, structure),
        partial(_carry, structure),
        partial(_frame, structure),
    )


def _start(structure: Structure, particles: Particles) -> Memory:
    dtype = jnp.result_type(*jax.tree.leaves(particles))
    entries = jnp.zeros(len(structure.pattern.rows), dtype)
    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(structure.factors.factor, entries),
    )
    maps = jax.tree.map(lambda part: _in_precision(part, dtype), structure.maps)
    return Memory(nothing, entries, jnp.zeros((), bool), maps)


def _carry(
    structure: Structure,
    memory: Memory,
    theta: Theta,
    clouds: tuple[Particles, ...],
    data: Data,
) -> tuple[Memory, tuple[Particles, ...]]:
    factors = structure.factors
    center = jnp.mean(ravel_cloud(clouds[0]), axis=0, keepdims=True)
    flat_theta = ravel_pytree(theta)[0].astype(center.dtype)
    new = raised(factors, structure.curvature(flat_theta, center[0], data, memory.maps))

    def first(away: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return _first_units(structure, new.factor, away)

    def later(away: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return factors.whiten(memory.factor, away)

    def moved(cloud: Particles) -> Particles:
        u = jax.lax.cond(memory.is_known, later, first, ravel_cloud(cloud) - center)
        return unravel_cloud(center + factors.unwhiten(new.factor, u), cloud)

    after = Memory(new.factor, jnp.asarray(new.values), jnp.ones((), bool), memory.maps)
    return after, tuple(moved(cloud) for cloud in clouds)


def _frame(structure: Structure, theta: Theta, particles: Particles, data: Data) -> Frame:
    """The units of the curvature at the mean of a cloud."""
    factors, away = structure.factors, ravel_cloud(particles)
    center = jnp.mean(away, axis=0)
    maps = jax.tree.map(lambda part: _in_precision(part, center.dtype), structure.maps)
    flat_theta = ravel_pytree(theta)[0].astype(center.dtype)
    factor = raised(factors, structure.curvature(flat_theta, center, data, maps)).factor

    def to_latent(u: Latent) -> Latent:
        one = jax.tree.map(lambda leaf: leaf[None], u)
        x = center[None] + factors.unwhiten(factor, ravel_cloud(one))
        return first_particle(unravel_cloud(x, one))

    return Frame(to_latent, unravel_cloud(factors.whiten(factor, away - center[None]), particles))


def _first_units(
    structure: Structure, factor: Any, away: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """What a first cloud is in the units: as it stands, or each latent in its own spread.

    A cloud that was drawn latent by latent does not have the posterior's shape, and a kernel that
    goes coordinate by coordinate could not give it one. What is taken has less correlation between
    latents that meet.
    """
    rows, cols = structure.pattern.rows, structure.pattern.cols
    meeting = np.flatnonzero(rows != cols)

    def standardized(u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        sd = jnp.std(u, axis=0, keepdims=True)
        return (u - jnp.mean(u, axis=0, keepdims=True)) / jnp.where(sd > 0, sd, 1)

    def correlation(u: Float[Array, "n d"]) -> Float[Array, ""]:
        z = standardized(u)
        products = jnp.mean(z[:, rows[meeting]] * z[:, cols[meeting]], axis=0)
        return jnp.mean(products**2) if len(meeting) else jnp.zeros((), u.dtype)

    as_it_stands, each_alone = structure.factors.whiten(factor, away), standardized(away)
    return jnp.where(correlation(as_it_stands) <= correlation(each_alone), as_it_stands, each_alone)


def _units(  # noqa: PLR0913, the arguments of every metric
    structure: Structure,
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
    kernel_blocks: BlockSpec,
    memory: Memory,
) -> Units:
    del log_joint, theta, data, kernel_blocks  # seen when the cloud was carried here
    factors, factor = structure.factors, memory.factor
    center = jnp.mean(ravel_cloud(particles), axis=0, keepdims=True)

    def whiten(cloud: Particles) -> Particles:
        return unravel_cloud(factors.whiten(factor, ravel_cloud(cloud) - center), cloud)

    def whiten_scores(scores: Particles) -> Particles:
        return unravel_cloud(factors.half_solve(factor, ravel_cloud(scores)), scores)

    def displacement(move: Particles, u: Particles, t: Particles) -> Particles:
        stiffness = _stiffness(ravel_cloud(u), ravel_cloud(t))
        shortened = ravel_cloud(move) / jnp.maximum(1, stiffness)[None]
        return unravel_cloud(factors.unwhiten(factor, shortened), move)

    def direction(move: Particles) -> Particles:
        there = factors.unwhiten(factor, ravel_cloud(move))
        return unravel_cloud(multiply(factors.pattern, memory.entries, there), move)

    return Units(whiten, whiten_scores, displacement, direction)


def _stiffness(u: Float[Array, "n d"], t: Float[Array, "n d"]) -> Float[Array, " d"]:
    """The slope of the scores over the cloud along every coordinate; 1 if the metric is right."""
    z = u - jnp.mean(u, axis=0, keepdims=True)
    spread = jnp.sum(z**2, axis=0)
    return -jnp.sum(t * z, axis=0) / jnp.where(spread > 0, spread, 1)


def _in_precision(part: Array, dtype: Any) -> Array:
    """Numbers in the cloud's precision, indices in JAX's own."""
    numbers = np.asarray(part)
    return jnp.asarray(numbers.astype(dtype if numbers.dtype.kind == "f" else np.int32))

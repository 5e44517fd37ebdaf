"""Modes and widths of independent log densities, by a damped Newton method for all at once.

x <- x + (H + lambda diag|H|)^-1 grad,   H = -hessian; lambda / 10 after a gain, x 10 after a loss

Blocks do not interact, so that the gradient of their sum holds every block's own, and one
Hessian-vector product a column of every block's Hessian. Nothing here depends on the units of x:
matrices are scaled to a unit diagonal before they are decomposed, and a width is where the density
itself has fallen, if the curvature at the mode says something else (a kink, a flat top).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core.linalg import eigh

__all__ = ["Laplace", "LogDensities", "Top", "climb_blocks", "hessians"]

LogDensities = Callable[[Float[Array, "blocks p"]], Float[Array, " blocks"]]

FLATTEST = 1e-12  # an eigenvalue below this, where a coordinate alone has 1, is raised to it
# By how much the log density of a Gaussian falls in one standard deviation, and how far from it a
# fall may be before the width is corrected: within a factor of two of it.
FALL, LEAST_FALL, MOST_FALL = 0.5, 0.125, 2.0
MOST_CORRECTIONS = 40
LONGEST_STEP = 1e-8  # its inverse, in lengths over which the density changes by e
NEARBY = 0.05  # of a width
LARGEST_CORRECTED = 10  # latents in a block: beyond it the curvature is taken as it is
MOST_NOISE = 1e-5  # of a log density two standard deviations out: more cannot be integrated


class Laplace(NamedTuple):
    """For every block a Gaussian that touches its density at the mode.

    Attributes:
        mode: where the density is largest, or the best point found.
        root: R with R R^T = H^-1, H the negative Hessian there (made positive where it is not).
        log_root: log |det R|; -inf where the density is narrower than numbers resolve.
    """

    mode: Float[Array, "*modes blocks p"]
    root: Float[Array, "*modes blocks p p"]
    log_root: Float[Array, "*modes blocks"]


class Top(NamedTuple):
    """Where a climb of every block ended.

    Attributes:
        at: mode and width.
        value: the log density there.
        rise: by how much it is higher a twentieth of a width away, in any direction that was
            looked at; at a mode not at all.
    """

    at: Laplace
    value: Float[Array, " blocks"]
    rise: Float[Array, " blocks"]


def hessians(
    log_densities: LogDensities, x: Float[Array, "blocks p"]
) -> Float[Array, "blocks p p"]:
    """The Hessian of every block's log density at its row of x."""
    gradient = jax.grad(lambda x: jnp.sum(log_densities(x)))

    def column(direction: Float[Array, " p"]) -> Float[Array, "blocks p"]:
        return jax.jvp(gradient, (x,), (jnp.broadcast_to(direction, x.shape),))[1]

    return jax.vmap(column, out_axes=2)(jnp.eye(x.shape[1], dtype=x.dtype))


def climb_blocks(
    log_densities: LogDensities, start: Float[Array, "blocks p"], max_steps: int = 100
) -> Top:
    """Climbs to every mode from `start`, never to a worse point.

    Args:
        log_densities: of a row per block, up to a constant.
        start: rows where they are finite.
        max_steps: proposals, accepted or not.
    """
    gradient = jax.grad(lambda x: jnp.sum(log_densities(x)))
    eps = jnp.finfo(start.dtype).eps

    def decomposed(x: Array, g: Array) -> tuple[Array, Array, Array]:
        """Units, eigenvalues and eigenvectors of the curvature in these units."""
        curvature = -hessians(log_densities, x)
        units = jnp.sqrt(jnp.abs(jnp.diagonal(curvature, axis1=1, axis2=2)))
        # Without curvature a slope tells a length too: that along which the density changes by e.
        units = jnp.where(units > 0, units, jnp.where(jnp.abs(g) > 0, jnp.abs(g), 1))
        scaled = curvature / (units[:, :, None] * units[:, None, :])
        return units, *eigh((scaled + jnp.swapaxes(scaled, 1, 2)) / 2)

    def climb(state: Any) -> Any:
        x, value, damping, done, step = state
        g = gradient(x)
        units, w, v = decomposed(x, g)
        largest = jnp.max(jnp.abs(w), axis=1, keepdims=True)
        along = jnp.einsum("bpk,bp->bk", v, g / units)
        # No step without end where there is no curvature, as beside a kink; and after a step that
        # was too long none in which the density would change by more than e to the 10^8, as on a
        # long slope whose curvature is all but 0.
        slope = jnp.where(damping[:, None] > 0, along**2, jnp.abs(along))
        shortest = jnp.maximum(eps * largest, LONGEST_STEP * slope)
        scale = jnp.maximum(jnp.abs(w), shortest + jnp.finfo(x.dtype).tiny)
        move = jnp.einsum("bpk,bk->bp", v, along / (scale * (1 + damping)[:, None])) / units
        proposed = log_densities(x + move)
        better = (proposed > value) & ~done
        gain = jnp.sum(g * move, axis=1)  # what a quadratic would promise, twice over
        at_rest = (gain < 100 * eps * (1 + jnp.abs(value))) | (damping > 1e12)
        return (
            jnp.where(better[:, None], x + move, x),
            jnp.where(better, proposed, value),
            jnp.where(better, damping / 10, jnp.maximum(10 * damping, 1e-3)),
            done | at_rest,
            step + 1,
        )

    def going(state: Any) -> Any:
        return jnp.any(~state[3]) & (state[4] < max_steps)

    each = start.shape[:1]
    first = (
        start,
        log_densities(start),
        jnp.zeros(each, start.dtype),
        jnp.zeros(each, bool),
        jnp.zeros((), jnp.int32),
    )
    x, value, *_ = jax.lax.while_loop(going, climb, first)
    g = gradient(x)
    units, w, v = decomposed(x, g)
    largest = jnp.max(jnp.abs(w), axis=1, keepdims=True)
    # On a slope, where a climb got stuck, the density changes by e along the inverse of its slope.
    along = jnp.einsum("bpk,bp->bk", v, g / units)
    scale = jnp.maximum(jnp.maximum(jnp.abs(w), along**2), FLATTEST * jnp.maximum(largest, 1))
    root = v / jnp.sqrt(scale)[:, None, :] / units[:, :, None]
    log_root = -0.5 * jnp.sum(jnp.log(scale), axis=1) - jnp.sum(jnp.log(units), axis=1)
    is_resolved = _is_resolved(log_densities, x, root)
    if start.shape[1] <= LARGEST_CORRECTED:
        factor = _widths(log_densities, x, value, root)
        root, log_root = root * factor[:, None, :], log_root + jnp.sum(jnp.log(factor), axis=1)
    log_root = jnp.where(is_resolved, log_root, -jnp.inf)
    return Top(Laplace(x, root, log_root), value, _rise(log_densities, x, value, root, g))


def _rise(
    log_densities: LogDensities,
    x: Float[Array, "blocks p"],
    value: Float[Array, " blocks"],
    root: Float[Array, "blocks p p"],
    gradient: Float[Array, "blocks p"],
) -> Float[Array, " blocks"]:
    """By how much a density is higher nearby; of large blocks what the gradient says."""
    if x.shape[1] > LARGEST_CORRECTED:
        return NEARBY * jnp.linalg.norm(jnp.einsum("bpk,bp->bk", root, gradient), axis=1)
    move = NEARBY * jnp.moveaxis(root, 2, 0)
    around = jax.vmap(log_densities)(x[None] + jnp.concatenate([move, -move]))
    return jnp.max(jnp.nan_to_num(around, nan=-jnp.inf), axis=0) - value


def _widths(
    log_densities: LogDensities,
    mode: Float[Array, "blocks p"],
    value: Float[Array, " blocks"],
    root: Float[Array, "blocks p p"],
) -> Float[Array, "blocks p"]:
    """What to multiply the columns of the root with, so that the density falls along each.

    1 wherever it falls about as a Gaussian's does; otherwise the width at which it does.
    """

    def fall(factor: Array) -> Array:
        """By how much, on average of both sides; of one if there is no density on the other."""
        move = jnp.moveaxis(root * factor[:, None, :], 2, 0)  # a direction, blocks, p
        falls = value[None, None] - jnp.stack(
            [jax.vmap(log_densities)(mode[None] + s * move) for s in (1.0, -1.0)]
        )
        there = jnp.isfinite(falls)
        counts = jnp.sum(there, axis=0).astype(falls.dtype)
        mean = jnp.sum(jnp.where(there, falls, 0), axis=0) / jnp.maximum(counts, 1)
        return jnp.where(jnp.any(there, axis=0), mean, jnp.inf).T

    def is_off(falls: Array) -> Array:
        return ~((falls >= LEAST_FALL) & (falls <= MOST_FALL))

    def correct(state: Any) -> Any:
        factor, falls, count = state
        change = jnp.clip(jnp.sqrt(FALL / jnp.maximum(falls, 1e-3)), 0.1, 4.0)
        factor = jnp.where(is_off(falls), factor * change, factor)
        return factor, fall(factor), count + 1

    def going(state: Any) -> Any:
        return jnp.any(is_off(state[1])) & (state[2] < MOST_CORRECTIONS)

    ones = jnp.ones_like(mode)
    start = (ones, fall(ones), jnp.zeros((), jnp.int32))
    factor, falls, _ = jax.lax.while_loop(going, correct, start)
    return jnp.where(is_off(falls), 1, factor)


def _is_resolved(
    log_densities: LogDensities, mode: Float[Array, "blocks p"], root: Float[Array, "blocks p p"]
) -> Array:
    """Whether the numbers around a mode can tell the density, block by block.

    Between points a thousandth of a standard deviation apart a smooth density has no fourth
    difference, so that what there is is rounding noise: a standard deviation of 1e-12 about a mean
    of 1 cannot be integrated. Looked at in four places, for a kink may lie at one of them.
    """
    out = jnp.sum(root, axis=2) / root.shape[1] ** 0.5
    distances = jnp.asarray([[far + 1e-3 * k for k in range(5)] for far in (-2.1, -1.3, 1.2, 2.0)])
    values = jax.vmap(jax.vmap(lambda far: log_densities(mode + far * out)))(
        distances.astype(mode.dtype)
    )
    fourth = jnp.einsum("k,nkb->nb", jnp.asarray([1.0, -4.0, 6.0, -4.0, 1.0], mode.dtype), values)
    noise = jnp.sort(jnp.nan_to_num(jnp.abs(fourth), posinf=0.0), axis=0)[-2]
    eps = jnp.finfo(mode.dtype).eps
    size = 1 + jnp.max(jnp.where(jnp.isfinite(values), jnp.abs(values), 0), axis=(0, 1))
    even = noise <= jnp.maximum(MOST_NOISE, 1e3 * eps * size)
    # Narrower than a few distances between numbers all may be even, because nothing moves.
    few = jnp.minimum(1e5 * eps, 1e-4)
    return even & jnp.all(jnp.linalg.norm(root, axis=2) > few * jnp.abs(mode), axis=1)

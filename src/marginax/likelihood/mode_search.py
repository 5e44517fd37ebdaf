"""The search for other modes of the blocks' posteriors, from points far from those known.

Quadrature and importance sampling go around modes, and a mode that nobody has looked for is missing
from the likelihood. Every block is climbed from dispersed points: the modes of other blocks, mirror
images of its own (of single coordinates too), and points several and many widths away. As long as a
round finds something new another follows; one that does not ends the search.

Of a single latent the density is looked at on a grid too, from a fraction of a width to thousands.

Blocks of many latents may have more modes than can be counted. The search then says so.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from marginax._core.programs import KEPT, ById, program
from marginax.likelihood.blocks import Blocks, chunk_of, in_chunks, placing, points_of_a_climb
from marginax.typing import Data

__all__ = ["ModeSearch", "mode_search"]

MOST_MODES = 16  # of a block that are integrated over
MOST_ROUNDS = 4
NEGLIGIBLE = 50.0  # by how much a mode's log mass may be lower and still be kept: theta may move
APART = 1.0  # in units of a mode's width: closer ones are the same
STEEP = 0.005  # by how much the log density rises near a point that is no mode
GRID = np.sinh(0.5 * np.linspace(-17, 17, 401)) / 0.5  # widths from the mode: to thousands of them
MOST_PEAKS = 4  # of the grid that are climbed
FEW_POINTS, MANY_POINTS = 4, 12
# Latents in a block, and blocks: of more a round has few points.
LARGEST_SEARCHED_WELL, MOST_SEARCHED_WELL = 10, 5_000


class ModeSearch(NamedTuple):
    """What a search led to.

    Attributes:
        modes: [modes, blocks, p], the known ones first; blocks with fewer repeat their first.
        num_new: how many were not known before, in all blocks together.
        is_complete: whether the last round found nothing new.
    """

    modes: Array
    num_new: int
    is_complete: bool


class _Known(NamedTuple):
    """Modes found so far, a row for every one that some block has.

    Attributes:
        mode: [rows, blocks, p].
        inverse: R^-1 of each, [rows, blocks, p, p].
        mass: its log mass as a Gaussian, [rows, blocks]; -inf where a block has no such mode.
    """

    mode: np.ndarray
    inverse: np.ndarray
    mass: np.ndarray


def mode_search(blocks: Blocks) -> Callable[[np.ndarray, Array], ModeSearch]:
    """`search(theta, modes)`, from modes known at some theta nearby."""
    climb_one = placing(blocks.bare)
    points = points_of_a_climb(blocks)
    size = blocks.start.shape[1]

    def climb(theta: np.ndarray, start: np.ndarray) -> Any:
        parts = [
            climb_one(theta, start[None, rows], chunk_of(blocks, rows))
            for rows in in_chunks(blocks, points)
        ]
        return _joined(parts)

    def search(theta: np.ndarray, modes: Array) -> ModeSearch:
        given = np.asarray(modes if modes.ndim == 3 else modes[None])
        known = _first(climb(theta, given[0]))
        for start in given[1:]:
            known = _with(known, climb(theta, start))
        num_before, complete = _count(known), False
        rng = np.random.default_rng(0)
        for round_number in range(MOST_ROUNDS):
            before = _count(known)
            starts = _dispersed(known, rng, round_number)
            if size == 1 and round_number == 0:
                starts += _peaks(blocks, theta, known)
            for start in starts:
                known = _with(known, climb(theta, start))
            complete = _count(known) == before
            if complete or _most(known) >= MOST_MODES:
                break
        # Of many latents with a second mode there are more than a few points can find.
        countable = _most(known) == 1 or (size <= LARGEST_SEARCHED_WELL)
        is_complete = complete and countable and _most(known) < MOST_MODES
        return ModeSearch(_as_starts(known), _count(known) - num_before, is_complete)

    return search


@lru_cache(KEPT)
def _on_points(bare: ById) -> Callable[..., Array]:
    """The log densities of blocks of one latent at points [n, blocks]."""
    blocks = bare.value

    @program(bare)
    def on_points(theta: Array, points: Array, data: Data) -> Array:
        return jax.vmap(lambda x: blocks.log_densities(theta, x[:, None], data))(points)

    return on_points


def _peaks(blocks: Blocks, theta: np.ndarray, known: _Known) -> list[np.ndarray]:
    """Local maxima of densities of one latent, the highest first, a row per block each."""
    mode, width = known.mode[0, :, 0], 1 / known.inverse[0, :, 0, 0]
    points = mode + GRID[:, None] * width
    on_grid = _on_points(blocks.bare)
    values = np.concatenate(
        [
            np.asarray(on_grid(theta, points[:, rows], chunk_of(blocks, rows)))
            for rows in in_chunks(blocks, len(GRID))
        ],
        axis=1,
    )
    values = np.nan_to_num(values, nan=-np.inf)
    inner = values[1:-1]
    is_peak = (inner > values[:-2]) & (inner >= values[2:]) & (np.abs(GRID[1:-1]) > 1)[:, None]
    heights = np.where(is_peak, inner, -np.inf)
    order = np.argsort(-heights, axis=0)[:MOST_PEAKS]
    seen = np.isfinite(np.take_along_axis(heights, order, axis=0))
    places = np.where(seen, np.take_along_axis(points[1:-1], order, axis=0), mode)
    return [row[:, None] for row in places if np.any(row != mode)]


def _joined(parts: list[Any]) -> Any:
    """Tops of chunks of blocks as one `Top` of NumPy arrays."""
    arrays = [[np.asarray(leaf)[0] for leaf in (*one.at, one.value, one.rise)] for one in parts]
    mode, root, log_root, value, rise = (np.concatenate(one) for one in zip(*arrays, strict=True))
    at = parts[0].at._replace(mode=mode, root=root, log_root=log_root)
    return parts[0]._replace(at=at, value=value, rise=rise)


def _first(top: Any) -> _Known:
    """The mode that is known already, whatever it is worth."""
    mass = _mass(top)
    mass = np.where(np.isfinite(mass), mass, np.finfo(float).min)
    return _Known(top.at.mode[None], np.linalg.pinv(np.nan_to_num(top.at.root))[None], mass[None])


def _with(known: _Known, top: Any) -> _Known:
    """The same with what is a mode, is new and has some mass."""
    mass, inverse = _mass(top), np.linalg.pinv(np.nan_to_num(top.at.root))
    away = top.at.mode - known.mode
    # In the wider of the two widths: a point on a long slope is no mode of its own.
    by_known = np.linalg.norm(np.einsum("rbpq,rbq->rbp", known.inverse, away), axis=2)
    by_own = np.linalg.norm(np.einsum("bpq,rbq->rbp", inverse, away), axis=2)
    is_same = (np.minimum(by_known, by_own) < APART) & np.isfinite(known.mass)
    is_new = np.isfinite(mass) & (top.rise < STEEP) & ~np.any(is_same, axis=0)
    is_new &= mass > np.max(known.mass, axis=0) - NEGLIGIBLE
    if not np.any(is_new):
        return known
    return _Known(
        np.concatenate([known.mode, top.at.mode[None]]),
        np.concatenate([known.inverse, inverse[None]]),
        np.concatenate([known.mass, np.where(is_new, mass, -np.inf)[None]]),
    )


def _mass(top: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a climb from nowhere has no mass
        return np.asarray(top.value + top.at.log_root)


def _count(known: _Known) -> int:
    return int(np.sum(np.isfinite(known.mass)))


def _most(known: _Known) -> int:
    return int(np.max(np.sum(np.isfinite(known.mass), axis=0)))


def _as_starts(known: _Known) -> Array:
    """[modes, blocks, p]: the first of every block, then the heaviest; a power of two of them."""
    most = min(_most(known), MOST_MODES)
    count = 1 << (most - 1).bit_length()
    mass = known.mass.copy()
    mass[0] = np.inf
    order = np.argsort(-mass, axis=0, kind="stable")
    padded = np.concatenate([order, np.zeros((count, order.shape[1]), int)])[:count]
    absent = np.isneginf(np.take_along_axis(mass, padded, axis=0))
    padded = np.where(absent, 0, padded)
    return jax.device_put(np.take_along_axis(known.mode, padded[:, :, None], axis=0))


def _dispersed(known: _Known, rng: np.random.Generator, round_number: int) -> list[np.ndarray]:
    """Points far from the known modes, a row per block each."""
    num_rows, num_blocks, size = known.mode.shape
    # Any of a block's modes, by chance.
    chance = np.where(np.isfinite(known.mass), rng.random((num_rows, num_blocks)), -1.0)
    pick = np.argmax(chance, axis=0), np.arange(num_blocks)
    mode, root = known.mode[pick], np.linalg.pinv(known.inverse[pick])
    width = np.linalg.norm(root, axis=2)  # of every coordinate
    center = np.median(mode, axis=0)
    across = np.median(np.abs(mode - center), axis=0)
    spread = np.maximum(width, across)
    signs = rng.choice([-1.0, 1.0], size=(2, num_blocks, size))
    points = [-mode, signs[0] * mode]
    if num_blocks > 1:
        points += [2 * center - mode, mode[rng.permutation(num_blocks)]]
    for times in (4.0, 16.0) if round_number == 0 else 10 ** rng.uniform(0, 2, size=2):
        points += [mode + times * signs[1] * width, mode - times * signs[1] * width]
    points += [center + 2 * signs[0] * spread, center - 2 * signs[0] * spread]
    points += [center + 3 * spread * rng.standard_normal(mode.shape) for _ in range(2)]
    few = size > LARGEST_SEARCHED_WELL or num_blocks > MOST_SEARCHED_WELL
    return points[: FEW_POINTS if few else MANY_POINTS]

"""The choice of a factor for a pattern: by what it would cost, in about nanoseconds.

The costs are those of one factor in float64 on a CPU, by one thread of its linear algebra, as
measured; each kind has its own, right within about a factor of two.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import ArrayLike

from marginax._core.factors.arrow import arrow_factors, split
from marginax._core.factors.base import Factors, Pattern, pattern_of
from marginax._core.factors.chain import bandwidth, chain_factors, chain_order
from marginax._core.factors.dense import dense_factors
from marginax._core.factors.general import general_factors
from marginax._core.factors.interiors import long_chains, number_of_pairs, small_units, units_of
from marginax._core.factors.splitting import border_of_chain, border_of_units, removal, two_sides

__all__ = ["choose"]

# Numbers that a factor may hold, 1 GB: of a dense one n^2, of a chain 4 n b with what it is made
# of. Pairs of ties (`interiors`) are 12 bytes each and, beyond, a dense V is faster.
MOST_NUMBERS, MOST_PAIRS = 1.2e8, 1e7
# A candidate that is as cheap as ENOUGH ends the search, and one that is FAST needs no comparison
# with the host's, whose order alone can take seconds to find. Work on the host must be HOST times
# cheaper: it waits for copies, and cannot be batched or run on a GPU.
ENOUGH, FAST, HOST = 3e6, 2.5e8, 3.0
MOST_BORDER = 256  # of a chain
UNIT_SIZES = 1, 2, 4


def choose(rows: ArrayLike, cols: ArrayLike, n: int, *, kind: str | None = None) -> Factors:
    """The factors that cost least for a pattern.

    Args:
        rows: of the lower triangle's places, the whole diagonal included, sorted by row, then
            column.
        cols: of the same places.
        n: how many latents there are.
        kind: "dense", "chain", "arrow" or "sparse" (general, on the host); None chooses.
    """
    pattern = pattern_of(rows, cols, n)
    if kind is not None:
        return _wanted(pattern, kind)
    best = min([*_dense(pattern), *_chain(pattern)], key=_cost, default=None)
    if best is not None and best.cost < ENOUGH:
        return best
    for candidate in _arrows(pattern):
        best = candidate if best is None or candidate.cost < best.cost else best
        if best.cost < ENOUGH:
            break
    if best is not None and best.cost < FAST:
        return best
    general = general_factors(pattern)
    return general if best is None or HOST * general.cost < best.cost else best


def _cost(factors: Factors) -> float:
    return factors.cost


def _wanted(pattern: Pattern, kind: str) -> Factors:
    kinds: dict[str, Callable[[Pattern], Iterator[Factors]]] = {
        "dense": _dense,
        "chain": _chain,
        "arrow": _arrows,
        "sparse": lambda pattern: iter([general_factors(pattern)]),
    }
    if kind not in kinds:
        raise ValueError(f"There is no factor of kind {kind!r}: the kinds are {', '.join(kinds)}.")
    found = min(kinds[kind](pattern), key=_cost, default=None)
    if found is None:
        why = {
            "dense": f"would hold {pattern.n:,} x {pattern.n:,} numbers",
            "chain": "would be of blocks that are too large, in any order that was found",
            "arrow": "needs latents to leave out so that the others fall into small parts or a "
            "chain, and has too many of them or too few",
        }[kind]
        raise ValueError(
            f'A factor of kind "{kind}" for {pattern.n:,} latents {why}. Use kind="sparse", which '
            "takes any pattern, or leave the choice open."
        )
    return found


def _dense(pattern: Pattern) -> Iterator[Factors]:
    if pattern.n**2 <= MOST_NUMBERS:
        yield dense_factors(pattern)


def _chain(pattern: Pattern) -> Iterator[Factors]:
    order = chain_order(pattern)
    if 4 * pattern.n * bandwidth(pattern, order) <= MOST_NUMBERS:
        yield chain_factors(pattern, order)


def _arrows(pattern: Pattern) -> Iterator[Factors]:
    sides = two_sides(pattern)
    if sides is not None:
        yield from _of_units(pattern, np.flatnonzero(sides), "two crossed factors")
        return
    found = removal(pattern)
    yield from _of_chain(pattern, border_of_chain(found, MOST_BORDER))
    for size in UNIT_SIZES:
        border = border_of_units(pattern, found.order, size)
        yield from _of_units(pattern, border, "small parts and what joins them")


def _of_units(pattern: Pattern, border: np.ndarray, words: str) -> Iterator[Factors]:
    if not 0 < len(border) ** 2 <= MOST_NUMBERS:
        return
    parts = split(pattern, border)
    layout = units_of(parts.own_pattern)
    words = f"{words} (an arrow: {len(parts.inside):,} eliminated, {len(border):,} dense)"
    if number_of_pairs(parts, layout) <= MOST_PAIRS:
        yield arrow_factors(pattern, parts, small_units(parts, layout, words))
    elif len(parts.inside) * len(border) <= MOST_NUMBERS:
        inner = chain_factors(parts.own_pattern)
        yield arrow_factors(pattern, parts, long_chains(parts, inner, words))


def _of_chain(pattern: Pattern, border: np.ndarray) -> Iterator[Factors]:
    if not len(border):
        return
    parts = split(pattern, border)
    order = chain_order(parts.own_pattern)
    width = max(4 * bandwidth(parts.own_pattern, order), len(border))
    if len(parts.inside) * width <= MOST_NUMBERS:
        inner = chain_factors(parts.own_pattern, order)
        words = f"{inner.words} and {len(border):,} that touch much of it"
        yield arrow_factors(pattern, parts, long_chains(parts, inner, words))

"""What JAX holds of the arrays that it is given, and what its precision would lose of them.

Without x64, JAX takes float64 as float32 and int64 as int32, and says nothing. Most data survive
that: a rounding far below their own spread is noise below noise. Numbers near 10^6 that vary by 1,
or ids of 3 * 10^9, do not.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import PyTree

__all__ = ["Held", "SWITCH_ON", "as_numbers", "hold", "is_half"]

LOST = 1e-4  # of the spread: more rounding than that, and digits count as lost
ENOUGH = 2**16  # numbers, to see a spread by
FEWEST_ROWS = 4  # of a column: the spread of fewer may be nothing by accident
SWITCH_ON = 'Switch double precision on, `jax.config.update("jax_enable_x64", True)`'


class Held(NamedTuple):
    """A tree as it is computed with.

    Attributes:
        arrays: as JAX holds it. Leaves whose digits would be lost stay as given, on the host.
        exact: the same in the precision in which it was given; None if `arrays` is.
        lost: what digits would be lost, a sentence for every leaf.
    """

    arrays: PyTree
    exact: PyTree
    lost: tuple[str, ...]


def is_half(dtype: Any) -> bool:
    """Whether these are floats of less than 32 bits: for storing, and not for computing."""
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def as_numbers(leaf: Any, name: str) -> Any:
    """A leaf as an array of numbers, on the host unless it is JAX's already; refuses text.

    Args:
        leaf: what was given.
        name: of it, for the refusal.
    """
    if isinstance(leaf, jax.Array):
        return leaf.astype(jnp.result_type(float)) if is_half(leaf.dtype) else leaf
    array = np.asarray(leaf)
    if is_half(array.dtype):
        return array.astype(jnp.result_type(float))
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} has dtype {array.dtype}, such as {_example(array)}, but a model computes with "
            "numbers. Leave it out, or code it: `np.unique(labels, return_inverse=True)[1]` makes "
            "integers of labels, and `pad_groups(labels, ...)` makes groups by them."
        )
    return array.astype(np.float64) if array.dtype == np.longdouble else array


def hold(tree: PyTree, name: str, *, spread: bool = True) -> Held:
    """A tree as JAX holds it, beside what was given where that had more digits.

    Args:
        tree: numbers and arrays of NumPy's or JAX's; anything else is refused.
        name: of the tree, for sentences.
        spread: whether digits count as lost where a rounding is not far below the spread; without
            it, only where a number is out of range.
    """
    paths, structure = tree_flatten_with_path(tree)
    arrays: list[Any] = []
    exact: list[Any] = []
    lost: list[str] = []
    for path, leaf in paths:
        where = f"{name}{keystr(path)}"
        one = _hold(leaf, as_numbers(leaf, where), where, spread)
        arrays.append(one.arrays)
        exact.append(one.exact)
        lost += one.lost
    same = all(a is b for a, b in zip(arrays, exact, strict=True)) and not lost
    whole, digits = (jax.tree.unflatten(structure, leaves) for leaves in (arrays, exact))
    return Held(whole, None if same else digits, tuple(lost))


def _hold(leaf: Any, array: Any, where: str, spread: bool) -> Held:
    """The same for one leaf, given as it was and as an array."""
    if isinstance(array, jax.Array):
        return Held(array, array, ())
    # A Python number keeps its weak type, which gives way to that of arrays.
    given = leaf if isinstance(leaf, int | float | complex) else array
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        held = jnp.asarray(given)
        return Held(held, held, ())
    with np.errstate(all="ignore"):
        rounded = array.astype(dtype)
        loss = _loss(array, rounded, spread)
        same = loss is None and _same(array, rounded)
    if loss is not None:
        kept = _kept(array)
        return Held(kept, kept, (f"{where} {loss}",))
    held = jnp.asarray(given) if given is leaf else jax.device_put(rounded)
    return Held(held, held if same else _kept(array), ())


def _same(array: np.ndarray, rounded: np.ndarray) -> bool:
    """Whether nothing was rounded; some rows are asked first, since most data say no at once."""
    pairs = ((_some(np.atleast_1d(array)), _some(np.atleast_1d(rounded))), (array, rounded))
    return all(np.array_equal(*pair, equal_nan=array.dtype.kind == "f") for pair in pairs)


def _kept(array: np.ndarray) -> np.ndarray:
    """A copy that nobody changes: the user's own may be filled with other numbers later."""
    kept = np.array(array)
    kept.flags.writeable = False
    return kept


def _loss(array: np.ndarray, rounded: np.ndarray, spread: bool) -> str | None:
    """What a narrower dtype loses, in words; None if that is nothing that matters."""
    dtype = rounded.dtype
    if array.size == 0 or dtype.kind == "c":
        return None
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if limits.min <= low and high <= limits.max:
            return None
        return f"has integers such as {low if low < limits.min else high}, which {dtype} has not."
    if np.isinf(rounded).any() and not np.array_equal(np.isinf(rounded), np.isinf(array)):
        return f"has numbers as large as {np.max(np.abs(array)):.3g}, which {dtype} has not."
    if not spread:
        return None
    values, narrow = (_some(np.atleast_1d(one)) for one in (array, rounded))
    worst = _worst(np.where(np.isfinite(values), values, np.nan), values - narrow)
    if worst is None:
        return None
    size, varies_by, error = worst
    return (
        f"has numbers near {size:.4g} that vary by {varies_by:.3g}, and {dtype} rounds them by "
        f"{error:.2g}."
    )


def _some(array: np.ndarray) -> np.ndarray:
    """Some rows of a large array, to see its spread by."""
    return array[:: max(1, min(array.size // ENOUGH, len(array) // FEWEST_ROWS))]


def _worst(values: np.ndarray, errors: np.ndarray) -> tuple[float, float, float] | None:
    """Size, spread and rounding where these are worst, if they are bad; NaN is not looked at.

    By columns (the last axis), within rows (the second axis: within a group), and over all.
    """
    cuts: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(tuple(range(values.ndim)), ())]
    if values.ndim > 1:
        if values.size // values.shape[-1] >= FEWEST_ROWS:
            cuts.append((tuple(range(values.ndim - 1)), ()))
        if min(values.shape[:2]) > 1:
            cuts.append(((1,), (0,)))
    for along, pooled in cuts:
        known = ~np.isnan(values)
        count = np.maximum(np.sum(known, axis=along, keepdims=True), 1)
        size = np.max(np.abs(values), axis=along, keepdims=True, where=known, initial=0.0)
        size = np.max(size, axis=pooled, keepdims=True)
        unit = np.where(size > 0, size, 1.0)
        filled = np.where(known, values / unit, 0.0)
        mean = np.sum(filled, axis=along, keepdims=True) / count
        variance = np.sum(np.where(known, (filled - mean) ** 2, 0.0), axis=along, keepdims=True)
        spread = np.sqrt(np.mean(variance / count, axis=pooled, keepdims=True))
        square = np.sum(np.where(known, (errors / unit) ** 2, 0.0), axis=along, keepdims=True)
        error = np.sqrt(np.mean(square / count, axis=pooled, keepdims=True))
        varies = spread > 1e-14  # in units of the largest: a constant's own rounding is below
        ratio = np.where(varies, error / np.where(varies, spread, 1.0), 0.0)
        place = np.unravel_index(np.argmax(ratio), ratio.shape)
        if ratio[place] > LOST:
            scale = float(unit[place])
            return scale, float(spread[place]) * scale, float(error[place]) * scale
    return None


def _example(array: np.ndarray) -> str:
    first = array.ravel()[:1].tolist()
    return repr(first[0]) if first else "nothing"

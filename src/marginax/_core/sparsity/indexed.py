"""Rules for reading and writing by indices, known or not.

By known indices the numbers are moved, as their places tell. An index that is not known may be any:
what is read or written depends on everything along its axis.
"""

import math
from typing import Any

import numpy as np
from jax import lax

from marginax._core.sparsity.facts import Fact, Link, Step, linear, mixed, places

__all__ = ["INDEXED", "refuse_probe", "written"]


def _read(parameters: dict[str, Any], shape: tuple[int, ...], indices: np.ndarray) -> np.ndarray:
    """The places that a gather reads by known indices; -1 where it reads outside and fills."""
    found = lax.gather_p.bind(places(shape), indices, **{**parameters, "fill_value": -1})
    return np.asarray(found).reshape(-1)


def _gather(step: Step, facts: list[Fact]) -> list[Fact]:
    (operand, indices), (shape,) = facts, step.shapes
    refuse_probe(indices)
    if operand.reach is None and operand.support is None:
        return [Fact(shape)]
    chosen, axes = indices.value, step.parameters["dimension_numbers"].start_index_map
    if chosen is None:
        operand = Fact(operand.shape, reach=mixed(operand.reach, operand.shape, axes))
        chosen = np.zeros(indices.shape, np.int32)
    sources = _read(step.parameters, operand.shape, np.asarray(chosen))
    result = linear([(operand, Link(sources))], shape)
    # What is filled in where an index is outside may be other than zero.
    return [Fact(shape, reach=result.reach) if (sources < 0).any() else result]


def refuse_probe(indices: Fact) -> None:
    """Indices never depend on a probe; if they should, everything is mixed."""
    if indices.reach is not None:
        raise ValueError("indices made of the probe")


def written(
    parameters: dict[str, Any],
    shape: tuple[int, ...],
    indices: np.ndarray,
    updates: tuple[int, ...],
    steps: int = 0,
) -> np.ndarray:
    """The places that the updates of a scatter go to; -1 of those that are dropped.

    They are those that the gather of the same windows would read.

    Args:
        parameters: of the scatter.
        shape: of the array that is written to.
        indices: known ones.
        updates: the shape of what is written.
        steps: how many axes, 0 or 1, indices and updates have before those of the scatter.
    """
    numbers = parameters["dimension_numbers"]
    windows = tuple(axis + steps for axis in numbers.update_window_dims)
    fixed = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    widths = iter(updates[axis] for axis in windows)
    sizes = tuple(1 if axis in fixed else next(widths) for axis in range(len(shape)))
    batches = tuple(axis + steps for axis in numbers.scatter_indices_batching_dims)
    reading = lax.GatherDimensionNumbers(
        offset_dims=windows,
        collapsed_slice_dims=tuple(numbers.inserted_window_dims),
        start_index_map=tuple(numbers.scatter_dims_to_operand_dims),
        operand_batching_dims=tuple(numbers.operand_batching_dims),
        start_indices_batching_dims=batches,
    )
    mode = lax.GatherScatterMode.from_any(parameters["mode"])
    if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS:  # unlike a gather, it drops what is outside
        mode = lax.GatherScatterMode.FILL_OR_DROP
    found = lax.gather(places(shape), indices, reading, sizes, mode=mode, fill_value=-1)
    if found.shape != updates:
        raise ValueError("a scatter whose windows are not those of a gather")
    return np.asarray(found).reshape(-1)


def _scatter(step: Step, facts: list[Fact]) -> list[Fact]:
    """What was there and what is written; only the latter where that is sure to replace it."""
    (operand, indices, updates), (shape,) = facts, step.shapes
    refuse_probe(indices)
    known = indices.value is not None
    chosen = np.asarray(indices.value) if known else np.zeros(indices.shape, np.int32)
    targets = written(step.parameters, shape, chosen, updates.shape)
    kept = places(shape).reshape(-1)
    if known and step.name == "scatter":
        kept = np.where(np.isin(kept, targets), -1, kept)
    inside = targets >= 0
    sources = places(updates.shape).reshape(-1)[inside]
    if known:
        added = Link(sources, targets[inside])
        return [linear([(operand, Link(kept)), (updates, added)], shape)]
    axes = step.parameters["dimension_numbers"].scatter_dims_to_operand_dims
    alone = linear([(updates, Link(sources, targets[inside]))], shape)
    anywhere = Fact(shape, reach=mixed(alone.reach, shape, axes))
    result = linear([(operand, Link(kept)), (anywhere, Link(kept))], shape)
    return [Fact(shape, reach=result.reach)]


def _starts(
    indices: list[Fact], shape: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    """Where a window starts along each axis, and the axes where that is not known."""
    starts, free = [], []
    for index in indices:
        refuse_probe(index)
    for axis, (index, whole, size) in enumerate(zip(indices, shape, sizes, strict=True)):
        start = 0 if index.value is None else int(np.asarray(index.value))
        starts.append(min(max(start, 0), whole - size))
        if index.value is None and size < whole:
            free.append(axis)
    return starts, free


def _window(shape: tuple[int, ...], starts: list[int], sizes: tuple[int, ...]) -> np.ndarray:
    own = zip(starts, sizes, strict=True)
    return places(shape)[tuple(slice(at, at + size) for at, size in own)].reshape(-1)


def _dynamic_slice(step: Step, facts: list[Fact]) -> list[Fact]:
    operand, *indices = facts
    (shape,) = step.shapes
    starts, free = _starts(indices, operand.shape, shape)
    if free:
        operand = Fact(operand.shape, reach=mixed(operand.reach, operand.shape, free))
    return [linear([(operand, Link(_window(operand.shape, starts, shape)))], shape)]


def _dynamic_update_slice(step: Step, facts: list[Fact]) -> list[Fact]:
    operand, updates, *indices = facts
    (shape,) = step.shapes
    starts, free = _starts(indices, shape, updates.shape)
    window = _window(shape, starts, updates.shape)
    kept, placed = places(shape).reshape(-1), np.full(math.prod(shape), -1, np.int32)
    placed[window] = places(updates.shape).reshape(-1)
    new = linear([(updates, Link(placed))], shape)
    if free:
        new = Fact(shape, reach=mixed(new.reach, shape, free))
    else:
        kept[window] = -1
    return [linear([(operand, Link(kept)), (new, Link(places(shape).reshape(-1)))], shape)]


INDEXED = {
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter,
    "scatter_add": _scatter,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}

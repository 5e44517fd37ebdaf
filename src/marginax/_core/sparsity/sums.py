"""What is added up over the steps of a scan, so that no step need hand it on to the next.

The gradient of latents that a loop reads at changing places is such a sum: every step adds an array
that is zero but for a window. Only the windows are followed.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Jaxpr, Literal

from marginax._core.sparsity.facts import Fact, Link, linear, mixed, places
from marginax._core.sparsity.indexed import refuse_probe, written

__all__ = ["Addend", "sums_in", "total"]


class Addend(NamedTuple):
    """What a step adds to a sum.

    Attributes:
        variables: of the body: the array that is added; or windows of it, and their indices.
        base: the constant of the loop that the windows are put into; None for an array.
        maker: the equation that puts them there.
    """

    variables: list[Any]
    base: int | None = None
    maker: Any = None


class _Uses:
    """Who makes and who reads the variables of a program."""

    def __init__(self, jaxpr: Jaxpr):
        """Goes through the equations of a program."""
        self.readers: dict[Any, list[Any]] = {}
        self.makers: dict[Any, Any] = {}
        for equation in jaxpr.eqns:
            self.makers.update(dict.fromkeys(equation.outvars, equation))
            for variable in equation.invars:
                if not isinstance(variable, Literal):
                    self.readers.setdefault(variable, []).append(equation)
        self.results = [v for v in jaxpr.outvars if not isinstance(v, Literal)]

    def only_addition(self, variable: Any) -> Any:
        """The sum that a variable goes into, if it goes nowhere else."""
        readers = self.readers.get(variable, [])
        if len(readers) != 1 or variable in self.results:
            return None
        (reader,) = readers
        twice = sum(other is variable for other in reader.invars) > 1
        shapes = {tuple(other.aval.shape) for other in (*reader.invars, *reader.outvars)}
        is_sum = reader.primitive.name in ("add", "add_any") and len(shapes) == 1
        return reader if is_sum and not twice else None


def sums_in(jaxpr: Jaxpr, carried: list[int], constants: int) -> dict[int, list[Addend]]:
    """The carried arrays of a loop that are read only to add something to them, and what.

    Args:
        jaxpr: the body.
        carried: the places of what is carried among its arguments.
        constants: how many of its arguments are the same at every step.
    """
    uses, found = _Uses(jaxpr), {}
    for k, place in enumerate(carried):
        addends = _added(uses, jaxpr.invars[place], jaxpr.outvars[k])
        if addends:
            windows = {v: number for number, v in enumerate(jaxpr.invars[:constants])}
            found[k] = [_window(uses, addend, windows) for addend in addends]
    return found


def _added(uses: _Uses, variable: Any, result: Any) -> list[Any]:
    """All that is added to a variable on its way to a result; nothing if it goes elsewhere."""
    addends = []
    while variable is not result:
        addition = uses.only_addition(variable)
        if addition is None:
            return []
        addends += [other for other in addition.invars if other is not variable]
        (variable,) = addition.outvars
    alone = variable not in uses.readers and uses.results.count(variable) == 1
    return addends if alone else []


def _window(uses: _Uses, variable: Any, constants: dict[Any, int]) -> Addend:
    """An addend as a window into a constant, if it is one."""
    maker = None if isinstance(variable, Literal) else uses.makers.get(variable)
    if maker is None or maker.primitive.name not in PLACED:
        return Addend([variable])
    base, *rest = maker.invars
    if isinstance(base, Literal) or base not in constants:
        return Addend([variable])
    ordered = rest if maker.primitive.name == "dynamic_update_slice" else rest[::-1]
    return Addend(ordered, constants[base], maker)


def total(initial: Fact, addends: list[Addend], facts: list[Fact], constants: list[Fact]) -> Fact:
    """The fact of a sum after the last step.

    Args:
        initial: of the sum before the first one.
        addends: what is added.
        facts: of the variables of the addends, one after the other, stacked over the steps.
        constants: of the loop.
    """
    shape, own = initial.shape, Link(places(initial.shape).reshape(-1))
    parts, rest = [(initial, own)], iter(facts)
    for addend in addends:
        stacked, *indices = (next(rest) for _ in addend.variables)
        for index in indices:
            refuse_probe(index)
        if addend.base is None:
            sources = places(stacked.shape).reshape(-1)
            targets = np.tile(own.sources, stacked.shape[0])
            parts.append((stacked, Link(sources, targets)))
        else:
            placed = PLACED[addend.maker.primitive.name](addend, stacked, indices, shape)
            parts.append((placed, own))
            parts.append((constants[addend.base], own))
    return linear(parts, shape)


def _slices(addend: Addend, stacked: Fact, starts: list[Fact], shape: tuple[int, ...]) -> Fact:
    """The sum over the steps of windows, one at every step."""
    steps, *sizes = stacked.shape
    first, free = np.zeros(steps, np.int64), []
    for axis, (start, size, whole) in enumerate(zip(starts, sizes, shape, strict=True)):
        if start.value is not None:
            stride = math.prod(shape[axis + 1 :])
            first += np.clip(np.asarray(start.value, np.int64), 0, whole - size) * stride
        elif size < whole:
            free.append(axis)
    window = places(shape)[tuple(slice(size) for size in sizes)].reshape(-1)
    return _placed(stacked, (first[:, None] + window[None, :]).reshape(-1), shape, free)


def _scattered(addend: Addend, stacked: Fact, indices: list[Fact], shape: tuple[int, ...]) -> Fact:
    """The sum over the steps of windows, many at every step."""
    (index,), parameters = indices, addend.maker.params
    known = index.value is not None
    chosen = np.asarray(index.value) if known else np.zeros(index.shape, np.int32)
    targets = written(parameters, shape, chosen, stacked.shape, steps=1)
    axes = parameters["dimension_numbers"].scatter_dims_to_operand_dims
    return _placed(stacked, targets, shape, [] if known else list(axes))


def _placed(stacked: Fact, targets: np.ndarray, shape: tuple[int, ...], free: list[int]) -> Fact:
    """An array with numbers added in their places, or anywhere along axes that are free."""
    inside = targets >= 0
    link = Link(places(stacked.shape).reshape(-1)[inside], targets[inside])
    alone = linear([(stacked, link)], shape)
    return Fact(shape, reach=mixed(alone.reach, shape, free)) if free else alone


PLACED = {
    "dynamic_update_slice": _slices,
    "scatter-add": _scattered,
    "scatter_add": _scattered,
}

"""Rules for arithmetic, moves and sums: which numbers of their operands the results depend on.

Whatever is not in `RULES` is taken to mix everything that goes into it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from marginax._core.sparsity.facts import (
    Fact,
    Link,
    Step,
    along,
    either,
    grouped,
    keep_rows,
    linear,
    mixed,
    places,
    take_rows,
)
from marginax._core.sparsity.indexed import INDEXED
from marginax._core.sparsity.known import MOVES
from marginax._core.sparsity.products import PRODUCTS

__all__ = ["RULES", "everything"]


def everything(step: Step, facts: list[Fact]) -> list[Fact]:
    """What is always true: every number may depend on everything that goes in."""
    union = None
    for fact in facts:
        if fact.reach is not None:
            whole = grouped(fact.reach, np.zeros(fact.size, np.int32), 1)
            union = either(union, whole)
    if union is None:
        return [Fact(shape) for shape in step.shapes]
    sizes = [math.prod(shape) for shape in step.shapes]
    reaches = [take_rows(union, np.zeros(size, np.int32)) for size in sizes]
    return [Fact(shape, reach=reach) for shape, reach in zip(step.shapes, reaches, strict=True)]


def _spread(fact: Fact, shape: tuple[int, ...]) -> Fact:
    """An array beside others of one shape, along axes where it has but one number."""
    if fact.shape == shape:
        return fact
    if fact.shape and len(fact.shape) != len(shape):
        raise ValueError("operands with different numbers of axes")
    sources = np.broadcast_to(places(fact.shape), shape).reshape(-1)
    return linear([(fact, Link(sources))], shape)


def _each(step: Step, facts: list[Fact]) -> list[Fact]:
    """A function of the numbers at the same place of all operands."""
    (shape,) = step.shapes
    reach = None
    for fact in facts:
        if fact.reach is not None:
            reach = either(reach, _spread(fact, shape).reach)
    return [Fact(shape, reach=reach)]


def _each_from_zero(step: Step, facts: list[Fact]) -> list[Fact]:
    """The same, of a function that is zero where all its operands are."""
    (result,) = _each(step, facts)
    support = np.zeros(result.size, bool)
    for fact in facts:
        own = _spread(fact, result.shape).support
        if own is None:
            return [result]
        support |= own
    return [Fact(result.shape, reach=result.reach, support=support)]


def _power(step: Step, facts: list[Fact]) -> list[Fact]:
    return _each_from_zero(step, facts) if step.parameters["y"] > 0 else _each(step, facts)


def _product(step: Step, facts: list[Fact]) -> list[Fact]:
    """Nothing comes of one factor where the other is zero whatever the latents are."""
    (shape,) = step.shapes
    x, y = (_spread(fact, shape) for fact in facts)
    support = _both(x.support, y.support)
    reach = either(keep_rows(x.reach, y.support), keep_rows(y.reach, x.support))
    return [Fact(shape, reach=reach, support=support)]


def _quotient(step: Step, facts: list[Fact]) -> list[Fact]:
    (shape,) = step.shapes
    x, y = (_spread(fact, shape) for fact in facts)
    reach = either(x.reach, keep_rows(y.reach, x.support))
    return [Fact(shape, reach=reach, support=x.support)]


def _both(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _select(step: Step, facts: list[Fact]) -> list[Fact]:
    """By a known choice what is chosen, otherwise any case."""
    (shape,) = step.shapes
    which, *cases = facts
    if which.value is None:
        (result,) = _each_from_zero(step, cases)
        reach = either(result.reach, _spread(which, shape).reach)
        return [Fact(shape, reach=reach, support=result.support)]
    chosen = np.broadcast_to(np.asarray(which.value).astype(np.int32), shape).reshape(-1)
    own = places(shape).reshape(-1)
    parts = [(case, Link(np.where(chosen == k, own, -1))) for k, case in enumerate(cases)]
    return [linear(parts, shape)]


def _move(step: Step, facts: list[Fact]) -> list[Fact]:
    """Numbers in other places: where each comes from is found by moving their places."""
    (shape,) = step.shapes
    starts = np.cumsum([0, *(fact.size for fact in facts)])
    operands = [places(fact.shape, int(at)) for fact, at in zip(facts, starts[:-1], strict=True)]
    sources = MOVES[step.name](step.parameters, *operands).reshape(-1)
    parts = []
    for fact, low, high in zip(facts, starts[:-1], starts[1:], strict=True):
        inside = (sources >= low) & (sources < high)
        parts.append((fact, Link(np.where(inside, sources - low, -1))))
    return [linear(parts, shape)]


def _same(step: Step, facts: list[Fact]) -> list[Fact]:
    """All operands as they are."""
    if [fact.shape for fact in facts] != step.shapes:
        raise ValueError("results of other shapes than the operands")
    return facts


def _split(step: Step, facts: list[Fact]) -> list[Fact]:
    (fact,) = facts
    ends = np.cumsum(step.parameters["sizes"])[:-1]
    return _parts(step, fact, np.split(places(fact.shape), ends, step.parameters["axis"]))


def _unstack(step: Step, facts: list[Fact]) -> list[Fact]:
    (fact,) = facts
    return _parts(step, fact, list(np.moveaxis(places(fact.shape), step.parameters["axis"], 0)))


def _parts(step: Step, fact: Fact, parts: list[np.ndarray]) -> list[Fact]:
    pairs = zip(parts, step.shapes, strict=True)
    return [linear([(fact, Link(part.reshape(-1)))], shape) for part, shape in pairs]


def _sum(step: Step, facts: list[Fact]) -> list[Fact]:
    (fact,), (shape,) = facts, step.shapes
    link = Link(places(fact.shape).reshape(-1), along(fact.shape, step.parameters["axes"]))
    return [linear([(fact, link)], shape)]


def _reduction(step: Step, facts: list[Fact]) -> list[Fact]:
    """Anything that makes one number of those along some axes; zeros may become another."""
    (result,) = _sum(step, facts)
    return [Fact(result.shape, reach=result.reach)]


def _running_sum(step: Step, facts: list[Fact]) -> list[Fact]:
    """Each number of all before it, by doubling how many of them are looked at."""
    (fact,), axis = facts, step.parameters["axis"]
    own, reach, shift = places(fact.shape), fact.reach, 1
    while reach is not None and shift < fact.shape[axis]:
        before = np.roll(own, -shift if step.parameters["reverse"] else shift, axis)
        line = [slice(None)] * own.ndim
        line[axis] = slice(-shift, None) if step.parameters["reverse"] else slice(0, shift)
        before[tuple(line)] = -1
        reach = either(reach, take_rows(reach, before.reshape(-1)))
        shift *= 2
    return [Fact(fact.shape, reach=reach)]


def _sorted(step: Step, facts: list[Fact]) -> list[Fact]:
    reach = None
    for fact in facts:
        reach = either(reach, fact.reach)
    reach = mixed(reach, facts[0].shape, (step.parameters["dimension"],))
    return [Fact(shape, reach=reach) for shape in step.shapes]


def _transformed(step: Step, facts: list[Fact]) -> list[Fact]:
    """Fourier transforms mix their last axes."""
    (fact,), (shape,) = facts, step.shapes
    axes = range(len(shape) - len(step.parameters["fft_lengths"]), len(shape))
    if fact.reach is None:
        return [Fact(shape)]
    batch = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    union = grouped(fact.reach, along(fact.shape, tuple(axes)), math.prod(batch))
    return [Fact(shape, reach=take_rows(union, along(shape, tuple(axes))))]


FROM_ZERO = (
    *("add", "sub", "add_any", "max", "min", "neg", "abs", "sign", "sqrt", "cbrt", "square"),
    *("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "expm1", "log1p"),
    *("convert_element_type", "reduce_precision", "real", "imag", "conj", "complex"),
    *("floor", "ceil", "round", "stop_gradient", "name"),
)
EACH = (
    *("exp", "exp2", "log", "cos", "cosh", "acos", "acosh", "logistic", "rsqrt", "erfc", "erf_inv"),
    *("lgamma", "digamma", "polygamma", "zeta", "bessel_i0e", "bessel_i1e", "igamma", "igammac"),
    *("igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta", "pow", "atan2", "rem"),
    *("clamp", "nextafter", "is_finite", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"),
    *("not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count"),
)
SAME = ("optimization_barrier", "device_put", "sharding_constraint", "pvary", "mesh_cast")

RULES: dict[str, Callable[[Step, list[Fact]], Any]] = {
    **dict.fromkeys(FROM_ZERO, _each_from_zero),
    **dict.fromkeys(EACH, _each),
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin"), _reduction),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _running_sum),
    "integer_pow": _power,
    "mul": _product,
    "div": _quotient,
    "select_n": _select,
    "split": _split,
    "unstack": _unstack,
    "reduce_sum": _sum,
    "sort": _sorted,
    "fft": _transformed,
    **INDEXED,
    **PRODUCTS,
}

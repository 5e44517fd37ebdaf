"""The rule for `scan`: all its steps at once, and then what they hand on to each other.

The body is traced again with an axis over the steps. What a step is handed by the one before stands
there as further entries of the probe. That gives, for every step, what it hands on of what it was
handed; the whole way from the first step is composed of these by doubling.
"""

from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from scipy import sparse

from marginax._core.sparsity.carries import (
    Kinds,
    Loop,
    body_of_addends,
    kinds_of,
    known_values,
)
from marginax._core.sparsity.facts import (
    MOST,
    Fact,
    Link,
    Step,
    TooManyDependencies,
    either,
    linear,
    places,
    take_rows,
    widened,
)
from marginax._core.sparsity.sums import total
from marginax._core.sparsity.traces import needed

__all__ = ["scan"]


def scan(step: Step, facts: list[Fact]) -> list[Fact]:
    """The facts of a scan's results: what is carried at the end, and what is written, stacked."""
    p = step.parameters
    begin, end = p["num_consts"], p["num_consts"] + p["num_carry"]
    body, length = needed(p["jaxpr"]), p["length"]
    if length == 0:
        raise ValueError("a loop without steps")
    loop = Loop(body, facts[:begin], facts[begin:end], facts[end:], length, p["reverse"])
    kinds = kinds_of(loop)
    known = known_values(loop, kinds)
    loop = body_of_addends(loop, kinds)
    carried, columns = _carried(loop, kinds, known, step.columns)
    arguments = [*loop.constants, *carried, *loop.read]
    wide = [_widened(fact, columns) for fact in arguments]
    results = step.walk(_over_steps(loop), wide, columns)
    handed = _handed(loop, kinds, results, step.columns)
    results = [_resolved(fact, handed, step.columns) for fact in results]
    written = results[p["num_carry"] : len(step.shapes)]
    added, at = {}, len(step.shapes)
    for k, addends in kinds.sums.items():
        count = sum(len(addend.variables) for addend in addends)
        added[k] = total(loop.initial[k], addends, results[at : at + count], loop.constants)
        at += count
    ends = [added.get(k) or _end(loop, kinds, k, results[k]) for k in range(p["num_carry"])]
    return [*ends, *written]


def _carried(
    loop: Loop, kinds: Kinds, known: dict[int, np.ndarray], columns: int
) -> tuple[list[Fact], int]:
    """Facts of what every step is handed, stacked, and how many columns they take."""
    stacked = [Fact((loop.length, *fact.shape)) for fact in loop.initial]
    size = columns + sum(stacked[k].size for k in kinds.recurrent)
    if size > MOST:
        raise TooManyDependencies(f"hands on {size:,} numbers, more than can be followed")
    for k, value in known.items():
        stacked[k] = Fact(value.shape, value=value)
    for k in kinds.unchanged:
        stacked[k] = _repeated(loop.initial[k], loop.length)
    for k in kinds.recurrent:
        own = np.arange(columns, columns + stacked[k].size, dtype=np.int32)
        columns += len(own)
        pointers = np.arange(len(own) + 1, dtype=np.int32)
        ones = np.ones(len(own), bool)
        reach = sparse.csr_array((ones, own, pointers), shape=(len(own), size))
        stacked[k] = Fact(stacked[k].shape, reach=reach)
    return stacked, size


def _repeated(fact: Fact, length: int) -> Fact:
    """The same array at every step."""
    shape = (length, *fact.shape)
    if fact.value is not None:
        return Fact(shape, value=np.broadcast_to(fact.value, shape))
    own = np.tile(places(fact.shape).reshape(-1), length)
    return linear([(fact, Link(own))], shape)


def _widened(fact: Fact, columns: int) -> Fact:
    if fact.reach is None:
        return fact
    return Fact(fact.shape, reach=widened(fact.reach, columns), support=fact.support)


def _over_steps(loop: Loop) -> ClosedJaxpr:
    """The body with an axis over the steps."""
    avals = [variable.aval for variable in loop.body.jaxpr.invars]
    fixed = len(loop.constants)
    axes = [None] * fixed + [0] * (len(avals) - fixed)
    shapes = [(() if k < fixed else (loop.length,)) + a.shape for k, a in enumerate(avals)]
    stacked = [jax.ShapeDtypeStruct(s, a.dtype) for s, a in zip(shapes, avals, strict=True)]
    body = jaxpr_as_fun(loop.body)
    each = jax.vmap(lambda *parts: body(*parts), axes, axis_size=loop.length)
    return needed(jax.make_jaxpr(each)(*stacked))


def _handed(loop: Loop, kinds: Kinds, results: list[Fact], columns: int) -> Any:
    """[numbers handed on, columns] what every step is handed depends on; None if nothing is.

    With H what is handed, B what is there at the beginning or comes in at the step before, and M
    what the step before hands on: H = B + M H, so H = ... (1 + M^4) (1 + M^2) (1 + M) B.
    """
    if not kinds.recurrent:
        return None
    start, shift = (loop.length - 1, -1) if loop.reverse else (0, 1)
    width = columns + sum(results[k].size for k in kinds.recurrent)
    parts = []
    for k in kinds.recurrent:
        before = np.roll(places(results[k].shape), shift, 0)
        before[start] = -1
        first = np.full(results[k].shape, -1, np.int32)
        first[start] = places(loop.initial[k].shape)
        comes = _rows(results[k].reach, before, width)
        parts.append(either(comes, _rows(loop.initial[k].reach, first, width)))
    every = sparse.csr_array(sparse.vstack(parts, "csr"))
    whole, moves = every[:, :columns], every[:, columns:]
    while moves.nnz:
        if max(whole.nnz, moves.nnz) > MOST:
            raise TooManyDependencies(f"hands on more than {MOST:,} dependencies from step to step")
        whole = either(whole, moves @ whole)
        moves = moves @ moves
    return whole


def _rows(reach: Any, rows: np.ndarray, columns: int) -> Any:
    if reach is None:
        return sparse.csr_array((rows.size, columns), dtype=bool)
    return take_rows(widened(reach, columns), rows.reshape(-1))


def _resolved(fact: Fact, handed: Any, columns: int) -> Fact:
    """The same fact with what was handed on put in for the entries that stood for it."""
    if fact.reach is None or handed is None:
        return fact
    directly, by_others = fact.reach[:, :columns], fact.reach[:, columns:]
    reach = either(directly, by_others @ handed)
    return Fact(fact.shape, reach=reach, support=fact.support)


def _end(loop: Loop, kinds: Kinds, k: int, stacked: Fact) -> Fact:
    """A carried array after the last step, from what there is after every step."""
    initial = loop.initial[k]
    if k in kinds.unchanged:
        return initial
    last = 0 if loop.reverse else loop.length - 1
    if stacked.value is not None:
        return Fact(initial.shape, value=np.asarray(stacked.value)[last])
    rows = places(stacked.shape)[last].reshape(-1)
    return linear([(stacked, Link(rows))], initial.shape)

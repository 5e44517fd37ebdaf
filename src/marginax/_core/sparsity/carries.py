"""What a scan hands on from step to step: what follows from the data, sums, and the rest.

Most of what is handed on needs no following: counters are known, latents that every step reads are
handed on as they are, and gradients of them are sums.
"""

from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from marginax._core.sparsity.facts import Fact
from marginax._core.sparsity.sums import Addend, sums_in
from marginax._core.sparsity.traces import inputs_of, needed

__all__ = ["Kinds", "Loop", "body_of_addends", "kinds_of", "known_values"]


class Loop(NamedTuple):
    """A scan, its parts apart.

    Attributes:
        body: one step: constants, what is carried and what is read, to what is carried and written.
        constants: facts of what all steps read.
        initial: facts of what the first step is handed.
        read: facts of what is read step by step, stacked.
        length: how many steps there are.
        reverse: whether they go from the last to the first.
    """

    body: ClosedJaxpr
    constants: list[Fact]
    initial: list[Fact]
    read: list[Fact]
    length: int
    reverse: bool

    @property
    def carried(self) -> list[int]:
        """The places of what is carried among the arguments of the body."""
        return list(range(len(self.constants), len(self.constants) + len(self.initial)))


class Kinds(NamedTuple):
    """How a scan's carried arrays change from step to step; each is of one kind or of none.

    Attributes:
        unchanged: handed on as they are.
        known: they follow from the data.
        sums: something is added to them at every step, and they are not read otherwise; with
            what is added.
        recurrent: the rest of those that may depend on a probe.
    """

    unchanged: list[int]
    known: list[int]
    sums: dict[int, list[Addend]]
    recurrent: list[int]


def kinds_of(loop: Loop) -> Kinds:
    """How the carried arrays of a scan change."""
    places, jaxpr = loop.carried, loop.body.jaxpr
    known, reached = _spread(loop)
    every = range(len(places))
    unchanged = [k for k in every if jaxpr.outvars[k] is jaxpr.invars[places[k]]]
    followed = [k for k in every if k not in unchanged and not known[places[k]]]
    sums = sums_in(jaxpr, places, len(loop.constants))
    sums = {k: sums[k] for k in followed if k in sums}
    recurrent = [k for k in followed if k not in sums and reached[places[k]]]
    computed = [k for k in every if k not in (*unchanged, *followed)]
    return Kinds(unchanged, computed, sums, recurrent)


def _spread(loop: Loop) -> tuple[np.ndarray, np.ndarray]:
    """Of every argument of the body: known at all steps; dependent on a probe at any."""
    uses = [np.asarray(inputs_of(loop.body, k), bool) for k in range(len(loop.initial))]
    arguments = [*loop.constants, *loop.initial, *loop.read]
    known = np.asarray([fact.value is not None for fact in arguments], bool)
    reached = np.asarray([fact.reach is not None for fact in arguments], bool)
    for _ in uses:  # until nothing changes, which is so after as many rounds at the latest
        for place, inputs in zip(loop.carried, uses, strict=True):
            known[place] &= known[inputs].all()
            reached[place] |= reached[inputs].any()
    return known, reached


def body_of_addends(loop: Loop, kinds: Kinds) -> Loop:
    """The same scan with a body that gives what is added to its sums, after all else."""
    outvars = list(loop.body.jaxpr.outvars)
    for k, addends in kinds.sums.items():
        outvars[k] = addends[0].variables[0]  # nothing is made of this one
        outvars += [variable for addend in addends for variable in addend.variables]
    body = ClosedJaxpr(loop.body.jaxpr.replace(outvars=outvars), loop.body.consts)
    return loop._replace(body=needed(body))


def known_values(loop: Loop, kinds: Kinds) -> dict[int, np.ndarray]:
    """What each step is handed of what follows from the data, stacked."""
    if not kinds.known:
        return {}
    outputs = [k in kinds.known for k in range(len(loop.body.jaxpr.outvars))]
    body = jaxpr_as_fun(needed(loop.body, outputs))
    avals = [variable.aval for variable in loop.body.jaxpr.invars]
    reads = len(avals) - len(loop.read)
    # What is not known is not needed, and may be anything.
    facts = [*loop.constants, *loop.initial]
    fixed = [_or_zeros(fact, aval, ()) for fact, aval in zip(facts, avals[:reads], strict=True)]
    stacks = zip(loop.read, avals[reads:], strict=True)
    read = [_or_zeros(fact, aval, (loop.length,)) for fact, aval in stacks]

    def advance(state: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        arguments = [*fixed, *row]
        for k, value in zip(kinds.known, state, strict=True):
            arguments[loop.carried[k]] = value
        return list(body(*arguments)), state

    begin = [fixed[loop.carried[k]] for k in kinds.known]
    _, states = lax.scan(advance, begin, read, loop.length, loop.reverse)
    return {k: np.asarray(value) for k, value in zip(kinds.known, states, strict=True)}


def _or_zeros(fact: Fact, aval: Any, before: tuple[int, ...]) -> Any:
    if fact.value is None:
        return np.zeros((*before, *aval.shape), aval.dtype)
    return np.asarray(fact.value, aval.dtype)

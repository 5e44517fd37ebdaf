"""The walk through a trace, equation by equation, with what is known of every array.

What depends on data alone is computed, so that indices, masks and design matrices are known; of the
rest the rules say which entries of the probe it depends on. A rule that fails on an equation, of a
version of JAX that writes it otherwise, gives way to what is always true: that everything depends
on everything.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from marginax._core.sparsity.facts import MOST, Fact, Step, TooManyDependencies, either
from marginax._core.sparsity.known import computed
from marginax._core.sparsity.loops import scan
from marginax._core.sparsity.rules import RULES, everything
from marginax._core.sparsity.traces import line_of, program_in

__all__ = ["Walk"]

# Programs within programs. Derivatives have been taken: what a call computes is all that matters.
CALLS = (
    *("jit", "pjit", "call", "closed_call", "core_call", "checkpoint", "remat", "remat2"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)
# What a rule may raise where an equation is not as it expects.
ODD = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)
# What is not computed, also of known arguments: its results are not, or are the user's business.
NOT_COMPUTED = ("empty", "empty2", "pure_callback", "io_callback", "debug_callback")
WORK = 20 * MOST  # dependencies to look at in all
ROUNDS = 60  # of a loop with an unknown number of them, until its sets grow no more


class Walk:
    """A walk, and what it remembers of its way.

    Attributes:
        columns: how many entries the probe has.
        widest: the first place where a number depends on more than half of the probe, in words.
        mixed: places where everything was taken to depend on everything.
        work: how many dependencies of arrays were looked at.
    """

    def __init__(self, columns: int):
        """A walk with a probe of so many entries."""
        self.columns = columns
        self.widest: str | None = None
        self.mixed: list[str] = []
        self.work = 0

    def through(self, program: ClosedJaxpr, facts: Sequence[Fact], columns: int) -> list[Fact]:
        """The facts of a program's results.

        Args:
            program: with what it closes over.
            facts: of its arguments.
            columns: how many entries the probe has.
        """
        jaxpr = program.jaxpr
        constants = [_constant(value) for value in program.consts]
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *facts], strict=True))
        over = _over_after(jaxpr)

        def read(variable: Any) -> Fact:
            return _constant(variable.val) if isinstance(variable, Literal) else known[variable]

        for place, equation in enumerate(jaxpr.eqns):
            arguments = [read(variable) for variable in equation.invars]
            try:
                results = self._results(equation, arguments, columns)
            except TooManyDependencies as reason:
                reason.where = reason.where or line_of(equation)
                raise
            known.update(zip(equation.outvars, results, strict=True))
            self._note(equation, results, columns)
            for variable in over[place]:  # sets may be large
                known.pop(variable, None)
        return [read(variable) for variable in jaxpr.outvars]

    def _results(self, equation: Any, facts: list[Fact], columns: int) -> list[Fact]:
        """The facts of the results of one equation."""
        name = equation.primitive.name
        shapes = [tuple(variable.aval.shape) for variable in equation.outvars]
        step = Step(name, equation.params, shapes, columns, self.through, _binding(equation))
        own = {"scan": scan, "cond": self._branches, "while": self._loop}.get(name)
        if name in CALLS:
            own = self._call
        elif _computable(equation, facts):
            results = _computed(equation, step, facts)
            if results is not None:
                return results
        if max((math.prod(shape) for shape in shapes), default=0) > MOST:
            return _too_large(step, facts)
        rule = own or RULES.get(name)
        if rule is not None:
            try:
                return _sound(rule(step, facts), step)
            except ODD:
                pass
        if any(fact.reach is not None for fact in facts):
            self.mixed.append(line_of(equation))
        return everything(step, facts)

    def _note(self, equation: Any, results: list[Fact], columns: int) -> None:
        """Counts the work, and remembers where a number first depends on most of the latents."""
        self.work += sum(_count(fact) for fact in results)
        if self.work > WORK:
            why = f"comes after {WORK:,} dependencies that were looked at, and no more are"
            raise TooManyDependencies(why, line_of(equation))
        if self.widest is not None or columns != self.columns:
            return
        for fact in results:
            if fact.reach is not None:
                most = int(np.diff(fact.reach.indptr).max())
                if most > columns / 2:
                    count = f"{most:,} of the {columns:,} latents"
                    self.widest = f"in {line_of(equation)}, one number depends on {count}"

    def _call(self, step: Step, facts: list[Fact]) -> list[Fact]:
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            program = program_in(step.parameters.get(key))
            if program is not None:
                return self.through(program, facts, step.columns)
        raise LookupError("a call of no program")

    def _branches(self, step: Step, facts: list[Fact]) -> list[Fact]:
        """What any branch may give, or the one that is known to be taken."""
        which, *arguments = facts
        if which.reach is not None:
            raise ValueError("a branch by the probe")
        branches = list(step.parameters["branches"])
        if which.value is not None:
            taken = min(max(int(np.asarray(which.value)), 0), len(branches) - 1)
            return self.through(branches[taken], arguments, step.columns)
        found = [self.through(branch, arguments, step.columns) for branch in branches]
        return [_any_of(facts) for facts in zip(*found, strict=True)]

    def _loop(self, step: Step, facts: list[Fact]) -> list[Fact]:
        """What is carried after any number of rounds."""
        p = step.parameters
        after_test = facts[p["cond_nconsts"] :]
        constants, carry = after_test[: p["body_nconsts"]], after_test[p["body_nconsts"] :]
        carry = [Fact(fact.shape, reach=fact.reach) for fact in carry]
        for _ in range(ROUNDS):
            before = [_count(fact) for fact in carry]
            results = self.through(p["body_jaxpr"], [*constants, *carry], step.columns)
            pairs = zip(carry, results, strict=True)
            carry = [Fact(old.shape, reach=either(old.reach, new.reach)) for old, new in pairs]
            if [_count(fact) for fact in carry] == before:
                return carry
        raise ValueError("a loop whose sets go on growing")


def _over_after(jaxpr: Jaxpr) -> list[list[Any]]:
    """For every equation of a program, the variables that are read there for the last time."""
    kept = {id(variable) for variable in jaxpr.outvars}
    over: list[list[Any]] = []
    for equation in reversed(jaxpr.eqns):
        own = [v for v in (*equation.invars, *equation.outvars) if not isinstance(v, Literal)]
        over.append([variable for variable in own if id(variable) not in kept])
        kept.update(id(variable) for variable in own)
    return over[::-1]


def _count(fact: Fact) -> int:
    return 0 if fact.reach is None else fact.reach.nnz


def _constant(value: Any) -> Fact:
    plain = isinstance(getattr(value, "dtype", np.dtype(float)), np.dtype)
    return Fact(np.shape(value), value=np.asarray(value) if plain else value)


def _too_large(step: Step, facts: list[Fact]) -> list[Fact]:
    """Of arrays that are too large to be followed nothing is known."""
    if any(fact.reach is not None for fact in facts):
        raise TooManyDependencies(f"makes an array of more than {MOST:,} numbers of the latents")
    return [Fact(shape) for shape in step.shapes]


def _any_of(facts: Sequence[Fact]) -> Fact:
    """What is true of an array that may be any of some."""
    reach = None
    for fact in facts:
        reach = either(reach, fact.reach)
    supports = [fact.support for fact in facts if fact.support is not None]
    support = np.logical_or.reduce(supports) if len(supports) == len(facts) else None
    return Fact(facts[0].shape, reach=reach, support=support)


def _binding(equation: Any) -> Any:
    """What evaluates the primitive of an equation."""
    primitive = equation.primitive

    def bind(values: list[Any], **parameters: Any) -> list[Any]:
        bound = primitive.get_bind_params(parameters)
        functions, bound = ((), bound) if isinstance(bound, dict) else bound  # as versions have it
        results = primitive.bind(*functions, *values, **bound)
        return list(results) if primitive.multiple_results else [results]

    return bind


def _computable(equation: Any, facts: list[Fact]) -> bool:
    known = all(fact.value is not None for fact in facts)
    return known and not equation.effects and equation.primitive.name not in NOT_COMPUTED


def _computed(equation: Any, step: Step, facts: list[Fact]) -> list[Fact] | None:
    """The results of an equation with known arguments; None if they cannot be computed here."""
    try:
        values = computed(step.name, step.parameters, [fact.value for fact in facts], step.bind)
    except ODD:
        return None
    results = []
    for value, variable in zip(values, equation.outvars, strict=True):
        dtype = variable.aval.dtype
        if isinstance(dtype, np.dtype) and getattr(value, "dtype", None) != dtype:
            value = np.asarray(value).astype(dtype)
        if np.shape(value) != tuple(variable.aval.shape):
            return None
        results.append(Fact(variable.aval.shape, value=value))
    return results


def _sound(results: list[Fact], step: Step) -> list[Fact]:
    """The results of a rule, if they have the shapes of those of the equation."""
    if [fact.shape for fact in results] != step.shapes:
        raise ValueError(f"{step.name} has results of other shapes")
    for fact in results:
        if fact.reach is not None and fact.reach.shape != (fact.size, step.columns):
            raise ValueError(f"{step.name} has sets of another size")
    return results

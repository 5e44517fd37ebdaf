"""What JAX's traces say of themselves: programs within equations, and what is needed of a program.

`dce_jaxpr` is what JAX itself drops dead code with. It is in no public page, so where it is missing
or odd nothing is dropped: sets are then larger than need be, and never too small.
"""

import warnings
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

__all__ = ["inputs_of", "line_of", "needed", "occurs", "program_in"]

ODD = (ImportError, AttributeError, LookupError, TypeError, ValueError, NotImplementedError)
NOT_THE_USERS = (str(Path(__file__).parent), str(Path(jax.__file__).parent), "<")


def program_in(value: Any) -> ClosedJaxpr | None:
    """The program in a parameter of an equation, with what it closes over."""
    if isinstance(value, Jaxpr):
        return ClosedJaxpr(value, [])
    return value if isinstance(value, ClosedJaxpr) else None


def _without_the_rest(
    program: ClosedJaxpr, outputs: list[bool], keep_inputs: bool
) -> tuple[Jaxpr, list[bool]] | None:
    """A program with what some of its results need, and which arguments those are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from jax.interpreters.partial_eval import dce_jaxpr

            jaxpr, used = dce_jaxpr(program.jaxpr, outputs, instantiate=keep_inputs)
    except ODD:
        return None
    whole = len(jaxpr.constvars) == len(program.consts) and len(used) == len(program.jaxpr.invars)
    return (jaxpr, list(used)) if whole else None


def needed(program: ClosedJaxpr, outputs: list[bool] | None = None) -> ClosedJaxpr:
    """The same program without what none of its results needs; its arguments stay.

    Args:
        program: with what it closes over.
        outputs: the results that count, which alone are left; None means all.
    """
    chosen = [True] * len(program.jaxpr.outvars) if outputs is None else outputs
    found = _without_the_rest(program, chosen, True)
    if found is not None:
        return ClosedJaxpr(found[0], program.consts)
    kept = zip(program.jaxpr.outvars, chosen, strict=True)
    jaxpr = program.jaxpr.replace(outvars=[variable for variable, one in kept if one])
    return ClosedJaxpr(jaxpr, program.consts)


def inputs_of(program: ClosedJaxpr, output: int) -> list[bool]:
    """Which arguments one result of a program is computed from, directly or not."""
    outputs = [k == output for k in range(len(program.jaxpr.outvars))]
    found = _without_the_rest(program, outputs, False)
    return [True] * len(program.jaxpr.invars) if found is None else found[1]


def occurs(name: str, program: ClosedJaxpr) -> bool:
    """Whether a primitive of this name is in a program, or in one within it."""
    for equation in program.jaxpr.eqns:
        if equation.primitive.name == name:
            return True
        for value in equation.params.values():
            parts = value if isinstance(value, tuple | list) else (value,)
            inner = [one for one in map(program_in, parts) if one is not None]
            if any(occurs(name, one) for one in inner):
                return True
    return False


def line_of(equation: Any) -> str:
    """The line of the user's that an equation comes from, and its primitive, in words."""
    name = f"`{equation.primitive.name}`"
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    for frame in getattr(traceback, "frames", ()):
        if not str(frame.file_name).startswith(NOT_THE_USERS):
            return f"{name} of {Path(frame.file_name).name}, line {frame.line_num}"
    return name

"""Indices that leave their axes: JAX takes the nearest one inside, and says nothing.

An index that starts at 1, as ids of R do, so merges the last two groups. Here the trace of a
function is gone through for the indices by which it reads; they come from the data by a few
integer operations, which NumPy does without compiling anything. That one of them leaves its axis is
no fault where the result is masked; so what matters is whether another place inside would make
another value.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

__all__ = ["Outside", "indices_outside"]

# Programs within programs that are looked into; loops and branches are not.
CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)


class Outside(NamedTuple):
    """An index outside of its axis.

    Attributes:
        place: the index, as the function meant it: -1 is the last.
        size: of the axis.
    """

    place: int
    size: int


def indices_outside(
    function: Callable[..., Any],
    *arguments: Any,
    elsewhere: Callable[..., tuple[Any, ...]] = lambda *others: others,
) -> list[Outside]:
    """The indices that leave their axes, where that matters to the values of a function.

    Args:
        function: of arrays, with one array as its result.
        arguments: at which it is looked at, the data last, of which indices are made.
        elsewhere: `elsewhere(*others)`, the arguments but the data where nothing is equal by
            accident, for the comparison of values; as given by default.
    """
    *others, data = arguments
    traced = jax.make_jaxpr(function)(*arguments)
    if not _reads(traced.jaxpr):
        return []
    unknown = [None] * len(jax.tree.leaves(others))
    readings: list[tuple[_Reading, np.ndarray]] = []
    _follow(traced.jaxpr, traced.consts, [*unknown, *jax.tree.leaves(data)], readings)
    of_sums, found = (
        [
            outside
            for reading, indices in readings
            if reading.adds == adds
            for outside in reading.outside(indices)
        ]
        for adds in (True, False)
    )
    if not found:
        return of_sums
    arguments = (*elsewhere(*others), data)

    def value(far: bool, *parts: Any) -> Any:
        return _run(traced.jaxpr, traced.consts, jax.tree.leaves(parts), far)[0]

    near, far = (np.asarray(jax.jit(value, static_argnums=0)(f, *arguments)) for f in (False, True))
    return of_sums if np.array_equal(near, far, equal_nan=True) else [*of_sums, *found]


class _Reading(NamedTuple):
    """A place where a program reads by an index.

    Attributes:
        sizes: of the axes that are indexed.
        widths: how much is read of each.
        adds: whether sums are made there, in which indices outside may be left out on purpose.
        sliced: whether there is one index, its parts apart.
    """

    sizes: tuple[int, ...]
    widths: tuple[int, ...]
    adds: bool
    sliced: bool

    def by(self, indices: list[Any]) -> list[tuple["_Reading", np.ndarray]]:
        """This reading with its indices, if there are any and they are known."""
        if any(index is None or np.size(index) == 0 for index in indices):
            return []
        parts = [np.asarray(index) for index in indices]
        return [(self, np.stack(parts) if self.sliced else parts[0])]

    def outside(self, indices: np.ndarray) -> list[Outside]:
        """What of these indices is outside; one of a sum only if they clearly start at 1."""
        found = []
        for k, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True)):
            low, high = int(np.min(indices[..., k])), int(np.max(indices[..., k]))
            if self.adds:
                found += [Outside(high, size)] if low == 1 and high == size else []
            elif high > size - width:
                found.append(Outside(high, size))
            elif low < 0:
                found.append(Outside(low - size, size))
        return found

    def other(self, indices: Any) -> Any:
        """Indices outside at the far end of their axes, where JAX takes the near one."""
        most = np.iinfo(indices.dtype).max
        ends = zip(self.sizes, self.widths, strict=True)
        last = jnp.asarray([min(size - width, most) for size, width in ends], indices.dtype)
        last = jnp.broadcast_to(last, indices.shape)
        zero = jnp.zeros_like(indices)
        return jnp.where(indices < 0, last, jnp.where(indices > last, zero, indices))


def _reading(equation: Any) -> _Reading | None:
    """Where an equation reads, if an index outside would go unnoticed and nobody wished for it."""
    name, parameters = equation.primitive.name, equation.params
    if name not in ("gather", "dynamic_slice", "scatter-add"):
        return None
    shape = equation.invars[0].aval.shape
    if name == "dynamic_slice":
        return _Reading(shape, tuple(parameters["slice_sizes"]), False, True)
    numbers = parameters["dimension_numbers"]
    if name == "scatter-add":
        axes = numbers.scatter_dims_to_operand_dims
        return _Reading(tuple(shape[axis] for axis in axes), (1,) * len(axes), True, False)
    mode, fill = str(parameters["mode"]), parameters["fill_value"]
    # NaN is what `jnp.take` fills with by itself; another number is somebody's wish, and so is a
    # clip, but for that of a single index under `vmap`.
    silent = "PROMISE" in mode or ("FILL" in mode and (fill is None or fill != fill))
    if not silent and not ("CLIP" in mode and not numbers.collapsed_slice_dims):
        return None
    axes, widths = numbers.start_index_map, parameters["slice_sizes"]
    sizes = tuple(shape[axis] for axis in axes)
    return _Reading(sizes, tuple(widths[axis] for axis in axes), False, False)


def _reads(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        program = _inner(equation)
        if _reading(equation) or (program is not None and _reads(program.jaxpr)):
            return True
    return False


def _inner(equation: Any) -> ClosedJaxpr | None:
    """The program that an equation calls, with what it closes over."""
    if equation.primitive.name not in CALLS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        program = equation.params.get(key)
        if isinstance(program, ClosedJaxpr):
            return program
        if isinstance(program, Jaxpr):
            return ClosedJaxpr(program, [])
    return None


def _follow(jaxpr: Jaxpr, consts: Any, arguments: Any, readings: list[Any]) -> list[Any]:
    """The integers that a program makes of what is known of its arguments (None: nothing is).

    Args:
        jaxpr: the program.
        consts: what it closes over.
        arguments: of it.
        readings: filled with the places where it reads, and the indices there.
    """
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for equation in jaxpr.eqns:
        values = _values(equation.invars, known)
        program, reading = _inner(equation), _reading(equation)
        if reading is not None:
            readings += reading.by(values[1:] if reading.sliced else values[1:2])
        if program is not None:
            results = _follow(program.jaxpr, program.consts, values, readings)
            known.update(zip(equation.outvars, results, strict=True))
        elif _makes_integers(equation) and all(value is not None for value in values):
            known[equation.outvars[0]] = _integers(equation, values)
    return _values(jaxpr.outvars, known)


def _values(variables: Any, known: dict[Any, Any]) -> list[Any]:
    """What is known of some variables of a program; None of those of which nothing is."""
    return [v.val if isinstance(v, Literal) else known.get(v) for v in variables]


def _makes_integers(equation: Any) -> bool:
    dtypes = [getattr(v.aval, "dtype", None) for v in equation.outvars]
    return len(dtypes) == 1 and dtypes[0] is not None and np.dtype(dtypes[0]).kind in "biu"


def _integers(equation: Any, values: list[Any]) -> Any:
    """The result of an equation without compiling anything, where NumPy can."""
    name, parameters = equation.primitive.name, equation.params
    if name not in IN_NUMPY:
        return equation.primitive.bind(*values, **parameters)
    with np.errstate(all="ignore"):
        result = IN_NUMPY[name](parameters, *(np.asarray(value) for value in values))
    return np.asarray(result, equation.outvars[0].aval.dtype)


def _broadcast(parameters: Any, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(parameters["shape"])
    for axis, size in zip(parameters["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), parameters["shape"])


IN_NUMPY: dict[str, Callable[..., Any]] = {
    "lt": lambda _, x, y: x < y,
    "le": lambda _, x, y: x <= y,
    "gt": lambda _, x, y: x > y,
    "ge": lambda _, x, y: x >= y,
    "add": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "min": lambda _, x, y: np.minimum(x, y),
    "max": lambda _, x, y: np.maximum(x, y),
    "clamp": lambda _, low, x, high: np.clip(x, low, high),
    "select_n": lambda _, which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda _, x: x,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda parameters, x: x.reshape(parameters["new_sizes"]),
    "squeeze": lambda parameters, x: np.squeeze(x, tuple(parameters["dimensions"])),
    "concatenate": lambda parameters, *parts: np.concatenate(parts, parameters["dimension"]),
}


def _run(jaxpr: Jaxpr, consts: Any, arguments: Any, far: bool) -> list[Any]:
    """The results of a program.

    Args:
        jaxpr: the program.
        consts: what it closes over.
        arguments: of it.
        far: whether indices outside of their axes are to be at the far ends.
    """
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for equation in jaxpr.eqns:
        values = _values(equation.invars, known)
        program, reading = _inner(equation), _reading(equation)
        if far and reading is not None and not reading.adds:
            indices = jnp.stack(values[1:]) if reading.sliced else values[1]
            indices = reading.other(indices)
            values = [values[0], *(indices if reading.sliced else [indices])]
        if program is not None:
            results = _run(program.jaxpr, program.consts, values, far)
        else:
            results = equation.primitive.bind(*values, **equation.params)
            results = results if equation.primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return _values(jaxpr.outvars, known)

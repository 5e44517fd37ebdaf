"""How a function reads its latents: by z = A x, with a sparse A that the data alone decide.

A density of crossed effects sees its latents as u[student] and v[teacher]: rows of the data pick
entries of x. Up to there the program is linear in x with known coefficients, and the rest of it,
f(z), acts on each row by itself. The Hessian in x is A' H_z A, and H_z has the pattern of single
rows: a few probes tell all its values, where the columns of crossed effects themselves would need
hundreds.

The trace is followed as long as it is linear (picking, slicing, shifting, adding, known factors);
what anything else then looks at is z.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import sparse

__all__ = ["Reads", "linear_reads"]

# Programs within programs that are followed as if they were written out.
CALLS = ("jit", "pjit", "closed_call", "core_call")
# What moves entries about: it is applied to their places.
MOVES = (
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "rev",
    "slice",
    "broadcast_in_dim",
    "gather",
    "dynamic_slice",
    "copy",
    "convert_element_type",
)
MOST_ENTRIES = 20_000_000


class Reads(NamedTuple):
    """What a function looks at, and what it makes of that.

    Attributes:
        matrix: A, [m, n].
        rest: `rest(z, *args)`, with which `rest(A x, *args)` is the function at x.
    """

    matrix: sparse.csr_array
    rest: Callable[..., Array]


class _Step(NamedTuple):
    """One equation of the trace, with its variables as numbers; literals are values."""

    primitive: Any
    params: dict[str, Any]
    inputs: list[Any]
    outputs: list[int]


class _Linear(NamedTuple):
    """A variable that is linear in x: a row of the matrix for each of its entries."""

    matrix: sparse.csr_array
    shape: tuple[int, ...]


class _Literal(NamedTuple):
    value: Any


def linear_reads(function: Callable[..., Array], size: int, *args: Any) -> Reads:
    """Takes a function apart into A and the rest.

    Args:
        function: `function(x, *args)`, a scalar, of a vector x.
        size: n, of x.
        *args: trees of arrays, whose values may be used; or of `jax.ShapeDtypeStruct` for what is
            not known, such as theta, by which no entry of A can be.
    """
    leaves, structure = jax.tree.flatten(args)
    dtype = jnp.result_type(float)

    def flat(x: Array, *leaves: Any) -> Array:
        return function(x, *jax.tree.unflatten(structure, leaves))

    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), _dtype(leaf)) for leaf in leaves]
    traced = jax.make_jaxpr(flat)(jax.ShapeDtypeStruct((size,), dtype), *shapes)
    program = _written_out(traced)
    values: dict[int, Any] = {
        number: leaf
        for number, leaf in zip(program.inputs[1:], leaves, strict=True)
        if not isinstance(leaf, jax.ShapeDtypeStruct)
    }
    values |= dict(program.constants)
    linear = {program.inputs[0]: _Linear(sparse.eye_array(size, format="csr"), (size,))}
    looked_at: dict[int, _Linear] = {}
    kept: list[_Step] = []
    for step in program.steps:
        if not any(number in linear for number in step.inputs if isinstance(number, int)):
            _compute_if_known(step, values)
            kept.append(step)
            continue
        found = _followed(step, linear, values)
        if found is not None:
            linear[step.outputs[0]] = found
            continue
        looked_at |= {n: linear[n] for n in step.inputs if isinstance(n, int) and n in linear}
        kept.append(step)
    if isinstance(program.output, int) and program.output in linear:
        looked_at[program.output] = linear[program.output]
    return _assembled(program, kept, looked_at, size)


class _Program(NamedTuple):
    inputs: list[int]
    constants: dict[int, Any]
    steps: list[_Step]
    output: Any


def _written_out(traced: Any) -> _Program:
    """The trace as one list of steps, without programs within programs."""
    count = iter(range(2**31))
    steps: list[_Step] = []
    constants: dict[int, Any] = {}

    def walk(jaxpr: Any, inputs: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
        names: dict[Any, Any] = {}
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            names[variable] = next(count)
            constants[names[variable]] = value
        names |= dict(zip(jaxpr.invars, inputs, strict=True))

        def name(atom: Any) -> Any:
            return _Literal(atom.val) if hasattr(atom, "val") else names[atom]

        for eqn in jaxpr.eqns:
            given = [name(atom) for atom in eqn.invars]
            inner = eqn.params.get("jaxpr") if eqn.primitive.name in CALLS else None
            if inner is not None and hasattr(inner, "jaxpr"):
                outputs = walk(inner.jaxpr, given, inner.consts)
                names |= dict(zip(eqn.outvars, outputs, strict=True))
                continue
            numbers = [next(count) for _ in eqn.outvars]
            names |= dict(zip(eqn.outvars, numbers, strict=True))
            if eqn.primitive.name == "split":
                steps.extend(_slices(eqn, given, numbers))
                continue
            steps.append(_Step(eqn.primitive, eqn.params, given, numbers))
        return [name(atom) for atom in jaxpr.outvars]

    inputs = [next(count) for _ in traced.jaxpr.invars]
    (output,) = walk(traced.jaxpr, inputs, traced.consts)
    return _Program(inputs, constants, steps, output)


def _slices(eqn: Any, given: list[Any], numbers: list[int]) -> list[_Step]:
    """A split as so many slices: a step has one result."""
    shape, axis = eqn.invars[0].aval.shape, eqn.params["axis"]
    ends = np.cumsum([0, *eqn.params["sizes"]]).tolist()

    def params(first: int, end: int) -> dict[str, Any]:
        low = [first if i == axis else 0 for i in range(len(shape))]
        high = [end if i == axis else size for i, size in enumerate(shape)]
        return {"start_indices": tuple(low), "limit_indices": tuple(high), "strides": None}

    return [
        _Step(jax.lax.slice_p, params(first, end), given, [number])
        for first, end, number in zip(ends[:-1], ends[1:], numbers, strict=True)
    ]


def _assembled(
    program: _Program, steps: list[_Step], looked_at: dict[int, _Linear], size: int
) -> Reads:
    parts = [part.matrix for part in looked_at.values()]
    matrix = sparse.vstack(parts, format="csr") if parts else sparse.csr_array((0, size))
    ends = np.cumsum([0, *(part.shape[0] for part in parts)]).tolist()
    inputs, constants, output = program.inputs, program.constants, program.output
    places = {
        number: (first, end, part.shape)
        for (number, part), first, end in zip(looked_at.items(), ends[:-1], ends[1:], strict=True)
    }

    def rest(z: Array, *args: Any) -> Array:
        values = constants | dict(zip(inputs[1:], jax.tree.leaves(args), strict=True))
        values |= {n: z[a:b].reshape(shape) for n, (a, b, shape) in places.items()}

        def value(number: Any) -> Any:
            return number.value if isinstance(number, _Literal) else values[number]

        for step in steps:
            for number, result in zip(step.outputs, _bind(step, value), strict=True):
                values[number] = result
        return value(output)

    return Reads(matrix, rest)


def _bind(step: _Step, value: Callable[[Any], Any]) -> list[Any]:
    bound = step.primitive.get_bind_params(step.params)
    # Functions within are arguments of their own in older versions of JAX.
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = step.primitive.bind(*functions, *map(value, step.inputs), **params)
    return list(results) if step.primitive.multiple_results else [results]


def _compute_if_known(step: _Step, values: dict[int, Any]) -> None:
    if not all(isinstance(n, _Literal) or n in values for n in step.inputs):
        return
    results = _bind(step, lambda n: n.value if isinstance(n, _Literal) else values[n])
    values |= dict(zip(step.outputs, results, strict=True))


def _followed(step: _Step, linear: dict[int, _Linear], values: dict[int, Any]) -> _Linear | None:
    """What the step makes of x, if that is linear with known coefficients."""
    rule = RULES.get(step.primitive.name)
    if rule is None or len(step.outputs) != 1:
        return None

    def given(number: Any) -> Any:
        if isinstance(number, _Literal):
            return np.asarray(number.value)
        return linear[number] if number in linear else values.get(number)

    inputs = [given(number) for number in step.inputs]
    if any(part is None for part in inputs):  # not known: theta
        return None
    found = rule(step, inputs)
    return found if found is not None and found.matrix.nnz <= MOST_ENTRIES else None


def _moved(step: _Step, inputs: list[Any]) -> _Linear | None:
    part, *others = inputs
    if not isinstance(part, _Linear) or any(isinstance(one, _Linear) for one in others):
        return None
    params = dict(step.params)
    if step.primitive.name == "convert_element_type":
        return part if jnp.issubdtype(params["new_dtype"], jnp.floating) else None
    if step.primitive.name == "gather":
        # Entries that are taken from beside the array are no entries of x.
        params["fill_value"] = -1
    places = jnp.arange(part.matrix.shape[0], dtype=jnp.int32).reshape(part.shape)
    taken = np.asarray(step.primitive.bind(places, *map(jnp.asarray, others), **params))
    rows, inside = taken.ravel(), taken.ravel() >= 0
    picked = part.matrix[np.where(inside, rows, 0)] if rows.size else part.matrix[:0]
    if not inside.all():
        picked = sparse.csr_array(sparse.diags_array(inside.astype(float)) @ picked)
        picked.eliminate_zeros()
    return _Linear(sparse.csr_array(picked), taken.shape)


def _negated(step: _Step, inputs: list[Any]) -> _Linear | None:
    del step
    return _Linear(sparse.csr_array(-inputs[0].matrix), inputs[0].shape)


def _sum_of_two(step: _Step, inputs: list[Any]) -> _Linear | None:
    one, other = inputs
    if not (isinstance(one, _Linear) and isinstance(other, _Linear)):
        return None  # a known number added is no longer linear: it is what z is looked at with
    if one.shape != other.shape:
        return None
    sign = -1 if step.primitive.name == "sub" else 1
    return _Linear(sparse.csr_array(one.matrix + sign * other.matrix), one.shape)


def _scaled(step: _Step, inputs: list[Any]) -> _Linear | None:
    one, other = inputs
    if isinstance(one, _Linear) == isinstance(other, _Linear):
        return None
    if step.primitive.name == "div" and isinstance(other, _Linear):
        return None
    part, factor = (one, other) if isinstance(one, _Linear) else (other, one)
    factor = np.broadcast_to(np.asarray(factor, float), part.shape).ravel()
    with np.errstate(divide="ignore"):
        factor = 1 / factor if step.primitive.name == "div" else factor
    if not np.all(np.isfinite(factor)):
        return None
    return _Linear(sparse.csr_array(sparse.diags_array(factor) @ part.matrix), part.shape)


def _joined(step: _Step, inputs: list[Any]) -> _Linear | None:
    if not all(isinstance(part, _Linear) for part in inputs):
        return None
    ends = np.cumsum([0, *(part.matrix.shape[0] for part in inputs)])
    places = [
        np.arange(first, end).reshape(part.shape)
        for first, end, part in zip(ends[:-1], ends[1:], inputs, strict=True)
    ]
    order = np.concatenate(places, axis=step.params["dimension"])
    stacked = sparse.vstack([part.matrix for part in inputs], format="csr")
    return _Linear(sparse.csr_array(stacked[order.ravel()]), order.shape)


RULES: dict[str, Callable[[_Step, list[Any]], _Linear | None]] = {
    **dict.fromkeys(MOVES, _moved),
    "neg": _negated,
    "add": _sum_of_two,
    "sub": _sum_of_two,
    "mul": _scaled,
    "div": _scaled,
    "concatenate": _joined,
}


def _dtype(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(getattr(leaf, "dtype", None) or np.asarray(leaf).dtype)

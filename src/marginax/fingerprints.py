"""Fingerprints: by which a model, or a run, is known again.

What a function computes stands in the text of its trace, except for the arrays that it closes over.
These are constants of the trace, or of a program within it: a function under `jax.jit` keeps them
there, and its text shows no more than their shapes.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import PyTree

from marginax.processes import whole

__all__ = ["constants", "digest", "of_run", "plain", "text_of", "what_differs"]


def digest(*parts: PyTree) -> str:
    """A checksum of texts and arrays, shapes and dtypes included, in their order."""
    total = hashlib.sha256()
    for part in jax.tree.leaves(parts):
        if isinstance(part, str):
            total.update(f"{len(part)} letters".encode() + part.encode())
        else:
            array = whole(plain(part))  # one at a time: all of them may be large
            total.update(f"{array.shape}{array.dtype}".encode())
            total.update(array.tobytes())
    return total.hexdigest()


def plain(leaf: Any) -> Any:
    """A typed key as its numbers; anything else as it is."""
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def text_of(traced: ClosedJaxpr) -> str:
    """What is computed, without the addresses of functions: these differ between processes."""
    return re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr))


def constants(traced: ClosedJaxpr) -> str:
    """A checksum of every array that the trace, or a program within it, closes over."""
    known: dict[int, str] = {}  # programs and arrays that occur often are read once

    def of_array(array: Any) -> str:
        if id(array) not in known:
            known[id(array)] = digest(array)
        return known[id(array)]

    def of_program(jaxpr: Jaxpr, arrays: list[Any]) -> str:
        found = [of_array(array) for array in arrays]
        for equation in jaxpr.eqns:
            literals = [v.val for v in equation.invars if isinstance(v, Literal)]
            found += [of_array(value) for value in literals if np.ndim(value)]
            found += [of_part(part) for value in equation.params.values() for part in _in(value)]
        return digest(found)

    def of_part(part: Any) -> str:
        if not isinstance(part, ClosedJaxpr | Jaxpr):
            return of_array(part)
        if id(part) not in known:
            inside = (part.jaxpr, part.consts) if isinstance(part, ClosedJaxpr) else (part, [])
            known[id(part)] = of_program(*inside)
        return known[id(part)]

    return of_part(traced)


def _in(value: Any) -> Iterator[Any]:
    """The programs and arrays in a parameter of an equation."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _in(part)
    elif isinstance(value, ClosedJaxpr | Jaxpr | np.ndarray | jax.Array):
        yield value


_MEANING = {
    "algorithm": "another algorithm, model or setting",
    "shapes": "other shapes of theta or particles",
    "start": "another key or another start",
    "data": "other data",
}


def of_run(
    call: Callable[..., Any], arguments: tuple[Any, ...], key: Any, block_size: int
) -> dict[str, str]:
    """What decides the numbers of a run, hashed part by part, so that a difference can be named.

    Args:
        call: the block, as the run calls it.
        arguments: what it is called with first: the state, the data and counts.
        key: the run's key.
        block_size: because the stopping rules look at blocks.
    """
    state, data, *_ = arguments
    # Of shapes alone: where arrays live would stand in the text, and may differ when resumed.
    shapes_alone = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    traced = jax.make_jaxpr(call)(*shapes_alone)
    shapes = str(jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), state))
    return {
        "algorithm": digest(f"{text_of(traced)} in blocks of {block_size}", constants(traced)),
        "shapes": digest(shapes),
        "start": digest(key, state),
        "data": digest(data),
    }


def what_differs(one: dict[str, str], other: dict[str, str]) -> str | None:
    """In words, what another run has otherwise; None if it is the same."""
    # In this order: where shapes differ everything does, and the key is part of what is traced.
    for part in ("shapes", "data", "start", "algorithm"):
        if one[part] != other[part]:
            return _MEANING[part]
    return None

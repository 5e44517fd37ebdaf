"""Checksums of what a function computes: the text of its trace, and every array in it.

The arrays that a function closes over are constants of the trace, or of a program within it: a
function under `jax.jit` keeps them there, and its text shows no more than their shapes.
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

from marginax._core.processes import whole

__all__ = ["constants", "digest", "plain", "program_digest", "text_of"]


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


def program_digest(function: Callable[..., Any], arguments: tuple[PyTree, ...]) -> str:
    """A checksum of what a function computes of arguments like these, whatever its name and file.

    Args:
        function: traced anew.
        arguments: trees of arrays, of which shapes and dtypes count.
    """
    # Of shapes alone: where arrays live would stand in the text.
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    # A new function every time: JAX would remember the trace of one it knows, with the values that
    # global variables had then.
    traced = jax.make_jaxpr(lambda *parts: function(*parts))(*shapes)
    text = re.sub(r"\bname=(<\w+>|\w+)", "", text_of(traced))
    # Programs that occur twice stand at the top, under the names of their functions.
    for place, name in enumerate(dict.fromkeys(re.findall(r"(\S+) = \{ lambda", text))):
        word = rf"(?<!\w)(?<!{{ ){re.escape(name)}(?!\w)"  # and not the `{ lambda` of a program
        text = re.sub(word, f"program{place}", text)
    return digest(text, constants(traced))


def constants(traced: ClosedJaxpr) -> str:
    """A checksum of every array that the trace, or a program within it, closes over."""
    known: dict[int, str] = {}  # programs and arrays that occur often are read once

    def of_array(array: Any) -> str:
        if id(array) not in known:
            known[id(array)] = digest(array)
        return known[id(array)]

    def of_program(jaxpr: Jaxpr, arrays: list[Any]) -> str:
        digests = [of_array(array) for array in arrays]
        for equation in jaxpr.eqns:
            literals = [v.val for v in equation.invars if isinstance(v, Literal)]
            digests += [of_array(value) for value in literals if np.ndim(value)]
            digests += [of_part(part) for value in equation.params.values() for part in _in(value)]
        return digest(digests)

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

"""Compiled programs of users' functions: by which key they are found, and how many are kept.

    @program(bare, order)        the function compiled, found again by these
    recent(function)(*fixed)     the same of a function with its first arguments fixed

A static argument of `jax.jit` is remembered for good, and with it the function of a user that it
holds and the machine code made for it: a study of some hundred models would run out of memory maps.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from marginax._core import executables
from marginax._core.disk_cache import folder_in_use

__all__ = ["ById", "Program", "program", "recent", "result_shapes"]


def _parts(mark: Any) -> tuple[Any, Any]:
    """The object and the function of a method; twice itself for anything else."""
    return getattr(mark, "__self__", mark), getattr(mark, "__func__", mark)


@dataclass(frozen=True, eq=False)
class ById:
    """A value as a static argument of jit, equal to another if both carry the same `mark`.

    Functions of a user need not be hashable: a method of an object with arrays is not. In other
    processes, values of the same `identity` compute the same; None if nothing tells.
    """

    value: Any
    mark: Any
    identity: str | None = None

    def __hash__(self) -> int:
        return id(getattr(self.mark, "__self__", self.mark))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ById):
            return False
        # A method is a new object whenever it is asked for.
        one, two = (_parts(mark) for mark in (self.mark, other.mark))
        return one[0] is two[0] and one[1] is two[1]


KEPT = 8  # programs of each function
# On processors programs are as fast with little optimisation, and compiled in half the time.
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
FEW_NUMBERS = 10_000_000  # in all arguments together: seen to be as fast up to there


class Program:
    """A compiled function, whose machine code other processes find by its identity.

    Args:
        function: of trees of arrays.
        identity: what stands for all that the function computes, here and in other processes; None
            if nothing does, and it is then found by what is traced, as JAX finds it.
    """

    def __init__(self, function: Callable[..., Any], identity: str | None) -> None:
        self._name = _name(function)
        self._identity = identity
        self._function = function
        self._traced = jax.jit(function)
        self._known: dict[Any, Any] = {}
        self._lock = threading.Lock()

    @cached_property
    def _quick(self) -> Any:
        """Not before it is called: which options there are is known once JAX has its devices."""
        return jax.jit(self._function, compiler_options=_quick_options())

    def __call__(self, *arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        compiled = self._found(arguments, leaves, structure)
        return self._chosen(leaves)(*arguments) if compiled is None else compiled(*arguments)

    def _chosen(self, leaves: list[Any]) -> Any:
        """How it is compiled; within another program it is part of that one."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._traced
        return self._quick if _is_quick(leaves) else self._traced

    def _found(
        self,
        arguments: tuple[Any, ...],
        leaves: list[Any],
        structure: Any,
        *,
        even_without_file: bool = False,
    ) -> Any:
        """The machine code for such arguments; None where it is JAX's to find it."""
        types, options = executables.types_of(leaves), executables.options_of_jax()
        if types is None or options is None:
            return None
        key = (structure, types, options)
        if key not in self._known:
            with self._lock:  # another thread may be at it
                file = self._file(key)
                if key not in self._known and (file is not None or even_without_file):
                    self._known[key] = self._read_or_compiled(file, arguments, leaves)
        return self._known.get(key)

    def _file(self, key: Any) -> Path | None:
        """Where the machine code is kept; None if it is not, or by JAX alone."""
        folder = folder_in_use()
        if self._identity is None or folder is None:
            return None
        told = repr((self._name, self._identity, str(key[0]), *key[1:]))
        # An address, of an object among the arguments, means nothing in another process.
        return None if " at 0x" in told else executables.file_of(folder, self._name, told)

    def _read_or_compiled(
        self, file: Path | None, arguments: tuple[Any, ...], leaves: list[Any]
    ) -> Any:
        if file is None:
            return self._chosen(leaves).lower(*arguments).compile()
        compiled = executables.read(file, arguments)
        if compiled is not None:
            return compiled
        lowered = self._chosen(leaves).lower(*arguments)
        calls = executables.calls_of(lowered)
        if not executables.can_keep(calls):
            return lowered.compile()
        with executables.without_jaxs_cache():
            compiled = lowered.compile()
        # In a thread that the end of the process waits for.
        threading.Thread(target=executables.write, args=(file, compiled, calls)).start()
        return compiled

    def prepare(self, *arguments: Any) -> None:
        """Has the machine code ready for a call with arguments like these, or shapes of them."""
        self._found(arguments, *jax.tree.flatten(arguments), even_without_file=True)

    def result_shapes(self, *arguments: Any) -> Any:
        """Shapes and dtypes of what it returns, without tracing it where it is compiled already."""
        compiled = self._found(arguments, *jax.tree.flatten(arguments))
        if compiled is None:
            return jax.eval_shape(self._traced, *arguments)
        return jax.tree.map(
            lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype), compiled.out_info
        )


def result_shapes(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `jax.eval_shape` says, of a function that may be a `Program`."""
    if isinstance(function, Program):
        return function.result_shapes(*arguments)
    return jax.eval_shape(function, *arguments)


def _quick_options() -> dict[str, Any]:
    """`QUICK`, but for what the user has set."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: QUICK[name] for name in _known_options() if name not in flags}


@lru_cache
def _known_options() -> tuple[str, ...]:
    """Those of `QUICK` that this version of XLA has: options come and go."""
    if _is_known(QUICK):
        return tuple(QUICK)
    return tuple(name for name, value in QUICK.items() if _is_known({name: value}))


def _is_known(options: dict[str, Any]) -> bool:
    # Beside programs of users: neither kept on disk nor counted among theirs.
    with executables.without_jaxs_cache(), contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda x: x, compiler_options=options).lower(np.float32(0)).compile()
        return True
    return False


def _is_quick(leaves: list[Any]) -> bool:
    few = sum(getattr(leaf, "size", 1) for leaf in leaves) <= FEW_NUMBERS
    return few and jax.default_backend() == "cpu"


def _name(function: Any) -> str:
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def _identity(function: Any, fixed: tuple[Any, ...]) -> str | None:
    """What stands for a function of marginax and what is fixed in it, in any process."""
    function = getattr(function, "func", function)
    parts = [_identity_of(part) for part in fixed]
    if any(part is None for part in parts):
        return None
    return repr((function.__module__, function.__qualname__, *parts))


def _identity_of(part: Any) -> str | None:
    if isinstance(part, ById):
        return part.identity
    if part is None or isinstance(part, bool | int | float | str):
        return repr(part)
    if isinstance(part, tuple):
        inside = [_identity_of(one) for one in part]
        return None if any(one is None for one in inside) else repr(inside)
    # Of marginax, whose version is known; but not one made within a function, of whatever.
    name = f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', '<locals>')}"
    return name if name.startswith("marginax.") and "<locals>" not in name else None


def program(*fixed: Any) -> Callable[[Callable[..., Any]], Program]:
    """Makes a `Program` of a function within another, which is all of that function's arguments.

    Args:
        fixed: everything that the inner function takes from the outer one: values of `ById`,
            numbers, words and functions at the top of a module.
    """

    def compiled(function: Callable[..., Any]) -> Program:
        return Program(function, _identity(function, fixed))

    return compiled


def recent(function: Callable[..., Any]) -> Callable[..., Any]:
    """`recent(function)(*fixed)` is a `Program` of function with its first arguments fixed.

    The same `fixed` gives the same compiled program, until `KEPT` others have been asked for.
    """

    @lru_cache(KEPT)
    def fixed_program(*fixed: Any) -> Any:
        return program(*fixed)(partial(function, *fixed))

    return fixed_program

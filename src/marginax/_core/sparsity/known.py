"""Values of what depends on data alone, by NumPy where it can: nothing need be compiled for them.

The functions that only move numbers are used twice: on the numbers, and on their places, which
tells where each number of a result comes from.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["IN_NUMPY", "MOVES", "computed"]


def computed(name: str, parameters: dict[str, Any], values: list[Any], bind: Any) -> list[Any]:
    """The results of an equation whose arguments are known.

    Args:
        name: of the primitive.
        parameters: of the equation.
        values: of its arguments.
        bind: what evaluates the primitive by JAX.
    """
    plain = all(isinstance(value, np.ndarray | np.generic | int | float | bool) for value in values)
    if name not in IN_NUMPY or not plain:
        results = bind(values, **parameters)
        return [_as_numpy(result) for result in results]
    with np.errstate(all="ignore"):
        return [IN_NUMPY[name](parameters, *(np.asarray(value) for value in values))]


def _as_numpy(value: Any) -> Any:
    """In NumPy, but for keys of random numbers, which it cannot hold."""
    return np.asarray(value) if isinstance(getattr(value, "dtype", None), np.dtype) else value


def _broadcast(parameters: Any, x: np.ndarray, *_: Any) -> np.ndarray:
    shape = [1] * len(parameters["shape"])
    for axis, size in zip(parameters["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), parameters["shape"])


def _reshape(parameters: Any, x: np.ndarray) -> np.ndarray:
    if parameters.get("dimensions") is not None:
        x = np.transpose(x, parameters["dimensions"])
    return x.reshape(parameters["new_sizes"])


def _slice(parameters: Any, x: np.ndarray) -> np.ndarray:
    starts, limits = parameters["start_indices"], parameters["limit_indices"]
    strides = parameters["strides"] or (1,) * x.ndim
    return x[tuple(slice(*part) for part in zip(starts, limits, strides, strict=True))]


def _pad(parameters: Any, x: np.ndarray, filling: np.ndarray) -> np.ndarray:
    config = [tuple(int(part) for part in axis) for axis in parameters["padding_config"]]
    inner = [max(size + (size - 1) * within, 0) for size, (_, _, within) in _zip(x.shape, config)]
    spread = np.full(inner, filling, x.dtype)
    spread[tuple(slice(None, None, within + 1) for _, _, within in config)] = x
    sizes = [low + size + high for size, (low, high, _) in _zip(inner, config)]
    result = np.full(sizes, filling, x.dtype)
    ends = _zip(inner, config)  # a negative padding cuts
    source = tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high, _) in ends)
    target = tuple(
        slice(max(low, 0), size - max(high, 0)) for size, (low, high, _) in _zip(sizes, config)
    )
    result[target] = spread[source]
    return result


def _zip(sizes: Any, config: Any) -> Any:
    return zip(sizes, config, strict=True)


def _dynamic_slice(parameters: Any, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes = parameters["slice_sizes"]
    parts = zip(starts, sizes, x.shape, strict=True)
    first = [int(np.clip(start, 0, whole - size)) for start, size, whole in parts]
    return x[tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))]


def _dynamic_update_slice(_: Any, x: np.ndarray, new: np.ndarray, *starts: Any) -> np.ndarray:
    parts = zip(starts, new.shape, x.shape, strict=True)
    first = [int(np.clip(start, 0, whole - size)) for start, size, whole in parts]
    result = np.array(x)
    result[tuple(slice(at, at + size) for at, size in zip(first, new.shape, strict=True))] = new
    return result


def _select(_: Any, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    which = np.broadcast_to(which, cases[0].shape)
    if len(cases) == 2:
        return np.where(which.astype(bool), cases[1], cases[0])
    return np.take_along_axis(np.stack(cases), which[None].astype(int), 0)[0]


def _iota(parameters: Any) -> np.ndarray:
    shape, axis = parameters["shape"], parameters["dimension"]
    line = np.arange(shape[axis]).astype(parameters["dtype"])
    return np.broadcast_to(line.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)


MOVES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": lambda p, x: np.squeeze(x, tuple(p["dimensions"])),
    "expand_dims": lambda p, x: np.expand_dims(x, tuple(p["dimensions"])),
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "rev": lambda p, x: np.flip(x, tuple(p["dimensions"])),
    "slice": _slice,
    "pad": _pad,
    "concatenate": lambda p, *parts: np.concatenate(parts, p["dimension"]),
    "stack": lambda p, *parts: np.stack(parts, p["axis"]),
    "tile": lambda p, x: np.tile(x, p["reps"]),
    "copy": lambda _, x: x,
    "copy_p": lambda _, x: x,
}


IN_NUMPY: dict[str, Callable[..., Any]] = {
    **MOVES,
    "iota": _iota,
    "select_n": _select,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "stop_gradient": lambda _, x: x,
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "lt": lambda _, x, y: x < y,
    "le": lambda _, x, y: x <= y,
    "gt": lambda _, x, y: x > y,
    "ge": lambda _, x, y: x >= y,
    "eq": lambda _, x, y: x == y,
    "ne": lambda _, x, y: x != y,
    "add": lambda _, x, y: x + y,
    "add_any": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "neg": lambda _, x: -x,
    "abs": lambda _, x: np.abs(x),
    "sign": lambda _, x: np.sign(x),
    "sqrt": lambda _, x: np.sqrt(x),
    "min": lambda _, x, y: np.minimum(x, y),
    "max": lambda _, x, y: np.maximum(x, y),
    "and": lambda _, x, y: x & y,
    "or": lambda _, x, y: x | y,
    "not": lambda _, x: ~x,
    "clamp": lambda _, low, x, high: np.clip(x, low, high),
    "reduce_sum": lambda p, x: np.sum(x, tuple(p["axes"]), dtype=x.dtype),
    "reduce_max": lambda p, x: np.max(x, tuple(p["axes"])),
    "reduce_min": lambda p, x: np.min(x, tuple(p["axes"])),
    "reduce_or": lambda p, x: np.any(x, tuple(p["axes"])),
    "reduce_and": lambda p, x: np.all(x, tuple(p["axes"])),
}

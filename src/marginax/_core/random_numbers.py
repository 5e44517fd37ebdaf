"""Keys and normal numbers, those of `jax.random`, by programs that other processes find.

Lowering a generator takes longer than reading it compiled from a file, for a single number too; and
where nobody asks for JAX's own numbers, those of NumPy need no compiler at all.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.programs import recent
from marginax.typing import Key

__all__ = ["generator_of", "split_key", "standard_normal"]


def _split(num: int, key: Key) -> Array:
    return jax.random.split(key, num)


def _normal(shape: tuple[int, ...], dtype: str, key: Key) -> Array:
    return jax.random.normal(key, shape, jnp.dtype(dtype))


_split_program, _normal_program = recent(_split), recent(_normal)


def split_key(key: Key, num: int) -> Array:
    """`jax.random.split`."""
    return _split_program(num)(key)


def standard_normal(key: Key, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """`jax.random.normal`."""
    return _normal_program(shape, str(jnp.dtype(dtype or jnp.result_type(float))))(key)


def generator_of(key: Key) -> np.random.Generator:
    """NumPy's, that begins where a key says."""
    return np.random.default_rng(np.ravel(jax.random.key_data(key)).tolist())

"""Test-wide switches: float64, strict dtype promotion, no silent rank promotion."""

import os
from collections.abc import Iterator

import jax
import pytest

X64 = os.environ.get("JAX_ENABLE_X64", "1") != "0"

jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key() -> jax.Array:
    """One fixed seed for all tests that need one."""
    return jax.random.key(20260)


@pytest.fixture
def as_users_write() -> Iterator[None]:
    """JAX's own promotion rules, for models written as users write them."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield

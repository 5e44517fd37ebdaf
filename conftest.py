"""Test-wide switches: float64, strict dtype promotion, no silent rank promotion."""

import os

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

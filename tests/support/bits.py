"""Equality bit for bit, where programs are compiled as users have them."""

import jax
import numpy as np

# In the round in float64 XLA optimises little, to compile sooner: a step may then be rounded in
# another way inside a loop than after it. The round in float32 compiles as users do.
AS_USERS_COMPILE = not jax.config.jax_enable_x64


def assert_equal(actual, expected):
    """Every leaf the same: bit for bit as users compile, and to the last digits otherwise."""
    close = np.testing.assert_allclose
    exact = np.testing.assert_array_equal
    one = exact if AS_USERS_COMPILE else lambda a, b: close(a, b, rtol=1e-12, atol=1e-12)
    jax.tree.map(one, actual, expected)

"""Sparse matrices whose products are read and not added up, against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.sparsity.gathered import gathered, product


def test_products_are_those_of_the_matrix():
    # Rows of none, one, several and very many entries, some there twice, in no order.
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.full(37, 2), rng.integers(3, 9, 20), [5, 5, 11]])
    columns = np.concatenate([rng.integers(0, 6, 57), [1, 1, 0]])
    values = rng.normal(size=60)
    order = rng.permutation(60)
    dense = np.zeros((12, 6))
    np.add.at(dense, (rows, columns), values)
    x = rng.normal(size=6)
    matrix = gathered(rows[order], columns[order], values[order], 12)
    found = jax.jit(product)(matrix, jnp.asarray(x))
    np.testing.assert_allclose(found, dense @ x, rtol=1e-12, atol=1e-12)
    assert len(matrix.buckets) <= 5


def test_a_matrix_without_entries():
    nothing = np.zeros(0, int)
    found = product(gathered(nothing, nothing, np.zeros(0), 3), jnp.ones(2))
    np.testing.assert_array_equal(found, np.zeros(3))

"""Small matrices against NumPy's LAPACK, on both sides of the size at which the methods change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax._core import linalg

pytestmark = pytest.mark.float32
SIZES = [1, 2, 3, 5, 8, 9]
EPS = float(jnp.finfo(jnp.zeros(()).dtype).eps)


def matrices(p, kind, count=200):
    random = np.random.default_rng(p)
    q = np.linalg.qr(random.normal(size=(count, p, p)))[0]
    values = {
        "positive": 10.0 ** random.uniform(-2, 2, size=(count, p)),
        "indefinite": random.normal(size=(count, p)),
        "opposite": np.tile(np.resize([1.0, -1.0], p), (count, 1)),
        "equal": np.full((count, p), 3.0),
        "zero": np.zeros((count, p)),
        "one direction": np.eye(p)[0] * np.ones((count, p)),
    }[kind]
    return jnp.asarray(np.einsum("bik,bk,bjk->bij", q, values, q))


@pytest.mark.parametrize("p", SIZES)
def test_cholesky_and_solves(p):
    a = matrices(p, "positive")
    lower = jax.jit(linalg.cholesky)(a)
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_allclose(lower @ lower.mT, a, atol=2e3 * EPS)
    b = jax.random.normal(jax.random.key(0), (200, p, 3), a.dtype)
    np.testing.assert_allclose(lower @ linalg.lower_solve(lower, b), b, atol=1e4 * EPS)
    back = linalg.lower_solve(lower, b, transposed=True)
    np.testing.assert_allclose(lower.mT @ back, b, atol=1e4 * EPS)
    solved = jax.jit(jax.vmap(linalg.solve_positive))(a, b)
    np.testing.assert_allclose(a @ solved, b, atol=2e5 * EPS)


@pytest.mark.parametrize(
    "kind", ["positive", "indefinite", "opposite", "equal", "zero", "one direction"]
)
@pytest.mark.parametrize("p", SIZES)
def test_eigenvalues_and_vectors(p, kind):
    a = matrices(p, kind)
    values, vectors = jax.jit(linalg.eigh)(a)
    size = max(1.0, float(jnp.max(jnp.abs(a))))
    tolerance = 30 * p * EPS * size
    identity = np.broadcast_to(np.eye(p), a.shape)
    np.testing.assert_allclose(vectors.mT @ vectors, identity, atol=30 * p * EPS)
    np.testing.assert_allclose((vectors * values[:, None, :]) @ vectors.mT, a, atol=tolerance)
    exact = np.linalg.eigvalsh(np.asarray(a, float))
    np.testing.assert_allclose(np.sort(values, axis=1), exact, atol=tolerance)


@pytest.mark.parametrize("p", SIZES)
def test_singular_vectors_of_wide_matrices(p):
    # Curvatures differ by orders of magnitude, and the small ones are to be right as well.
    random = np.random.default_rng(p)
    scales = 10.0 ** np.linspace(0, -3, p)
    a = jnp.asarray(scales[:, None] * random.normal(size=(100, p, 4 * p)))
    left, values = jax.jit(linalg.left_svd)(a)
    exact = np.linalg.svd(np.asarray(a, float), compute_uv=False)
    loss = 1 if p <= linalg.SMALL else 1e3  # Jacobi's are right relative to their own size
    np.testing.assert_allclose(np.sort(values, axis=1)[:, ::-1], exact, rtol=100 * loss * EPS)
    recovered = left @ (left.mT @ a)
    np.testing.assert_allclose(recovered, a, atol=100 * EPS)


@pytest.mark.slow
def test_derivatives_go_through():
    a = matrices(3, "positive", 1)[0]

    def log_det(a):
        return jnp.sum(jnp.log(linalg.eigh((a + a.T) / 2)[0]))

    expected = np.linalg.inv(np.asarray(a, float))
    np.testing.assert_allclose(jax.jacfwd(log_det)(a), expected, rtol=1e6 * EPS)


def test_a_matrix_that_is_not_positive_is_told():
    assert jnp.isnan(linalg.cholesky(jnp.array([[1.0, 2.0], [2.0, 1.0]]))[1, 1])

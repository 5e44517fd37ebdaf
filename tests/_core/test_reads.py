"""How functions read their latents: the matrix A and the rest, against the function itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax._core.sparsity.reads import linear_reads

N, THETA = 6, jnp.array([0.7, -0.3])
ROWS = np.array([0, 3, 3, 5, 1])
DESIGN = np.array([2.0, 0.0, -1.0, 0.5, 3.0])


def crossed(x, theta, rows):
    return jnp.sum(jnp.exp(theta[0] + x[:4][rows % 4] + x[4:][rows % 2]))


def chain(x, theta, rows):
    return jnp.sum((x[1:] - theta[0] * x[:-1]) ** 2)


def differences(x, theta, rows):  # with known coefficients throughout: z is what is squared
    return theta[1] * jnp.sum(jnp.diff(x, n=2) ** 2)


def weighed(x, theta, rows):
    return jnp.sum(jnp.cos(DESIGN * x[rows] / 2.0 - x[rows[::-1]]))


def grid(x, theta, rows):
    square = x.reshape(2, 3)
    return jnp.sum(jnp.exp(square[:, 1:] - square[:, :-1])) + theta[0] * jnp.sum(square[::-1].T[1])


def joined(x, theta, rows):
    return jnp.sum(jnp.tanh(jnp.concatenate([-x[3:], x[:3]])))


def parted(x, theta, rows):  # which has several results
    first, second = jnp.split(x, [4])
    return jnp.sum(jnp.exp(theta[0] + first[rows % 4] + second[rows % 2]))


def beside(x, theta, rows):  # an index beyond the end reads no latent, in a mode that fills
    return jnp.sum(jnp.exp(x.at[jnp.array([1, 99])].get(mode="fill", fill_value=0.0)))


def nested(x, theta, rows):
    return jnp.sum(jax.jit(lambda u: jax.nn.softplus(u[rows]))(x)) + jnp.sum(jax.nn.relu(x))


def everything(x, theta, rows):
    return jax.nn.logsumexp(x * theta[0])


def scanned(x, theta, rows):
    def step(before, now):
        return now, (now - theta[0] * before) ** 2

    return jnp.sum(jax.lax.scan(step, x[0], x[1:])[1])


def itself(x, theta, rows):
    return x[2]


MODELS = [
    crossed, chain, differences, weighed, grid, joined, parted, beside, nested, everything, scanned,
    itself,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_rest_at_a_x_is_the_function_at_x(model):
    unknown = jax.ShapeDtypeStruct(THETA.shape, THETA.dtype)
    matrix, rest = linear_reads(model, N, unknown, jnp.asarray(ROWS))
    x = np.array([0.3, -1.2, 0.8, 2.0, -0.4, 1.1])
    found = rest(jnp.asarray(matrix @ x), THETA, jnp.asarray(ROWS))
    expected = model(jnp.asarray(x), THETA, jnp.asarray(ROWS))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    # And by the chain rule the Hessian, of which all this is for.
    bent = jax.hessian(rest)(jnp.asarray(matrix @ x), THETA, jnp.asarray(ROWS))
    whole = jax.hessian(model)(jnp.asarray(x), THETA, jnp.asarray(ROWS))
    np.testing.assert_allclose(matrix.T @ np.asarray(bent) @ matrix, whole, atol=1e-12)


def test_what_the_data_alone_decide_is_in_the_matrix():
    unknown = jax.ShapeDtypeStruct(THETA.shape, THETA.dtype)

    def entries(model):
        return linear_reads(model, N, unknown, jnp.asarray(ROWS)).matrix

    assert entries(differences).shape == (4, N)  # second differences, and not their squares' parts
    np.testing.assert_array_equal(entries(differences).toarray()[0], [1, -2, 1, 0, 0, 0])
    # theta comes between: u[s] is added to it before v[t] is.
    assert entries(crossed).shape == (2 * len(ROWS), N)
    assert entries(parted).shape == (2 * len(ROWS), N)
    assert entries(itself).shape == (1, N)
    assert entries(beside).toarray()[1].tolist() == [0.0] * N


def test_rows_of_the_data_are_handed_in():
    """Other data of the same shapes must not be read with the first data's values."""
    unknown = jax.ShapeDtypeStruct(THETA.shape, THETA.dtype)

    def model(x, theta, y):
        return jnp.sum(y * jnp.exp(x))

    matrix, rest = linear_reads(model, N, unknown, jnp.ones(N))
    found = rest(jnp.asarray(matrix @ np.zeros(N)), THETA, 3.0 * jnp.ones(N))
    np.testing.assert_allclose(found, 3.0 * N)

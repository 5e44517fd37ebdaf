"""The released code of the paper, reproduced from its own recorded inputs."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.reproduction.as_published import as_published, attracting_rbf

DATA = Path(__file__).parents[1] / "data"
TOY, LOGISTIC = (np.load(DATA / f"{name}_published.npz") for name in ("toy", "logistic"))


@pytest.fixture(scope="module")
def toy_paths():
    """theta~ of 4 momenta x 20 starts x 1000 records, the start itself first."""
    model = mx.models.ToyHierarchical(12.0, 12.0)

    def path(momentum, theta, particles):
        method = as_published(
            model.log_joint,
            0.3,
            0.3,
            attracting_rbf(5.0),
            theta_momentum=momentum,
            particle_momentum=momentum,
        )
        end = mx.trajectory(
            method, theta, particles, jnp.asarray(TOY["y"], float), 999, key=jax.random.key(0)
        )
        return jnp.append(theta, end.history), jnp.mean(jnp.var(end.particles, axis=0))

    over_starts = jax.vmap(path, (None, 0, 0))
    over_momenta = jax.jit(jax.vmap(over_starts, (0, None, None)))
    given = (jnp.asarray(TOY[name], float) for name in ("momentum", "theta0", "particles0"))
    return jax.tree.map(np.asarray, over_momenta(*given))


def test_toy_trajectories(toy_paths):
    theta, _ = toy_paths
    np.testing.assert_allclose(theta, TOY["theta"], rtol=1e-3, atol=1e-3)


def test_the_published_cloud_collapses(toy_paths):
    _, variance = toy_paths
    assert np.all(variance < 1e-3)  # the posterior's is 6
    assert np.all(TOY["final_particle_variance"] < 1e-3)


def test_toy_iterations(toy_paths):
    """Until the first of ten in a row within 0.05 of the mean of y, as the paper counts."""
    theta, _ = toy_paths
    near = np.abs(theta - TOY["y"].mean()) < 0.05
    rows = np.lib.stride_tricks.sliding_window_view(near, 10, axis=2).all(axis=3)
    first = rows.argmax(axis=2)
    found = [(first[i].mean(), first[i].std()) for i in range(4)]
    expected = [(451.0, 115.5), (344.4, 88.8), (296.9, 76.9), (232.2, 60.7)]
    np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.slow
def test_logistic_trajectories():
    """Prior standard deviation 5, the split with random_state 45, step 0.01."""
    model, data = mx.models.LogisticRegression(25.0), mx.models.wisconsin(45).train
    particles = jnp.asarray(LOGISTIC["particles0"], float)

    def path(momentum):
        method = as_published(
            model.log_joint,
            0.01,
            0.01,
            attracting_rbf(5.0),
            theta_momentum=momentum,
            particle_momentum=momentum,
        )
        end = mx.trajectory(method, 0.0, particles, data, 999, key=jax.random.key(0))
        return jnp.append(0.0, end.history), end.particles

    theta, clouds = jax.jit(jax.vmap(path))(jnp.asarray(LOGISTIC["momentum"], float))
    np.testing.assert_allclose(theta, LOGISTIC["theta"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(clouds, LOGISTIC["final_particles"], rtol=1e-3, atol=1e-3)

"""The released code's Bayesian network, reproduced from its recorded test errors."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.reproduction.columns import PUBLISHED, stein_method
from marginax.reproduction.network import FIRST_KEY, network_measures, published_log_joint, start

RECORDED = np.load(Path(__file__).parents[1] / "data" / "network_published.npz")
MOMENTA = (0.0, 0.3, 0.5, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("init", [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_network_trajectories(init):
    """Test error, mean of logs, alpha and beta of the first 100 steps, in the recorded float32."""
    data = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32 if leaf.dtype.kind == "f" else jnp.int32),
        mx.models.mnist_4_vs_9(0),
    )
    method = stein_method(PUBLISHED, "RBF", adagrad=0.1)
    with jax.enable_x64(False):
        at = jnp.asarray(init, jnp.float32)
        theta, particles = start(jax.random.key(FIRST_KEY), at, at, 10)
        record = network_measures(data.test, published=True)

        def run(momentum):
            setting = {name: momentum for name in ("theta_momentum", "particle_momentum")}
            algorithm = method.build(published_log_joint, setting | {"step_size": 0.1})
            return mx.trajectory(
                algorithm, theta, particles, data.train, 100, record=record, key=jax.random.key(0)
            ).history

        found = np.asarray(jax.jit(jax.vmap(run))(jnp.array(MOMENTA, jnp.float32)))
    for momentum, path in zip(MOMENTA, found, strict=True):
        recorded = RECORDED[f"init{init:g}_momentum{momentum:g}"][:100]
        # One image of 200 is 0.005, and one may lie on the edge.
        np.testing.assert_allclose(path[:, 0], recorded[:, 0], atol=0.0051)
        np.testing.assert_allclose(path[:, 2:], recorded[:, 1:], rtol=2e-3, atol=2e-3)

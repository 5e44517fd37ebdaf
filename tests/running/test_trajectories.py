"""The pure loop: compiled once, and pure still."""

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx

KEY = jax.random.key(0)
X, Y = jax.random.normal(KEY, (5, 3)), jnp.arange(3.0)


def test_a_repeated_call_traces_nothing():
    """Every call compiled the loop again, and took 15 times as long as NumPy's."""
    traces = []

    def log_joint(theta, x, y):
        traces.append(1)
        return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

    method = mx.pgd(log_joint, 0.1, 0.1)
    first = mx.trajectory(method, 0.0, X, Y, 20, key=KEY)
    before = len(traces)
    again = mx.trajectory(method, 0.0, X, Y, 20, key=KEY)
    other = mx.trajectory(method, 1.0, X, 2 * Y, 20, key=KEY)
    assert len(traces) == before
    np.testing.assert_array_equal(first.history, again.history)
    assert not np.array_equal(first.history, other.history)
    under_jit = jax.jit(lambda y: mx.trajectory(method, 0.0, X, y, 20, key=KEY).history)(Y)
    np.testing.assert_allclose(under_jit, first.history, rtol=1e-12)


def test_an_algorithm_of_traced_numbers_is_not_kept():
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

    def end(step):
        return mx.trajectory(mx.pgd(log_joint, step, step), 0.0, X, Y, 5, key=KEY).theta

    steps = jnp.array([0.05, 0.1])
    with jax.checking_leaks():
        both = jax.vmap(end)(steps)
    np.testing.assert_allclose(both, [end(0.05), end(0.1)], rtol=1e-12)


def test_numbers_in_data_are_constants():
    def log_joint(theta, x, data):
        times = len(range(data["times"]))  # an array would have no value inside the loop
        return -0.5 * jnp.sum((x - theta) ** 2 + times * (data["y"] - x) ** 2)

    method, data = mx.pgd(log_joint, 0.1, 0.1), {"y": Y, "times": 2}
    assert np.isfinite(mx.trajectory(method, 0.0, X, data, 3, key=KEY).theta)

"""Some groups at a time is the same as all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import marginax as mx
from marginax._core import chunks
from marginax.flows import m_step, scores, stein
from marginax.model.log_joint import as_log_joint

N, G = 5, 23


def one_group(theta, x, y):
    """A curved posterior of two correlated coordinates; theta enters all derivatives."""
    level, slope = x["level"], x["slope"]
    noise = jnp.exp(theta["log_noise"])
    mean = level + slope * jnp.arange(3.0)
    fit = -0.5 * jnp.sum((y["y"] - mean) ** 2) / noise**2 - 3 * theta["log_noise"]
    return fit - 0.5 * (level - theta["mean"]) ** 2 - 0.5 * slope**2 - 0.1 * level**4


@pytest.fixture(name="problem")
def a_problem():
    y = {"y": jax.random.normal(jax.random.key(0), (G, 3))}
    theta, latent = {"mean": 0.3, "log_noise": -0.2}, {"level": 0.0, "slope": 0.0}
    return mx.Problem.grouped(one_group, y, theta=theta, latent=latent)


@pytest.fixture(name="cloud")
def a_cloud():
    keys = jax.random.split(jax.random.key(1))
    return {
        name: jax.random.normal(key, (N, G))
        for name, key in zip(("level", "slope"), keys, strict=True)
    }


def at_a_time(monkeypatch, rows):
    for module in (m_step, stein, scores):
        monkeypatch.setattr(module, "ROWS", rows)


def method(problem, blocks="leading", metric=None):
    joint = mx.kernels.rbf("mean")
    kernel = joint
    if blocks == "both":
        kernel = joint + mx.kernels.blockwise(mx.kernels.linear())
    elif blocks != "whole":
        kernel = mx.kernels.blockwise(mx.kernels.moment_matched(joint), blocks)
    return mx.m_svgd_em(
        problem.unconstrained_log_joint,
        mx.em_gradient(),
        0.5,
        kernel,
        particle_metric=metric,
    )


def one_step(algorithm, problem, cloud):
    state = algorithm.init(jax.random.key(0), problem.start_theta(), cloud)
    return jax.jit(lambda *given: algorithm.step(*given))(jax.random.key(0), state, problem.data)


def close(found, expected, rtol):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol), found, expected
    )


@pytest.mark.parametrize("size", [1, 4, 22, 23])
def test_sums_and_maps_in_chunks(cloud, problem, size):
    """The bugs: what is left over forgotten, or counted twice; the last chunk put elsewhere."""

    def function(some, given):
        return {"s": jnp.sum(some["level"] ** 2, axis=0) * given["y"][:, 0]}

    def summed(some, given):
        return jax.tree.map(jnp.sum, function(some, given))

    def mapped(some, given):
        return some["slope"] * function(some, given)["s"][None]

    close(
        chunks.sum_over_groups(summed, cloud, problem.data, size),
        summed(cloud, problem.data),
        1e-12,
    )
    close(
        chunks.map_over_groups(mapped, cloud, problem.data, size),
        mapped(cloud, problem.data),
        1e-12,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("over", "metric", "rows"),
    [("leading", "curvature", 57), ("leading", None, 1), ("coordinates", None, 110)],
)
def test_a_step_in_chunks_is_the_step(problem, cloud, over, metric, rows, monkeypatch):
    algorithm = method(problem, over, mx.metrics.curvature() if metric else None)
    expected = one_step(algorithm, problem, cloud)
    at_a_time(monkeypatch, rows)
    assert problem.unconstrained_log_joint.chunk_size(cloud, rows) is not None
    close(one_step(algorithm, problem, cloud), expected, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("over", "metric"),
    [
        ("whole", None),
        ("both", None),
        ("leading", mx.metrics.curvature("leaves")),
        ("leaves", None),
    ],
    ids=str,
)
def test_blocks_across_groups_are_not_cut(problem, cloud, over, metric, monkeypatch):
    """The bug: a kernel that sees all groups is given the groups of a chunk."""
    algorithm = method(problem, over, metric)
    expected = one_step(algorithm, problem, cloud)
    at_a_time(monkeypatch, 10)
    # A curvature over more numbers than there are particles makes more of rounding.
    close(one_step(algorithm, problem, cloud), expected, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("over", "largest"), [("coordinates", 64), ("leading", 1)])
def test_a_curvature_that_is_random_within_groups_is_not_cut(over, largest, monkeypatch):
    """The bug: other weights of the probes in a chunk than in the whole, and other steps."""

    def together(theta, x, y):
        return -0.5 * (x @ x + 1.6 * x[0] * x[1]) - 0.5 * jnp.sum((y - x[0] - theta) ** 2)

    y = jax.random.normal(jax.random.key(0), (G, 3))
    problem = mx.Problem.grouped(together, y, theta=0.0, latent=jnp.zeros(2))
    algorithm = method(problem, over, mx.metrics.curvature(largest_block=largest))
    cloud = jax.random.normal(jax.random.key(1), (N, G, 2))
    expected = one_step(algorithm, problem, cloud)
    at_a_time(monkeypatch, 20)
    close(one_step(algorithm, problem, cloud), expected, 1e-9)


@pytest.mark.slow
def test_a_batch_in_chunks_counts_for_all_groups(problem, cloud, monkeypatch):
    """The bug: chunks weighted as batches, so that the sum is too large by their number."""
    rows = jnp.arange(11)
    some = jax.tree.map(lambda leaf: leaf[:, rows], cloud)
    data = jax.tree.map(lambda leaf: leaf[rows], problem.data)
    theta = problem.start_theta()
    at_a_time(monkeypatch, 2**14)
    expected = scores.theta_score(problem.unconstrained_log_joint, theta, some, data)
    at_a_time(monkeypatch, 4 * N)
    close(scores.theta_score(problem.unconstrained_log_joint, theta, some, data), expected, 1e-12)


def test_models_that_are_not_sums_over_groups_are_left_whole(cloud):
    def density(theta, x, data):
        return -0.5 * jnp.sum((x["level"] - theta) ** 2) * jnp.sum(x["slope"] ** 2)

    assert as_log_joint(density).chunk_size(cloud, 1) is None


@pytest.mark.slow
def test_several_starts_at_once_in_chunks(problem, cloud, monkeypatch):
    at_a_time(monkeypatch, 20)
    algorithm = method(problem, metric=mx.metrics.curvature())
    keys = jax.random.split(jax.random.key(0), 2)
    clouds = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), cloud)
    theta = problem.start_theta()

    @jax.jit
    def step(key, cloud):
        return algorithm.step(key, algorithm.init(key, theta, cloud), problem.data)[0]

    both = jax.vmap(step)(keys, clouds)
    one = step(keys[1], jax.tree.map(lambda leaf: leaf[1], clouds))
    close(jax.tree.map(lambda leaf: leaf[1], both), one, 1e-10)
    assert isinstance(both.theta_optimizer_state, optax.EmptyState)

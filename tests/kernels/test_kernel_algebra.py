"""Linear kernels, sums and blocks against autodiff of the definition, one block at a time."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from velocities import TOLERANCE, bandwidth_of, by_definition, cloud

import marginax as mx
from marginax._core import partition
from marginax.kernels.base import whitened_velocity

pytestmark = pytest.mark.float32
K = mx.kernels
# The ridge that keeps a covariance invertible: sqrt(eps).
RIDGE = 1e-7 if jax.config.jax_enable_x64 else 3e-3


def linear_by_definition(x, s, covariance):
    """k with the cloud's mean and A as the constants they are meant to be."""
    x, s = jnp.asarray(x), jnp.asarray(s)
    mean, centred = jnp.mean(x, axis=0), np.asarray(x) - np.mean(np.asarray(x), axis=0)
    s_cov = centred.T @ centred / len(x)
    a = np.linalg.inv(s_cov) if covariance == "full" else np.diag(1 / np.diag(s_cov))
    return by_definition(lambda u, v: 1 + (u - mean) @ jnp.asarray(a) @ (v - mean), x, s)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_linear_velocity(covariance):
    x, s = cloud()
    expected = linear_by_definition(x, s, covariance)
    actual = K.linear(covariance).velocity(x, s)
    np.testing.assert_allclose(actual, expected, rtol=RIDGE, atol=RIDGE)


def test_linear_with_more_coordinates_than_particles_inverts_within_the_span():
    x, s = cloud(n=5, d=9)
    actual = K.linear().velocity(x, s)
    x, s = np.asarray(x, np.float64), np.asarray(s, np.float64)
    z = x - x.mean(axis=0)
    unit = z / z.std(axis=0)
    inverse_z = np.linalg.pinv(unit.T @ unit / 5) @ unit.T / z.std(axis=0)[:, None]
    expected = np.mean(s, axis=0) + ((s.T @ z / 5 + np.eye(9)) @ inverse_z).T
    np.testing.assert_allclose(actual, expected, rtol=2e-2, atol=30 * RIDGE)


def test_velocity_of_a_sum_is_the_sum_of_velocities():
    x, s = cloud()
    h = bandwidth_of("mean", x)

    def k(a, b):
        r2 = jnp.sum((a - b) ** 2)
        return jnp.exp(-r2 / (2 * h**2)) + (1 + r2 / 1.7**2) ** -0.5

    total = K.rbf("mean") + K.imq(1.7)
    np.testing.assert_allclose(
        total.velocity(x, s), by_definition(k, x, s), rtol=TOLERANCE, atol=TOLERANCE
    )
    assert repr(total) == "rbf('mean') + imq(1.7)"
    with pytest.raises(TypeError, match="kernel is 1"):
        K.rbf() + 1


def tree_cloud(n=6):
    """Two leaves over four groups, one of them with three numbers a group, and a leaf apart."""
    keys = jax.random.split(jax.random.key(3), 6)
    shapes = {"a": (4,), "b": (4, 3), "c": (2, 2)}
    x = {k: jnp.exp(jax.random.normal(keys[i], (n, *s))) for i, (k, s) in enumerate(shapes.items())}
    scores = {k: jax.random.normal(keys[3 + i], (n, *s)) for i, (k, s) in enumerate(shapes.items())}
    return x, scores


NAMES = {"a": "group", "b": "group", "c": ("row", "column")}


def blocks_by_hand(tree, over):
    """The blocks as a list of [N, p] matrices, written out."""
    a, b, c = (np.asarray(tree[name]) for name in "abc")
    n = len(a)
    if over == "leaves":
        return [a, b.reshape(n, -1), c.reshape(n, -1)]
    if over == "whole":
        return [np.concatenate([a, b.reshape(n, -1), c.reshape(n, -1)], axis=1)]
    if over == "coordinates":
        flat = np.concatenate([a, b.reshape(n, -1), c.reshape(n, -1)], axis=1)
        return [flat[:, [d]] for d in range(flat.shape[1])]
    groups = [np.concatenate([a[:, [g]], b[:, g]], axis=1) for g in range(4)]
    return groups + [c[:, i, [j]] for i in range(2) for j in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("over", ["leaves", "coordinates", "whole", NAMES], ids=str)
def test_blockwise_is_the_kernel_in_each_block_with_its_own_bandwidth(over):
    x, s = tree_cloud()
    velocity = K.blockwise(K.rbf("mean"), over).velocity(x, s)
    assert jax.tree.structure(velocity) == jax.tree.structure(x)
    blocks = zip(
        blocks_by_hand(velocity, over),
        blocks_by_hand(x, over),
        blocks_by_hand(s, over),
        strict=True,
    )
    for actual, block, scores in blocks:
        h = bandwidth_of("mean", block)
        expected = by_definition(
            lambda u, v, h=h: jnp.exp(-jnp.sum((u - v) ** 2) / (2 * h**2)),
            jnp.asarray(block),
            jnp.asarray(scores),
        )
        np.testing.assert_allclose(actual, expected, rtol=10 * TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
def test_the_leading_axis_joins_the_leaves():
    x, s = tree_cloud()
    x, s = ({k: t[k] for k in "ab"} for t in (x, s))
    kernel = K.rbf("median") + K.linear()
    leading = K.blockwise(kernel).velocity(x, s)
    named = K.blockwise(kernel, {"a": "g", "b": "g"}).velocity(x, s)
    jax.tree.map(np.testing.assert_array_equal, leading, named)
    apart = K.blockwise(kernel, {"a": "g", "b": "h"}).velocity(x, s)
    assert not np.allclose(leading["a"], apart["a"])


@pytest.mark.slow
def test_tiles_change_nothing(monkeypatch):
    x, s = cloud(n=6, d=11)
    kernel = K.blockwise(K.rbf("median") + K.linear(), "coordinates")
    whole = kernel.velocity(x, s)
    module = importlib.import_module("marginax.kernels.blocks")
    monkeypatch.setattr(module, "TILE", 4 * 36)
    np.testing.assert_allclose(kernel.velocity(x, s), whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("over", ["leaves", "coordinates", "whole", NAMES], ids=str)
def test_split_and_merge_are_inverse(over):
    x, _ = tree_cloud()
    found = partition.families(over, jax.tree.map(lambda leaf: leaf[0], x))
    parts = partition.split(found, x)
    assert [p.shape[0] for p in parts] == [f.num_blocks for f in found]
    jax.tree.map(np.testing.assert_array_equal, partition.merge(found, parts, x), x)


def test_moment_matched_replaces_the_affine_part():
    x, s = cloud(n=9)
    rbf = K.rbf("mean").velocity(x, s)
    design = np.concatenate([np.ones((9, 1)), np.asarray(x)], axis=1)
    shape = rbf - design @ np.linalg.lstsq(design, np.asarray(rbf), rcond=None)[0]
    expected = K.linear().velocity(x, s) + shape
    actual = K.moment_matched(K.rbf("mean")).velocity(x, s)
    np.testing.assert_allclose(actual, expected, rtol=RIDGE, atol=RIDGE)


@pytest.mark.parametrize("kernel", [K.linear(), K.linear("diagonal"), K.moment_matched(K.rbf(1.0))])
def test_at_rest_exactly_when_mean_and_covariance_are_right(kernel):
    # A Gaussian posterior with a dense precision, and a cloud of its mean and covariance.
    x = np.random.default_rng(2).normal(size=(12, 3))
    x = (x - x.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, bias=True))).T
    mean = np.array([1.0, -2.0, 0.5])
    factor = np.array([[2.0, 0, 0], [0.7, 1.0, 0], [-0.4, 0.3, 0.5]])
    precision = np.linalg.inv(factor @ factor.T)

    def affine_part(scale):
        points = mean + scale * x @ factor.T
        scores = -(points - mean) @ precision
        phi = np.asarray(kernel.velocity(jnp.asarray(points), jnp.asarray(scores)))
        return np.linalg.lstsq(points - points.mean(axis=0), phi, rcond=None)[0]

    noise = 1e-6 if jax.config.jax_enable_x64 else 2e-2
    np.testing.assert_allclose(affine_part(1.0), 0, atol=noise)
    assert np.all(np.linalg.eigvals(affine_part(0.7)).real > 0.1)  # too narrow: it grows
    assert np.all(np.linalg.eigvals(affine_part(1.4)).real < -0.1)  # too wide: it shrinks


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [K.linear(), K.moment_matched(K.rbf("mean"))])
def test_whitened_limits(kernel):
    x, _ = cloud(n=9)
    x = x - x.mean(axis=0, keepdims=True)
    near = 0.9 * x / x.std(axis=0, keepdims=True)
    np.testing.assert_allclose(
        whitened_velocity(kernel, near, -near), kernel.velocity(near, -near), rtol=1e-4, atol=1e-5
    )
    narrow = 1e-4 * x
    assert np.abs(kernel.velocity(narrow, -narrow)).max() > 1e3  # unlimited, it would burst
    assert np.abs(whitened_velocity(kernel, narrow, -narrow)).max() < 10


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("rows", "blocks is 'rows'"),
        ("leading", "do not agree"),
        ({"a": "g"}, "a tree like the latent"),
        ({"a": "g", "b": "g", "c": 3}, "where a leaf of the latent is"),
        ({"a": ("g", "h"), "b": ("g", "h"), "c": None}, "do not agree"),
    ],
)
def test_bad_blocks(over, message):
    x, s = tree_cloud()
    with pytest.raises(ValueError, match=message):
        K.blockwise(K.rbf(), over).velocity(x, s)


def test_bad_kernels():
    with pytest.raises(TypeError, match="kernel"):
        K.blockwise(K.rbf)
    with pytest.raises(ValueError, match="covariance is 'dense'"):
        K.linear("dense")


def test_kernels_over_different_blocks_are_not_added():
    with pytest.raises(ValueError, match="different blocks"):
        K.blockwise(K.rbf(), "coordinates") + K.blockwise(K.linear(), "leaves")
    assert (K.rbf() + K.blockwise(K.linear(), "leaves")).blocks == "leaves"


def test_an_axis_may_have_any_name_and_a_leaf_no_numbers():
    latent = {"a": jnp.zeros((4, 2)), "b": jnp.zeros((3,)), "c": jnp.zeros((0,))}
    found = partition.families({"a": "leaf", "b": "tip", "c": "none"}, latent)
    assert [(f.num_blocks, f.block_size) for f in found] == [(4, 2), (3, 1)]
    for over in ("leaves", "coordinates", "whole"):
        cloud = jax.tree.map(lambda leaf: jnp.ones((5, *leaf.shape)), latent)
        found = partition.families(over, latent)
        merged = partition.merge(found, partition.split(found, cloud), cloud)
        jax.tree.map(np.testing.assert_array_equal, merged, cloud)


@pytest.mark.parametrize("kernel", [K.linear(), K.linear("diagonal"), K.moment_matched(K.rbf(1.0))])
def test_a_coordinate_that_does_not_vary_follows_its_score(kernel):
    # The mean of equal floats need not be that float: its rounding is not a spread.
    x, s = cloud(n=20)
    x = x.at[:, 1].set(0.1)
    velocity = kernel.velocity(x, s)
    assert np.abs(velocity[:, 1]).max() < 100
    np.testing.assert_allclose(np.mean(velocity[:, 1]), np.mean(s[:, 1]), rtol=1e-3, atol=1e-4)

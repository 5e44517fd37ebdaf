"""Every kernel against autodiff of its definition: a new one joins here; bandwidths, symmetries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from velocities import TOLERANCE, bandwidth_of, by_definition, cloud, distance, equations, squared

import marginax as mx
from marginax._core import linalg, trees
from marginax.kernels import radial
from marginax.kernels.bandwidths import as_rule, median_of_nonnegative
from marginax.kernels.gpu import fused_sums

pytestmark = pytest.mark.float32


# Every kernel of the distance by its definition, k(r, h).
KERNELS = {
    "rbf": lambda r, h: jnp.exp(-(r**2) / (2 * h**2)),
    "imq": lambda r, h: (1 + r**2 / h**2) ** -0.5,
    "inverse_log": lambda r, h: 1 / (1 + jnp.log1p(r**2 / h**2)),
}
EVERY = pytest.mark.parametrize("name", KERNELS)


@EVERY
@pytest.mark.parametrize("n", [7, 8])
@pytest.mark.parametrize("rule", [1.7, "median", "mean"])
def test_velocity_is_that_of_the_definition(name, rule, n):
    x, s = cloud(n)
    h = bandwidth_of(rule, x)
    expected = by_definition(lambda a, b: KERNELS[name](distance(a, b), h), x, s)
    actual = getattr(mx.kernels, name)(rule).velocity(x, s)
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_every_kernel_of_the_distance_is_in_the_table():
    others = {"paper_rbf": "rbf with half the bandwidth, in test_fields"}
    of_distances = set(radial.__all__) & set(mx.kernels.__all__)
    assert of_distances - set(others) == set(KERNELS)


def test_from_function_velocity():
    def k(a, b):  # not symmetric, so that the two arguments cannot be confused
        return jnp.exp(-0.3 * jnp.sum((a - 1.1 * b) ** 2)) * (1 + 0.1 * jnp.sum(jnp.sin(a)))

    x, s = cloud()
    actual = mx.kernels.from_function(k).velocity(x, s)
    np.testing.assert_allclose(actual, by_definition(k, x, s), rtol=TOLERANCE, atol=TOLERANCE)


@EVERY
@pytest.mark.parametrize("rule", [1.0, "median"])
def test_particles_repel(name, rule):
    x = jnp.array([[0.0, 0.0], [1.0, 0.5]])
    velocity = getattr(mx.kernels, name)(rule).velocity(x, jnp.zeros_like(x))
    assert jnp.sum(velocity[0] * (x[0] - x[1])) > 0
    np.testing.assert_allclose(velocity[0], -velocity[1], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 25, 100, 401])
def test_median_is_exact(size):
    values = jnp.abs(jax.random.normal(jax.random.key(size), (size,))) ** 3
    values = jnp.where(jnp.arange(size) % 5 == 0, 0, values)  # zeros, as on the diagonal
    for dtype in (values.dtype, jnp.float32):
        assert median_of_nonnegative(values.astype(dtype)) == jnp.median(values.astype(dtype))


@pytest.mark.slow
def test_median_includes_the_zero_diagonal():
    # Squared distances 1, 4, 9 and twice each, with three zeros: sorted 0 0 0 1 1 4 4 9 9, median
    # 1. Over distinct pairs it would be 4.
    x = jnp.array([[0.0], [1.0], [3.0]])
    np.testing.assert_allclose(median_of_nonnegative(linalg.squared_distances(x)), 1.0, rtol=1e-6)


@pytest.mark.parametrize("n", [257, 300, 1000])
@pytest.mark.parametrize("kind", ["skewed", "sorted", "clusters"])
def test_sampled_median_has_nearly_the_middle_rank(n, kind):
    x = jnp.exp(jax.random.normal(jax.random.key(n), (n, 2)))
    if kind == "sorted":  # neighbours in order must not be neighbours in the sample
        x = jnp.sort(x, axis=0)
    if kind == "clusters":
        x = x + jnp.where(jnp.arange(n) % 2 == 0, 50.0, 0.0)[:, None]
    r2 = linalg.squared_distances(x)
    h2 = as_rule("median")(x, r2) * 2 * np.log(n + 1)
    rank = float(jnp.mean(r2 <= h2 * (1 + 1e-5)))
    assert abs(rank - 0.5) < 0.01


@EVERY
@pytest.mark.parametrize("rule", [1.2, "median"])
def test_symmetries(name, rule):
    kernel = getattr(mx.kernels, name)(rule)
    x, s = cloud()
    velocity = kernel.velocity(x, s)
    order = jnp.array([3, 0, 6, 1, 5, 2, 4])
    np.testing.assert_allclose(
        kernel.velocity(x[order], s[order]), velocity[order], rtol=1e-4, atol=1e-5
    )
    shifted = kernel.velocity(x + 4.0, s)
    np.testing.assert_allclose(shifted, velocity, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        mx.kernels.rbf("mean"),
        mx.kernels.imq(),
        mx.kernels.from_function(
            lambda a, b: jnp.exp(-0.5 * trees.inner(trees.difference(a, b), trees.difference(a, b)))
        ),
    ],
    ids=repr,
)
def test_pytree_equals_ravelled(kernel):
    x, s = cloud(d=6)

    def split(m):
        return {"a": m[:, :2].reshape(-1, 2, 1), "b": (m[:, 2], m[:, 3:])}

    tree = kernel.velocity(split(x), split(s))
    flat = split(kernel.velocity(x, s))
    assert jax.tree.structure(tree) == jax.tree.structure(flat)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), tree, flat)


def test_distances_survive_an_offset():
    # In float32 the cloud's spread is 1e-4 of its distance from the origin: uncentred, nothing is
    # left.
    x = (jax.random.normal(jax.random.key(0), (30, 5)) + 1e4).astype(jnp.float32)
    np.testing.assert_allclose(linalg.squared_distances(x), squared(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", [0.5, "median", "mean"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_coinciding_particles_follow_their_score(rule, n):
    x, s = jnp.ones((n, 2)), jnp.tile(jnp.array([[1.0, -2.0]]), (n, 1))
    np.testing.assert_allclose(mx.kernels.rbf(rule).velocity(x, s), s, rtol=1e-6)


def test_memory_is_of_order_n_squared_plus_n_d():
    n, d = 4096, 1000
    model = mx.models.ToyHierarchical()
    method = mx.m_svgd_em(model.log_joint, 0.1, 0.1, mx.kernels.rbf("median"))
    shape = jax.ShapeDtypeStruct((n, d), jnp.float32)
    theta, y = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((d,), jnp.float32)
    state = jax.eval_shape(method.init, jax.random.key(0), theta, shape)
    memory = jax.jit(method.step).lower(jax.random.key(0), state, y).compile().memory_analysis()
    temporary = memory.temp_size_in_bytes / 4
    assert temporary < 4 * (n * n + n * d)  # an N x N x D tensor would be 800 times this
    # and the order is right in each direction: doubling D adds N D terms only
    shape = jax.ShapeDtypeStruct((n, 2 * d), jnp.float32)
    y = jax.ShapeDtypeStruct((2 * d,), jnp.float32)
    state = jax.eval_shape(method.init, jax.random.key(0), theta, shape)
    memory = jax.jit(method.step).lower(jax.random.key(0), state, y).compile().memory_analysis()
    assert memory.temp_size_in_bytes / 4 - temporary < 6 * n * d


@pytest.mark.parametrize("bandwidth", ["medain", 0.0, -1.0, float("nan"), float("inf")])
def test_bad_bandwidth(bandwidth):
    with pytest.raises(ValueError, match="bandwidth is"):
        mx.kernels.rbf(bandwidth)


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 320])
@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.kernels.rbf(1.2),
        lambda: mx.kernels.rbf("median"),
        lambda: mx.kernels.rbf("mean"),
        lambda: mx.kernels.imq("median"),
        lambda: mx.kernels.blockwise(mx.kernels.moment_matched(mx.kernels.rbf("mean")), "whole"),
    ],
)
def test_tiles_give_the_dense_velocity(monkeypatch, make, n):
    """Tiles of rows and of columns, the last ones not full, and a cloud far from the origin."""
    x = 50.0 + jax.random.normal(jax.random.key(0), (n, 3)) * jnp.array([[1.0, 0.1, 3.0]])
    s = -x + jax.random.normal(jax.random.key(1), (n, 3))
    dense = make().velocity(x, s)
    monkeypatch.setattr("marginax.kernels.radial.DENSE", 0)
    monkeypatch.setattr("marginax.kernels.radial.TILE", 7 * 64)
    monkeypatch.setattr("marginax.kernels.radial.COLUMNS", 64)
    limit = 1e3 * TOLERANCE if jax.config.jax_enable_x64 else 1e-4
    np.testing.assert_allclose(make().velocity(x, s), dense, rtol=limit, atol=limit)


def test_no_gram_matrix_of_a_large_cloud():
    x = jax.ShapeDtypeStruct((100_000, 50), jnp.float32)
    for kernel in (mx.kernels.rbf("median"), mx.kernels.moment_matched(mx.kernels.rbf("mean"))):
        jaxpr = jax.make_jaxpr(kernel.velocity)(x, x)
        sizes = [v.aval.size for eqn in equations(jaxpr.jaxpr) for v in eqn.outvars]
        assert max(sizes) < 3 * 2**24


def test_unknown_precisions_are_refused():
    with pytest.raises(ValueError, match="precision is 'half', but it must be 'full' or 'tf32'"):
        mx.kernels.rbf(1.0, precision="half")
    assert repr(mx.kernels.imq(2.0, precision="tf32")) == "imq(2.0, precision='tf32')"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(200, 3), (130, 17)])
@pytest.mark.parametrize("kernel", ["rbf", "imq"])
def test_the_fused_program_gives_the_same_sums(kernel, n, d):
    """Run without a GPU; padded rows, columns and dimensions must not be felt."""
    profile = {
        "rbf": lambda r2, h2: (jnp.exp(-r2 / (2 * h2)),) * 2,
        "imq": lambda r2, h2: (jax.lax.rsqrt(1 + r2 / h2), jax.lax.rsqrt(1 + r2 / h2) ** 3),
    }[kernel]
    x = jax.random.normal(jax.random.key(0), (n, d), jnp.float32)
    x, s = x - jnp.mean(x, axis=0, keepdims=True), jnp.sin(x)
    gram, repulsion = profile(linalg.squared_distances(x), jnp.float32(2.0))
    found = fused_sums(profile, x, s, jnp.float32(2.0), interpret=True)
    expected = (gram @ s, repulsion @ x, jnp.sum(repulsion, axis=1))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [mx.kernels.rbf, mx.kernels.imq])
def test_a_tile_of_ones_own(kernel):
    x, s = jax.random.normal(jax.random.key(0), (2, 37, 3))
    whole, tiled = kernel(0.9).velocity(x, s), kernel(0.9, tile=50).velocity(x, s)
    np.testing.assert_allclose(whole, tiled, atol=20 * jnp.finfo(x.dtype).eps)
    with pytest.raises(ValueError, match="tile is 0, but it must be an integer"):
        kernel(0.9, tile=0)


@pytest.mark.slow
@pytest.mark.parametrize("n", [37, 256])
def test_the_median_is_exact_in_tiles_too(n):
    # The bug: with tiles the median was that of some pairs, however few particles there were.
    x = jax.random.normal(jax.random.key(n), (n, 3))
    whole, tiled = mx.kernels.rbf("median"), mx.kernels.rbf("median", tile=50)
    tolerance = 1e-12 if jax.config.jax_enable_x64 else 1e-5
    np.testing.assert_allclose(tiled.velocity(x, -x), whole.velocity(x, -x), atol=tolerance)

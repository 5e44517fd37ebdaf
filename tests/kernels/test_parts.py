"""Rounding, units, sums of kernels, and the arrays that a velocity makes."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from velocities import cloud, equations

import marginax as mx
from marginax._core import linalg, trees
from marginax.kernels.base import whitened_velocity

pytestmark = pytest.mark.float32
K = mx.kernels


@pytest.mark.parametrize("over", ["leaves", "coordinates", {"a": "g", "b": "h"}], ids=str)
def test_blocks_of_a_sum(over):
    same = dict(over) if isinstance(over, dict) else over  # equal, but not the same object
    total = K.blockwise(K.rbf(1.0), over) + K.blockwise(K.linear(), same)
    assert repr(total.blocks) == repr(K.blockwise(K.rbf(1.0), over).blocks) != repr("whole")
    assert total.within
    for mixed in (K.rbf(1.0) + total, total + K.rbf(1.0)):
        assert repr(mixed.blocks) == repr(total.blocks)
        assert not mixed.within
    assert (K.rbf(1.0) + K.imq(1.0)).blocks == "whole"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernels", [(K.linear(), K.rbf(0.7)), (K.imq(0.7), K.linear())], ids=lambda pair: repr(pair)
)
def test_each_part_of_a_sum_keeps_its_limits(kernels):
    x, s = cloud(n=9)
    x = 1e-3 * x  # so narrow that the linear kernel is limited
    one, other = (np.asarray(whitened_velocity(kernel, x, s)) for kernel in kernels)
    together = whitened_velocity(kernels[0] + kernels[1], x, s)
    np.testing.assert_allclose(together, one + other, rtol=1e-6)
    unlimited = (kernels[0] + kernels[1]).velocity(x, s)
    assert np.abs(unlimited).max() > 10 * np.abs(together).max()


def test_a_velocity_far_from_the_origin():
    # In float32, 1e4 from the origin: uncentred, the repulsion is a difference of large numbers.
    x, s = cloud(n=20, d=3)
    x, s = (x + 1e4).astype(jnp.float32), s.astype(jnp.float32)
    expected = hand.rbf_velocity(np.asarray(x, np.float64), np.asarray(s, np.float64))
    np.testing.assert_allclose(K.rbf(1.3).velocity(x, s), expected, rtol=1e-5, atol=3e-6)


def test_distances_of_coinciding_rows():
    # In float32 and 50 dimensions, |x|^2 + |x|^2 - 2 x.x is rounding of either sign.
    x = 30 * jax.random.normal(jax.random.key(0), (40, 50), jnp.float32)
    squared = np.asarray(linalg.squared_distances(jnp.concatenate([x, x])))
    assert np.all(np.diagonal(squared) == 0)
    assert np.all(squared >= 0)
    close_pairs = squared[np.arange(40), np.arange(40) + 40]
    assert close_pairs.max() < 1e-5 * np.median(squared)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_linear_does_not_depend_on_units(covariance):
    # The bug: a ridge in the units of the largest coordinate, which drowns the others.
    x, s = cloud(n=9)
    units = jnp.array([[1e6, 1.0, 1e-6]])
    plain = K.linear(covariance).velocity(x, s)
    scaled = K.linear(covariance).velocity(x * units, s / units)  # a score is one over a length,
    tolerance = 1e-9 if jax.config.jax_enable_x64 else 1e-3
    np.testing.assert_allclose(scaled * units, plain, rtol=tolerance, atol=tolerance)  # and phi too


def test_what_is_rounding_depends_on_the_size_of_the_coordinate():
    x, _ = cloud(n=9)
    spread = jnp.any(linalg.centered(x * jnp.array([[1e10, 1.0, 1e-8]])) != 0, axis=0)
    assert spread.tolist() == [True, True, True]
    assert not jnp.any(linalg.centered(jnp.full((9, 3), 0.1)))


@pytest.mark.parametrize("shape", [(20, 100_000), (100_000, 20)])
@pytest.mark.parametrize("kernel", [K.linear(), K.linear("diagonal")], ids=repr)
def test_linear_makes_the_smaller_matrix(kernel, shape):
    cloud = jax.ShapeDtypeStruct(shape, jnp.float32)
    jaxpr = jax.make_jaxpr(kernel.velocity)(cloud, cloud)
    sizes = [v.aval.size for eqn in equations(jaxpr.jaxpr) for v in eqn.outvars]
    assert max(sizes) < 10 * shape[0] * shape[1]


@pytest.mark.parametrize(
    "function",
    [
        K.rbf("mean").velocity,
        K.imq("median").velocity,
        K.linear().velocity,
        K.moment_matched(K.rbf("mean")).velocity,
        trees.inner,
    ],
    ids=["rbf", "imq", "linear", "moment_matched", "inner"],
)
@pytest.mark.parametrize("n", [7, 2000])
def test_every_product_is_in_full_precision(function, n):
    # On GPUs JAX's default rounds float32 to 10 bits.
    cloud = jax.ShapeDtypeStruct((n, 3), jnp.float32)
    jaxpr = jax.make_jaxpr(function)(cloud, cloud)
    products = [e for e in equations(jaxpr.jaxpr) if e.primitive.name == "dot_general"]
    assert products
    for equation in products:
        assert set(equation.params["precision"]) == {jax.lax.Precision.HIGHEST}


@pytest.mark.parametrize("n", [7, 2000])
def test_products_with_the_gram_matrix_alone_are_rounded_if_asked_for(n):
    cloud = jax.ShapeDtypeStruct((n, 3), jnp.float32)
    jaxpr = jax.make_jaxpr(K.imq(1.0, precision="tf32").velocity)(cloud, cloud)
    precisions = [
        set(e.params["precision"])
        for e in equations(jaxpr.jaxpr)
        if e.primitive.name == "dot_general"
    ]
    rounded, exact = {jax.lax.Precision.DEFAULT}, {jax.lax.Precision.HIGHEST}
    # Distances, K S and W X; in tiles once more for the rows that are left over.
    assert precisions in ([exact, rounded, rounded], 2 * [exact, rounded, rounded])

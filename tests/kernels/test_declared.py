"""What kernels declare and pass on to others, and that no unit is built into one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from velocities import cloud

import marginax as mx
from marginax.kernels import radial
from marginax.kernels.bandwidths import as_rule

K = mx.kernels


@pytest.mark.parametrize("unit", [1e-12, 1e12])
@pytest.mark.parametrize(
    "make", [K.rbf, K.paper_rbf, K.imq, K.inverse_log, K.energy, K.gfsd, K.blob, K.gfsf]
)
def test_no_unit_is_built_in(make, unit):
    # Scores are per unit of x, and so is a velocity.
    x, s = cloud()
    x = jnp.concatenate([x, x[:1]])  # two particles at one place
    s = jnp.concatenate([s, s[1:2]])
    moved = make(1.3 * unit).velocity(unit * x, s / unit)
    np.testing.assert_allclose(unit * moved, make(1.3).velocity(x, s), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", ["median", "mean"])
@pytest.mark.parametrize("held", [True, False])
def test_bandwidths_are_in_the_units_of_the_cloud(rule, held):
    x = cloud()[0]

    def squared_width(x):
        apart = jnp.sum((x[:, None] - x[None]) ** 2, axis=2)
        return as_rule(rule)(x, apart if held else None)

    np.testing.assert_allclose(squared_width(1e-4 * x), 1e-8 * squared_width(x), rtol=1e-9)


def test_the_median_is_the_mean_where_most_particles_coincide():
    x = jnp.array([[3.0]] * 6 + [[5.0]])
    np.testing.assert_allclose(as_rule("median")(x, None), as_rule("mean")(x, None), rtol=1e-12)


def test_the_rank_of_a_sampled_median_is_the_middle_with_the_diagonal():
    # One cloud's sample is off by about 0.001, the mean of 40 by 0.0002; without the share 1/n of
    # zeros on the diagonal the rank is off by half of it, 0.002.
    n = 257

    def rank(key):
        x = jax.random.normal(key, (n, 2))
        apart = jnp.sum((x[:, None] - x[None]) ** 2, axis=2)
        squared_width = as_rule("median")(x, None) * 2 * np.log(n + 1)
        return jnp.mean(apart <= squared_width * (1 + 1e-9))

    ranks = jax.jit(jax.vmap(rank))(jax.random.split(jax.random.key(0), 40))
    assert abs(jnp.mean(ranks) - 0.5) < 0.001


def test_what_batches_of_a_kernel_declare():
    kernel = K.random_batches(K.blockwise(K.rbf(1.0), "coordinates"), 4)
    assert kernel.blocks == K.blockwise(K.rbf(1.0), "coordinates").blocks != "whole"
    assert kernel.random
    assert not kernel.within  # the draw looks at the whole cloud
    assert repr(kernel) == "random_batches(blockwise(rbf(1.0), blocks='coordinates'), 4)"


def test_batches_of_a_cloud_in_half_precision():
    x, s = (a[:6].astype(jnp.float16) for a in cloud())
    moved = K.random_batches(K.rbf(1.0), 2).velocity(x, s)
    assert moved.dtype == jnp.float16
    assert jnp.all(jnp.isfinite(moved))


def test_blocks_pass_on_what_a_kernel_declares():
    inner = dataclasses.replace(
        K.rbf(1.0), matrices=lambda x: (x, x), fits_batches=True, is_field=True, random=True
    )
    outer = K.blockwise(inner)
    for name in ("matrices", "fits_batches", "is_field", "random"):
        assert getattr(outer, name) is getattr(inner, name)
    assert outer.within
    plain = K.blockwise(K.linear())
    assert not any([plain.matrices, plain.fits_batches, plain.is_field, plain.random])


def test_a_sum_is_random_where_a_part_is():
    noisy, plain = dataclasses.replace(K.rbf(1.0), random=True), K.imq(1.0)
    assert (noisy + plain).random
    assert (plain + noisy).random
    assert not (plain + plain).random


@pytest.mark.parametrize("make", [K.gfsd, K.blob, K.gfsf])
def test_every_field_says_that_it_is_one(make):
    assert make(1.0).is_field
    with pytest.raises(ValueError, match="is a field"):
        make(1.0) + K.rbf(1.0)


def test_a_kernel_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        K.rbf(1.0).random = True


def test_numbers_where_none_is_given():
    x, s = cloud()
    for make in (K.energy, K.imq, K.inverse_log):
        np.testing.assert_array_equal(make().velocity(x, s), make(1.0).velocity(x, s))
    batches = (K.random_batches(K.rbf(1.0), 2, **seed) for seed in ({}, {"seed": 0}))
    one, other = (kernel.velocity(x[:6], s[:6]) for kernel in batches)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [K.rbf, K.imq, K.inverse_log, K.paper_rbf])
def test_matrices_of_a_kernel_make_its_velocity(make):
    x, s = cloud()
    gram, repulsion = make(1.3).matrices(x)
    pushed = jnp.einsum("ij,ijd->id", repulsion, x[:, None] - x[None])
    np.testing.assert_allclose((gram @ s + pushed) / 7, make(1.3).velocity(x, s), rtol=1e-10)


def test_the_papers_kernel_passes_on_its_options(monkeypatch):
    told = {}

    def rbf(bandwidth, **options):
        told.update(options, bandwidth=bandwidth)
        return K.imq(bandwidth)

    monkeypatch.setattr(radial, "rbf", rbf)
    assert repr(K.paper_rbf(3.0, precision="tf32", tile=20)) == "paper_rbf(3.0)"
    assert told == {"bandwidth": 1.5, "precision": "tf32", "tile": 20}


def test_tiles_far_from_the_origin():
    # In float32, 1e4 from the origin: uncentred, distances are differences of large numbers.
    x, s = cloud(n=20)
    far = (x + jnp.array([[1e4, -1e4, 2e4]])).astype(jnp.float32)
    tiled, whole = (
        K.rbf(1.3, tile=tile).velocity(far, s.astype(jnp.float32)) for tile in (50, None)
    )
    np.testing.assert_allclose(tiled, whole, rtol=1e-4, atol=1e-5)

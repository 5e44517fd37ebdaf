"""Sparsity of Hessians: no entry is ever missed, structure is found exactly, probes tell values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from sparse_models import (
    BAND,
    FLOAT,
    FULL,
    MODELS,
    RNG,
    as_data,
    chain,
    grid,
    latents,
    loop_over_places,
    total,
)

from marginax._core.sparsity import (
    Dense,
    Pattern,
    check_pattern,
    facts,
    hessian_pattern,
    hessian_values,
    rules,
    traces,
    unknown,
    walk,
)
from marginax._core.sparsity import coloring as colorings


@pytest.mark.usefixtures("as_users_write")
@pytest.mark.parametrize("name", MODELS)
def test_no_entry_is_missed_and_structure_is_exact(name):
    # Each model guards against the bug that it names.
    model = MODELS[name]
    x, data, theta = latents(model.shapes), as_data(model.data), jnp.asarray(0.7, FLOAT)
    flat, unravel = ravel_pytree(x)
    found = hessian_pattern(model.function, x, unknown(theta), *data)
    if model.expected == FULL:
        assert isinstance(found, Dense), model.guards
        assert "full" in found.reason
        return
    assert isinstance(found, Pattern), model.guards
    hessian = jax.jit(jax.hessian(lambda v, theta: model.function(unravel(v), theta, *data)))
    there = found.matrix(np.ones(len(found.rows))).todense() > 0
    for theta_there in (theta, -theta):
        point = jnp.asarray(RNG.normal(size=flat.shape), flat.dtype)
        values = np.asarray(hessian(point, theta_there))
        assert np.all(np.isfinite(values))
        assert not np.any((np.abs(values) > 0) & ~there), model.guards
    assert found.nonzeros == model.expected, model.guards


def test_a_parameter_that_is_zero_now_is_not_a_zero():
    # A pattern found at a start where an effect is switched off lacked that effect for good.
    x, off = jnp.zeros((12,), FLOAT), jnp.zeros((), FLOAT)
    assert hessian_pattern(chain, x, unknown(off)).nonzeros == BAND
    assert hessian_pattern(chain, x, off).nonzeros == 12


@pytest.mark.slow
@pytest.mark.float32
def test_values_are_those_of_the_hessian():
    # Values in another order than the entries, and columns added up under one color.
    shapes = {"center": (), "grid": (4, 4)}

    def function(x, theta):
        return grid(x["grid"] - x["center"], theta)

    x, theta = latents(shapes), jnp.asarray(0.7, FLOAT)
    flat, unravel = ravel_pytree(x)
    pattern = hessian_pattern(function, x, unknown(theta))
    point = jnp.asarray(RNG.normal(size=flat.shape), FLOAT)
    for batch_size in (1, 4, 100):
        values = jax.jit(hessian_values(function, pattern, unravel, batch_size))(point, theta)
        hessian = np.asarray(jax.hessian(lambda v: function(unravel(v), theta))(point))
        assert values.dtype == FLOAT
        np.testing.assert_allclose(
            pattern.matrix(values).todense(), hessian, rtol=1e-5, atol=1e-5 * np.abs(hessian).max()
        )


@pytest.mark.slow
@pytest.mark.float32
@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e10])
def test_a_removed_entry_is_noticed_whatever_the_units(scale):
    # An entry of two latents in large units was lost in those of their neighbors in small ones.
    units = jnp.asarray(np.tile([1.0, scale, scale, 1.0], 3), FLOAT)

    def function(x, theta):
        return jnp.sum((x[1:] / units[1:] - theta * x[:-1] / units[:-1]) ** 2)

    theta = jnp.asarray(0.7, FLOAT)
    pattern = hessian_pattern(function, jnp.zeros((12,), FLOAT), unknown(theta))
    points = [(units * jnp.asarray(RNG.normal(size=12), FLOAT), theta) for _ in range(2)]
    assert check_pattern(function, pattern, points) is None
    for entry in range(len(pattern.rows)):
        if pattern.rows[entry] != pattern.cols[entry]:
            rows, cols = (np.delete(part, entry) for part in (pattern.rows, pattern.cols))
            assert "misses" in check_pattern(function, Pattern(12, rows, cols), points)


def test_points_without_a_hessian_prove_nothing():
    # NaN is not larger than any tolerance, and passed.
    pattern = Pattern.of(np.zeros(0, int), np.zeros(0, int), 3)
    points = [(-jnp.ones((3,), FLOAT),)]
    assert "not finite" in check_pattern(lambda x: jnp.sum(jnp.sqrt(x)), pattern, points)


def random_pattern(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 40))
    count = int(generator.integers(0, 4 * n))
    return Pattern.of(*generator.integers(0, n, (2, count)), n), generator


@pytest.mark.parametrize("seed", range(40))
def test_colors_tell_all_entries_of_random_matrices(seed):
    # A coloring that is no star coloring gives sums of entries for entries.
    pattern, generator = random_pattern(seed)
    values = generator.normal(size=len(pattern.rows))
    dense = pattern.matrix(values).todense()
    probes = (pattern.colors == np.arange(pattern.num_colors)[:, None]).astype(float)
    np.testing.assert_array_equal(dense, dense.T)
    np.testing.assert_allclose(pattern.recovered(probes @ dense), values, rtol=1e-12, atol=1e-12)
    assert np.count_nonzero(dense) == pattern.nonzeros


def test_a_coloring_that_cannot_tell_entries_apart_is_refused():
    # Two neighbors of one column in one color, on both sides of an entry.
    rows, cols = np.asarray([0, 1, 1, 2, 2, 3, 3]), np.asarray([0, 0, 1, 1, 2, 2, 3])
    with pytest.raises(ValueError, match="no star coloring"):
        colorings.readings(rows, cols, np.asarray([0, 1, 0, 1]))


def test_few_colors():
    # Crossed effects had a color for every level of both factors; grids eleven.
    def colors(function, shapes, *data):
        return hessian_pattern(function, latents(shapes), *data).num_colors

    one = jax.ShapeDtypeStruct((), FLOAT)
    assert colors(lambda x: total(x), 50) == 1
    assert colors(chain, 50, one) == 3
    assert colors(lambda x: total(jnp.diff(x, n=2)), 50) == 5
    assert colors(grid, (12, 12), one) <= 6
    assert colors(lambda x: grid(x, jnp.ones((), FLOAT), 1.0), (12, 12)) <= 9
    assert colors(lambda x: total(x["v"] - x["center"]), {"center": (), "v": 50}) == 2
    students, teachers = RNG.integers(0, 300, 600), RNG.integers(0, 8, 600)
    rows = {"students": 300, "teachers": 8}
    effects = colors(
        lambda x, i, j: total(x["students"][i] - x["teachers"][j]), rows, students, teachers
    )
    assert effects <= 9


def test_pattern_in_numbers():
    pattern = hessian_pattern(chain, jnp.zeros((10,), FLOAT), jax.ShapeDtypeStruct((), FLOAT))
    assert (pattern.n, pattern.nonzeros, pattern.bandwidth) == (10, 28, 1)
    assert np.all(pattern.rows >= pattern.cols)
    assert np.all(np.diff(pattern.rows.astype(int) * 10 + pattern.cols) > 0)


def test_reverse_rules_within_reverse_rules():
    # Forward over reverse is refused by JAX there.
    @jax.custom_vjp
    def inner(x):
        return x**3

    inner.defvjp(lambda x: (x**3, x), lambda x, slope: (3 * x**2 * slope,))

    @jax.custom_vjp
    def outer(x):
        return jnp.sum(inner(x))

    outer.defvjp(lambda x: (jnp.sum(inner(x)), x), lambda x, slope: (inner(x) * slope,))
    x = jnp.arange(1, 7, dtype=FLOAT)
    pattern = hessian_pattern(outer, x)
    assert pattern.nonzeros == 6
    np.testing.assert_allclose(hessian_values(outer, pattern)(x), 3 * x**2, rtol=1e-6)


def test_too_many_dependencies_end_in_a_sentence(monkeypatch):
    # Sets without a limit took all memory.
    monkeypatch.setattr(facts, "MOST", 1000)
    found = hessian_pattern(lambda x: total(x[:, None] * x[None, :]), jnp.zeros((40,), FLOAT))
    assert isinstance(found, Dense)
    assert "of test_sparsity.py, line" in found.reason
    assert "dependencies" in found.reason


def test_what_is_not_understood_is_taken_to_mix(monkeypatch):
    # A primitive that is written otherwise in another version of JAX must not lose entries.
    def fails(step, facts):
        raise KeyError("another name for a parameter")

    monkeypatch.setitem(rules.RULES, "pad", fails)
    found = hessian_pattern(chain, jnp.zeros((12,), FLOAT), jax.ShapeDtypeStruct((), FLOAT))
    assert isinstance(found, Dense)
    assert "`pad`" in found.reason


def test_without_the_means_to_drop_dead_code(monkeypatch):
    # It is in none of JAX's public pages.
    monkeypatch.setattr(traces, "_without_the_rest", lambda *_: None)
    one = jax.ShapeDtypeStruct((), FLOAT)
    assert hessian_pattern(chain, jnp.zeros((12,), FLOAT), one).nonzeros == BAND
    found = hessian_pattern(loop_over_places, jnp.zeros((12,), FLOAT), one)
    assert isinstance(found, Dense) or found.nonzeros >= BAND


def test_arrays_that_are_too_large_end_in_a_sentence(monkeypatch):
    # A loop over rows took gigabytes for an array with an axis over rows and one over latents.
    monkeypatch.setattr(walk, "MOST", 1000)
    found = hessian_pattern(lambda x: total(x[:, None] - x[None, :]), jnp.zeros((40,), FLOAT))
    assert isinstance(found, Dense)
    assert "array of more than" in found.reason


def test_no_latents_have_an_empty_pattern():
    found = hessian_pattern(lambda x: jnp.sum(x), jnp.zeros((0,), FLOAT))
    assert (found.n, found.nonzeros, found.num_colors) == (0, 0, 0)


def test_indices_that_no_promise_keeps_inside():
    # A scatter drops what is outside, where a gather would take the last one inside.
    def function(x):
        at = jnp.asarray([0, 9])
        moved = x.at[at].set(jnp.ones((2,), FLOAT), mode="promise_in_bounds", unique_indices=True)
        return total(moved[1:] + moved[:-1])

    assert hessian_pattern(function, jnp.zeros((8,), FLOAT)).nonzeros == 8 + 2 * 6


def test_integers_are_no_latents():
    with pytest.raises(TypeError, match="floating-point"):
        hessian_pattern(lambda x: jnp.sum(x["a"]), {"a": jnp.zeros((3,), int)})

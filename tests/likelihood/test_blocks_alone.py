"""A problem in blocks: shapes, chunks, and densities that are not numbers everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from traced import largest_array

import marginax as mx
from marginax.likelihood import blocks as module
from marginax.likelihood.blocks import (
    Blocks,
    as_blocks,
    chunk_of,
    finite_values,
    flat_latents,
    in_chunks,
    placing,
    points_of_a_climb,
    to_latent,
)

pytestmark = pytest.mark.slow

LATENT = {"a": jnp.asarray([2.0, 3.0]), "b": jnp.asarray(1.0), "c": jnp.asarray([0.2, 0.3, 0.5])}
SIMPLEX = {"c": mx.transforms.simplex(3)}  # of three numbers two are free
Y = np.array([1.0, 4.0, -2.0])


def of_one_group(theta, x, y):
    return -0.5 * y * jnp.sum((x["a"] - theta) ** 2) - x["b"] ** 4 + 0.0 * jnp.sum(x["c"])


def grouped(data=Y):
    return mx.Problem.grouped(
        of_one_group, jnp.asarray(data), theta=0.5, latent=LATENT, latent_transforms=SIMPLEX
    )


def whole():
    def log_joint(theta, x, y):
        return jnp.sum(jax.vmap(lambda one: of_one_group(theta, x, one))(y))

    return mx.Problem(
        log_joint, theta=0.5, latent=LATENT, data=jnp.asarray(Y), latent_transforms=SIMPLEX
    )


def free(*before):
    """Free latents with some axes before their own; no number is there twice."""
    count = int(np.prod(before, initial=1))
    parts, start = {}, 0
    for name, shape in (("a", (2,)), ("b", ()), ("c", (2,))):
        size = count * int(np.prod(shape, initial=1))
        parts[name] = np.arange(start, start + size, dtype=float).reshape((*before, *shape))
        start += size
    return parts


@pytest.mark.parametrize("before", [(3,), (4, 3), (2, 4, 3)])
def test_a_grouped_latent_is_a_row_per_group(before):
    latent = free(*before)
    flat = flat_latents(grouped(), latent)
    assert isinstance(flat, np.ndarray)
    assert flat.shape == (*before, 5)
    np.testing.assert_array_equal(flat[..., :2], latent["a"])
    np.testing.assert_array_equal(flat[..., 2], latent["b"])
    np.testing.assert_array_equal(flat[..., 3:], latent["c"])
    back = to_latent(grouped(), flat)
    jax.tree.map(np.testing.assert_array_equal, back, latent)


@pytest.mark.parametrize("before", [(), (4,), (2, 4)])
def test_without_groups_it_is_one_row(before):
    latent = free(*before)
    flat = flat_latents(whole(), latent)
    assert flat.shape == (*before, 1, 5)
    np.testing.assert_array_equal(flat[..., 0, :2], latent["a"])
    np.testing.assert_array_equal(flat[..., 0, 3:], latent["c"])
    back = to_latent(whole(), jnp.asarray(flat))
    jax.tree.map(np.testing.assert_array_equal, back, latent)


def test_latents_that_are_traced_stay_on_the_device():
    def log_joint(theta, x, y):
        return theta + x["a"][0] + x["b"] + y

    latent = {"a": jnp.zeros(2), "b": 0.0}
    problem = mx.Problem.grouped(log_joint, jnp.asarray(Y), theta=0.5, latent=latent)
    latent = {name: jnp.asarray(free(3)[name]) for name in ("a", "b")}
    found = jax.jit(lambda latent: flat_latents(problem, latent))(latent)
    expected = flat_latents(problem, latent)
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(found, expected)
    mixed = jax.jit(lambda a: flat_latents(problem, latent | {"a": a}))(latent["a"])
    np.testing.assert_array_equal(mixed, expected)


@pytest.mark.usefixtures("as_users_write")
def test_latents_keep_their_precision():
    latent = {"one": jnp.zeros(2, jnp.float32), "two": jnp.zeros(1)}
    problem = mx.Problem(lambda theta, x, y: theta, theta=0.0, latent=latent)
    back = to_latent(problem, np.array([[1.0, 2.0, 3.0]]))
    assert [back[name].dtype for name in ("one", "two")] == ["float32", "float64"]


def test_blocks_of_groups_are_their_densities():
    blocks = as_blocks(grouped())
    assert blocks.start.shape == (3, 5)
    np.testing.assert_allclose(blocks.start[:, :3], np.tile([2.0, 3.0, 1.0], (3, 1)))
    assert blocks.divisible
    assert blocks.mesh is None
    np.testing.assert_array_equal(blocks.data, Y)
    x = np.arange(15.0).reshape(3, 5) / 10
    found = blocks.log_densities(jnp.asarray([0.5]), jnp.asarray(x), blocks.data)
    assert found.shape == (3,)
    # Beside the density there is how the simplex stretches: by the product of its shares.
    of_simplex = mx.transforms.simplex(3)
    shares = np.array([of_simplex.forward(jnp.asarray(row)) for row in x[:, 3:]])
    squares = np.sum((x[:, :2] - 0.5) ** 2, axis=1)
    rest = found + 0.5 * Y * squares + x[:, 2] ** 4 - np.sum(np.log(shares), axis=1)
    np.testing.assert_allclose(rest, 0.0, atol=1e-12)


def test_without_groups_the_whole_is_one_block():
    problem = whole()
    blocks = as_blocks(problem, Mesh(np.array(jax.devices()[:1]), ("groups",)))
    assert blocks.start.shape == (1, 5)
    assert blocks.mesh is None  # there is nothing to spread
    assert not blocks.divisible
    x = np.arange(5.0)[None]
    found = blocks.log_densities(jnp.asarray([0.5]), jnp.asarray(x), blocks.data)
    each = as_blocks(grouped())
    same = each.log_densities(jnp.asarray([0.5]), jnp.tile(x, (3, 1)), each.data)
    volume = same + 0.5 * Y * np.sum((x[0, :2] - 0.5) ** 2) + x[0, 2] ** 4
    assert found.shape == (1,)
    np.testing.assert_allclose(found[0], np.sum(same) - 2 * volume[0])


def test_groups_known_all_at_once_are_not_divided():
    def log_joint(theta, x, y):
        return -0.5 * (x - y["at"] - theta) ** 2

    data = {"at": jnp.asarray(Y)}
    problem = mx.Problem.grouped(log_joint, data, theta=0.0, latent=0.0, num_groups=3)
    blocks = as_blocks(problem)
    assert not blocks.divisible
    assert in_chunks(blocks, 2**30) == [slice(0, 3)]
    assert chunk_of(blocks, slice(0, 1)) is blocks.data
    found = blocks.log_densities(jnp.asarray([1.0]), jnp.zeros((3, 1)), blocks.data)
    np.testing.assert_allclose(found, -0.5 * (Y + 1.0) ** 2)


def test_data_of_groups_known_all_at_once_are_handed_on_as_they_are():
    """A long table, with fewer rows than groups."""

    def log_joint(theta, x, y):
        rows = -0.5 * (y["y"] - x[y["group"]] - theta) ** 2
        return jax.ops.segment_sum(rows, y["group"], 3)

    data = {"y": jnp.asarray([4.0]), "group": jnp.asarray([2])}
    problem = mx.Problem.grouped(log_joint, data, theta=0.0, latent=0.0, num_groups=3)
    blocks = as_blocks(problem)
    found = blocks.log_densities(jnp.asarray([1.0]), jnp.zeros((3, 1)), blocks.data)
    np.testing.assert_allclose(found, [0.0, 0.0, -4.5])


def test_blocks_of_the_same_model_are_compiled_once():
    blocks = as_blocks(grouped())
    bare = blocks.bare
    assert bare.value.data is None
    assert bare.value.start is None
    assert bare.mark is blocks.log_densities
    assert bare.identity == blocks.identity
    assert blocks.identity is not None  # by which other processes know it
    for data in (Y + 1, np.ones(1), np.ones(7)):
        other = as_blocks(grouped(data))
        assert other.bare == bare
        assert hash(other.bare) == hash(bare)
        assert other.start.shape == (len(data), 5)
    assert as_blocks(whole()).bare != bare


def test_a_single_group_with_a_label_is_a_block():
    padded = mx.pad_groups(["only"] * 3, y=Y)

    def log_joint(theta, x, y):
        return -0.5 * jnp.sum(y["mask"] * (y["y"] - x - theta) ** 2)

    problem = mx.Problem.grouped(log_joint, padded, theta=0.0, latent=0.0)
    blocks = as_blocks(problem)
    assert blocks.start.shape == (1, 1)
    found = blocks.log_densities(jnp.asarray([1.0]), jnp.asarray([[2.0]]), blocks.data)
    np.testing.assert_allclose(found, [-0.5 * np.sum((Y - 3.0) ** 2)])


def test_groups_are_spread_over_a_mesh():
    mesh = Mesh(np.array(jax.devices()[:1]), ("groups",))
    blocks = as_blocks(grouped(), mesh)
    assert blocks.mesh is mesh
    for leaf in (blocks.data, blocks.start, chunk_of(blocks, slice(1, 7))):
        assert isinstance(leaf.sharding, NamedSharding)
        assert leaf.sharding.mesh == mesh
    np.testing.assert_array_equal(chunk_of(blocks, slice(1, 7)), Y[1:])
    # The model itself is that of so many groups.
    assert as_blocks(grouped(), mesh).bare == blocks.bare


@pytest.mark.parametrize("rows", [slice(0, 2), slice(1, 3), slice(1, 9)])
def test_the_data_of_some_blocks_are_spread_though_they_come_from_the_host(rows):
    mesh = Mesh(np.array(jax.devices()[:1]), ("groups",))
    blocks = Blocks(lambda theta, x, data: x[:, 0], Y, jnp.zeros((3, 1)), True, mesh)
    found = chunk_of(blocks, rows)
    assert isinstance(found, jax.Array)
    assert isinstance(found.sharding, NamedSharding)
    np.testing.assert_array_equal(found, Y[rows])


def blocks_of(num, divisible=True):
    data = {"y": np.arange(num)}
    return Blocks(lambda theta, x, data: x[:, 0], data, jnp.zeros((num, 1)), divisible)


def sizes_of(num, points, divisible=True):
    """Of the chunks, which follow each other."""
    chunks = in_chunks(blocks_of(num, divisible), points)
    assert chunks[0].start == 0
    assert all(one.stop == two.start for one, two in zip(chunks, chunks[1:], strict=False))
    assert num <= chunks[-1].stop
    return [chunk.stop - chunk.start for chunk in chunks]


@pytest.mark.parametrize(
    ("num", "most", "sizes"),
    [
        (10, 10, [10]),
        (10, 11, [10]),
        (12, 5, [4, 4, 4]),  # of one size
        (10, 5, [5, 5]),
        (9, 6, [5, 5]),  # three would do, but are too few; one row is not there
        (14, 6, [5, 5, 5]),
        (12, 7, [6, 6]),
        (12, 4, [4, 4, 4]),
        (3, 1, [1, 1, 1]),
        (3, 0.4, [1, 1, 1]),
    ],
)
def test_chunks_are_of_one_size_and_hold_no_more_points_than_there_is_room_for(
    num, most, sizes, monkeypatch
):
    for per_block in (10, 25):
        monkeypatch.setattr(module, "MOST_POINTS", int(most * per_block))
        assert sizes_of(num, per_block) == sizes
        assert sizes_of(num, per_block, divisible=False) == [num]


@pytest.mark.parametrize(
    ("num", "points", "sizes"),
    [
        (1000, 200, [250] * 4),
        (1000, 199, [1000]),
        (999, 200, [999]),
        (1001, 200, [143] * 7),
        (1013, 10_000, [102] * 10),  # a prime number, of up to 104 at a time
    ],
)
def test_chunks_of_many_blocks_are_of_the_usual_size(num, points, sizes):
    assert sizes_of(num, points) == sizes


@pytest.mark.parametrize(
    ("num", "points", "most", "sizes"),
    [(22, 1, 2, [8, 8, 8]), (21, 1, 2, [8, 8, 8]), (8, 3, 1, [4, 4]), (20, 1, 5, [20]),
     (2000, 200, 200_000, [1000, 1000])],
)  # fmt: skip
def test_every_device_has_the_same_share_of_a_chunk(num, points, most, sizes, monkeypatch):
    monkeypatch.setattr(module, "num_shards", lambda mesh: 4)
    monkeypatch.setattr(module, "MOST_POINTS", most)
    assert sizes_of(num, points) == sizes


@pytest.mark.parametrize(("num", "points"), [(1, 200), (20_000, 200), (20_001, 16)])
def test_very_many_blocks_are_climbed_in_larger_chunks(num, points):
    blocks = Blocks(lambda theta, x, data: x[:, 0], None, jnp.zeros((num, 1)), True)
    assert points_of_a_climb(blocks) == points


def test_the_data_of_some_blocks():
    blocks = blocks_of(5)
    np.testing.assert_array_equal(chunk_of(blocks, slice(1, 3))["y"], [1, 2])
    undivided = blocks_of(5, divisible=False)
    assert chunk_of(undivided, slice(1, 3)) is undivided.data


def test_modes_are_placed_by_a_compiled_climb():
    def log_densities(theta, x, data):
        return -0.5 * ((x[:, 0] - data * theta[0]) / 3.0) ** 2

    blocks = Blocks(log_densities, None, jnp.zeros((2, 1)), True)
    find = placing(blocks.bare)
    assert placing(blocks.bare) is find
    top = find(jnp.asarray([2.0]), jnp.zeros((1, 2, 1)), jnp.asarray([1.0, -5.0]))
    np.testing.assert_allclose(top.at.mode, [[[2.0], [-10.0]]])
    np.testing.assert_allclose(np.abs(top.at.root), 3.0 * np.ones((1, 2, 1, 1)))
    assert top.value.shape == (1, 2)


POINTS = np.array([[[4.0], [1.0]], [[-1.0], [9.0]], [[0.0], [-2.0]], [[25.0], [16.0]]])
INSIDE = np.array([[4.0], [9.0]])


def roots(theta, x):
    """Not a number below 0, -inf at 0, and without derivatives at both."""
    return theta * (jnp.sqrt(x[:, 0]) + jnp.log(x[:, 0]))


def summed(theta, points=POINTS, log_weights=None):
    weights = np.zeros(points.shape[:2]) if log_weights is None else log_weights

    def total(theta):
        values, undefined = finite_values(
            lambda x: roots(theta, x),
            jnp.asarray(points),
            jnp.asarray(INSIDE),
            jnp.asarray(weights),
        )
        return jnp.sum(jnp.exp(values)), (values, undefined)

    value, slope = jax.jit(jax.value_and_grad(total, has_aux=True))(theta)
    return *value[1], slope


@pytest.mark.parametrize("most", [2**20, 3])
def test_where_there_is_no_number_there_is_no_density_and_no_derivative(most, monkeypatch):
    monkeypatch.setattr(module, "MOST_POINTS", most)
    values, undefined, slope = summed(1.0)
    with np.errstate(all="ignore"):
        plain = np.sqrt(POINTS[..., 0]) + np.log(POINTS[..., 0])
    np.testing.assert_allclose(values, np.where(POINTS[..., 0] > 0, plain, -np.inf))
    np.testing.assert_array_equal(undefined, [[0, 0], [1, 0], [0, 1], [0, 0]])
    inside = plain[POINTS[..., 0] > 0]
    np.testing.assert_allclose(slope, np.sum(np.exp(inside) * inside))


@pytest.mark.parametrize(
    ("most", "at_once"),
    [(1000, 8), (24, 8), (23, 7), (12, 4), (6, 2), (4, 1), (3, 1), (2, 1)],
)
def test_no_more_points_are_evaluated_at_once_than_there_is_room_for(most, at_once, monkeypatch):
    """Of eight points in each of three blocks, for a density that makes 100 numbers of each."""
    monkeypatch.setattr(module, "MOST_POINTS", most)
    points = np.random.default_rng(0).normal(size=(8, 3, 1))

    def densities(x):
        return jnp.sum(jnp.cos(jnp.outer(x[:, 0], jnp.arange(100.0))), axis=1)

    def values(points):
        return finite_values(densities, points, jnp.zeros((3, 1)), jnp.zeros((8, 3)))[0]

    found = jax.make_jaxpr(values)(jnp.asarray(points))
    assert largest_array(found.jaxpr) == at_once * 3 * 100
    expected = np.sum(np.cos(points * np.arange(100.0)), axis=2)
    counted = np.exp(expected - expected.max(axis=0)) > np.exp(-46.0)
    expected = np.where(counted, expected, -np.inf)
    np.testing.assert_allclose(jax.jit(values)(jnp.asarray(points)), expected, rtol=1e-9)


def test_an_infinite_density_is_undefined_and_no_density_is_not():
    values, undefined = finite_values(
        lambda x: x[:, 0],
        jnp.asarray([[[np.inf]], [[-np.inf]], [[np.nan]], [[3.0]]]),
        jnp.zeros((1, 1)),
        jnp.zeros((4, 1)),
    )
    np.testing.assert_array_equal(values[:, 0], [-np.inf, -np.inf, -np.inf, 3.0])
    np.testing.assert_array_equal(undefined[:, 0], [True, False, True, False])


def test_what_adds_nothing_to_its_block_is_left_out():
    """With its weight 46 lower than the largest of the block, which is a rounding error."""
    points = jnp.asarray(
        [[[100.0], [0.0]], [[54.5], [-45.5]], [[53.5], [-46.5]], [[53.5], [-99.0]]]
    )
    weights = jnp.asarray([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 60.0]])
    values, undefined = finite_values(lambda x: x[:, 0], points, points[0], weights)
    np.testing.assert_array_equal(values[:, 0], [100.0, 54.5, -np.inf, 53.5])
    np.testing.assert_array_equal(values[:, 1], [0.0, -45.5, -np.inf, -99.0])
    assert not np.any(undefined)


def test_weights_are_no_part_of_the_derivatives():
    def value(weight):
        values, _ = finite_values(
            lambda x: x[:, 0], jnp.ones((1, 1, 1)), jnp.ones((1, 1)), weight[None, None]
        )
        return values[0, 0]

    assert jax.grad(value)(jnp.asarray(2.0)) == 0.0


def test_one_number_without_groups_comes_back_as_a_number():
    # The bug: `random_effects()` of such a fit failed, because NumPy takes no empty list of sizes.
    alone = mx.Problem(lambda theta, x, y: -((x - theta) ** 2), theta=0.0, latent=0.0)
    latent = to_latent(alone, np.array([[3.0]]))
    assert latent.shape == ()
    assert latent == 3.0

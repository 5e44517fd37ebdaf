"""Cells, proposals and chains of `grid_draws`, each against masses and volumes by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm
from traced import largest_array

from marginax._core.programs import Program
from marginax._core.random_numbers import split_key
from marginax.likelihood import blocks as blocks_module
from marginax.likelihood import grid_draws as module
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.grid_draws import (
    CELLS,
    _accepted,
    _Cells,
    _cells,
    _log_q,
    _proposed,
    _values,
    can_use_grid,
    grid_draws,
    prepare_grid_draws,
)
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal
from marginax.likelihood.quadrature import far_reaching

pytestmark = pytest.mark.slow

B = 0.5  # nodes are sinh(b t) / b
RULES = {size: far_reaching(size, *CELLS[size]) for size in (1, 2)}
SMALL = {size: far_reaching(size, 1.0, 4.0) for size in (1, 2)}  # 9 cells to a side
ROOT = np.array([[2.0, 0.0], [-3.0, 0.5]])


def laplace_at(modes, roots):
    modes, roots = np.asarray(modes, float), np.asarray(roots, float)
    log_root = np.log(np.abs(np.linalg.det(roots)))
    return Laplace(*(jnp.asarray(part) for part in (modes, roots, log_root)))


def cells_of(mass, modes, roots):
    """Cells with such masses, [modes * cells, blocks]."""
    at = laplace_at(modes, roots)
    inverse = jnp.asarray(np.linalg.inv(np.asarray(roots, float)))
    return _Cells(jnp.asarray(mass, float), at, inverse)


def widened(share, axis):
    """A twentieth of every cell goes to each of its two neighbours."""
    return 0.9 * share + 0.05 * (np.roll(share, 1, axis) + np.roll(share, -1, axis))


def normal_masses(center, width, rule=SMALL[1]):
    """Of a normal over cells around 0 of unit width, by density times length of the cell."""
    z = rule.nodes[:, 0]
    share = norm.pdf(z, center, width) * np.sqrt(1 + (B * z) ** 2)
    return share / share.sum()


def masses_of(log_density, modes, roots, log_share, rule):
    blocks = Blocks(
        lambda theta, x, data: log_density(x) + theta[0], None, jnp.zeros((1, 1)), divisible=False
    )
    at = laplace_at(modes, roots)
    proposal = Proposal(at, jnp.asarray(log_share, float))
    found = jax.jit(lambda theta: _cells(blocks, theta, proposal, None, rule))(jnp.asarray([7.0]))
    np.testing.assert_allclose(
        np.einsum("mbpq,mbqr->mbpr", found.inverse, found.at.root),
        np.broadcast_to(np.eye(at.mode.shape[2]), at.root.shape),
        atol=1e-12,
    )
    return np.asarray(found.mass)


@pytest.mark.parametrize(
    ("most", "at_once"), [(1000, 8), (24, 8), (23, 7), (12, 4), (6, 2), (4, 1), (2, 1)]
)
def test_no_more_points_are_evaluated_at_once_than_there_is_room_for(most, at_once, monkeypatch):
    """Of eight points in each of three blocks, for a density that makes 100 numbers of each."""
    monkeypatch.setattr(module, "MOST_POINTS", most)

    def densities(theta, x, data):
        return theta[0] + jnp.sum(jnp.cos(jnp.outer(x[:, 0], jnp.arange(100.0))), axis=1)

    blocks = Blocks(densities, None, jnp.zeros((3, 1)), divisible=False)
    found = jax.make_jaxpr(lambda x: _values(blocks, jnp.asarray([7.0]), x, None))(
        jnp.zeros((8, 3, 1))
    )
    assert largest_array(found.jaxpr) == at_once * 3 * 100


def one_normal(x):
    return -0.5 * ((x[:, 0] - 1.0) / 0.7) ** 2


def test_blocks_of_up_to_three_latents_have_few_enough_cells():
    assert [can_use_grid(size) for size in range(1, 6)] == [True] * 3 + [False] * 2


def test_a_cell_has_the_mass_of_its_centre_and_leaks_to_its_neighbours():
    mass = masses_of(one_normal, [[[0.0]]], [[[[1.0]]]], [[0.0]], SMALL[1])
    np.testing.assert_allclose(mass[:, 0], widened(normal_masses(1.0, 0.7), 0), rtol=1e-9)


def test_in_a_plane_cells_leak_along_both_axes():
    def log_density(x):
        return one_normal(x) - 0.5 * ((x[:, 1] + 2.0) / 1.5) ** 2

    mass = masses_of(log_density, [[[0.0, 0.0]]], [[np.eye(2)]], [[0.0]], SMALL[2])
    parts = [widened(normal_masses(*at), 0) for at in ((1.0, 0.7), (-2.0, 1.5))]
    np.testing.assert_allclose(mass[:, 0].reshape(9, 9), np.outer(*parts), rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_where_the_density_is_no_number_there_is_no_mass(bad):
    def log_density(x):
        return jnp.where(x[:, 0] > 2.0, bad, one_normal(x))

    mass = masses_of(log_density, [[[0.0]]], [[[[1.0]]]], [[0.0]], SMALL[1])
    share = np.where(SMALL[1].nodes[:, 0] > 2.0, 0.0, normal_masses(1.0, 0.7))
    np.testing.assert_allclose(mass[:, 0], widened(share / share.sum(), 0), rtol=1e-9)


def test_of_two_modes_each_has_its_share_of_the_mass():
    """Far apart, where each part of the mixture is its own mode's alone."""

    def log_density(x):
        near = [-0.5 * ((x[:, 0] - at) / 0.7) ** 2 for at in (1.0, 1001.0)]
        return jnp.logaddexp(near[0], near[1] + np.log(3.0))

    modes, roots = [[[0.0]], [[1000.0]]], np.ones((2, 1, 1, 1))
    alone = widened(normal_masses(1.0, 0.7), 0)
    for share in (0.5, 0.1):
        mass = masses_of(log_density, modes, roots, np.log([[share], [1 - share]]), SMALL[1])
        expected = np.concatenate([alone / 4, 3 * alone / 4])
        np.testing.assert_allclose(mass[:, 0], expected, rtol=1e-3, atol=1e-7)
    # One that repeats another has none, whatever it may be.
    mass = masses_of(log_density, modes, roots, [[0.0], [-np.inf]], SMALL[1])
    np.testing.assert_allclose(mass[:, 0], np.concatenate([alone, 0 * alone]), atol=1e-12)


def points_of_cells(cells, size, num=4000):
    key, other = jax.random.split(jax.random.key(3))
    return np.asarray(jax.jit(lambda: _proposed(cells, RULES[size], key, other, num))())


@pytest.mark.parametrize("total", [1.0, 0.3])
def test_proposals_fall_into_cells_by_their_mass_and_evenly_in_t(total):
    """Two blocks, two modes: cells 3 and 100 of the second in one, cell 64 of the first beside."""
    cells = len(RULES[1].nodes)
    mass = np.zeros((2 * cells, 2))
    mass[cells + 3, 0], mass[cells + 100, 0], mass[64, 1] = 0.25 * total, 0.75 * total, total
    modes, roots = [[[5.0], [-4.0]], [[30.0], [0.0]]], np.array([[1.0, 3.0], [2.0, 9.0]])
    found = points_of_cells(cells_of(mass, modes, roots[:, :, None, None]), 1)
    assert found.shape == (4000, 2, 1)
    spacing, reach = CELLS[1]
    centers = -reach + spacing * np.arange(cells)
    t = np.arcsinh(B * (found[:, 0, 0] - 30.0) / 2.0) / B
    low = t < 0
    assert abs(low.mean() - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / 4000)
    other = np.arcsinh(B * (found[:, 1, 0] + 4.0) / 3.0) / B
    for one, cell in ((t[low], 3), (t[~low], 100), (other, 64)):
        even = ("uniform", (centers[cell] - spacing / 2, spacing))
        assert kstest(one, *even).pvalue > 1e-4


def test_proposals_in_a_plane_are_placed_by_the_root():
    side = RULES[2].num_nodes
    mass = np.zeros((side**2, 1))
    mass[10 * side + 30] = 1.0  # the second coordinate's nodes come one after the other
    found = points_of_cells(cells_of(mass, [[[7.0, -1.0]]], [[ROOT]]), 2)[:, 0]
    z = np.linalg.solve(ROOT, (found - [7.0, -1.0]).T)
    t = np.arcsinh(B * z) / B
    spacing, reach = CELLS[2]
    for row, cell in zip(t, (10, 30), strict=True):
        even = (-reach + spacing * (cell - 0.5), spacing)
        assert kstest(row, "uniform", even).pvalue > 1e-4
    assert abs(np.corrcoef(t)[0, 1]) < 0.08


def density(cells, size, points):
    return np.exp(np.asarray(jax.jit(lambda x: _log_q(cells, RULES[size], x))(jnp.asarray(points))))


@pytest.mark.parametrize("size", [1, 2])
def test_the_density_of_a_cell_is_its_mass_by_its_volume(size):
    rule, (_, reach) = RULES[size], CELLS[size]
    mass = np.random.default_rng(0).random((len(rule.nodes), 1))
    root = ROOT[:size, :size]
    cells = cells_of(mass, [[[7.0, -1.0][:size]]], [[root]])
    spacing = CELLS[size][0]
    t = np.arcsinh(B * rule.nodes) / B
    for shift in (0.0, 0.45, -0.45):
        z = np.sinh(B * (t + shift * spacing)) / B
        points = np.array([7.0, -1.0][:size]) + z @ root.T
        # The volume of all cells alike is left out, and that of the root of the first mode.
        expected = mass[:, 0] / np.prod(np.cosh(B * (t + shift * spacing)), axis=1)
        np.testing.assert_allclose(density(cells, size, points[:, None])[:, 0], expected, rtol=1e-7)
    beyond = np.sinh(B * (reach + 0.55 * spacing)) / B
    for side in (-1.0, 1.0):
        for axis in range(size):
            z = np.zeros(size)
            z[axis] = side * beyond
            out = np.array([7.0, -1.0][:size]) + root @ z
            assert density(cells, size, out[None, None]) == 0.0


def test_densities_of_several_modes_add_up():
    cells = len(RULES[1].nodes)
    mass = np.random.default_rng(1).random((2 * cells, 2))
    modes, roots = [[[5.0], [0.0]], [[6.0], [40.0]]], np.array([[1.0, 3.0], [0.2, 9.0]])
    x = np.linspace(-20.0, 60.0, 400)
    expected = np.zeros((400, 2))
    for m in range(2):
        for b in range(2):
            t = np.arcsinh(B * (x - modes[m][b][0]) / roots[m, b]) / B
            own = mass[m * cells :][np.round(t / CELLS[1][0]).astype(int) + cells // 2, b]
            expected[:, b] += own / (roots[m, b] * np.cosh(B * t)) * roots[0, b]
    both = cells_of(mass, modes, roots[:, :, None, None])
    points = np.stack([x, x], axis=1)[:, :, None]
    np.testing.assert_allclose(density(both, 1, points), expected, rtol=1e-9)


def test_in_a_plane_too_every_mode_has_cells_of_its_own():
    """Far apart, where each part of the mixture is its own mode's alone."""
    rule = RULES[2]
    mass = np.random.default_rng(2).random((2 * len(rule.nodes), 1))
    modes = np.array([[[0.0, 0.0]], [[1e6, -1e6]]])
    cells = cells_of(mass, modes, np.broadcast_to(np.eye(2), (2, 1, 2, 2)))
    points = (modes + rule.nodes).reshape(-1, 1, 2)
    volume = np.prod(np.sqrt(1 + (B * rule.nodes) ** 2), axis=1)
    expected = mass[:, 0] / np.tile(volume, 2)
    np.testing.assert_allclose(density(cells, 2, points)[:, 0], expected, rtol=1e-7)


def test_cells_without_mass_have_no_density_even_without_volume():
    cells = len(RULES[1].nodes)
    mass = np.zeros((2 * cells, 1))
    mass[:cells] = 1.0
    both = cells_of(mass, [[[0.0]], [[0.0]]], [[[[1.0]]], [[[1.0]]]])
    narrow = both.at._replace(log_root=jnp.asarray([[0.0], [-np.inf]]))
    assert density(both._replace(at=narrow), 1, np.zeros((1, 1, 1))) == 1.0


def accepted(log_ratio, key=0):
    return np.asarray(jax.jit(_accepted)(jnp.asarray(log_ratio), jax.random.key(key)))


def test_what_is_better_is_always_accepted_and_what_is_far_worse_never():
    better = np.array([0.0, 1.0, 1.0, 5.0])[:, None, None] * np.ones((4, 2, 3))
    np.testing.assert_array_equal(accepted(better)[:, 1, 2], [0, 1, 2, 3])
    worse = np.array([0.0, -1e4, -1e4, 1.0, -1e4])[:, None, None] * np.ones((5, 2, 3))
    np.testing.assert_array_equal(accepted(worse)[:, 0, 1], [0, 0, 0, 3, 3])


def test_the_first_with_a_density_is_taken_and_none_without():
    nothing = -np.inf
    ratios = np.array([nothing, nothing, -500.0, nothing, -500.0])[:, None, None]
    np.testing.assert_array_equal(accepted(ratios)[:, 0, 0], [0, 0, 2, 2, 4])
    ratios = np.array([nothing, nothing])[:, None, None]
    np.testing.assert_array_equal(accepted(ratios)[:, 0, 0], [0, 0])


def test_what_is_worse_is_accepted_with_the_probability_of_its_ratio():
    ratios = np.broadcast_to(np.log([1.0, 0.3, 0.06])[:, None, None], (3, 400, 50))
    found = accepted(ratios)
    rate = np.mean(found[1] == 1)
    assert abs(rate - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / 20_000)
    moved = found[2] == 2
    assert abs(moved[found[1] == 1].mean() - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / 6_000)
    assert abs(moved[found[1] == 0].mean() - 0.06) < 4.5 * np.sqrt(0.06 * 0.94 / 14_000)


def normals(theta, x, data):
    """A normal up to its 90 per cent point, and no number beyond; or one that is in two places."""
    z = (x[:, 0] - data["mean"]) / data["width"]
    one = jnp.where(z < norm.ppf(0.9), -0.5 * z**2, jnp.nan)
    two = jnp.logaddexp(-0.5 * (z + 20) ** 2, -0.5 * (z - 20) ** 2)
    return jnp.where(data["is_double"], two, one) + theta[0]


DATA = {
    "mean": jnp.asarray([3.0, 3.0, -1e3, 0.0]),
    "width": jnp.asarray([1.0, 1.0, 1e-3, 5.0]),
    "is_double": jnp.asarray([False, False, False, True]),
}
FOUR = Blocks(normals, DATA, DATA["mean"][:, None], divisible=True)
STARTS = jnp.stack([FOUR.start, FOUR.start + jnp.asarray([0.0, 0.0, 0.0, 100.0])[:, None]])
STARTS = STARTS.at[0, 3].add(-100.0)
CHAINS, LENGTH = 8, 150


@pytest.mark.parametrize("points", [2**20, 300])
def test_draws_are_those_of_every_block_whatever_the_chunks(points, monkeypatch):
    monkeypatch.setattr(blocks_module, "MOST_POINTS", points)
    draw = grid_draws(FOUR, CHAINS, LENGTH)
    draws, acceptance = draw(np.zeros(1), STARTS, jax.random.key(0))
    assert draws.shape == (CHAINS, LENGTH, 4, 1)
    z = (draws[..., 0] - np.asarray(DATA["mean"])) / np.asarray(DATA["width"])
    for b in range(3):
        upto = norm.cdf(z[:, ::2, b].ravel()) / 0.9
        assert kstest(upto, "uniform").pvalue > 1e-4
    right = z[..., 3] > 0
    assert abs(right.mean() - 0.5) < 0.08
    assert abs(np.std(np.abs(z[..., 3]) - 20) - 1) < 0.1
    # Blocks that are alike have draws of their own, as have chains.
    assert not np.any(np.isclose(z[..., 0], z[..., 1], rtol=1e-9))
    assert abs(np.corrcoef(z[0, :, 0], z[1, :, 0])[0, 1]) < 0.4
    # The next of a chain is another as often as proposals are accepted.
    stays = np.mean(draws[:, 1:] == draws[:, :-1])
    assert stays == pytest.approx(1 - acceptance, abs=0.02)
    assert 0.7 < acceptance < 1


def test_what_is_prepared_is_what_draws_use(monkeypatch):
    """Of one mode: all that draws compile but the search for modes."""
    blocks = FOUR._replace(log_densities=lambda theta, x, data: normals(theta, x, data))
    prepare_grid_draws(blocks, 2, 10, 1)
    compiled = []
    chosen = Program._chosen

    def seen(self, leaves):
        compiled.append(self._name)
        return chosen(self, leaves)

    monkeypatch.setattr(Program, "_chosen", seen)
    draws, _ = grid_draws(blocks, 2, 10)(np.zeros(1), blocks.start[None], jax.random.key(1))
    assert draws.shape == (2, 10, 4, 1)
    assert "sample" not in compiled
    assert "find" in compiled


def test_blocks_do_not_leak_into_each_other():
    centers, widths = np.array([1.0, -2.0]), np.array([0.7, 1.5])

    def log_density(x):
        return -0.5 * ((x[:, 0] - centers) / widths) ** 2

    roots = np.ones((1, 2, 1, 1))
    mass = masses_of(log_density, np.zeros((1, 2, 1)), roots, [[0.0, 0.0]], SMALL[1])
    for b in range(2):
        own = widened(normal_masses(centers[b], widths[b]), 0)
        np.testing.assert_allclose(mass[:, b], own, rtol=1e-9)


def test_the_first_and_the_last_cell_are_drawn_like_others():
    mass = np.zeros((len(RULES[1].nodes), 1))
    mass[[0, -1]] = 0.5
    found = points_of_cells(cells_of(mass, [[[0.0]]], [[[[1.0]]]]), 1)
    t = np.arcsinh(B * found) / B
    spacing, reach = CELLS[1]
    assert np.all(np.abs(t) > reach - 0.51 * spacing)
    assert abs(np.mean(t > 0) - 0.5) < 4.5 * np.sqrt(0.25 / 4000)


def test_a_point_beyond_all_cells_leaves_others_their_density():
    cells = cells_of(np.ones((len(RULES[1].nodes), 1)), [[[0.0]]], [[[[1.0]]]])
    found = density(cells, 1, np.array([0.0, 1e9])[:, None, None])
    np.testing.assert_array_equal(found[:, 0], [1.0, 0.0])


def test_every_block_has_its_own_share_of_accepted_proposals():
    def log_densities(theta, x, data):
        return jnp.where(data, -jnp.inf, -0.5 * x[:, 0] ** 2)

    nowhere = jnp.asarray([False, True, False])
    blocks = Blocks(log_densities, nowhere, jnp.zeros((3, 1)), divisible=True)
    at = laplace_at(np.zeros((1, 3, 1)), np.ones((1, 3, 1, 1)))
    proposal = Proposal(at, jnp.zeros((1, 3)))
    keys = split_key(jax.random.key(0), 1)
    sample = module._compiled(blocks.bare, 1, 4, 50)
    _, moved = sample(np.zeros(1), proposal, keys, np.int32(0), nowhere)
    assert moved.shape == (3,)
    assert np.all(np.asarray(moved)[[0, 2]] > 0.7)
    assert moved[1] == 0


@pytest.mark.parametrize(("num_modes", "points"), [(1, 8 * 170), (20, 20 * 129)])
def test_a_chunk_has_room_for_all_nodes_and_proposals(monkeypatch, num_modes, points):
    """And the parts of chunks are put together in the order of blocks."""

    def proposals_by_chunk(blocks):
        def each(theta, modes, points_per_block):
            assert points_per_block == points
            yield slice(0, 3), None, None
            yield slice(3, 4), None, None

        return each

    def sample(theta, proposal, keys, place, data):
        means = jnp.broadcast_to(data["mean"][:, None], (8, 150, len(data["mean"]), 1))
        return means, data["width"]

    monkeypatch.setattr(module, "proposals_by_chunk", proposals_by_chunk)
    monkeypatch.setattr(module, "_compiled", lambda *given: sample)
    starts = jnp.zeros((num_modes, 4, 1))
    draws, acceptance = grid_draws(FOUR, 8, 150)(np.zeros(1), starts, jax.random.key(0))
    expected = np.broadcast_to(np.asarray(DATA["mean"])[:, None], (8, 150, 4, 1))
    np.testing.assert_array_equal(draws, expected)
    assert acceptance == pytest.approx(np.mean(DATA["width"]))


def test_what_is_prepared_is_the_first_chunk_of_several(monkeypatch):
    """Of 5 blocks with room for 3 they are one of 3 and one of 2."""
    asked = []

    class Sample:
        def prepare(self, *shapes):
            asked.append(shapes)

    monkeypatch.setattr(blocks_module, "MOST_POINTS", 3 * 8 * 170)
    monkeypatch.setattr(module, "_compiled", lambda *given: Sample())
    data = jnp.arange(5.0)
    prepare_grid_draws(Blocks(normals, data, jnp.zeros((5, 1)), divisible=True), 8, 150, 4)
    ((theta, proposal, keys, _, chunk),) = asked
    shapes = [leaf.shape for leaf in jax.tree.leaves((theta, proposal, keys))]
    assert shapes == [(4,), (1, 3, 1), (1, 3, 1, 1), (1, 3), (1, 3), (2,)]
    assert chunk.tolist() == [0.0, 1.0, 2.0]

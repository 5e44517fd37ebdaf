"""The search for modes with climbs whose ends are given: what is new, kept, and looked for."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from marginax.likelihood import mode_search as module
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.mode_search import (
    GRID,
    _as_starts,
    _count,
    _dispersed,
    _first,
    _joined,
    _Known,
    _mass,
    _most,
    _peaks,
    _with,
    mode_search,
)
from marginax.likelihood.modes import Laplace, Top


def top(modes, widths=1.0, values=0.0, rises=-1.0, log_roots=0.0):
    """Ends of climbs of one latent, a number for every block."""
    modes = np.asarray(modes, float)
    widths, values, rises, log_roots = (
        np.broadcast_to(np.asarray(part, float), modes.shape).copy()
        for part in (widths, values, rises, log_roots)
    )
    return Top(Laplace(modes[:, None], widths[:, None, None], log_roots), values, rises)


def known(modes, masses=0.0, widths=1.0):
    """Modes of one latent, [rows, blocks]."""
    modes = np.asarray(modes, float)
    masses, widths = (
        np.broadcast_to(np.asarray(part, float), modes.shape).copy() for part in (masses, widths)
    )
    return _Known(modes[:, :, None], 1 / widths[:, :, None, None], masses)


def rows_of(found):
    return found.mode[:, :, 0].tolist()


NONE = -np.inf


# What is known


def test_the_first_mode_is_known_whatever_it_is_worth():
    mass = [np.nan, -np.inf, 3.0]
    found = _first(top([1.0, 2.0, 3.0], widths=[2.0, np.nan, 0.5], values=mass, log_roots=1.0))
    assert rows_of(found) == [[1.0, 2.0, 3.0]]
    np.testing.assert_allclose(found.inverse[0, :, 0, 0], [0.5, 0.0, 2.0])
    lowest = np.finfo(float).min
    assert found.mass.tolist() == [[lowest, lowest, 4.0]]


def test_a_mass_is_that_of_a_gaussian():
    mass = _mass(top([0.0, 0.0, 0.0], values=[2.0, 5.0, np.inf], log_roots=[0.5, -1.0, NONE]))
    np.testing.assert_array_equal(mass, [2.5, 4.0, np.nan])


def test_modes_are_counted_over_blocks_and_in_the_block_that_has_most():
    some = known(np.zeros((3, 2)), [[0.0, 0.0], [NONE, 1.0], [NONE, 2.0]])
    assert (_count(some), _most(some)) == (4, 3)


def test_a_mode_that_is_far_is_new_and_one_that_is_near_is_not():
    before = known([[0.0, 0.0, 0.0, 0.0]])
    found = _with(before, top([0.9, -1.1, 1.0, 5.0]))
    assert found.mass.tolist() == [[0.0] * 4, [NONE, 0.0, 0.0, 0.0]]
    assert rows_of(found)[1] == [0.9, -1.1, 1.0, 5.0]
    assert _with(before, top([0.9, 0.0, -0.5, 0.2])) is before


def test_distances_are_in_the_wider_of_two_widths():
    for own, other in ((10.0, 0.1), (0.1, 10.0)):
        before = known([[0.0, 0.0]], widths=own)
        found = _with(before, top([9.0, 11.0], widths=other))
        assert found.mass[1].tolist() == [NONE, 0.0]
        np.testing.assert_allclose(found.inverse[:, 1, 0, 0], [1 / own, 1 / other])


def test_what_a_block_does_not_have_is_not_near():
    before = known([[0.0, 0.0], [9.0, 9.0]], [[0.0, 0.0], [0.0, NONE]])
    found = _with(before, top([9.0, 9.0]))
    assert found.mass[2].tolist() == [NONE, 0.0]


@pytest.mark.parametrize(
    ("rise", "mass", "is_new"),
    [
        (-1.0, 0.0, True),
        (0.0, 0.0, True),
        (0.004, 0.0, True),
        (0.006, 0.0, False),
        (-1.0, -39.0, True),
        (-1.0, -41.0, False),
        (-1.0, np.nan, False),
        (-1.0, NONE, False),
        (-1.0, np.inf, False),
    ],
)
def test_a_new_mode_is_a_top_and_has_some_mass(rise, mass, is_new):
    """Of masses up to 50 below the largest, which is 10 here."""
    before = known([[0.0], [20.0]], [[-3.0], [10.0]])
    found = _with(before, top([50.0], values=mass, rises=rise))
    assert (found is not before) == is_new
    if is_new:
        assert found.mass[2, 0] == mass


def test_masses_are_compared_within_a_block():
    before = known([[0.0, 0.0]], [[100.0, 0.0]])
    found = _with(before, top([9.0, 9.0], values=[40.0, -40.0]))
    assert found.mass[1].tolist() == [NONE, -40.0]


def test_distances_in_a_plane_are_in_widths_along_each_direction():
    root = np.array([[10.0, 0.0], [9.0, 0.5]])  # long along (10, 9)
    inverse = np.linalg.inv(root)
    before = _Known(np.zeros((1, 2, 2)), np.stack([[inverse, inverse]]), np.zeros((1, 2)))
    mode = np.array([[9.0, 8.1], [-9.0, 8.1]])
    narrow = np.stack([np.diag([0.1, 0.1])] * 2)
    found = _with(before, Top(Laplace(mode, narrow, np.zeros(2)), np.zeros(2), -np.ones(2)))
    assert found.mass[1].tolist() == [NONE, 0.0]
    # Likewise in the widths of the new one.
    tiny = np.stack([[np.diag([10.0, 10.0])] * 2])
    roots = np.stack([root, root])
    found = _with(_Known(np.zeros((1, 2, 2)), tiny, np.zeros((1, 2))),
                  Top(Laplace(mode, roots, np.zeros(2)), np.zeros(2), -np.ones(2)))  # fmt: skip
    assert found.mass[1].tolist() == [NONE, 0.0]


def test_chunks_are_joined():
    parts = []
    for n in (1, 2):
        at = Laplace(
            jnp.full((1, n, 2), 1.0 * n), jnp.full((1, n, 2, 2), 2.0 * n), jnp.full((1, n), 3.0 * n)
        )
        parts.append(Top(at, jnp.full((1, n), 4.0 * n), jnp.full((1, n), 5.0 * n)))
    whole = _joined(parts)
    assert whole.at.mode.tolist() == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
    assert whole.at.root.shape == (3, 2, 2)
    assert whole.at.root[:, 0, 0].tolist() == [2.0, 4.0, 4.0]
    assert whole.at.log_root.tolist() == [3.0, 6.0, 6.0]
    assert whole.value.tolist() == [4.0, 8.0, 8.0]
    assert whole.rise.tolist() == [5.0, 10.0, 10.0]
    assert all(isinstance(leaf, np.ndarray) for leaf in (*whole.at, whole.value, whole.rise))


# Starts of what follows


@pytest.mark.parametrize(("count", "padded"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (16, 16),
                                               (20, 16)])  # fmt: skip
def test_starts_are_a_power_of_two(count, padded):
    modes = np.arange(float(count))[:, None]
    starts = np.asarray(_as_starts(known(modes, modes)))[:, 0, 0]
    # The first of the block, then the heaviest; what is missing is the first once more.
    expected = [0.0, *range(count - 1, 0, -1)][:padded]
    assert starts.tolist() == expected + [0.0] * (padded - len(expected))


def test_a_block_with_fewer_modes_repeats_its_first():
    some = known(
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
        [[-9.0, -9.0], [0.0, NONE], [NONE, NONE], [2.0, 1.0]],
    )
    starts = np.asarray(_as_starts(some))[:, :, 0]
    assert starts.tolist() == [[1.0, 2.0], [7.0, 8.0], [3.0, 2.0], [1.0, 2.0]]
    assert some.mass[0].tolist() == [-9.0, -9.0]  # as it was


def test_of_modes_that_weigh_the_same_those_found_first_are_kept():
    modes = np.arange(40.0)[:, None]  # every other one is the heavier
    starts = np.asarray(_as_starts(known(modes, modes % 2)))[:, 0, 0]
    assert starts.tolist() == [0.0, *range(1, 31, 2)]


# Points far away


class Fixed(np.random.Generator):
    """Draws that are known: halves, minus ones, the other order, 10, and twos."""

    def random(self, size):
        return np.full(size, 0.5)

    def choice(self, values, size):
        assert values == [-1.0, 1.0]
        signs = np.ones(size)
        signs[0] = -1.0
        return signs

    def permutation(self, size):
        return np.arange(size)[::-1]

    def uniform(self, low, high, size):
        assert (low, high) == (0, 2)
        return np.arange(1.0, size + 1.0)

    def standard_normal(self, size):
        return np.full(size, 2.0)


def fixed():
    return Fixed(np.random.PCG64())


def numbers(points):
    return [point[:, 0].tolist() for point in points]


@pytest.mark.parametrize(("round_number", "near", "far"), [(0, 4.0, 16.0), (1, 10.0, 100.0)])
def test_points_of_one_block_are_mirror_images_and_some_widths_away(round_number, near, far):
    points = numbers(_dispersed(known([[3.0]], widths=0.5), fixed(), round_number))
    expected = [
        -3.0, -3.0, 3.0 + near / 2, 3.0 - near / 2, 3.0 + far / 2, 3.0 - far / 2,
        3.0 - 1.0, 3.0 + 1.0, 3.0 + 3.0, 3.0 + 3.0,
    ]  # fmt: skip
    np.testing.assert_allclose(points, np.array(expected)[:, None])


def test_points_of_several_blocks_are_those_of_others_too():
    modes = np.array([1.0, 2.0, 9.0])
    points = np.array(numbers(_dispersed(known([modes], widths=0.5), fixed(), 0)))
    assert len(points) == 12
    expected = [
        -modes, -modes, 4.0 - modes, modes[::-1], modes + 2.0, modes - 2.0, modes + 8.0,
        modes - 8.0, 2.0 - 2.0 * np.ones(3), 2.0 + 2.0 * np.ones(3), 2.0 + 6.0 * np.ones(3),
        2.0 + 6.0 * np.ones(3),
    ]  # fmt: skip
    np.testing.assert_allclose(points, expected)
    # The median distance of blocks is 1, and a width that is larger counts instead.
    points = np.array(numbers(_dispersed(known([modes], widths=5.0), fixed(), 0)))
    np.testing.assert_allclose(points[8], 2.0 - 2 * 5.0)


def test_two_blocks_are_several():
    points = np.array(numbers(_dispersed(known([[1.0, 9.0]], widths=0.5), fixed(), 0)))
    assert len(points) == 12
    np.testing.assert_allclose(points[2], [9.0, 1.0])
    np.testing.assert_allclose(points[8:10], [[5.0 - 2 * 4.0] * 2, [5.0 + 2 * 4.0] * 2])


def test_single_coordinates_are_mirrored_and_moved_in_their_own_width():
    root = np.array([[3.0, 4.0], [0.0, 0.1]])
    one = _Known(np.array([[[1.0, 10.0]]]), np.linalg.inv(root)[None, None], np.zeros((1, 1)))

    class Mixed(Fixed):
        def choice(self, values, size):
            return np.broadcast_to(np.array([1.0, -1.0]), size)

    points = _dispersed(one, Mixed(np.random.PCG64()), 0)
    np.testing.assert_allclose(points[1], [[1.0, -10.0]])
    np.testing.assert_allclose(points[2], [[1.0 + 4 * 5.0, 10.0 - 4 * 0.1]])
    np.testing.assert_allclose(points[3], [[1.0 - 4 * 5.0, 10.0 + 4 * 0.1]])


def test_a_mode_that_a_block_does_not_have_is_not_begun_from():
    modes = np.array([[1.0, 2.0], [10.0, 20.0]])
    some = known(modes, [[0.0, 0.0], [NONE, 0.0]], widths=[[1.0, 1.0], [7.0, 3.0]])
    begun = {tuple(-_dispersed(some, np.random.default_rng(k), 0)[0][:, 0]) for k in range(20)}
    assert begun == {(1.0, 2.0), (1.0, 20.0)}
    picked = [_dispersed(some, np.random.default_rng(k), 0) for k in range(20)]
    widths = {tuple(np.abs(points[4] - points[5])[:, 0] / 8) for points in picked}
    assert widths == {(1.0, 1.0), (1.0, 3.0)}


def test_every_coordinate_has_a_middle_and_a_spread_of_its_own():
    """As it has of blocks of one latent each."""
    modes = np.array([1.0, 2.0, 9.0])
    units = np.array([1.0, 100.0])
    inverse = np.broadcast_to(np.diag(2.0 / units), (1, 3, 2, 2))
    both = _Known((modes[:, None] * units)[None], inverse, np.zeros((1, 3)))
    points = np.array(_dispersed(both, fixed(), 0))
    alone = np.array(_dispersed(known([modes], widths=0.5), fixed(), 0))
    np.testing.assert_allclose(points, alone * units)


@pytest.mark.parametrize(
    ("blocks", "size", "count"), [(5_000, 1, 12), (5_001, 1, 4), (2, 10, 12), (2, 11, 4)]
)
def test_of_very_many_blocks_or_latents_there_are_fewer_points(blocks, size, count):
    inverse = np.broadcast_to(np.eye(size), (1, blocks, size, size))
    some = _Known(np.zeros((1, blocks, size)), inverse, np.zeros((1, blocks)))
    assert len(_dispersed(some, fixed(), 0)) == count


# Peaks of one latent


def bumps(*places):
    """Bumps as wide as a cell of the grid, the first the highest, on a slope to both sides."""

    def height(u):
        hills = [3.0 - k - jnp.abs(u - place) / 0.4 for k, place in enumerate(places)]
        return jnp.max(jnp.stack([*hills, -2.0 - jnp.abs(u)]), axis=0)

    return height


def blocks_of(height, count=1, divisible=True):
    """Of the same density, 100 further in every block."""
    data = 100.0 * jnp.arange(float(count))
    return Blocks(
        lambda theta, x, data: height(x[:, 0] - theta[0] - data),
        data,
        jnp.zeros((count, 1)),
        divisible,
    )


def nearest(place):
    return float(GRID[np.argmin(np.abs(GRID - place))])


@pytest.mark.parametrize("chunks", [[slice(0, 2)], [slice(0, 1), slice(1, 2)]])
def test_peaks_of_a_grid_are_the_highest_first(monkeypatch, chunks):
    places = (-6.0, 12.0, -20.0, 3.0, 30.0)
    height = bumps(*[nearest(place) for place in places])
    theta, widths = np.array([5.0]), [[1.0, 1.0]]
    monkeypatch.setattr(module, "in_chunks", lambda blocks, points: chunks)
    found = _peaks(blocks_of(height, 2), theta, known([[5.0, 105.0]], widths=widths))
    assert len(found) == 4
    for row, place in zip(found, places, strict=False):
        assert row.shape == (2, 1)
        np.testing.assert_allclose(row[:, 0], np.array([5.0, 105.0]) + nearest(place))


def test_a_grid_is_in_widths():
    def height(u):
        return bumps(nearest(-6.0))(u / 100.0)

    found = _peaks(blocks_of(height), np.zeros(1), known([[0.0]], widths=100.0))
    np.testing.assert_allclose(found[0][:, 0], 100.0 * nearest(-6.0))


def test_what_is_within_a_width_or_undefined_is_no_peak():
    height = bumps(0.0, nearest(0.8))
    assert _peaks(blocks_of(height), np.zeros(1), known([[0.0]])) == []

    def undefined(u):
        return jnp.where(u > 2.0, jnp.nan, bumps(nearest(-6.0), nearest(6.0))(u))

    (found,) = _peaks(blocks_of(undefined), np.zeros(1), known([[0.0]]))
    np.testing.assert_allclose(found[:, 0], nearest(-6.0))


def test_where_nothing_is_known_no_peak_is_looked_for():
    """There it would stand in for the last of those that are climbed."""
    places = [nearest(place) for place in (-6.0, -12.0, -20.0, -30.0)]

    def undefined(u):
        return jnp.where(u > 2.0, jnp.nan, bumps(*places)(u))

    found = _peaks(blocks_of(undefined), np.zeros(1), known([[0.0]]))
    np.testing.assert_allclose(np.array(found)[:, 0, 0], places)


def test_a_peak_may_be_at_either_end_of_the_grid():
    places = [float(GRID[1]), float(GRID[-2])]
    found = _peaks(blocks_of(bumps(*places)), np.zeros(1), known([[0.0]]))
    np.testing.assert_allclose(np.array(found)[:, 0, 0], places)


def test_of_several_modes_a_grid_is_around_the_first():
    place = nearest(-6.0)
    several = known([[0.0], [1e5], [-1e7]], widths=[[1.0], [10.0], [1e3]])
    found = _peaks(blocks_of(bumps(place)), np.zeros(1), several)
    np.testing.assert_allclose(np.array(found)[:, 0, 0], [place])


def test_what_is_more_than_a_width_away_is_a_peak():
    place = nearest(1.5)  # further than modes that are the same
    (found,) = _peaks(blocks_of(bumps(place)), np.zeros(1), known([[0.0]]))
    np.testing.assert_allclose(found[:, 0], place)


def test_a_flat_top_is_one_peak():
    low, high = nearest(6.0), float(GRID[np.argmin(np.abs(GRID - 6.0)) + 1])

    def height(u):
        return jnp.where((u > low - 0.01) & (u < high + 0.01), 1.0, -jnp.abs(u))

    (found,) = _peaks(blocks_of(height), np.zeros(1), known([[0.0]]))
    np.testing.assert_allclose(found[:, 0], low)


def test_a_grid_goes_from_a_fraction_of_a_width_to_thousands():
    assert GRID[200] == 0.0
    np.testing.assert_allclose(GRID, -GRID[::-1])
    assert GRID[-1] > 2000.0
    steps = [b - a for a, b in pairwise(GRID[200:])]
    assert steps[0] < 0.1
    assert all(b > a for a, b in pairwise(steps))


# Searches


class Landscape:
    """Climbs lead to the nearest of some modes; each has a mass. Starts are kept."""

    def __init__(self, modes, masses=None):
        self.modes = np.asarray(modes, float)
        self.masses = np.zeros(len(self.modes)) if masses is None else np.asarray(masses, float)
        self.starts = []

    def find(self, theta, start, data):
        start = np.asarray(start)
        self.starts.append((start[0, :, 0].tolist(), np.asarray(data).tolist()))
        away = np.abs(start[0, :, 0, None] - theta[0] - self.modes)
        nearest = np.argmin(away, axis=1)
        mode = np.repeat(self.modes[nearest][:, None] + theta[0], start.shape[2], axis=1)
        count, size = mode.shape
        root = np.broadcast_to(np.eye(size), (1, count, size, size))
        zeros = np.zeros((1, count))
        return Top(Laplace(mode[None], root, zeros), self.masses[nearest][None], zeros - 1.0)


def search_of(monkeypatch, landscape, count=1, size=1, peaks=()):
    monkeypatch.setattr(module, "placing", lambda bare: landscape.find)
    monkeypatch.setattr(module, "_peaks", lambda blocks, theta, known: [*peaks])
    data = jnp.arange(float(count))
    blocks = Blocks(lambda *_: None, data, jnp.zeros((count, size)), divisible=True)
    return mode_search(blocks)


def test_of_one_mode_one_round_is_enough(monkeypatch):
    landscape = Landscape([0.0])
    found = search_of(monkeypatch, landscape, count=2)(np.array([7.0]), jnp.zeros((2, 1)))
    assert np.asarray(found.modes).tolist() == [[[7.0], [7.0]]]
    assert (found.num_new, found.is_complete) == (0, True)
    assert len(landscape.starts) == 1 + 12
    assert {tuple(data) for _, data in landscape.starts} == {(0.0, 1.0)}


def test_a_mode_elsewhere_is_found_and_another_round_follows(monkeypatch):
    landscape = Landscape([3.0, -3.0], [0.0, 1.0])
    found = search_of(monkeypatch, landscape)(np.zeros(1), jnp.full((1, 1), 3.0))
    assert np.asarray(found.modes)[:, 0, 0].tolist() == [3.0, -3.0]
    assert (found.num_new, found.is_complete) == (1, True)
    assert len(landscape.starts) == 1 + 10 + 10


def test_modes_that_are_given_are_not_new(monkeypatch):
    landscape = Landscape([3.0, -3.0])
    given = jnp.array([[[3.0]], [[-3.0]]])
    found = search_of(monkeypatch, landscape)(np.zeros(1), given)
    assert np.asarray(found.modes)[:, 0, 0].tolist() == [3.0, -3.0]
    assert (found.num_new, found.is_complete) == (0, True)
    assert len(landscape.starts) == 2 + 10


def test_peaks_are_climbed_in_the_first_round(monkeypatch):
    landscape = Landscape([0.0, 1e6])
    peak = np.array([[1e6 + 7.0]])  # where nothing else begins
    found = search_of(monkeypatch, landscape, peaks=[peak])(np.zeros(1), jnp.zeros((1, 1)))
    assert [start for start, _ in landscape.starts].count([1e6 + 7.0]) == 1
    assert found.num_new == 1
    landscape = Landscape([0.0])
    search = search_of(monkeypatch, landscape, size=2, peaks=[np.full((1, 2), 1e6)])
    search(np.zeros(1), jnp.zeros((1, 2)))
    assert [1e6] not in [start for start, _ in landscape.starts]


class Endless(Landscape):
    """Where every climb ends is a mode."""

    def find(self, theta, start, data):
        start = np.asarray(start)
        self.starts.append(start)
        _, count, size = start.shape
        root = np.broadcast_to(1e-9 * np.eye(size), (1, count, size, size))
        zeros = np.zeros((1, count))
        mode = start + 1e-3 * len(self.starts) ** 2
        return Top(Laplace(mode, root, zeros), zeros, zeros)


def test_a_search_without_end_is_given_up(monkeypatch):
    landscape = Endless([0.0])
    found = search_of(monkeypatch, landscape)(np.zeros(1), jnp.ones((1, 1)))
    assert not found.is_complete
    assert found.modes.shape[0] == 16
    assert len(landscape.starts) == 1 + 2 * 10  # after the second round there are more than 16
    assert found.num_new == 20


def test_a_search_that_finds_one_more_each_round_has_four(monkeypatch):
    class OneEach(Landscape):
        def find(self, theta, start, data):
            done = super().find(theta, start, data)
            number = (len(self.starts) - 2) // 10 + 1
            at = done.at._replace(mode=np.full_like(done.at.mode, 100.0 * number))
            return done._replace(at=at)

    landscape = OneEach([0.0])
    found = search_of(monkeypatch, landscape)(np.zeros(1), jnp.zeros((1, 1)))
    assert len(landscape.starts) == 1 + 4 * 10
    assert (found.num_new, found.is_complete) == (4, False)


@pytest.mark.parametrize(("size", "modes", "complete"), [(10, [3.0, -3.0], True),
                                                         (11, [3.0, -3.0], False),
                                                         (11, [3.0], True)])  # fmt: skip
def test_modes_of_many_latents_cannot_be_counted(monkeypatch, size, modes, complete):
    landscape = Landscape(modes)
    found = search_of(monkeypatch, landscape, size=size)(np.zeros(1), jnp.full((1, size), 3.0))
    assert found.num_new == len(modes) - 1
    assert found.is_complete == complete


def test_a_search_ends_when_there_are_sixteen_modes(monkeypatch):
    places = 10.0 * np.arange(15)
    landscape = Landscape([*places, 1e6])
    search = search_of(monkeypatch, landscape, peaks=[np.array([[1e6 + 7.0]])])
    found = search(np.zeros(1), jnp.asarray(places)[:, None, None])
    assert found.num_new == 1
    assert not found.is_complete
    assert len(landscape.starts) == 15 + 10 + 1


def test_sixteen_modes_are_not_known_to_be_all(monkeypatch):
    for count, complete in ((15, True), (16, False)):
        places = 10.0 * np.arange(count)
        given = jnp.asarray(places)[:, None, None]
        found = search_of(monkeypatch, Landscape(places))(np.zeros(1), given)
        assert found.is_complete == complete
        assert found.num_new == 0

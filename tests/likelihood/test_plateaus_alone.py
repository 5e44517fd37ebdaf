"""Where one looks from a plateau, what one climbs from, and what is rounding, step by step."""

import numpy as np
import pytest

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.plateaus import (
    _moved,
    _one_moved,
    _to_climb_from,
    is_rounding,
    off_plateau,
)


class Ground:
    """A likelihood of given height and constant curvature; where and with what it was asked for."""

    def __init__(self, height, curvatures=(0.0,), lengths=None):
        self.height, self.hessian = height, np.diag(curvatures)
        self.places, self.extras = [], []
        self.function = LikelihoodFunction(None, self.evaluate, None, lengths=lengths)

    def evaluate(self, theta, extra):
        self.places.append(theta.tolist())
        self.extras.append(extra)
        flat = np.zeros(len(theta))
        return Local(float(self.height(theta)), flat, self.hessian, ("at", *theta.tolist()))

    def top(self, *place):
        theta = np.array(place, float)
        return Climb(theta, self.evaluate(theta, None)._replace(extra="top"), 1, True)


class Climber:
    """Ends where it began, so much higher; with a curvature, so that no plateau is left."""

    def __init__(self, gain, curvature=-1.0):
        self.gain, self.curvature = gain, curvature
        self.calls = []

    def __call__(self, theta, modes):
        self.calls.append((theta.tolist(), modes))
        gain = self.gain(theta) if callable(self.gain) else self.gain
        here = Local(gain, 0 * theta, self.curvature * np.eye(len(theta)), "climbed")
        return Climb(theta, here, 1, True)


def looked_at(ground):
    return ground.places[1:]  # the first is the top's own


STEPS = [*range(2, 25, 2), *range(-2, -25, -2)]


# Where one looks


@pytest.mark.parametrize("unit", [1.0, 1.9, 2.0, 50.0])
def test_one_coordinate_moves_home_and_by_even_steps(unit):
    top = Ground(lambda x: 0.0).top(1.0, 5.0, 7.0)
    units = np.array([1.0, unit, 1.0])
    moved = list(_one_moved(top, np.array([100.0, 200.0, 300.0]), np.array([1]), units))
    far = [5.0 + unit * step for step in (2, 8, -2, -8)] if unit >= 2 else []
    expected = [200.0, *(5.0 + step for step in STEPS), *far]
    np.testing.assert_allclose(moved, [[1.0, place, 7.0] for place in expected])
    assert top.theta.tolist() == [1.0, 5.0, 7.0]


def test_every_flat_coordinate_moves_alone():
    top = Ground(lambda x: 0.0).top(1.0, 5.0, 7.0)
    moved = np.array(list(_one_moved(top, np.zeros(3), np.array([0, 2]), np.ones(3))))
    changed = moved != top.theta
    assert changed.sum(axis=0).tolist() == [25, 0, 25]
    assert changed.sum(axis=1).tolist() == [1] * 50


class Halves(np.random.Generator):
    """Draws that are 0.5."""

    def standard_normal(self, size):
        return np.full(size, 0.5)


def test_several_flat_coordinates_move_together_around_three_centers():
    top, home = Ground(lambda x: 0.0).top(1.0, 5.0, 7.0), np.array([100.0, 200.0, 300.0])
    units, flat = np.array([1.0, 1.0, 10.0]), np.array([0, 2])
    moved = list(_moved(Halves(np.random.PCG64()), top, home, flat, units))
    assert len(moved) == 36
    centers = ([1.0, 7.0], [100.0, 300.0], [0.0, 0.0])
    expected = [[a + s, 5.0, b + 10.0 * s] for a, b in centers for s in (0.5, 2.0)]
    assert sorted(one.tolist() for one in moved) == sorted(expected * 6)
    assert top.theta.tolist() == [1.0, 5.0, 7.0]
    for few in ([], [1]):
        nothing = _moved(Halves(np.random.PCG64()), top, home, np.array(few, int), units)
        assert list(nothing) == []


def test_what_is_flat_is_so_in_its_own_unit():
    """A standard error of more than 4.5 lengths."""
    for curvatures, lengths, which in (
        ((-0.04, 0.04, -0.06), None, [0, 1]),
        ((-0.05, -0.0, -0.06), None, [1]),
        ((-4e-8, -6e-8, -0.04), np.array([1e3, 1e3, 1.0]), [0, 2]),
        ((-4.0, -6.0, 5.0), np.array([0.1, 0.1, 0.1]), [0]),
    ):
        ground = Ground(lambda x: 3.0, curvatures, lengths)
        off_plateau(ground.function, ground.top(0, 0, 0), np.full(3, 0.5), Climber(0.0))
        moved = np.any(np.array(looked_at(ground)) != 0.0, axis=0)
        assert np.flatnonzero(moved).tolist() == which
        assert set(ground.extras[1:]) == {"top"}


def test_home_is_looked_at_first():
    ground = Ground(lambda x: 0.0)
    off_plateau(ground.function, ground.top(1.0), np.array([7.7]), Climber(0.0))
    assert looked_at(ground)[0] == [7.7]
    assert len(looked_at(ground)) == 25


# What one climbs from


def hill(theta):
    return -100.0 + 5.0 * (abs(theta[0] - 8.0) < 1.0) + 3.0 * (abs(theta[0] + 4.0) < 1.0)


def test_one_climbs_from_the_highest_place():
    ground, climber = Ground(hill), Climber(-94.0)
    found = off_plateau(ground.function, ground.top(0.0), np.array([0.5]), climber)
    assert climber.calls == [([8.0], ("at", 8.0))]
    assert (found.theta[0], found.local.value) == (8.0, -94.0)


@pytest.mark.parametrize(("gain", "is_taken"), [(-1.0, False), (1e-3, False), (1.1e-3, True)])
def test_a_climb_counts_if_it_is_higher(gain, is_taken):
    ground = Ground(lambda theta: 2.0 * (abs(theta[0] - 8.0) < 1.0))
    top = ground.top(0.0)
    found = off_plateau(ground.function, top, np.array([0.5]), Climber(gain))
    assert (found is not top) == is_taken


@pytest.mark.parametrize("height", [-np.inf, np.inf, np.nan, -100.0005, -99.9995, -100.0])
def test_one_does_not_climb_from_the_same_height_nor_from_nowhere(height):
    ground = Ground(lambda theta: -100.0 if not theta.any() else height, (0.0, 0.0))
    top, climber = ground.top(0.0, 0.0), Climber(5.0)
    assert off_plateau(ground.function, top, np.full(2, 0.5), climber) is top
    assert climber.calls == []


def test_a_thousandth_is_no_other_height():
    ground = Ground(lambda theta: 1e-3 * theta.any(), (0.0, 0.0))
    climber = Climber(5.0)
    off_plateau(ground.function, ground.top(0.0, 0.0), np.full(2, 0.5), climber)
    assert climber.calls == []


@pytest.mark.parametrize("height", [-np.inf, np.nan])
def test_from_nowhere_one_does_not_look(height):
    ground = Ground(lambda theta: height)
    top = ground.top(0.0)
    assert off_plateau(ground.function, top, np.ones(1), Climber(5.0)) is top
    assert looked_at(ground) == []


@pytest.mark.parametrize(("size", "climbs"), [(1, 0), (2, 2)])
def test_from_lower_ground_one_climbs_where_several_coordinates_are_flat(size, climbs):
    ground = Ground(lambda theta: -float(np.abs(theta).sum()), (0.0,) * size)
    top, climber = ground.top(*[0.0] * size), Climber(lambda theta: 1.0 + theta[0])
    found = off_plateau(ground.function, top, np.full(size, 0.25), climber)
    assert len(climber.calls) == climbs
    if climbs:  # the higher of both
        assert found.local.value == max(1.0 + theta[0] for theta, _ in climber.calls)
        heights = [-np.abs(place).sum() for place in looked_at(ground)]
        begun = [-np.abs(theta).sum() for theta, _ in climber.calls]
        np.testing.assert_allclose(begun, sorted(heights)[::-1][:2])


def test_one_goes_on_three_times():
    ground = Ground(lambda theta: theta[0])
    climber = Climber(lambda theta: theta[0], 0.0)
    found = off_plateau(ground.function, ground.top(0.0), np.zeros(1), climber)
    assert [theta for theta, _ in climber.calls] == [[24.0], [48.0], [72.0]]
    assert found.theta.tolist() == [72.0]


def tried(*values):
    return [(value, np.array([float(place)]), place) for place, value in enumerate(values)]


def test_higher_ground_is_climbed_from_alone_unless_it_is_rounding():
    noisy = {2.0, 3.0}  # places where the last digits count

    def height(theta):
        near = round(float(theta[0]))
        return 0.0 if near not in noisy else 1e20 * (theta[0] - near)

    ground = Ground(height)
    top = ground.top(0.0)

    def chosen(values, most_lower):
        return [one[2] for one in _to_climb_from(ground.function, top, tried(*values), most_lower)]

    assert chosen([-1.0, 5.0, -2.0, 4.0], 2) == [1]
    assert chosen([-1.0, 5.0, 9.0, 8.0], 2) == [1]
    assert chosen([-1.0, -5.0, 9.0, 8.0], 2) == [0, 1]
    assert chosen([-1.0, -5.0, 9.0, 8.0, -3.0, 0.0], 2) == [5, 0]
    assert chosen([-1.0, -5.0, 9.0, 8.0], 1) == [0]
    assert chosen([-1.0, -5.0], 0) == []
    assert chosen([0.0], 2) == [0]


# Rounding


def test_a_likelihood_is_rounding_if_its_last_digits_change_it():
    for size, is_noise in (
        (5e-4, False),
        (1e-3, True),
        (3.0, True),
        (np.nan, True),
        (np.inf, True),
    ):
        here = np.array([2.0, 3.0])
        ground = Ground(lambda x, size=size, here=here: size if (x != here).any() else 0.0)
        assert is_rounding(ground.function, here, "extra") == is_noise
        assert set(ground.extras) == {"extra"}
    cliff = Ground(lambda x: 1e20 * (x[1] - 3.0))
    assert is_rounding(cliff.function, here, None)


def test_a_place_is_moved_by_a_few_of_the_last_digits():
    here = np.array([0.0, -1e9, 1.0])
    ground = Ground(lambda x: 7.0)
    assert not is_rounding(ground.function, here, None)
    assert ground.places[0] == here.tolist()
    moves = np.array(ground.places[1:]) - here
    assert len(moves) == 4
    assert np.all(moves[:, 0] == 0.0)
    digits = moves[:, 1:] / (np.finfo(float).eps * np.abs(here[1:]))
    assert np.all(np.abs(digits) <= 4.5)
    assert np.all(np.abs(digits).max(axis=0) > 1.0)
    assert np.any(digits > 0)
    assert np.any(digits < 0)


def test_the_cheapest_value_tells():
    ground = Ground(lambda x: 1e20 * x[0])
    cheap = ground.function._replace(value=lambda theta, extra: 0.0)
    assert not is_rounding(cheap, np.ones(1), None)
    assert ground.places == []

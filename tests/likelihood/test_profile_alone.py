"""Profile intervals step by step: which distances are tried, and which ends come of them."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.likelihood import profile
from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.model.transforms import Transform, ordered, positive

TOP = -7.0


def search(r, quantile=2.0, distance=4.0, settled=True):
    """The end that is found, and all that is tried, where r(distance) is known or a list."""
    tried, rests = [], []

    def profiled(distance, near):
        rests.append(float(near[0]))
        value = r(distance) if callable(r) else r[len(tried)]
        tried.append(distance)
        local = Local(TOP - value**2 / 2, np.zeros(1), -np.eye(1), None)
        return Climb(np.array([distance]), local, 1, settled)

    found = profile.profile_end(profiled, np.array([-1.0]), TOP, quantile, distance)
    return found, tried, rests


def crossing(inner, outer):
    """Where the line through both is 0."""
    return np.interp(0.0, [inner[1], outer[1]], [inner[0], outer[0]])


def test_the_secant_is_followed_and_an_end_that_stays_loses_half_of_its_weight():
    found, tried, _ = search([1.0, 6.0, 1.5, 1.75, 1.75, 3.0, 2.5, 2.25, 2.25, 2.0])
    expected = [4.0, 8.0]  # no further than twice as far
    expected += [crossing((4.0, -1.0), (8.0, 4.0))]
    expected += [crossing((expected[-1], -0.5), (8.0, 4.0))]  # the first on this side since
    expected += [crossing((expected[-1], -0.25), (8.0, 2.0))]
    expected += [crossing((expected[-1], -0.25), (8.0, 1.0))]
    inner = expected[4]
    expected += [crossing((inner, -0.25), (expected[-1], 1.0))]
    expected += [crossing((inner, -0.125), (expected[-1], 0.5))]
    expected += [crossing((inner, -0.0625), (expected[-1], 0.25))]
    expected += [crossing((inner, -0.03125), (expected[-1], 0.25))]
    np.testing.assert_allclose(tried, expected, rtol=1e-12)
    assert found == tried[-1]


def test_a_first_trial_that_is_too_far_away():
    found, tried, _ = search([4.0, 3.0, 2.0])
    # The top, where r is 0, counts in full at first, and then half.
    np.testing.assert_allclose(tried, [4.0, 2.0, 1.0])
    assert found == 1.0


@pytest.mark.parametrize(
    ("r", "expected"),
    [(8.0, crossing((0.0, -2.0), (4.0, 6.0))), (8.001, 2.0), (np.nan, 2.0), (np.inf, 2.0)],
)
def test_a_steep_side_is_halved(r, expected):
    _, tried, _ = search([r, 2.0])
    assert tried[1] == pytest.approx(expected, rel=1e-12)


def test_halves_are_taken_between_both_sides():
    _, tried, _ = search([1.0, 20.0, 2.0])
    assert tried == [4.0, 8.0, 6.0]


@pytest.mark.parametrize(
    ("r", "times"), [(0.0, 2.0), (0.4, 2.0), (0.625, 1.6), (0.8, 1.25), (0.95, 1.1)]
)
def test_outwards_as_far_as_r_promises(r, times):
    """But by a tenth at least, and no further than twice as far."""
    _, tried, _ = search([r, 1.0], quantile=1.0)
    np.testing.assert_allclose(tried, [4.0, 4.0 * times], rtol=1e-9)


def test_a_point_above_the_top_is_at_the_top():
    def higher(distance, near):
        value = TOP + (0.5 if distance == 4.0 else -2.0)
        return Climb(near, Local(value, np.zeros(1), -np.eye(1), None), 1, True)

    assert profile.profile_end(higher, np.zeros(1), TOP, 2.0, 4.0) == 8.0


@pytest.mark.parametrize(("off", "is_found"), [(1.5e-4, True), (-1.5e-4, True), (3e-4, False)])
def test_an_end_is_within_a_ten_thousandth_of_the_quantile(off, is_found):
    _, tried, _ = search([2 + off, 2.0])
    assert (len(tried) == 1) is is_found


def test_an_end_at_which_the_others_are_not_at_rest_is_none():
    assert math.isnan(search([2.0], settled=False)[0])


def test_the_others_start_from_where_they_were_nearest_to_the_end_on_the_near_side():
    _, _, rests = search([1.0, 6.0, 1.5, 3.0, 2.0])
    near = crossing((4.0, -1.0), (8.0, 4.0))
    np.testing.assert_allclose(rests, [-1.0, 4.0, 4.0, near, near])


def test_a_likelihood_that_never_falls():
    found, tried, _ = search(lambda _: 0.0, distance=1.0)
    assert found == math.inf
    assert tried == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]  # fifty standard errors are at 25 here
    found, tried, _ = search(lambda _: 0.0, quantile=1.5625, distance=1.0)
    assert tried[-2:] == [32.0, 64.0]  # and at 32 here, to which it is no further
    found, tried, _ = search(lambda _: 0.0, distance=4.0)
    assert tried[-1] == 128.0


def test_far_away_a_side_that_is_known_is_still_used():
    found, tried, _ = search([0.0, 0.0, 0.0, 0.0, 0.0, np.nan, 2.0], distance=1.0)
    assert (found, tried[-1]) == (24.0, 24.0)


@pytest.mark.parametrize("edge", [1.0, 8.0, 0.125])
def test_numbers_that_end_before_the_likelihood_has_fallen(edge):
    found, tried, _ = search(lambda d: 0.5 if d <= edge else np.nan, distance=2 * edge)
    assert found == math.inf
    # Outside, at the edge, and then half as far outside each time, to a thousandth.
    assert len(tried) == 12
    assert tried[-1] == edge * (1 + 2.0**-10)


def test_an_end_is_not_taken_for_that_of_numbers_where_the_likelihood_is_finite_outside():
    """Steep: r is 0 up to 1, and 1e6 beyond it."""
    found, tried, _ = search(lambda d: 0.0 if d <= 1 else 1e6, distance=2.0)
    assert math.isnan(found)
    assert len(tried) == profile.MOST_EVALUATIONS


def quadratic(hessian, at=(0.0, 0.0), seen=None, more=0.0):
    hessian, at = np.asarray(hessian), np.asarray(at)

    def evaluate(theta, extra):
        if seen is not None:
            seen.append((*theta, extra, jax.config.jax_enable_x64))
        away = theta - at
        value = 0.5 * float(away @ hessian @ away) + more
        return Local(value, hessian @ away, hessian, extra)

    return evaluate


def ends_of(evaluate, at=(0.0, 0.0), error=1.0, quantile=2.0, index=0, **more):
    function = LikelihoodFunction(None, evaluate, None, **more)
    best = (more.get("evaluate_finely") or evaluate)(np.asarray(at), "modes")
    return profile.profile_interval(function, np.asarray(at), best, index, error, quantile)


HESSIAN = np.array([[-2.0, 0.6], [0.6, -0.5]])


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("error", [0.3, 1.0])
def test_of_a_quadratic_the_interval_is_walds(index, error):
    """Whatever the first step; the other coordinate has to follow, by less than 1 in the value."""
    at = np.array([0.7, -1.3])
    half = 2.0 * np.sqrt(np.linalg.inv(-HESSIAN)[index, index])
    found = ends_of(quadratic(HESSIAN, at), at, error, index=index)
    np.testing.assert_allclose(found, [at[index] - half, at[index] + half], rtol=2e-4)


@pytest.mark.parametrize(
    ("error", "used"),
    [(0.5, 0.5), (3.0, 3.0), (0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0)],
)
def test_the_first_trial_is_where_the_quadratic_has_the_end(error, used):
    seen = []
    ends_of(quadratic(HESSIAN, seen=seen), error=error, quantile=3.0)
    firsts = [row for row in seen if row[0] != 0]
    assert firsts[0][0] == pytest.approx(-3 * used)
    assert next(row[0] for row in firsts if row[0] > 0) == pytest.approx(3 * used)
    assert {row[2] for row in seen} == {"modes"}


def test_a_fine_rule_is_used_where_there_is_one_and_for_the_top_too():
    fine = quadratic(HESSIAN, more=-30.0)
    found = ends_of(quadratic(-np.eye(2)), evaluate_finely=fine)
    half = 2.0 * np.sqrt(np.linalg.inv(-HESSIAN)[0, 0])
    np.testing.assert_allclose(found, [-half, half], rtol=2e-4)


def test_the_others_are_climbed_with_their_own_lengths(monkeypatch):
    given, climb = [], profile.climb

    def watched(*arguments, **options):
        given.append(options.get("lengths"))
        return climb(*arguments, **options)

    monkeypatch.setattr(profile, "climb", watched)
    ends_of(quadratic(HESSIAN), lengths=np.array([5.0, 9.0]))
    np.testing.assert_array_equal(given, np.full((len(given), 1), 9.0))
    given.clear()
    ends_of(quadratic(HESSIAN))
    assert set(given) == {None}


MIRRORED = Transform(
    "mirrored", lambda u: 2.0 - 0.5 * u, lambda x: 2 * (2.0 - x), jnp.zeros_like, lambda x: True,
    elementwise=True,
)  # fmt: skip


def model():
    def log_joint(theta, x, y):
        return -0.5 * (x - theta["m"]) ** 2

    return mx.Problem(
        log_joint,
        theta={"r": jnp.arange(2.0), "s": jnp.asarray(0.1), "m": jnp.asarray(2.0)},
        latent=0.0,
        theta_transforms={"m": MIRRORED, "s": positive, "r": ordered},
    )


def maximum(evaluate, theta):
    best = Climb(theta, evaluate(theta, None), 1, True)
    return Maximum(best, 0, 1, (), LikelihoodFunction(None, evaluate, None), None)


def interval(name, evaluate=None, theta=None):
    theta = np.zeros(4) if theta is None else theta
    evaluate = evaluate or quadratic(-np.eye(4), np.zeros(4))
    covariance = np.diag(np.arange(1.0, 5.0))
    return profile.profile_of(model(), maximum(evaluate, theta), theta, covariance, name, 2.0)


def test_ends_are_on_the_constrained_scale_the_lower_first():
    # On the reals from -2 to 2; leaves are in JAX's order there: m, r, s.
    np.testing.assert_allclose(interval("s"), np.exp([-2.0, 2.0]), rtol=1e-3)
    np.testing.assert_allclose(interval("m"), [1.0, 3.0], rtol=1e-3)
    low = np.array([0.0, 0.0, 0.0, -1.0])  # where the scale has a slope of less than 1
    found = interval("s", quadratic(-np.eye(4), low), low)
    np.testing.assert_allclose(found, np.exp([-3.0, 1.0]), rtol=1e-3)


def test_a_profile_is_in_double_precision_and_begins_with_the_standard_error():
    seen = []
    with jax.enable_x64(False):
        interval("s", quadratic(-np.eye(4), np.zeros(4), seen))
    assert all(row[-1] for row in seen[1:])
    # The last of the reals, whose variance is 4.
    assert next(row[3] for row in seen if row[3] != 0) == pytest.approx(-4.0)


def test_what_has_no_profile():
    with pytest.raises(
        ValueError, match=r"There is no parameter 'x'; there are r\[0\], r\[1\], s, m"
    ):
        interval("x")
    with pytest.raises(ValueError, match="'r\\[1\\]' hangs together with others"):
        interval("r[1]")
    with pytest.raises(ValueError, match="A profile needs the likelihood function"):
        profile.profile_of(model(), None, np.zeros(4), np.eye(4), "s", 2.0)


@pytest.mark.parametrize(
    ("name", "side", "which"),
    [("s", -1, "lower"), ("s", 1, "upper"), ("m", -1, "upper"), ("m", 1, "lower")],
)
def test_an_end_that_was_not_found_is_named(name, side, which):
    index = {"s": 3, "m": 0}[name]
    smooth = quadratic(-np.eye(4), np.zeros(4))

    def jump(theta, extra):
        here = smooth(theta, extra)
        return here._replace(value=here.value - 50.0 * (side * theta[index] > 1))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = interval(name, jump)
    assert np.isnan(found).tolist() == [which == "lower", which == "upper"]
    (one,) = said
    assert str(one.message) == (
        f"The {which} end of the profile interval of {name} was not found in 25 evaluations: the "
        "likelihood is rough there. It is NaN; `confidence_intervals()` has the Wald interval."
    )
    assert one.filename != profile.__file__

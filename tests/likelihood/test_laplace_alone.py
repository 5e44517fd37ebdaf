"""Laplace's approximation of latents whose derivatives and factors are known by hand."""

import jax.numpy as jnp
import latents_by_hand as by_hand
import numpy as np
import pytest
from latents_by_hand import COLS, ROWS, K, Y, latents, matrix
from scipy.optimize import approx_fprime, root

from marginax._core.factors import Raised
from marginax.likelihood import laplace
from marginax.likelihood.laplace import Mode, find_mode

THETA = jnp.asarray([0.3, 0.4])
TAU = np.exp(0.4)


def exact_mode(theta=THETA):
    solution = root(
        lambda x: by_hand.score_x(theta, x), np.zeros(3),
        jac=lambda x: -by_hand.hessian_x(theta, x), tol=1e-14,
    )  # fmt: skip
    assert np.abs(by_hand.score_x(theta, solution.x)).max() < 1e-13
    return solution.x


@pytest.mark.parametrize("start", [np.zeros(3), np.array([5.0, -4.0, 3.0])])
def test_the_mode_is_where_the_gradient_is_zero(start):
    found = find_mode(latents(), THETA, jnp.asarray(start))
    assert found.is_found is True
    np.testing.assert_allclose(found.x, exact_mode(), rtol=1e-13, atol=1e-13)
    assert found.value == pytest.approx(by_hand.log_joint(THETA, exact_mode()), rel=1e-14)
    expected = by_hand.hessian_x(THETA, exact_mode())
    np.testing.assert_allclose(matrix(found.entries), expected, rtol=1e-10)
    np.testing.assert_allclose(matrix(found.factor), expected, rtol=1e-10)


def test_a_step_more_is_taken_at_rest():
    near = jnp.asarray(exact_mode() + 1e-9)
    found = find_mode(latents(), THETA, near)
    assert found.is_found
    np.testing.assert_allclose(found.x, exact_mode(), rtol=1e-13, atol=1e-13)


def counted(own):
    """The same, and the shares that its factors were asked for with."""
    shares = []

    def lift(entries, share):
        shares.append(float(share))
        return own.lift(entries, share)

    return own._replace(lift=lift), shares


def test_a_curvature_that_does_not_change_is_factored_once():
    own, shares = counted(latents(0.0))
    assert find_mode(own, THETA, jnp.ones(3)).is_found
    assert shares == [0.0]
    own, shares = counted(latents())
    assert find_mode(own, THETA, jnp.ones(3)).is_found
    assert len(shares) > 3


def of(score, curvature):
    """Latents of this density alone."""

    def scored(theta, x, data):
        value, gradient = score(np.asarray(x))
        return value, jnp.asarray(gradient)

    def entries(theta, x, data, maps):
        return jnp.asarray(curvature(np.asarray(x))[ROWS, COLS])

    return latents(score=scored, curvature=entries)


def test_a_mode_is_found_from_where_the_density_bends_upwards():
    center = np.array([1.0, -2.0, 0.5])

    def score(x):  # of Cauchy densities
        away = x - center
        return -np.log1p(away**2).sum(), -2 * away / (1 + away**2)

    def curvature(x):
        away = x - center
        return np.diag(2 * (1 - away**2) / (1 + away**2) ** 2)

    own, shares = counted(of(score, curvature))
    found = find_mode(own, THETA, jnp.asarray(center + [3.0, -4.0, 1.0]))
    assert found.is_found
    np.testing.assert_allclose(found.x, center, atol=1e-12)


def test_a_value_of_zero_at_the_mode_is_no_error():
    found = find_mode(of(lambda x: (-x @ x / 2, -x), lambda x: np.eye(3)), THETA, jnp.ones(3))
    assert found.is_found
    assert found.value == 0


def test_no_mode_is_found_where_there_is_none():
    rising = of(lambda x: (x.sum(), np.ones(3)), lambda x: np.zeros((3, 3)))
    assert find_mode(rising, THETA, jnp.zeros(3)).is_found is False
    lost = of(lambda x: (0.0, np.full(3, np.nan)), lambda x: np.eye(3))
    assert find_mode(lost, THETA, jnp.zeros(3)).is_found is False


@pytest.mark.parametrize(
    ("slope", "bend", "is_found"),
    [
        (1e-4, 1.0, True),
        (7.3e-4, 1.0, True),  # half of the slope's square promises 0.8e-6
        (8.9e-4, 1.0, False),  # and here 1.2e-6
        (0.1, 1.0, False),
        (1e-4, -1.0, False),
    ],
)
def test_where_no_step_leads_up_little_may_be_promised(slope, bend, is_found):
    """Where the gradient is wrong, if only by rounding."""
    flat = of(lambda x: (7.0 if x[0] == 1 else 6.0, np.full(3, slope)), lambda x: bend * np.eye(3))
    found = find_mode(flat, THETA, jnp.ones(3))
    assert found.is_found is is_found
    np.testing.assert_array_equal(found.x, np.ones(3))


def test_the_diagonal_is_raised_by_more_after_a_short_step_and_no_more_after_a_whole_one():
    values = iter([0.0, -1.0, 1.0, 2.0])  # the second is one too low
    shares = []

    def score(x):
        value = next(values, np.nan)
        return value, np.full(3, 0.1 if value < 2 else np.nan)

    def lift(entries, share):
        shares.append(float(share))
        return Raised(entries, entries, np.asarray(max(float(share), 0.25)))

    own = of(score, lambda x: np.eye(3) * (1 + len(shares)))._replace(lift=lift)
    assert not find_mode(own, THETA, jnp.zeros(3)).is_found
    assert shares == [0.0, 1.0, 0.0]


def climb(gains, promised=10.0):
    """`_uphill` from 5 where these are the gains, and where it looked."""
    looked = []

    def score(theta, x, data):
        looked.append(float(x[0]))
        gain = gains[len(looked) - 1] if len(looked) <= len(gains) else -1.0
        return 3.0 + gain, jnp.full(3, float(len(looked)))

    step = jnp.asarray([2.0, 0.0, 0.0])
    own = latents(score=score)
    return laplace._uphill(own, THETA, jnp.full(3, 5.0), step, 3.0, promised), looked


@pytest.mark.parametrize(
    ("gains", "length"),
    [
        ([1.0], 1.0),
        ([2e-3], 1.0),
        ([5e-4, 2e-3], 0.5),  # a ten thousandth of what is promised is the least
        ([-5e-4, 2e-3], 0.5),
        ([-1.0, 7.5e-4], 0.5),  # and of a half of the step a half of that
        ([-1.0, 2e-4, 1.0], 0.25),
        ([np.nan, -9.0, 1.0], 0.25),
    ],
)
def test_the_longest_step_that_leads_up_is_taken(gains, length):
    (x, value, gradient, taken), looked = climb(gains)
    assert taken == length
    np.testing.assert_array_equal(x, [5.0 + 2 * length, 5.0, 5.0])
    assert looked == [5.0 + 2 * 0.5**k for k in range(len(gains))]
    assert value == 3.0 + gains[-1]
    assert gradient[0] == len(gains)


def test_no_step_is_taken_where_all_lead_down():
    (x, value, gradient, taken), looked = climb([-1.0] * 40 + [0.0])
    assert (taken, value) == (0.0, 3.0)
    np.testing.assert_array_equal(x, np.full(3, 5.0))
    assert looked[-1] == 5.0
    assert gradient[0] == len(looked)


def gaussian_log_likelihood(theta):
    """Of counts = 0: the integral of a Gaussian tilted by Y."""
    mu, log_tau = theta
    precision = np.exp(log_tau) * K
    mu, log_tau = float(mu), float(log_tau)
    tilted = Y.sum() * mu + Y @ np.linalg.solve(precision, Y) / 2
    log_root = np.linalg.slogdet(precision)[1] / 2
    return tilted + 1.5 * np.log(2 * np.pi) - log_root + 1.5 * log_tau


def laplace_at(theta, counts=1.0):
    theta = jnp.asarray(theta)
    own = latents(counts)
    return laplace.laplace_value(own, find_mode(own, theta, jnp.zeros(3)))


def test_laplaces_value_is_exact_for_a_gaussian():
    assert laplace_at(THETA, 0.0) == pytest.approx(gaussian_log_likelihood(THETA), rel=1e-12)


@pytest.mark.parametrize("counts", [0.0, 1.0])
def test_laplaces_gradient_is_that_of_its_value(counts):
    own = latents(counts)
    mode = find_mode(own, THETA, jnp.zeros(3))
    gradient, weights = laplace.laplace_gradient(own, THETA, mode)
    slopes = [
        (laplace_at(np.asarray(THETA) + m, counts) - laplace_at(np.asarray(THETA) - m, counts))
        / 2e-4
        for m in 1e-4 * np.eye(2)
    ]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)
    inverse = np.linalg.inv(matrix(mode.entries))
    assert float(weights @ K[ROWS, COLS]) == pytest.approx(np.trace(inverse @ K))


def test_weights_count_places_below_the_diagonal_twice():
    entries, other = np.arange(1.0, 7.0), np.array([2.0, -1.0, 0.5, 3.0, 1.0, 4.0])
    found = laplace.in_both_halves(latents().structure, jnp.asarray(entries))
    assert float(found @ other) == pytest.approx(np.trace(matrix(entries) @ matrix(other)))


# Six probes whose products are those of standard normal draws exactly.
PROBES = jnp.asarray(np.sqrt(3) * np.concatenate([np.eye(3), -np.eye(3)]))


def test_louis_hessian_is_exact_for_a_gaussian():
    own = latents(0.0)
    mode = find_mode(own, THETA, jnp.zeros(3))
    _, weights = laplace.laplace_gradient(own, THETA, mode)
    found = laplace.louis_hessian(own, THETA, mode, weights, PROBES)
    # The log likelihood is linear in mu, and in log tau it has Y' K^-1 Y / (2 tau) only.
    expected = np.diag([0.0, Y @ np.linalg.solve(K, Y) / (2 * TAU)])
    np.testing.assert_allclose(found, expected, atol=1e-9)
    slopes = approx_fprime(np.asarray(THETA), gaussian_log_likelihood, 1e-7)
    assert slopes[0] == pytest.approx(Y.sum(), rel=1e-5)


def test_a_gaussian_is_known_by_its_curvature():
    for counts, is_constant in ((0.0, True), (1.0, False)):
        own = latents(counts)
        mode = find_mode(own, THETA, jnp.zeros(3))
        assert laplace.curvature_is_constant(own, THETA, mode, PROBES) is is_constant


@pytest.mark.parametrize(("relative", "is_constant"), [(1e-10, True), (1e-8, False)])
@pytest.mark.parametrize("units", [(1.0, 1.0, 1.0), (1e6, 1.0, 1e-6)])
def test_a_curvature_is_constant_to_rounding_in_any_units(relative, is_constant, units):
    """It differs on the right of the mode only, where the first probe is."""
    bend = K * np.outer(units, units)
    middle = np.array([1.0, 2.0, 3.0])
    one = of(lambda x: (0.0, x), lambda x: bend * (1 + relative * (x[0] > 1.0)))
    entries = jnp.asarray(bend[ROWS, COLS])
    mode = Mode(jnp.asarray(middle), 0.0, entries, entries, True)
    assert laplace.curvature_is_constant(one, THETA, mode, PROBES[:1]) is is_constant
    assert laplace.curvature_is_constant(one, THETA, mode, -PROBES[:1])

"""Draws, their weights and what these say, against SciPy and the papers' formulas."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import f, genpareto, kstest, multivariate_normal, multivariate_t, norm

from marginax.likelihood.importance_weights import (
    Draws,
    Ratios,
    StandardDraws,
    Weighed,
    fewest_effective,
    log_ratios,
    pareto_k,
    standard_draws,
)
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal

MEAN, SD = np.array([[3.0], [-1.0]]), np.array([[2.0], [0.1]])  # of two blocks


@pytest.mark.parametrize("size", [1, 3])
def test_gaussian_draws(size):
    draws = standard_draws(size, 2**10)
    assert isinstance(draws, Draws)
    assert draws.z.shape == (2**10, size)
    assert draws.degrees == math.inf
    expected = multivariate_normal(np.zeros(size)).logpdf(draws.z)
    np.testing.assert_allclose(draws.log_density, expected)
    for column in draws.z.T:
        assert kstest(column, "norm").statistic < 5e-3  # independent draws would have 0.03
    np.testing.assert_allclose(np.cov(draws.z.T), np.eye(size).squeeze(), atol=0.03)


@pytest.mark.parametrize(("size", "degrees"), [(1, 5.0), (2, 12.0), (3, 5.0)])
def test_draws_of_a_t_distribution(size, degrees):
    draws = standard_draws(size, 2**10, degrees)
    assert draws.z.shape == (2**10, size)
    assert draws.degrees == degrees
    expected = multivariate_t(np.zeros(size), np.eye(size), degrees).logpdf(draws.z)
    np.testing.assert_allclose(draws.log_density, expected)
    for column in draws.z.T:
        assert kstest(column, "t", (degrees,)).statistic < 0.02
    lengths = np.sum(draws.z**2, axis=1) / size
    assert kstest(lengths, f(size, degrees).cdf).statistic < 0.03
    # Directions do not depend on lengths.
    assert abs(np.corrcoef(lengths > 1, draws.z[:, 0] > 0)[0, 1]) < 0.05


def test_other_seeds_are_other_draws_and_the_same_seed_the_same():
    one, again, other = (standard_draws(2, 8, 5.0, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.z, again.z)
    np.testing.assert_array_equal(one.z, standard_draws(2, 8, 5.0).z)
    assert not np.any(np.isclose(one.z, other.z))
    np.testing.assert_array_equal(standard_draws(2, 4).z, standard_draws(2, 8).z[:4])


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_a_single_draw_is_a_row_too(degrees):
    draws = standard_draws(2, 1, degrees)
    assert draws.z.shape == (1, 2)
    assert draws.log_density.shape == (1,)


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_draws_from_the_very_edge_of_the_unit_cube_are_far_out_and_finite(degrees, monkeypatch):
    """A Sobol sequence may begin with an exact 0, which quantiles would send to infinity."""

    class Edges:
        def __init__(self, size, seed):
            self.size = size

        def random(self, num_draws):
            return np.tile(np.linspace(0.0, 1.0, num_draws)[:, None], self.size)

    monkeypatch.setattr("scipy.stats.qmc.Sobol", Edges)
    draws = standard_draws(2, 5, degrees)
    assert np.all(np.isfinite(draws.z))
    assert np.all(np.isfinite(draws.log_density))
    assert np.all(draws.z[0] < -5.0)
    assert np.all(draws.z[-1] > 1.5)
    np.testing.assert_allclose(draws.z[2], 0.0, atol=1e-12)


def proposal_at(modes, roots, log_share):
    """Of modes and roots [modes, blocks] of one latent each."""
    modes, roots = np.asarray(modes, float), np.asarray(roots, float)
    parts = (modes[:, :, None], roots[:, :, None, None], np.log(roots))
    share = np.asarray(log_share, float)
    return Proposal(Laplace(*(jnp.asarray(part) for part in parts)), jnp.asarray(share))


def ratios(log_density, proposal, draws):
    on_device = StandardDraws(*(jnp.asarray(part) for part in draws))
    return jax.device_get(jax.jit(lambda: log_ratios(log_density, proposal, on_device))())


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_weights_are_the_density_over_that_of_the_draws(degrees):
    def log_density(x):
        return -0.5 * jnp.sum(((x - MEAN) / SD) ** 2, axis=1) + 4.0

    draws = standard_draws(1, 16, degrees)
    centers, widths = np.array([3.5, -1.0]), np.array([1.0, 0.2])
    found = ratios(log_density, proposal_at([centers], [widths], [[0.0, 0.0]]), draws)
    points = centers[:, None] + widths[:, None] * draws.z[:, 0]
    np.testing.assert_allclose(found.points[:, :, 0], points)
    standard = norm.logpdf(draws.z[:, 0])
    if math.isfinite(degrees):
        standard = multivariate_t(0, 1, degrees).logpdf(draws.z)
    log_q = standard - np.log(widths)[:, None]
    np.testing.assert_allclose(found.logs, -0.5 * ((points - MEAN) / SD) ** 2 + 4.0 - log_q)
    np.testing.assert_array_equal(found.num_undefined, [0, 0])


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_draws_around_several_modes_count_as_draws_of_their_mixture(degrees):
    """Of a density that is the mixture itself all weights are its integral."""
    draws, shares = standard_draws(1, 8, degrees), np.array([[0.25, 0.5], [0.75, 0.5]])
    centers, widths = np.array([[0.0, 5.0], [2.0, 9.0]]), np.array([[1.0, 1.0], [0.5, 3.0]])

    def log_density(x):
        parts = []
        for m in range(2):
            z = (x - centers[m][:, None]) / widths[m][:, None]
            log_q = -0.5 * z[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)
            if math.isfinite(degrees):
                top = math.lgamma(3) - math.lgamma(2.5) - 0.5 * math.log(5 * np.pi)
                log_q = top - 3 * jnp.log1p(z[:, 0] ** 2 / 5)
            parts.append(log_q - np.log(widths[m]) + np.log(shares[m]))
        return jax.nn.logsumexp(jnp.stack(parts), axis=0) + 4.0

    found = ratios(log_density, proposal_at(centers, widths, np.log(shares)), draws)
    assert found.logs.shape == (2, 16)
    # Of a mode's draws as many are there as of the others', whatever its share.
    expected = 4.0 + np.log(2 * np.repeat(shares.T, 8, axis=1))
    np.testing.assert_allclose(found.logs, expected, rtol=1e-9)
    means = np.mean(np.exp(found.logs), axis=1)
    np.testing.assert_allclose(means, np.exp(4.0))
    np.testing.assert_allclose(
        found.points[:, :, 0],
        np.concatenate(
            [c[:, None] + w[:, None] * draws.z[:, 0] for c, w in zip(centers, widths, strict=True)],
            1,
        ),
    )


def test_draws_of_a_mode_without_a_share_have_no_weight():
    draws = standard_draws(1, 8)
    for width in (1.0, 1e-300):
        two = proposal_at([[0.0], [0.0]], [[1.0], [width]], [[0.0], [-np.inf]])
        found = ratios(lambda x: -0.5 * x[:, 0] ** 2, two, draws)
        np.testing.assert_allclose(found.logs[0, :8], np.log(2) + 0.5 * np.log(2 * np.pi))
        np.testing.assert_array_equal(found.logs[0, 8:], -np.inf)


def test_what_is_no_number_has_no_weight_and_is_counted():
    def log_density(x):
        value = jnp.where(x[:, 0] > 1.0, jnp.nan, -0.5 * x[:, 0] ** 2)
        return jnp.where(x[:, 0] < -1.0, -jnp.inf, value)

    draws = standard_draws(1, 64)
    found = ratios(log_density, proposal_at([[0.0, 0.5]], [[1.0, 1.0]], [[0.0, 0.0]]), draws)
    points = draws.z.T + np.array([[0.0], [0.5]])
    np.testing.assert_array_equal(np.isneginf(found.logs), np.abs(points) > 1.0)
    assert not np.any(np.isnan(found.logs))
    np.testing.assert_array_equal(found.num_undefined, np.sum(points > 1.0, axis=1))


def test_derivatives_are_numbers_though_the_last_mode_is_where_there_are_none():
    """Where there is no density it is differentiated at the first mode, and left out."""
    draws = standard_draws(1, 8)
    two = proposal_at([[9.0], [-9.0]], [[0.5], [0.5]], [[0.0], [-np.inf]])
    on_device = StandardDraws(*(jnp.asarray(part) for part in draws))

    def total(theta):
        logs = log_ratios(lambda x: theta * jnp.sqrt(x[:, 0]), two, on_device).logs
        return jax.nn.logsumexp(logs)

    logs = np.sqrt(9 + 0.5 * draws.z[:, 0]) - draws.log_density
    share = np.exp(logs - logs.max()) / np.sum(np.exp(logs - logs.max()))
    found = jax.jit(jax.grad(total))(1.0)
    np.testing.assert_allclose(found, share @ np.sqrt(9 + 0.5 * draws.z[:, 0]))


def by_hand(weights, points, undefined):
    weights, points = np.asarray(weights, float), np.asarray(points, float)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    return Ratios(jnp.asarray(logs), jnp.asarray(points), jnp.asarray(undefined))


ONE = by_hand([[3, 1, 0, 0], [2, 2, 2, 2]], [[[1], [5], [9], [9]], [[1], [2], [3], [6]]], [2, 0])
OTHER = by_hand([[0, 0, 8, 0]], [[[0], [0], [7], [0]]], [1])


def test_what_weights_say_of_every_block():
    found = Weighed.of([ONE, OTHER])
    np.testing.assert_allclose(found.log_marginal, np.log([1.0, 2.0, 2.0]), atol=1e-12)
    np.testing.assert_allclose(found.mean, [[2.0], [3.0], [7.0]])
    np.testing.assert_allclose(found.sd, np.sqrt([[3.0], [3.5], [0.0]]), atol=1e-9)
    np.testing.assert_allclose(found.effective, [1.6, 4.0, 1.0])
    np.testing.assert_allclose(found.undefined, [0.5, 0.0, 0.25])
    assert found.pareto_k.shape == (3,)


def test_a_block_has_a_mean_for_every_latent():
    points = np.random.default_rng(0).normal(size=(1, 4, 2))
    found = Weighed.of([by_hand([[1, 2, 3, 4]], points, [0])])
    share = np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(found.mean, share @ points)
    np.testing.assert_allclose(
        found.sd[0], np.sqrt(np.diag(np.cov(points[0].T, aweights=share, ddof=0)))
    )


def test_the_worst_block_has_fewest_effective_draws():
    assert fewest_effective([ONE]) == pytest.approx(1.6)
    assert fewest_effective([OTHER, ONE]) == pytest.approx(1.0)
    assert fewest_effective([by_hand([[2, 2, 2, 2]], np.zeros((1, 4, 1)), [0])]) == pytest.approx(4)


def zhang_and_stephens(excess):
    """Their shape k, which is minus that of others, as they wrote it: excesses in order."""
    n, largest = len(excess), excess[-1]
    m = 30 + math.floor(math.sqrt(n))
    quartile = next(x for x in excess[math.floor(n / 4 + 0.5) - 1 :] if x > 0)

    def shape(theta):
        return -sum(math.log(1 - theta * x) for x in excess) / n

    def log_likelihood(theta):
        k = shape(theta)
        return n * (math.log(theta / k) + k - 1)

    thetas = [
        1 / largest + (1 - math.sqrt(m / (j - 0.5))) / (3 * quartile) for j in range(1, m + 1)
    ]
    logs = [log_likelihood(theta) for theta in thetas]
    weights = [1 / sum(math.exp(other - one) for other in logs) for one in logs]
    return shape(sum(weight * theta for weight, theta in zip(weights, thetas, strict=True)))


@pytest.mark.parametrize("num", [20, 60, 225, 300, 1000])
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_shape_of_a_tail_is_that_of_the_paper(num, scale):
    """Of the largest min(S / 5, 3 sqrt(S)) weights, with a prior of ten at one half."""
    weights = np.exp(1.5 * np.random.default_rng(num).normal(size=num))
    ordered = np.sort(weights)
    n = math.floor(min(num / 5, 3 * math.sqrt(num)))
    k = -zhang_and_stephens((ordered[-n:] - ordered[-n - 1]) / ordered[-1])
    found = pareto_k(np.log(weights) + np.log(scale))
    assert found == pytest.approx((n * k + 10 * 0.5) / (n + 10), rel=1e-9)


@pytest.mark.parametrize("shape", [-0.5, 0.1, 0.5, 0.9])
def test_the_shape_of_a_pareto_tail_is_found(shape):
    weights = genpareto(shape).ppf((np.arange(20_000) + 0.5) / 20_000)
    assert pareto_k(np.log(weights)) == pytest.approx(shape, abs=0.07)


def test_weights_that_are_all_the_same_have_no_tail():
    assert pareto_k(np.full(100, -800.0)) == -math.inf
    weights = np.ones(100)
    weights[7] = 1 + 1e-13
    assert pareto_k(np.log(weights)) == -math.inf
    weights[7] = 1 + 1e-9
    assert math.isfinite(pareto_k(np.log(weights)))


def test_where_a_quarter_of_the_tail_is_no_larger_than_the_rest_the_first_that_is_counts():
    weights = np.concatenate([np.ones(95), [1.5, 2.0, 2.5, 3.0, 4.0]])
    excess = np.concatenate([np.zeros(15), [0.5, 1.0, 1.5, 2.0, 3.0]]) / 4.0
    k = -zhang_and_stephens(excess)
    assert pareto_k(np.log(weights)) == pytest.approx((20 * k + 5) / 30, rel=1e-9)

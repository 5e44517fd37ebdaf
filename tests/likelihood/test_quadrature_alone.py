"""Rules, nodes and likelihoods of `quadrature` against moments and integrals by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_t, norm

import marginax as mx
from marginax.likelihood import blocks as blocks_module
from marginax.likelihood import quadrature as module
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal
from marginax.likelihood.quadrature import (
    far_reaching,
    gauss_hermite,
    nodes_of,
    quadrature,
    quadrature_likelihood,
    rules,
)

pytestmark = pytest.mark.slow

THETA = np.array([0.3, -0.2])
COUNTS = np.array([0.0, 3.0, 40.0])
ODDS = np.log([[0.3, 0.8], [0.7, 0.2]])  # of two Gaussians, in two blocks
MEANS, SDS = np.array([[-5.0, 1.0], [5.0, 4.0]]), np.array([[0.1, 1.0], [2.0, 0.5]])


def proposal_at(modes, roots, log_share=None):
    """Of modes [modes, blocks, p] and roots [modes, blocks, p, p]."""
    modes, roots = np.asarray(modes, float), np.asarray(roots, float)
    share = np.full(modes.shape[:2], -np.log(len(modes))) if log_share is None else log_share
    log_root = np.log(np.abs(np.linalg.det(roots)))
    at = Laplace(*(jnp.asarray(part) for part in (modes, roots, log_root)))
    return Proposal(at, jnp.asarray(share))


def blocks_of(log_density, size, num_blocks):
    """A density of x alone, times exp(sum of theta)."""

    def log_densities(theta, x, data):
        return jax.vmap(log_density)(x) + jnp.sum(theta)

    return Blocks(log_densities, None, jnp.zeros((num_blocks, size)), divisible=False)


def moments(blocks, theta, at, rule, data=None):
    """Compiled: that takes less time than one operation after the other."""

    @jax.jit
    def found(theta):
        return quadrature(blocks, theta, at, data, rule)

    return jax.device_get(found(jnp.asarray(theta)))


def two_gaussians(theta, x, data):
    parts = [
        -0.5 * ((x[:, 0] - MEANS[m]) / SDS[m]) ** 2 - np.log(SDS[m]) + ODDS[m] for m in range(2)
    ]
    return jax.nn.logsumexp(jnp.stack(parts), axis=0) - 0.5 * np.log(2 * np.pi) + jnp.sum(theta)


BOTH = Blocks(two_gaussians, None, jnp.zeros((2, 1)), divisible=False)
AT_BOTH = proposal_at(MEANS[:, :, None], SDS[:, :, None, None], ODDS)


@pytest.mark.parametrize(("size", "order"), [(1, 4), (2, 3), (3, 3)])
def test_gauss_hermite_is_exact_for_polynomials(size, order):
    rule = gauss_hermite(size, order)
    assert rule.nodes.shape == (order**size, size)
    assert rule.num_nodes == order
    assert rule.words == f"adaptive Gauss-Hermite quadrature, {order} nodes per dimension"
    # The last coordinate changes first, as in arrays of the nodes' shape.
    places = rule.nodes.reshape(*(order,) * size, size)
    for axis in range(size):
        assert np.all(np.diff(places[..., axis], axis=axis) > 0)
    weights = np.exp(rule.log_weights)
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights @ rule.nodes, 0.0, atol=1e-12)
    np.testing.assert_allclose((rule.nodes.T * weights) @ rule.nodes, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(weights @ rule.nodes**4, 3.0)
    np.testing.assert_allclose(weights @ np.prod(rule.nodes**2, axis=1), 1.0)
    # As a density the rule has that of the Gaussian itself.
    np.testing.assert_allclose(
        rule.log_standard(jnp.asarray(rule.nodes)), norm.logpdf(rule.nodes).sum(axis=1)
    )
    assert rule.sharpness == 1


@pytest.mark.parametrize(
    ("size", "spacing", "reach", "sides"),
    [
        (1, 0.25, 16.0, 64),
        (1, 0.5, 7.0, 14),
        (1, 0.5, 7.4, 14),
        (1, 0.5, 7.6, 16),
        (2, 0.4, 10.4, 26),
    ],
)
def test_far_nodes_are_even_in_t_on_both_sides_of_the_mode(size, spacing, reach, sides):
    rule = far_reaching(size, spacing, reach)
    assert rule.num_nodes == 2 * sides + 1
    assert rule.nodes.shape == ((2 * sides + 1) ** size, size)
    assert rule.words == (
        f"adaptive quadrature far into the tails, {2 * sides + 1} nodes per dimension"
    )
    t = np.unique(np.round(np.arcsinh(rule.nodes / 2) * 2, 9))
    np.testing.assert_allclose(t, spacing * np.arange(-sides, sides + 1), atol=1e-8)
    weights = np.exp(rule.log_weights)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-5)
    np.testing.assert_allclose((rule.nodes.T * weights) @ rule.nodes, np.eye(size), atol=2e-3)
    assert rule.sharpness > 1


@pytest.mark.parametrize("size", [1, 2])
def test_modes_share_points_by_a_distribution_with_seven_degrees_of_freedom(size):
    z = np.linspace(-30.0, 20.0, 5 * size).reshape(5, size)
    expected = multivariate_t(np.zeros(size), np.eye(size), 7).logpdf(z)
    rule = far_reaching(size, 1.0, 4.0)
    np.testing.assert_allclose(rule.log_standard(jnp.asarray(z)), expected)


def integral(rule, log_density):
    """Of a density of z."""
    z = rule.nodes
    return np.sum(np.exp(rule.log_weights - norm.logpdf(z).sum(axis=1) + log_density(z[:, 0])))


@pytest.mark.parametrize("spacing", [0.25, 0.125, 0.0625])
def test_far_nodes_reach_long_tails_and_narrow_peaks(spacing):
    rule = far_reaching(1, spacing, 16.0)
    # Of a t with 2 degrees of freedom 1e-6 lie beyond the last node, 3,000 out.
    np.testing.assert_allclose(integral(rule, lambda z: -1.5 * np.log(2 + z**2)), 1.0, rtol=1e-6)
    np.testing.assert_allclose(integral(rule, norm.logpdf), 1.0, rtol=1e-10)


@pytest.mark.parametrize(("spacing", "order"), [(0.25, 2), (0.13, 2), (0.125, 4), (0.0625, 4)])
def test_close_nodes_are_weighed_by_simpsons_rule(spacing, order):
    """Of a kink at the mode the trapezium rule errs by spacing^2 / 12 times the jump in slope."""
    found = integral(far_reaching(1, spacing, 16.0), lambda z: -np.abs(z) - np.log(2.0))
    trapezium = spacing**2 / 12
    if order == 2:
        np.testing.assert_allclose(found - 1, trapezium, rtol=0.02)
    else:
        assert abs(found - 1) < spacing**4 / 50


def test_the_ladder_gets_finer():
    for size, first in ((1, 25), (2, 15), (3, 11)):
        ladder = rules(size)
        assert ladder[0] is gauss_hermite(size, first)
        assert len(ladder) == 4
        counts = [rule.num_nodes for rule in ladder]
        assert counts == sorted(set(counts))
        assert all(rule.nodes.shape[1] == size for rule in ladder)
        assert "tails" in ladder[-1].words
        assert rules(size, 5)[0] is gauss_hermite(size, 5)
        assert rules(size, 5)[1:] == ladder[1:]
    assert rules(3)[1] is gauss_hermite(3, 19)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_rule_of_the_ladder_integrates_a_gaussian_with_nodes_that_can_be_held(size):
    for rule in rules(size):
        weights = np.exp(rule.log_weights)
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-6)
        np.testing.assert_allclose(weights @ rule.nodes**2, 1.0, rtol=1e-5)
        assert len(rule.nodes) <= 2**18
        assert rule.nodes.max() > (30.0 if "tails" in rule.words else 5.0)


@pytest.mark.parametrize("size", [1, 2])
def test_a_gaussian_is_exact_with_few_nodes(size):
    random = np.random.default_rng(1)
    roots = random.normal(size=(1, 3, size, size)) + 2 * np.eye(size)
    means = random.normal(size=(1, 3, size))
    inverse = jnp.asarray(np.linalg.inv(roots[0]))

    def log_densities(theta, x, data):
        z = jnp.einsum("bpq,bq->bp", inverse, x - means[0])
        return -0.5 * jnp.sum(z**2, axis=1) + data * theta[0]

    blocks = Blocks(log_densities, None, jnp.zeros((3, size)), divisible=False)
    data, at = jnp.asarray([1.0, 2.0, 3.0]), proposal_at(means, roots)

    @jax.jit
    def both(theta):
        def found(theta):
            moments = quadrature(blocks, theta, at, data, gauss_hermite(size, 3))
            return moments.log_marginal, moments

        return jax.jacfwd(found, has_aux=True)(theta)

    slope, found = both(jnp.asarray([0.5]))
    log_integral = np.log(np.abs(np.linalg.det(roots[0]))) + size / 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(found.log_marginal, log_integral + 0.5 * np.arange(1.0, 4.0))
    np.testing.assert_allclose(found.mean, means[0], atol=1e-12)
    covariance = np.einsum("bpq,brq->bpr", roots[0], roots[0])
    np.testing.assert_allclose(found.variance, np.diagonal(covariance, axis1=1, axis2=2))
    np.testing.assert_array_equal(found.undefined, 0.0)
    np.testing.assert_allclose(slope[:, 0], [1.0, 2.0, 3.0])


def test_several_modes_together_are_the_whole_mixture():
    found = moments(BOTH, [0.25], AT_BOTH, far_reaching(1, 0.25, 16.0))
    share = np.exp(ODDS)
    mean = np.sum(share * MEANS, axis=0)
    np.testing.assert_allclose(found.log_marginal, 0.25, atol=1e-5)
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-4)
    second = np.sum(share * (MEANS**2 + SDS**2), axis=0)
    np.testing.assert_allclose(found.variance[:, 0], second - mean**2, rtol=1e-4)


def test_weights_of_nodes_around_several_modes_make_an_integral():
    for rule in (far_reaching(1, 0.25, 16.0), gauss_hermite(1, 60)):
        points, log_weights, log_share = jax.jit(lambda rule=rule: nodes_of(AT_BOTH, rule))()
        assert points.shape == (2 * rule.num_nodes, 2, 1)
        np.testing.assert_allclose(
            points[:, :, 0],
            np.concatenate([MEANS[m] + SDS[m] * rule.nodes for m in range(2)]),
        )
        np.testing.assert_array_equal(log_share, np.repeat(ODDS, rule.num_nodes, axis=0))
        values = jax.jit(jax.vmap(lambda x: two_gaussians(jnp.zeros(1), x, None)))(points)
        sums = np.sum(np.exp(np.asarray(values + log_weights)), axis=0)
        np.testing.assert_allclose(sums, 1.0, rtol=1e-4)


@pytest.mark.parametrize("root", [1.0, 1e-200])
def test_a_mode_without_a_share_adds_nothing(root):
    normal = blocks_of(lambda x: -0.5 * jnp.sum(x**2), 1, 1)
    one = proposal_at([[[0.0]]], [[[[1.0]]]])
    two = proposal_at([[[0.0]], [[0.1]]], [[[[1.0]]], [[[root]]]], np.array([[0.0], [-np.inf]]))
    for at in (one, two):
        found = moments(normal, [0.0], at, gauss_hermite(1, 5))
        np.testing.assert_allclose(found.log_marginal, 0.5 * np.log(2 * np.pi))
        np.testing.assert_allclose(found.variance, 1.0)
        np.testing.assert_array_equal(found.undefined, 0.0)


def test_derivatives_are_numbers_though_the_last_mode_is_where_there_are_none():
    """Where there is no density it is differentiated at the first mode, and left out."""
    blocks = Blocks(
        lambda theta, x, data: theta[0] * jnp.sqrt(x[:, 0]) - 0.5 * (x[:, 0] - 50) ** 2,
        None, jnp.zeros((1, 1)), divisible=False,
    )  # fmt: skip
    two = proposal_at([[[50.0]], [[-50.0]]], np.ones((2, 1, 1, 1)), np.array([[0.0], [-np.inf]]))

    @jax.jit
    def slope(theta):
        def total(theta):
            moments = quadrature(blocks, theta, two, None, gauss_hermite(1, 9))
            return jnp.sum(moments.log_marginal)

        return jax.grad(total)(theta)

    # At theta = 0 it is the mean of sqrt(x) under N(50, 1).
    expected = quad(lambda x: np.sqrt(x) * norm.pdf(x, 50, 1), 40, 60)[0]
    np.testing.assert_allclose(slope(jnp.zeros(1)), [expected], rtol=1e-9)


def test_a_density_that_is_not_a_number_counts_by_the_share_of_the_gaussians():
    """Beyond one standard deviation above the mode of two, whose shares are 1/4 and 3/4."""

    def log_density(x):
        bad = (x[0] > 1.0) & (x[0] < 50) | (x[0] > 101.0)
        smooth = jnp.logaddexp(jnp.log(0.25) - 0.5 * x[0] ** 2, -0.5 * (x[0] - 100) ** 2)
        return jnp.where(bad, jnp.nan, smooth)

    shares = np.log([[0.25], [0.75]])
    two = proposal_at([[[0.0]], [[100.0]]], np.ones((2, 1, 1, 1)), shares)
    found = moments(blocks_of(log_density, 1, 1), [0.0], two, far_reaching(1, 0.01, 8.0))
    np.testing.assert_allclose(found.undefined, norm.sf(1.0), atol=5e-3)
    one = proposal_at([[[0.0]]], np.ones((1, 1, 1, 1)))
    below = blocks_of(lambda x: jnp.where(x[0] > 1.0, -jnp.inf, -0.5 * x[0] ** 2), 1, 1)
    found = moments(below, [0.0], one, far_reaching(1, 0.01, 8.0))
    assert found.undefined[0] == 0  # there is none: that is known
    expected = norm.logcdf(1.0) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found.log_marginal, expected, atol=5e-3)


def counts_log_joint(theta, x, y):
    away = (x - theta[0]) / jnp.exp(theta[1])
    return y * x - jnp.exp(x) - 0.5 * away**2 - theta[1] - 0.5 * np.log(2 * np.pi)


def counts_problem(counts):
    """Counts whose logarithm has a Gaussian: no posterior is one."""
    return mx.Problem.grouped(counts_log_joint, jnp.asarray(counts), theta=jnp.zeros(2), latent=0.0)


def log_marginal(theta, y):
    """And mean and standard deviation of the posterior, by SciPy."""

    def moment(k, around=0.0):
        def term(x):
            away = (x - theta[0]) / np.exp(theta[1])
            log_density = y * x - np.exp(x) - 0.5 * away**2
            return (x - around) ** k * np.exp(log_density - log_top)

        return quad(term, -8, 8, points=[np.log(y + 0.5)], epsabs=0, epsrel=1e-11, limit=200)[0]

    log_top = y * np.log(y + 0.5) - y
    mean = moment(1) / moment(0)
    sd = np.sqrt(moment(2, mean) / moment(0))
    constant = log_top - theta[1] - 0.5 * np.log(2 * np.pi)
    return np.log(moment(0)) + constant, mean, sd


def exact(counts, theta=THETA):
    return np.array([log_marginal(theta, y) for y in counts]).T


def differences(function, theta, step=1e-4):
    moves = step * np.eye(len(theta))
    return np.array([(function(theta + m) - function(theta - m)) / (2 * step) for m in moves])


@pytest.fixture(scope="module")
def coarse():
    return quadrature_likelihood(counts_problem(COUNTS), order=4)


@pytest.fixture(scope="module")
def fine():
    return quadrature_likelihood(counts_problem(COUNTS), rung=1)


def test_value_and_derivatives_are_those_of_the_integrals(fine):
    here = fine.evaluate(THETA, fine.start)
    np.testing.assert_allclose(here.value, exact(COUNTS)[0].sum(), rtol=1e-9)
    slope = differences(lambda theta: exact(COUNTS, theta)[0].sum(), THETA)
    np.testing.assert_allclose(here.gradient, slope, rtol=1e-6)
    bend = differences(lambda theta: fine.evaluate(theta, here.extra).gradient, THETA)
    np.testing.assert_allclose(here.hessian, bend, rtol=1e-6, atol=1e-7)
    # Where the modes are is handed on.
    modes = np.asarray(here.extra)[0, :, 0]
    np.testing.assert_allclose(
        COUNTS - np.exp(modes) - (modes - THETA[0]) / np.exp(2 * THETA[1]), 0.0, atol=1e-6
    )


def test_what_is_described_is_the_finer_rule_and_what_the_coarser_is_off(coarse, fine):
    here = coarse.evaluate(THETA, coarse.start)
    there = fine.evaluate(THETA, here.extra)
    by_group, mean, sd = exact(COUNTS)
    found = coarse.describe(THETA, here.extra)
    np.testing.assert_allclose(found.by_group, by_group, rtol=1e-8)
    np.testing.assert_allclose(found.log_likelihood, by_group.sum(), rtol=1e-9)
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(found.sd[:, 0], sd, rtol=1e-5)
    np.testing.assert_allclose(found.score_error, there.gradient - here.gradient, rtol=1e-6)
    one_by_one = [
        quadrature_likelihood(counts_problem(COUNTS[g : g + 1]), order=4) for g in range(3)
    ]
    alone = [one.value_alone()(THETA, one.start) for one in one_by_one]
    off = by_group - np.array(alone)
    assert off.min() < 0 < off.max()  # they do not cancel
    np.testing.assert_allclose(found.error, np.abs(off).sum(), rtol=1e-4)
    assert found.undefined == 0
    assert found.num_modes == 1
    assert (found.num_nodes, found.rule) == (129, far_reaching(1, 0.25, 16.0).words)


def test_the_same_description_is_not_computed_twice(coarse):
    theta, start = THETA.copy(), coarse.start
    found = coarse.describe(theta, start)
    assert coarse.describe(theta, start) is found
    assert coarse.describe(THETA, start) is found
    assert coarse.describe(theta, start + 0.0) is not found
    found = coarse.describe(theta, start)
    theta[0] += 1.0
    other = coarse.describe(theta, start)
    assert other.log_likelihood != found.log_likelihood
    assert coarse.describe(THETA, start).log_likelihood == found.log_likelihood


def test_the_value_alone_and_the_finer_rule_are_the_same_likelihood(coarse, fine):
    here = coarse.evaluate(THETA, coarse.start)
    assert coarse.value is None
    np.testing.assert_allclose(coarse.value_alone()(THETA, coarse.start), here.value, rtol=1e-12)
    finer = coarse.finer().evaluate(THETA, coarse.start)
    np.testing.assert_allclose(finer.value, fine.evaluate(THETA, fine.start).value, rtol=1e-12)
    assert finer.value != here.value
    assert coarse.other_modes is not None


def test_blocks_in_chunks_are_the_same_likelihood(coarse, monkeypatch):
    whole = coarse.evaluate(THETA, coarse.start)
    told, value = coarse.describe(THETA, coarse.start), coarse.value_alone()(THETA, coarse.start)
    monkeypatch.setattr(blocks_module, "MOST_POINTS", 4)  # a group at a time
    again = coarse.evaluate(THETA, coarse.start)
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    retold = coarse.describe(THETA, coarse.start + 0.0)
    np.testing.assert_allclose(retold.by_group, told.by_group, rtol=1e-10)
    np.testing.assert_allclose(retold.score_error, told.score_error, rtol=1e-7)
    np.testing.assert_allclose(retold.sd, told.sd, rtol=1e-9)
    np.testing.assert_allclose(retold.error, told.error, rtol=1e-7)
    np.testing.assert_allclose(coarse.value_alone()(THETA, coarse.start), value, rtol=1e-12)


@pytest.mark.parametrize("ends", [[3], [1, 3], [2, 3], [1, 2, 3]])
def test_parts_of_chunks_are_added_and_their_modes_put_together(ends, monkeypatch):
    slices = [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
    asked = []

    def each_chunk(theta, modes, points):
        asked.append(points)
        for rows in slices:
            yield rows, None, modes[:, rows] + 100.0

    def local(theta, proposal, data):
        total = jnp.sum(data)
        return total + theta[0], total * theta, jnp.outer(theta, theta)

    monkeypatch.setattr(module, "proposals_by_chunk", lambda blocks: each_chunk)
    monkeypatch.setattr(module, "_compiled", lambda bare, order, rung: (local, None, None))
    function = quadrature_likelihood(counts_problem(COUNTS), order=4)
    modes = np.arange(6.0).reshape(2, 3, 1)
    here = function.evaluate(THETA, jnp.asarray(modes))
    assert asked == [2 * 4]
    assert here.value == pytest.approx(COUNTS.sum() + len(ends) * THETA[0])
    np.testing.assert_allclose(here.gradient, COUNTS.sum() * THETA)
    np.testing.assert_allclose(here.hessian, len(ends) * np.outer(THETA, THETA))
    np.testing.assert_array_equal(here.extra, modes + 100.0)


def test_a_rule_is_compared_with_the_next_finer_one():
    """For a kink beside the nodes, of which every rule says something else."""
    theta, place = 1.5, 0.37

    def log_densities(theta, x, data):
        return -theta[0] * jnp.abs(x[:, 0] - place)

    def by_hand(rule):
        away = np.abs(rule.nodes[:, 0] - place)
        weights = np.exp(rule.log_weights - norm.logpdf(rule.nodes[:, 0]) - theta * away)
        return np.log(weights.sum()), -(weights @ away) / weights.sum()

    blocks = Blocks(log_densities, None, jnp.zeros((1, 1)), divisible=False)
    _, two_rules, _ = module._compiled(blocks.bare, 5, 1)
    found = two_rules(jnp.asarray([theta]), proposal_at([[[0.0]]], [[[[1.0]]]]), None)
    answers = [by_hand(rule) for rule in rules(1, 5)]
    assert len({round(value, 6) for value, _ in answers}) == 4
    for moments, (value, _) in zip(found[:2], answers[1:3], strict=True):
        np.testing.assert_allclose(moments.log_marginal, [value], rtol=1e-9)
    np.testing.assert_allclose(found[2], [answers[2][1] - answers[1][1]], rtol=1e-6)


def test_finer_rules_are_taken_one_after_the_other(monkeypatch):
    asked = []

    def compiled(bare, order, rung):
        asked.append(rung)
        return None, None, None

    monkeypatch.setattr(module, "_compiled", compiled)
    function = quadrature_likelihood(counts_problem(COUNTS))
    while function.finer is not None:
        function = function.finer()
    assert asked == [0, 1, 2]


def test_there_are_finer_rules_as_long_as_one_is_left_to_check_them(monkeypatch):
    problem = counts_problem(COUNTS)
    likelihoods = [quadrature_likelihood(problem, rung=rung) for rung in range(3)]
    assert [one.finer is not None for one in likelihoods] == [True, True, False]
    most = len(COUNTS) * len(rules(1)[2].nodes)
    monkeypatch.setattr(module, "MOST_NODES", most + 1)
    assert quadrature_likelihood(problem).finer is not None
    monkeypatch.setattr(module, "MOST_NODES", most)
    assert quadrature_likelihood(problem).finer is None


def test_two_modes_that_are_known_are_counted():
    def log_joint(theta, x, y):
        near = [-0.5 * ((x - at - theta) / 0.5) ** 2 for at in (-4.0, y)]
        return jnp.logaddexp(*near) - np.log(2 * 0.5 * np.sqrt(2 * np.pi))

    problem = mx.Problem.grouped(log_joint, jnp.asarray([4.0, 6.0]), theta=0.0, latent=0.0)
    function = quadrature_likelihood(problem, order=9)
    starts = jnp.asarray([[[-4.0], [-4.0]], [[4.0], [6.0]]])
    found = function.describe(np.zeros(1), starts)
    assert found.num_modes == 2
    np.testing.assert_allclose(found.by_group, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.mean[:, 0], [0.0, 1.0], atol=1e-4)
    assert function.describe(np.zeros(1), starts[:1]).num_modes == 1

"""Mixtures around modes: masses, densities and places against SciPy, and parts that add up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t, norm

from marginax.likelihood import blocks as blocks_module
from marginax.likelihood import proposals
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.modes import Laplace, Top
from marginax.likelihood.proposals import (
    Proposal,
    _mixture,
    as_modes,
    gaussian_log_density,
    inverses,
    log_densities_of,
    log_standard_t,
    points_of,
    proposals_by_chunk,
    proposer,
)


def laplace(mode, root):
    """Gaussians with these modes [modes, blocks, p] and roots."""
    mode, root = np.asarray(mode, float), np.asarray(root, float)
    log_root = np.linalg.slogdet(root)[1]
    return Laplace(jnp.asarray(mode), jnp.asarray(root), jnp.asarray(log_root))


def in_line(modes, widths):
    """The same of one latent in one block."""
    return laplace(np.reshape(modes, (-1, 1, 1)), np.reshape(widths, (-1, 1, 1, 1)))


# Standard densities and roots


def test_modes_have_an_axis_of_their_own():
    assert as_modes(jnp.zeros((2, 3))).shape == (1, 2, 3)
    assert as_modes(jnp.zeros((4, 2, 3))).shape == (4, 2, 3)


@pytest.mark.parametrize("size", [1, 3])
def test_standard_densities_are_those_of_scipy(size):
    z = np.random.default_rng(0).normal(size=(2, 4, size))
    gaussian = multivariate_normal(np.zeros(size)).logpdf(z)
    np.testing.assert_allclose(gaussian_log_density(jnp.asarray(z)), gaussian)
    log_t = jax.jit(log_standard_t)
    for degrees in (1.0, 4.5):
        expected = multivariate_t(np.zeros(size), np.eye(size), degrees).logpdf(z)
        np.testing.assert_allclose(log_t(z, jnp.asarray(degrees)), expected)
    np.testing.assert_allclose(log_t(z, jnp.asarray(np.inf)), gaussian)


def test_the_slope_of_a_t_of_infinite_degrees_is_that_of_a_gaussian():
    slope = jax.grad(lambda z: log_standard_t(z, jnp.asarray(np.inf)))(jnp.asarray([2.0, -3.0]))
    np.testing.assert_allclose(slope, [-2.0, 3.0])


@pytest.mark.parametrize("size", [1, 2])
def test_a_root_times_its_inverse_is_1_in_any_units(size):
    root = np.random.default_rng(1).normal(size=(2, 3, size, size))
    root *= np.array([1.0, 1e9])[:size, None]
    inverse = np.asarray(jax.jit(inverses)(root))
    product = np.einsum("mbpq,mbqr->mbpr", inverse, root)
    np.testing.assert_allclose(jax.jit(inverses)(root[0]), inverse[0], rtol=1e-9)
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), root.shape), atol=1e-9)


# Points and their densities


MODES = np.array([[[0.0, 1.0], [3.0, -1.0]], [[5.0, 2.0], [3.0, 4.0]]])  # [modes, blocks, p]
ROOTS = np.array(
    [[[[1.0, 0.0], [0.5, 2.0]], [[2.0, 1.0], [0.0, 0.5]]],
     [[[0.3, 0.2], [-0.4, 1.0]], [[1.0, 2.0], [3.0, -1.0]]]]
)  # fmt: skip
SHARES = np.log([[0.2, 0.6], [0.8, 0.4]])
Z = np.array([[0.0, 0.0], [1.0, -0.5], [-2.0, 0.3]])


def mixture_of(m):
    """Only so many of the modes."""
    shares = SHARES if m == 2 else np.zeros((1, 2))
    return Proposal(laplace(MODES[:m], ROOTS[:m]), jnp.asarray(shares))


def points_by_hand():
    return np.stack(
        [[[MODES[m, b] + ROOTS[m, b] @ z for b in (0, 1)] for z in Z] for m in (0, 1)]
    )  # [modes, points, blocks, p]


def densities_by_hand(points):
    """Of every mode's Gaussian, [modes, *points, blocks]."""
    by_block = [
        [
            multivariate_normal(MODES[m, b], ROOTS[m, b] @ ROOTS[m, b].T).logpdf(points[..., b, :])
            for b in (0, 1)
        ]
        for m in (0, 1)
    ]
    return np.moveaxis(np.asarray(by_block), 1, -1)


def test_points_are_standard_ones_moved_to_every_mode():
    actual = points_of(mixture_of(2), jnp.asarray(Z))
    np.testing.assert_allclose(actual, points_by_hand().reshape(6, 2, 2))


def test_of_one_mode_the_density_is_its_gaussian():
    log_q, share = log_densities_of(mixture_of(1), jnp.asarray(Z), gaussian_log_density)
    np.testing.assert_allclose(log_q, densities_by_hand(points_by_hand()[0])[0])
    assert share.shape == (3, 2)
    assert not np.any(share)
    known, _ = log_densities_of(
        mixture_of(1), jnp.asarray(Z), gaussian_log_density, log_q=jnp.full(3, 7.0)
    )
    expected = 7.0 - np.linalg.slogdet(ROOTS[0])[1]
    np.testing.assert_allclose(known, np.broadcast_to(expected, (3, 2)))


def test_of_two_modes_the_density_is_that_of_the_mixture():
    of_points = jax.jit(lambda z: log_densities_of(mixture_of(2), z, gaussian_log_density))
    log_q, share = of_points(Z)
    parts = densities_by_hand(points_by_hand()) + SHARES[:, None, None]
    np.testing.assert_allclose(log_q, logsumexp(parts, axis=0).reshape(6, 2))
    np.testing.assert_allclose(share, np.repeat(SHARES, 3, axis=0))


@pytest.mark.parametrize("sharpness", [1.0, 1.7])
def test_parts_of_all_modes_add_up_to_the_whole_at_every_point(sharpness):
    modes, widths, shares = np.array([0.0, 3.0]), np.array([2.0, 0.1]), np.log([0.7, 0.3])
    mixture = Proposal(in_line(modes, widths), jnp.asarray(shares)[:, None])
    x = np.array([-3.0, 1.0, 2.5, 3.0])
    z = (x - modes[:, None]) / widths[:, None]

    def of(z):
        return log_densities_of(mixture, z[:, None], gaussian_log_density, sharpness=sharpness)[0]

    own = jax.jit(jax.vmap(of))(z).reshape(2, 2, 4)[[0, 1], [0, 1]]  # of x as a mode's own point
    heights = norm.logpdf(z) + shares[:, None] - np.log(widths)[:, None]
    parts = np.exp(heights - np.asarray(own))
    np.testing.assert_allclose(parts.sum(axis=0), 1.0)
    plain = np.exp(heights - logsumexp(heights, axis=0))
    if sharpness == 1.0:
        np.testing.assert_allclose(parts, plain, atol=1e-12)
    else:  # the narrow mode has more of what is between
        assert np.all(parts[1, 2:] > plain[1, 2:])


@pytest.mark.parametrize("width", [0.0, np.nan, 1.0])
@pytest.mark.parametrize("sharpness", [1.0, 1.5])
def test_a_mode_without_a_share_counts_for_nothing(width, sharpness):
    at = Laplace(jnp.zeros((2, 1, 1)), jnp.array([2.0, width])[:, None, None, None],
                 jnp.log(jnp.array([2.0, 1.0]))[:, None])  # fmt: skip
    mixture = Proposal(at, jnp.array([[0.0], [-jnp.inf]]))
    z = jnp.array([[0.0], [1.5]])
    log_q, share = jax.jit(
        lambda z: log_densities_of(mixture, z, gaussian_log_density, sharpness=sharpness)
    )(z)
    np.testing.assert_allclose(log_q[:2, 0], norm.logpdf([0.0, 1.5]) - np.log(2.0))
    assert share[:, 0].tolist() == [0.0, 0.0, -np.inf, -np.inf]


# The mixture's shares


def shares_of(modes, widths, values, starts=None):
    """Shares and where the next search starts, of one latent in one block."""
    count = len(modes)
    starts = np.full(count, 99.0) if starts is None else starts
    with np.errstate(divide="ignore"):
        at = in_line(modes, widths)
    made, onwards = _mixture(at, jnp.asarray(values, float)[:, None],
                             jnp.asarray(starts, float)[:, None, None])  # fmt: skip
    return np.exp(np.asarray(made.log_share)[:, 0]), np.asarray(onwards)[:, 0, 0]


def test_modes_share_by_their_mass():
    shares, onwards = shares_of([0.0, 20.0], [2.0, 0.5], np.log([1.0, 12.0]))
    np.testing.assert_allclose(shares, [0.25, 0.75])
    assert onwards.tolist() == [0.0, 20.0]


def test_even_a_negligible_mode_is_looked_at():
    for values, order in (([0.0, -50.0], [1.0, np.exp(-7)]), ([-50.0, 0.0], [np.exp(-7), 1.0])):
        shares, _ = shares_of([0.0, 20.0], [1.0, 1.0], values)
        np.testing.assert_allclose(shares, np.array(order) / (1 + np.exp(-7)))
    shares, _ = shares_of([0.0, 20.0], [1.0, 1.0], [0.0, -6.5])
    np.testing.assert_allclose(shares[1] / shares[0], np.exp(-6.5))


@pytest.mark.parametrize("height", [-300.0, 300.0])
def test_shares_are_the_same_whatever_is_added_to_all_values(height):
    for values in ([0.0, -50.0, -3.0], [-50.0, 0.0, 0.0]):
        expected, _ = shares_of([0.0, 20.0, 40.0], [1.0, 1.0, 3.0], values)
        shares, _ = shares_of([0.0, 20.0, 40.0], [1.0, 1.0, 3.0], np.array(values) + height)
        np.testing.assert_allclose(shares, expected, rtol=1e-9)


@pytest.mark.parametrize("nothing", [np.nan, -np.inf])
def test_of_modes_without_mass_the_first_is_kept(nothing):
    shares, _ = shares_of([0.0, 20.0], [1.0, 1.0], [nothing, nothing])
    assert shares.tolist() == [1.0, 0.0]
    shares, _ = shares_of([0.0, 20.0], [1.0, 1.0], [0.0, nothing])
    assert shares.tolist() == [1.0, 0.0]
    shares, _ = shares_of([0.0, 20.0], [1.0, 1.0], [nothing, 0.0])
    np.testing.assert_allclose(shares[0] / shares[1], np.exp(-7))
    shares, _ = shares_of([0.0, 20.0], [0.0, 1.0], [0.0, 0.0])
    np.testing.assert_allclose(shares[0] / shares[1], np.exp(-7))


@pytest.mark.parametrize(
    ("modes", "widths", "shares"),
    [
        ([0.0, 0.4], [1.0, 1.0], [1.0, 0.0]),
        ([0.0, -0.4], [1.0, 1.0], [1.0, 0.0]),
        ([0.0, 0.5], [1.0, 1.0], [0.5, 0.5]),
        ([0.0, 4.0], [10.0, 10.0], [1.0, 0.0]),
        ([0.0, 6.0], [10.0, 10.0], [0.5, 0.5]),
        # The width of the first counts.
        ([0.0, 4.0], [10.0, 1.0], [1.0, 0.0]),
        ([0.0, 4.0], [1.0, 10.0], [1 / 11, 10 / 11]),
        # What repeats a repeat is no repeat.
        ([0.0, 0.4, 0.8], [1.0, 1.0, 1.0], [0.5, 0.0, 0.5]),
        ([9.0, 0.0, 0.4], [1.0, 1.0, 1.0], [0.5, 0.5, 0.0]),
        ([0.0, 9.0, 0.4], [1.0, 1.0, 1.0], [0.5, 0.5, 0.0]),
    ],
)
def test_a_mode_within_half_a_width_of_one_before_it_repeats_it(modes, widths, shares):
    found, onwards = shares_of(modes, widths, np.zeros(len(modes)))
    np.testing.assert_allclose(found, shares, atol=1e-12)
    # It may part from it again, elsewhere.
    assert onwards.tolist() == [m if s else 99.0 for m, s in zip(modes, shares, strict=True)]


def test_distances_are_in_widths_along_each_direction_and_blocks_apart():
    root = np.broadcast_to(np.array([[10.0, 0.0], [0.0, 0.1]]), (2, 3, 2, 2))
    second = [[4.0, 0.0], [0.0, 4.0], [3.0, 0.045]]  # 0.4, 40 and 0.54 of a width away
    at = laplace([np.zeros((3, 2)), second], root)
    made, onwards = _mixture(at, jnp.zeros((2, 3)), jnp.full((2, 3, 2), 99.0))
    np.testing.assert_allclose(np.exp(made.log_share), [[1.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    assert onwards[1].tolist() == [[99.0, 99.0], *second[1:]]
    assert made.at is not None
    np.testing.assert_array_equal(made.at.mode, at.mode)


# Blocks


def blocks_of(count, divisible=True):
    data = jnp.arange(float(count))
    return Blocks(lambda theta, x, data: -0.5 * x[:, 0] ** 2, data, data[:, None], divisible)


@pytest.fixture
def climbs(monkeypatch):
    """Climbs that end at 10 theta + start + 100 data, with width and value 1; and of which rows."""
    asked = []

    def find(theta, start, data):
        asked.append((np.asarray(start)[:, :, 0].tolist(), np.asarray(data).tolist()))
        mode = jnp.asarray(
            10 * theta[0] + np.asarray(start) + 100 * np.asarray(data)[None, :, None]
        )
        ones = jnp.ones(mode.shape[:2])
        return Top(Laplace(mode, ones[:, :, None, None], 0 * ones), ones, 0 * ones)

    monkeypatch.setattr(proposals, "placing", lambda bare: find)
    return asked


THETA = np.array([0.5])


def test_one_mode_has_all_the_mass(climbs):
    made, onwards = proposer(blocks_of(3))(THETA, jnp.zeros((1, 2, 1)), slice(1, 3))
    assert climbs == [([[0.0, 0.0]], [1.0, 2.0])]
    assert made.at.mode[0, :, 0].tolist() == [105.0, 205.0]
    assert made.log_share.tolist() == [[0.0, 0.0]]
    np.testing.assert_array_equal(onwards, made.at.mode)


def test_every_mode_is_climbed_to_from_its_own_start(climbs):
    starts = jnp.array([[[0.0], [1.0]], [[20.0], [1.2]]])
    made, onwards = proposer(blocks_of(2))(THETA, starts, slice(0, 2))
    assert climbs == [([[0.0, 1.0]], [0.0, 1.0]), ([[20.0, 1.2]], [0.0, 1.0])]
    np.testing.assert_allclose(made.at.mode[:, :, 0], [[5.0, 106.0], [25.0, 106.2]])
    np.testing.assert_allclose(np.exp(made.log_share), [[0.5, 1.0], [0.5, 0.0]])
    np.testing.assert_allclose(onwards[:, :, 0], [[5.0, 106.0], [25.0, 1.2]])


@pytest.mark.parametrize("num_modes", [1, 2])
def test_chunks_of_few_blocks_share_a_climb(climbs, num_modes):
    """Of 3 blocks with a million points each every one is a chunk."""
    starts = jnp.arange(3.0 * num_modes).reshape(num_modes, 3, 1) * 10
    each = proposals_by_chunk(blocks_of(3))
    one_by_one = list(each(THETA, starts, 2**20))
    assert len(climbs) == num_modes
    assert [rows for rows, *_ in one_by_one] == [slice(k, k + 1) for k in range(3)]
    ((rows, whole, onwards),) = each(THETA, starts, 10)
    assert rows == slice(0, 3)
    assert len(climbs) == 2 * num_modes
    for k, (_, part, further) in enumerate(one_by_one):
        for leaf, all_of_it in zip(
            jax.tree.leaves((part, further)), jax.tree.leaves((whole, onwards)), strict=True
        ):
            np.testing.assert_array_equal(leaf, np.asarray(all_of_it)[:, k : k + 1])
    assert isinstance(whole.at.mode, jax.Array)  # not fetched, as there was one chunk


@pytest.mark.parametrize("num_modes", [1, 2])
def test_several_climbs_are_put_together_block_by_block(climbs, monkeypatch, num_modes):
    """Of 4 blocks, 2 at a time, for chunks of one."""
    starts = jnp.arange(4.0 * num_modes).reshape(num_modes, 4, 1) * 10
    ((_, whole, onwards),) = proposals_by_chunk(blocks_of(4))(THETA, starts, 1)
    monkeypatch.setattr(blocks_module, "MOST_POINTS", 400)
    found = list(proposals_by_chunk(blocks_of(4))(THETA, starts, 400))
    assert [data for _, data in climbs[num_modes:]] == [[0.0, 1.0]] * num_modes + [
        [2.0, 3.0]
    ] * num_modes
    assert [rows for rows, *_ in found] == [slice(k, k + 1) for k in range(4)]
    for k, (_, part, further) in enumerate(found):
        for leaf, all_of_it in zip(
            jax.tree.leaves((part, further)), jax.tree.leaves((whole, onwards)), strict=True
        ):
            np.testing.assert_array_equal(leaf, np.asarray(all_of_it)[:, k : k + 1])


def test_chunks_of_devices_are_climbed_one_by_one(climbs, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = list(proposals_by_chunk(blocks_of(3))(THETA, jnp.zeros((1, 3, 1)), 2**20))
    assert [part.at.mode[0, 0, 0] for _, part, _ in found] == [5.0, 105.0, 205.0]
    assert [data for _, data in climbs] == [[0.0], [1.0], [2.0]]

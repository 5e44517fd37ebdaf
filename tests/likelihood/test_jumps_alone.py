"""Jumps between modes: their density by SciPy, and distributions that they leave as they are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, multivariate_t, norm, t

from marginax.likelihood.jumps import Jumps, _log_q, jump, jumps_between
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal

pytestmark = pytest.mark.slow

ROOTS = np.array([[[2.0, 0.0], [-1.0, 0.5]], [[0.3, 0.1], [0.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])
MODES = np.array([[3.0, -1.0], [0.0, 7.0], [0.0, 0.0]])
SHARES = np.array([0.3, 0.7, 0.0])
WIDTHS = ((1.0, 0.7), (3.0, 0.2), (10.0, 0.1))  # and how many of each


class State(NamedTuple):
    position: jax.Array
    logdensity: jax.Array
    logdensity_grad: jax.Array


def proposal(modes=MODES, roots=ROOTS, shares=SHARES, log_roots=None):
    """Of one block, [modes, p] and [modes, p, p]."""
    roots = np.asarray(roots, float)
    with np.errstate(divide="ignore"):
        log_share = np.log(np.asarray(shares, float))
    log_root = np.log(np.abs(np.linalg.det(roots))) if log_roots is None else np.array(log_roots)
    parts = (np.asarray(modes, float)[:, None], roots[:, None], log_root[:, None])
    return Proposal(Laplace(*(jnp.asarray(p) for p in parts)), jnp.asarray(log_share)[:, None])


def of_first_block(jumps):
    return Jumps(*(leaf[0] for leaf in jumps))


def density(x, modes=MODES, roots=ROOTS, shares=SHARES):
    """Of jumps to x, in the latents' own coordinates."""
    total = 0.0
    for mode, root, share in zip(modes, roots, shares, strict=True):
        for width, part in WIDTHS:
            shape = width**2 * root @ root.T
            total = total + share * part * multivariate_t(mode, shape, 5).pdf(x)
    return total


def test_jumps_are_in_the_coordinates_of_the_first_mode():
    jumps = jumps_between(proposal())
    first = np.linalg.inv(ROOTS[0])
    np.testing.assert_allclose(jumps.center[0], (MODES - MODES[0]) @ first.T, atol=1e-12)
    np.testing.assert_allclose(jumps.root[0], first @ ROOTS, atol=1e-12)
    np.testing.assert_allclose(jumps.inverse[0], np.linalg.inv(ROOTS) @ ROOTS[0], atol=1e-12)
    dets = np.log(np.abs(np.linalg.det(ROOTS)))
    np.testing.assert_allclose(jumps.log_root[0], dets - dets[0], atol=1e-12)
    np.testing.assert_allclose(np.exp(jumps.log_share[0]), SHARES)


def test_a_width_that_is_not_known_counts_as_one():
    jumps = jumps_between(proposal(log_roots=[-np.inf, 2.0, 0.5]))
    np.testing.assert_array_equal(jumps.log_root[0], [0.0, 2.0, 0.5])
    jumps = jumps_between(proposal(log_roots=[1.0, np.nan, 0.5]))
    np.testing.assert_array_equal(jumps.log_root[0], [0.0, -1.0, -0.5])


@pytest.mark.parametrize("u", [[0.0, 0.0], [1.0, -2.0], [-30.0, 4.0]])
def test_the_density_of_a_jump_is_that_of_heavy_tailed_distributions_at_every_mode(u):
    jumps = of_first_block(jumps_between(proposal()))
    found = jax.jit(_log_q)(jumps, jnp.asarray(u))
    x = MODES[0] + ROOTS[0] @ np.array(u)
    volume = np.abs(np.linalg.det(ROOTS[0]))
    np.testing.assert_allclose(found, np.log(density(x) * volume), rtol=1e-9)


def jumped(jumps, start, log_density, num, key=0):
    """Every one of `num` states after one jump, and before."""
    value, slope = jax.vmap(jax.value_and_grad(log_density))(jnp.asarray(start))
    before = State(jnp.asarray(start), value, slope)
    keys = jax.random.split(jax.random.key(key), num)
    step = jax.jit(jax.vmap(lambda key, state: jump(key, state, log_density, jumps)))
    return step(keys, before), before


def two_places(u):
    """0.3 of N(0, 1) and 0.7 of N(20, 2)."""
    parts = [-0.5 * u[0] ** 2 + np.log(0.3), -0.5 * ((u[0] - 20) / 2) ** 2 + np.log(0.35)]
    return jnp.logaddexp(*parts)


LINE = ([[0.0], [20.0]], [[[1.0]], [[2.0]]])
NUM = 4000


def test_a_distribution_stays_as_it_is():
    """Also with other shares of the modes than the distribution has."""
    random = np.random.default_rng(0)
    right = random.random(NUM) < 0.7
    start = np.where(right, 20 + 2 * random.normal(size=NUM), random.normal(size=NUM))[:, None]
    jumps = of_first_block(jumps_between(proposal(*LINE, shares=[0.6, 0.4])))
    after, before = jumped(jumps, start, two_places, NUM)
    x = np.asarray(after.position)[:, 0]
    assert kstest(x, lambda x: 0.3 * norm.cdf(x) + 0.7 * norm.cdf(x, 20, 2)).pvalue > 1e-4
    moved = x != start[:, 0]
    assert 0.3 < moved.mean() < 0.9
    assert abs(np.mean((x > 10) & ~right) - np.mean((x < 10) & right)) < 0.03
    # What a chain knows of a place is of that place.
    value, slope = jax.vmap(jax.value_and_grad(two_places))(after.position)
    np.testing.assert_allclose(after.logdensity, value, rtol=1e-9)
    np.testing.assert_allclose(after.logdensity_grad, slope, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(after.logdensity[~moved], before.logdensity[~moved])


def test_all_jumps_are_accepted_if_the_distribution_is_theirs():
    """So that one sees what they are drawn from."""
    jumps = of_first_block(jumps_between(proposal(*LINE, shares=[0.6, 0.4])))
    start = np.zeros((NUM, 1))
    after, _ = jumped(jumps, start, lambda u: _log_q(jumps, u), NUM)
    x = np.asarray(after.position)[:, 0]
    assert np.all(x != 0)

    def distribution(x):
        return 0.6 * of_widths(x) + 0.4 * of_widths(x, 20.0, 2.0)

    assert kstest(x, distribution).pvalue > 1e-4


def of_widths(x, mode=0.0, scale=1.0):
    """The share of jumps from a mode that go no further than x."""
    return sum(part * t.cdf(x, 5, mode, width * scale) for width, part in WIDTHS)


def test_jumps_in_a_plane_are_heavy_tailed_along_all_directions_at_once():
    jumps = of_first_block(jumps_between(proposal(MODES[:1], ROOTS[1:2], [1.0])))
    after, _ = jumped(jumps, np.zeros((NUM, 2)), lambda u: _log_q(jumps, u), NUM)
    u = np.asarray(after.position)
    # Along any line it is a mixture of t distributions, as it is along the axes.
    for line in ([1.0, 0.0], [0.0, 1.0], [0.6, 0.8]):
        assert kstest(u @ np.array(line), of_widths).pvalue > 1e-4
    # Lengths along two axes go together, as those of no independent numbers do.
    assert np.corrcoef(np.log(np.abs(u)).T)[0, 1] > 0.1


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_no_jump_leads_to_where_there_is_no_density(bad):
    def log_density(u):
        return jnp.where(u[0] > 0.5, bad, -0.5 * u[0] ** 2)

    jumps = of_first_block(jumps_between(proposal(*LINE, shares=[0.5, 0.5])))
    after, _ = jumped(jumps, np.zeros((500, 1)), log_density, 500)
    x = np.asarray(after.position)
    assert np.all(x <= 0.5)
    assert np.any(x != 0)
    assert np.all(np.isfinite(after.logdensity))


def test_from_where_there_is_no_density_every_jump_is_taken():
    def log_density(u):
        return jnp.where(u[0] == 5.0, -jnp.inf, -0.5 * u[0] ** 2)

    jumps = of_first_block(jumps_between(proposal(*LINE, shares=[0.5, 0.5])))
    after, _ = jumped(jumps, np.full((500, 1), 5.0), log_density, 500)
    assert np.all(after.position != 5.0)


def test_a_chain_in_single_precision_stays_in_it():
    """A loop over its steps takes no other."""

    def after(start, jumps):
        state = State(start, jnp.zeros((), start.dtype), jnp.zeros_like(start))
        return jump(jax.random.key(0), state, lambda u: -0.5 * jnp.sum(u**2), jumps)

    jumps = of_first_block(jumps_between(proposal(*LINE, shares=[0.6, 0.4])))
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), jumps)
    found = jax.eval_shape(after, jax.ShapeDtypeStruct((1,), jnp.float32), single)
    assert [leaf.dtype for leaf in found] == [jnp.float32] * 3

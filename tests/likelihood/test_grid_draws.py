"""Draws from the cells of a grid: exact moments, tails, and shares of modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import marginax as mx
from marginax.likelihood.blocks import as_blocks
from marginax.likelihood.grid_draws import grid_draws
from marginax.likelihood.posterior import posterior_sampler
from marginax.likelihood.proposals import inverses

THETA = np.zeros(1)
CHAINS, LENGTH = 20, 250


def draws_of(log_density, places, modes=None, size=1, key=0):
    """Draws [chains * draws, groups, size] of a density per group, given by its data."""
    problem = mx.Problem.grouped(
        lambda theta, x, place: log_density(x, place), places, theta=0.0, latent=jnp.zeros(size)
    )
    blocks = as_blocks(problem)
    starts = blocks.start[None] if modes is None else jnp.asarray(modes)
    draws, acceptance = grid_draws(blocks, CHAINS, LENGTH)(THETA, starts, jax.random.key(key))
    assert draws.shape == (CHAINS, LENGTH, len(places), size)
    return draws.reshape(-1, len(places), size), acceptance


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_gaussians_of_any_place_and_width(size):
    """Units differ by 1e12, and so do places and correlations of groups."""
    random = np.random.default_rng(0)
    roots = random.normal(size=(4, size, size)) * 10.0 ** np.array([-6, 0, 3, 6])[:, None, None]
    means = random.normal(size=(4, size)) * 10.0 ** np.array([-5, 0, 4, 6])[:, None]
    places = {"mean": jnp.asarray(means), "inverse": jnp.asarray(np.linalg.inv(roots))}

    def log_density(x, place):
        return -0.5 * jnp.sum((place["inverse"] @ (x - place["mean"])) ** 2)

    problem = mx.Problem.grouped(
        lambda theta, x, place: log_density(x, place), places, theta=0.0, latent=jnp.zeros(size)
    )
    blocks = as_blocks(problem)
    draws, acceptance = grid_draws(blocks, CHAINS, LENGTH)(
        THETA, jnp.asarray(means)[None], jax.random.key(0)
    )
    assert acceptance > 0.7
    z = np.einsum("gpq,cdgq->cdgp", np.linalg.inv(roots), draws - means).reshape(-1, 4 * size)
    assert np.max(np.abs(z.mean(axis=0))) < 0.08  # 5 standard errors of 3,000 draws or more
    np.testing.assert_allclose(np.cov(z.T), np.eye(4 * size), atol=0.12)


def test_two_modes_of_different_widths_get_their_shares():
    """0.3 N(-5, 0.1) + 0.7 N(5, 2): by chains that knew one mode it would be all or nothing."""

    def log_density(x, _):
        parts = [-0.5 * ((x[0] + 5) / 0.1) ** 2 + jnp.log(0.3 / 0.1)]
        parts += [-0.5 * ((x[0] - 5) / 2) ** 2 + jnp.log(0.7 / 2)]
        return jax.nn.logsumexp(jnp.stack(parts))

    draws, acceptance = draws_of(log_density, jnp.zeros(1), modes=[[[-5.0]], [[5.0]]])
    assert acceptance > 0.8
    left = draws[draws[:, 0, 0] < -4.5]
    assert abs(len(left) / len(draws) - 0.3) < 0.04  # 5 standard errors
    np.testing.assert_allclose(left.std(), 0.1, rtol=0.08)


@pytest.mark.parametrize(
    ("name", "log_density"),
    [
        ("t", lambda x, _: -2.0 * jnp.log1p(x[0] ** 2 / 3)),
        ("laplace", lambda x, _: -jnp.abs(x[0])),
        ("truncnorm", lambda x, _: jnp.where(x[0] < 0.4, -0.5 * x[0] ** 2, -jnp.inf)),
        ("logistic", lambda x, _: jax.nn.log_sigmoid(x[0]) + jax.nn.log_sigmoid(-x[0])),
    ],
)
def test_tails_kinks_and_ends(name, log_density):
    """Kolmogorov and Smirnov, every third draw; a false alarm once in 10,000."""
    draws, _ = draws_of(log_density, jnp.zeros(1))
    arguments = {"t": (3,), "truncnorm": (-np.inf, 0.4)}.get(name, ())
    assert kstest(draws[::3, 0, 0], name, arguments).pvalue > 1e-4


def test_a_density_that_is_nowhere_finite_has_not_mixed():
    problem = mx.Problem.grouped(
        lambda theta, x, y: jnp.where(theta < 1, -(x**2), -jnp.inf),
        jnp.zeros(2),
        theta=0.0,
        latent=0.0,
    )
    found = posterior_sampler(problem)(np.ones(1), jnp.zeros((20, 2, 1)), jax.random.key(0))
    assert found.rhat > 100
    assert found.num_stuck == 40


def test_the_inverse_of_a_root_in_units_far_apart():
    """Of latents in units 1e10 apart: most chains never moved, and the fit was doubted."""
    root = np.random.default_rng(0).normal(size=(6, 2, 2)) * np.array([1.0, 1e-10])[:, None]
    product = np.einsum("bpq,bqr->bpr", np.asarray(inverses(jnp.asarray(root))), root)
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(2), product.shape), atol=1e-9)

"""Posterior draws: how many, by which sampler, started where, and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.diagnostics.mixing import mixing
from marginax.likelihood import posterior
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal

KEY = jax.random.key(0)
THETA = np.array([0.5])


def problem(size, num_groups=None):
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta) ** 2)

    if num_groups is None:
        return mx.Problem(log_joint, theta=jnp.zeros(1), latent=jnp.zeros(size))
    data = np.zeros(num_groups)
    return mx.Problem.grouped(log_joint, data, theta=jnp.zeros(1), latent=jnp.zeros(size))


def blocks(num_blocks, size):
    return Blocks(lambda theta, x, data: x[:, 0], None, jnp.zeros((num_blocks, size)), True)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(
    ("size", "has_chains", "can"), [(3, False, True), (4, True, True), (4, False, False)]
)
def test_few_latents_can_be_drawn_always_and_more_by_chains(monkeypatch, size, has_chains, can):
    monkeypatch.setattr(posterior, "has_chains", lambda: has_chains)
    assert posterior.can_draw(size) is can


@pytest.mark.parametrize(
    ("num_latents", "room"),
    [
        (1, (20, 250)),
        (800, (20, 250)),  # four million numbers
        (1_000, (20, 200)),
        (4_000, (20, 50)),
        (40_000, (20, 50)),
        (50_000, (16, 50)),  # forty million numbers
        (100_000, (8, 50)),
        (200_000, (8, 50)),
    ],
)
def test_room_for_draws(num_latents, room):
    assert posterior._room(num_latents) == room


def test_fifty_draws_of_eight_chains_have_to_fit():
    assert not posterior.too_many_latents(100_000)
    assert posterior.too_many_latents(100_001)


def test_blocks_of_few_latents_are_drawn_from_a_grid(monkeypatch):
    asked, draws = [], normal(4, 30, 2, 3)

    def grid_draws(blocks, num_chains, num_draws):
        asked.append((blocks.start.shape, num_chains, num_draws))

        def from_grid(theta, starts, key):
            asked.append((theta, starts, key))
            return draws, 0.75

        return from_grid

    monkeypatch.setattr(posterior, "grid_draws", grid_draws)
    cloud = jnp.asarray(normal(7, 2, 3))
    draw = posterior.posterior_sampler(problem(3, 2))
    found = draw(THETA, cloud, KEY)
    assert asked[0] == ((2, 3), 20, 250)
    np.testing.assert_allclose(asked[1][1], np.asarray(cloud).mean(axis=0)[None])
    assert asked[1][0] is THETA
    assert asked[1][2] is KEY
    assert found.draws is draws
    assert found.sampler == "Metropolis-Hastings on a grid, 4 chains of 30 draws"
    assert (found.rhat, found.effective_draws) == tuple(mixing(draws))
    assert (found.acceptance, found.num_stuck) == (0.75, 0)
    modes = jnp.asarray(normal(5, 2, 3))
    draw(THETA, cloud, KEY, modes)
    np.testing.assert_array_equal(asked[2][1], modes)


@pytest.mark.parametrize(("size", "name"), [(4, "MALA with jumps"), (11, "NUTS")])
def test_blocks_of_many_latents_are_drawn_from_by_chains(monkeypatch, size, name):
    asked, draws = [], normal(4, 30, 1, size)

    def chain_draws(blocks, num_chains, num_draws):
        asked.append((blocks.start.shape, num_chains, num_draws))

        def from_chains(theta, proposal, cloud, key):
            asked.append((theta, proposal, cloud, key))
            return draws, 0.75

        return from_chains

    monkeypatch.setattr(posterior, "chain_draws", chain_draws)
    monkeypatch.setattr(posterior, "_whitening", lambda blocks: lambda *given: given)
    cloud, modes = jnp.asarray(normal(7, 1, size)), jnp.asarray(normal(1, 1, size))
    found = posterior.posterior_sampler(problem(size))(THETA, cloud, KEY, modes)
    assert asked[0] == ((1, size), 20, 250)
    theta, proposal, begin, key = asked[1]
    np.testing.assert_array_equal(theta, THETA)
    assert proposal[0] is THETA
    assert proposal[1] is begin is cloud
    assert proposal[2] is modes
    assert key is KEY
    assert found.sampler == f"{name}, 4 chains of 30 draws"
    assert found.acceptance == 0.75


def test_draws_without_chains_are_one_block_of_independent_ones():
    flat = normal(20 * 250, 2)
    asked = []

    def draw(count):
        asked.append(count)
        return flat

    found = posterior.independent_draws(draw, 2)
    assert asked == [5000]
    assert found.draws.shape == (20, 250, 1, 2)
    np.testing.assert_array_equal(found.draws.reshape(-1, 2), flat)
    assert found.sampler == "Draws by their weights, 20 chains of 250 draws"
    assert found.acceptance == 1.0
    assert found.num_stuck == 0


@pytest.mark.parametrize(("size", "num_groups", "is_compiled"), [(2, 5, True), (5, 2, False)])
def test_what_is_compiled_early(monkeypatch, size, num_groups, is_compiled):
    asked = []
    monkeypatch.setattr(posterior, "prepare_grid_draws", lambda *given: asked.append(given[1:]))
    posterior.prepare_draws(problem(size, num_groups))
    assert asked == ([(20, 250, 1)] if is_compiled else [])


@pytest.mark.parametrize(("num_blocks", "size"), [(2, 400), (401, 2)])
def test_chains_are_whitened_by_curvature(monkeypatch, num_blocks, size):
    asked, proposal = [], Proposal(Laplace(*jnp.zeros((3, 1))), jnp.zeros(1))

    def propose(theta, starts, rows):
        asked.append((theta, starts, rows))
        return proposal, "more", "and more"

    monkeypatch.setattr(posterior, "proposer", lambda blocks: propose)
    whiten = posterior._whitening(blocks(num_blocks, size))
    cloud = jnp.asarray(normal(3, num_blocks, size))
    assert whiten(THETA, cloud, None) is proposal
    assert asked[0][0] is THETA
    assert asked[0][2] == slice(None)
    np.testing.assert_allclose(asked[0][1], np.asarray(cloud).mean(axis=0)[None], atol=1e-12)
    modes = jnp.zeros((4, num_blocks, size))
    whiten(THETA, cloud, modes)
    assert asked[1][1] is modes


def test_very_many_latents_are_whitened_by_the_cloud():
    """By its mean and standard deviations; 1 where it has no width."""
    cloud = 0.1 * normal(5, 2, 401)
    cloud[:, 1, 7] = 3.0
    found = posterior._whitening(blocks(2, 401))(THETA, jnp.asarray(cloud), None)
    sd = cloud.std(axis=0)
    sd[1, 7] = 1.0
    np.testing.assert_allclose(found.at.mode, cloud.mean(axis=0)[None], atol=1e-12)
    np.testing.assert_allclose(found.at.root, sd[None], rtol=1e-10)
    np.testing.assert_allclose(found.at.log_root, np.log(sd).sum(axis=1)[None], rtol=1e-10)
    np.testing.assert_array_equal(found[1], np.zeros((1, 2)))


def test_chains_that_hardly_move_are_counted():
    """In fewer than two of a hundred draws; it is enough that one coordinate moves."""
    steps = np.zeros((3, 100, 2, 2))
    moves = [[99, 30], [2, 1], [0, 3]]  # of chains and blocks
    for chain, row in enumerate(moves):
        for block, count in enumerate(row):
            steps[chain, :count, block, chain % 2] = (1.0, 2.0, -1.0)[chain]
    draws = np.concatenate([np.zeros((3, 1, 2, 2)), np.cumsum(steps, axis=1)], axis=1)
    found = posterior._judged(draws, 0.5, "any")
    assert found.num_stuck == 2
    assert found.sampler == "any, 3 chains of 101 draws"


def test_none_are_stuck_unless_it_is_said():
    assert posterior.Posterior(np.zeros((1, 1, 1, 1)), "any", 1.0, 1.0, 1.0).num_stuck == 0

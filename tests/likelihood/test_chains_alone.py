"""Chains: where they start, what they see of a block, and in which coordinates they step."""

import builtins
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax.likelihood import chains
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal

KEY = jax.random.key(5)
NUM_BLOCKS, SIZE, NUM_CHAINS, NUM_DRAWS = 2, 3, 4, 5


def test_blackjax_is_there_or_not(monkeypatch):
    assert chains.has_chains() is True
    imported = builtins.__import__

    def without(name, *more):
        if name == "blackjax":
            raise ImportError
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert chains.has_chains() is False


def test_up_to_ten_latents_have_mala():
    assert [chains.with_mala(size) for size in (1, 10, 11)] == [True, True, False]


def laplace(num_blocks=NUM_BLOCKS, size=SIZE, diagonal=False, seed=0):
    rng = np.random.default_rng(seed)
    shape = (num_blocks, size) if diagonal else (num_blocks, size, size)
    root = 2.0 + rng.random(shape) if diagonal else rng.normal(size=shape) + 2 * np.eye(size)
    mode = rng.normal(size=(num_blocks, size))
    return Laplace(jnp.asarray(mode), jnp.asarray(root), jnp.zeros(num_blocks))


def placed(at, u):
    """m + R u, a row per chain and block."""
    mode, root = np.asarray(at.mode), np.asarray(at.root)
    away = np.einsum("bpq,cbq->cbp", root, u) if root.ndim == 3 else root * u
    return mode + away


def test_the_first_mode_whitens():
    two = [laplace(seed=seed) for seed in (0, 1)]
    at = Laplace(*(jnp.stack(parts) for parts in zip(*two, strict=True)))
    found = chains._first_mode(Proposal(at, jnp.zeros((2, NUM_BLOCKS))))
    for part, expected in zip(found, two[0], strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("num_blocks", [2, 4])
def test_particles_that_are_not_lost_are_whitened(diagonal, num_blocks):
    at = laplace(num_blocks, diagonal=diagonal)
    u = np.random.default_rng(1).normal(size=(NUM_CHAINS, num_blocks, SIZE))
    u *= np.array([1.0, 4.0, 8.5, 8.8])[:, None, None] / np.linalg.norm(u, axis=2, keepdims=True)
    u[0, 1] = np.nan
    found = chains._whitened(at, jnp.asarray(placed(at, u)), KEY)
    # Lost are those further out than 5 sqrt(3) = 8.66 standard deviations, or nowhere.
    np.testing.assert_allclose(found[1:3], u[1:3], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[0, 0], u[0, 0], rtol=1e-9, atol=1e-9)
    again = chains._whitened(at, jnp.asarray(placed(at, u)), jax.random.key(6))
    for lost in [(0, 1), *((3, block) for block in range(num_blocks))]:
        assert np.all(np.isfinite(found[lost]))
        assert not np.allclose(found[lost], u[lost])
        assert not np.allclose(found[lost], again[lost])


def log_densities(x, data):
    """Known of all blocks together only."""
    weights = jnp.asarray([[1.0, 2.0, 3.0], [0.5, 1.5, 2.5]])
    return -0.5 * jnp.sum(weights * x**2, axis=1) + data


def test_a_sampler_of_one_block_sees_its_own_value_and_gradient():
    data = jnp.asarray([10.0, 20.0])
    own = chains._of_one_block(lambda x: log_densities(x, data))
    x = np.random.default_rng(0).normal(size=(NUM_BLOCKS, SIZE))
    value, gradient = jax.vmap(jax.value_and_grad(own), axis_name=chains.SIDE_BY_SIDE)(
        jnp.asarray(x)
    )
    weights = np.array([[1.0, 2.0, 3.0], [0.5, 1.5, 2.5]])
    np.testing.assert_allclose(value, -0.5 * (weights * x**2).sum(axis=1) + [10, 20], rtol=1e-12)
    np.testing.assert_allclose(gradient, -weights * x, rtol=1e-12)
    plain = jax.vmap(own, axis_name=chains.SIDE_BY_SIDE)(jnp.asarray(x))
    np.testing.assert_allclose(plain, value, rtol=1e-12)


@pytest.mark.parametrize(("with_mala", "rate"), [(True, 0.65), (False, 0.8)])
def test_the_library_s_samplers_with_the_acceptance_that_suits_them(monkeypatch, with_mala, rate):
    """The rates of Roberts and Rosenthal (0.574, and a little more) and of Stan."""
    import blackjax
    from blackjax.adaptation import step_size

    asked, plain = [], step_size.dual_averaging_adaptation

    def watched(target, **more):
        asked.append(target)
        return plain(target, **more)

    monkeypatch.setattr(step_size, "dual_averaging_adaptation", watched)
    method = chains._method(with_mala)
    library = blackjax.mala if with_mala else blackjax.nuts
    assert method.init is library.init
    assert method.has_mass is not with_mala
    assert asked == [rate]


class State(NamedTuple):
    position: jax.Array
    logdensity: jax.Array
    logdensity_grad: jax.Array


class Info(NamedTuple):
    acceptance_rate: jax.Array


class Adaptation(NamedTuple):
    log_step_size: jax.Array
    log_first: jax.Array


def stepping(has_mass=False):
    """A sampler that moves by its step size in each coordinate and accepts half of it.

    Step sizes grow by a hundredth of the acceptance in each step of the warm-up.
    """

    def init(position, density):
        return State(position, *jax.value_and_grad(density)(position))

    def kernel(key, state, density, step_size, *mass):
        assert len(mass) == has_mass
        new = state.position + step_size * (mass[0] if has_mass else 1.0)
        return State(new, *jax.value_and_grad(density)(new)), Info(0.5 * step_size)

    return chains._Method(
        init,
        kernel,
        has_mass,
        lambda first: Adaptation(jnp.log(first), jnp.log(first)),
        lambda at, acceptance: at._replace(log_step_size=at.log_step_size + 0.0 * acceptance),
        lambda at: 2 * jnp.exp(at.log_step_size),
    )


@pytest.mark.parametrize(("has_mass", "diagonal"), [(False, False), (True, True)])
def test_every_chain_steps_in_whitened_coordinates_of_its_block(has_mass, diagonal):
    at, data = laplace(diagonal=diagonal), jnp.asarray([10.0, 20.0])

    def densities(theta, x, data):
        values = log_densities(x, data)
        return jnp.where(x[:, 0] > 50, jnp.nan, theta[0] * values)

    blocks = Blocks(densities, None, jnp.zeros((NUM_BLOCKS, SIZE)), True)
    theta = jnp.asarray([0.5])
    both = chains._init_and_step(blocks, stepping(has_mass), theta, at, None, data)
    init, step = (jax.jit(one) for one in both)
    u = np.random.default_rng(2).normal(size=(NUM_CHAINS, NUM_BLOCKS, SIZE))

    def expected(u):
        x = placed(at, u)
        weights = np.array([[1.0, 2.0, 3.0], [0.5, 1.5, 2.5]])
        return (0.5 * (-0.5 * (weights * x**2).sum(axis=2) + np.array([10.0, 20.0]))).T

    states = init(jnp.asarray(u))
    np.testing.assert_array_equal(states.position, np.swapaxes(u, 0, 1))  # by block and chain
    np.testing.assert_allclose(states.logdensity, expected(u), rtol=1e-9)
    sizes = np.arange(1.0, 9.0).reshape(NUM_BLOCKS, NUM_CHAINS)
    states, acceptance = step(KEY, states, jnp.asarray(sizes))
    moved = u + sizes.T[:, :, None]
    np.testing.assert_allclose(np.swapaxes(states.position, 0, 1), moved, rtol=1e-12)
    np.testing.assert_allclose(states.logdensity, expected(moved), rtol=1e-9)
    np.testing.assert_allclose(acceptance, 0.5 * sizes, rtol=1e-12)
    # A density that is not finite is none.
    far = jnp.full((NUM_CHAINS, NUM_BLOCKS, SIZE), 1e3)
    is_outside = placed(at, np.asarray(far))[:, :, 0].T > 50
    assert is_outside.any()
    np.testing.assert_array_equal(np.isneginf(init(far).logdensity), is_outside)


@pytest.mark.parametrize(("size", "jumps"), [(3, True), (11, False)])
def test_draws_are_those_after_the_warm_up_on_the_reals(monkeypatch, size, jumps):
    """Of a sampler whose draws follow by hand; jumps go nowhere here."""
    seen = []

    def jump(key, state, density, jumps):
        seen.append(jumps)
        return state

    monkeypatch.setattr(chains, "jump", jump)
    asked = []
    monkeypatch.setattr(chains, "_method", lambda with_mala: asked.append(with_mala) or stepping())
    at = laplace(size=size)
    blocks = Blocks(
        lambda theta, x, data: -jnp.sum(x**2, axis=1), None, jnp.zeros((NUM_BLOCKS, size)), True
    )
    draw = chains.chain_draws(blocks, NUM_CHAINS, NUM_DRAWS)
    assert asked == [jumps]
    u = np.random.default_rng(3).uniform(-1, 1, size=(NUM_CHAINS + 2, NUM_BLOCKS, size))
    proposal = Proposal(Laplace(*(part[None] for part in at)), jnp.zeros((1, NUM_BLOCKS)))
    draws, acceptance = draw(jnp.zeros(1), proposal, jnp.asarray(placed(at, u)), KEY)
    # The first step size, 200 steps of warm-up with it, and draws with the final one.
    first = 0.5 * size**-0.25
    after = u[:NUM_CHAINS] + 200 * first
    expected = [placed(at, after + 2 * first * (k + 1)) for k in range(NUM_DRAWS)]
    assert draws.shape == (NUM_CHAINS, NUM_DRAWS, NUM_BLOCKS, size)
    np.testing.assert_allclose(draws, np.stack(expected, axis=1), rtol=1e-9)
    assert acceptance == pytest.approx(first)
    assert bool(seen) is jumps

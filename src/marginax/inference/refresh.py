r"""Posterior draws at the estimate: BlackJAX chains, one per particle, started from the cloud.

A Stein cloud is small and deterministic; standard errors and predictions want draws. Every block is
sampled in whitened coordinates, x = m + R u, by MALA (small blocks) or NUTS (large ones), with a
step size per block that dual averaging adapts on the acceptance of all chains.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.base import ById, Data, Key
from marginax.inference.blocks import Blocks
from marginax.inference.modes import Laplace, LogDensities
from marginax.programs import KEPT
from marginax.small_linalg import solve_positive

__all__ = ["MOST_CHAINS", "Posterior", "can_refresh", "sampler", "too_many"]

LARGEST_FOR_MALA = 10  # beyond it NUTS mixes better for the same gradients
MOST_CHAINS, FEWEST_CHAINS = 20, 8
LONGEST, SHORTEST = 250, 50  # draws of a chain
FEW_NUMBERS = 4_000_000  # kept in all; of more latents fewer draws
MOST_NUMBERS = 40_000_000  # then fewer chains, and then none
FARTHEST = 5.0  # a particle so many standard deviations out is no start
LANES = "blocks"  # the axis along which blocks are sampled side by side


class Posterior(NamedTuple):
    """Draws of the latents at the estimate, on the reals.

    Attributes:
        draws: [chains, draws, blocks, size].
        sampler: in words.
        rhat: the worst potential scale reduction of any coordinate; near 1 is right.
        effective_draws: of the worst coordinate.
        acceptance: mean acceptance rate.
    """

    draws: np.ndarray
    sampler: str
    rhat: float
    effective_draws: float
    acceptance: float


def _apply(root: Array, u: Array) -> Array:
    """R u, for a matrix or a diagonal."""
    return root @ u if root.ndim == 2 else root * u


class _Plan(NamedTuple):
    """How long to sample: warm-up steps, draws kept, steps from one to the next."""

    warm_up: int
    num_draws: int
    thin: int


def can_refresh() -> bool:
    """Whether BlackJAX is there."""
    try:
        import blackjax  # noqa: F401
    except ImportError:
        return False
    return True


def too_many(num_latents: int) -> bool:
    """Whether draws of so many would not fit into memory."""
    return FEWEST_CHAINS * SHORTEST * num_latents > MOST_NUMBERS


def _room(num_latents: int) -> tuple[int, int]:
    """How many chains, and draws of each."""
    draws = np.clip(FEW_NUMBERS // (MOST_CHAINS * num_latents), SHORTEST, LONGEST)
    chains = np.clip(MOST_NUMBERS // (draws * num_latents), FEWEST_CHAINS, MOST_CHAINS)
    return int(chains), int(draws)


def sampler(
    blocks: Blocks, num_draws: int | None = None
) -> Callable[[Array, Laplace, Array, Key], Posterior]:
    """A function that samples the posterior at a theta, compiled once for all thetas.

    Args:
        blocks: of the problem.
        num_draws: draws to keep per chain; by default as many as fit.

    Returns:
        `sample(theta, at, cloud, key)`: theta flat and free; mode and root per block, which whiten
        it (a root may be a diagonal); the cloud [particles, blocks, size] where the chains start.
    """
    size = blocks.start.shape[1]
    with_mala = size <= LARGEST_FOR_MALA
    num_chains, most = _room(blocks.start.size)
    kept = num_draws or most
    plan = _Plan(200, kept, 2) if with_mala else _Plan(200, kept, 1)
    chains = _chains(blocks.bare, with_mala, plan)

    def sample(theta: Array, at: Laplace, cloud: Array, key: Key) -> Posterior:
        start_key, chain_key = jax.random.split(key)
        start = _whitened(at, cloud[:num_chains], start_key)
        found = chains(theta, at, start, chain_key, blocks.data)
        draws, acceptance = (np.asarray(part) for part in found)
        flat = draws.reshape(*draws.shape[:2], -1)
        moved = bool(np.all(flat.std(axis=(0, 1)) > 0))
        rhat, effective = map(float, _worst(flat)) if moved else (float("inf"), 0.0)
        return Posterior(
            draws,
            f"{'MALA' if with_mala else 'NUTS'}, {len(draws)} chains of {kept} draws",
            rhat,
            effective,
            float(acceptance),
        )

    return sample


@jax.jit
def _worst(flat: Array) -> tuple[Array, Array]:
    """The largest R-hat, of halves of the chains, and the smallest effective sample size.

    Chains that all drift alike agree with each other, but not with themselves earlier on.
    """
    from blackjax.diagnostics import effective_sample_size, potential_scale_reduction

    half = flat.shape[1] // 2
    halves = jnp.concatenate([flat[:, :half], flat[:, half : 2 * half]])
    rhat, effective = potential_scale_reduction(halves), effective_sample_size(flat)
    return jnp.max(rhat), jnp.min(effective)


@jax.jit
def _whitened(at: Laplace, cloud: Array, key: Key) -> Array:
    """Where the chains start; particles that are lost are replaced by a guess."""
    inverse = solve_positive(at.root.mT @ at.root, at.root.mT) if at.root.ndim == 3 else 1 / at.root
    u = jax.vmap(jax.vmap(_apply), (None, 0))(inverse, cloud - at.mode[None])
    fresh = jax.random.normal(key, u.shape, u.dtype)
    lost = ~(jnp.linalg.norm(u, axis=-1, keepdims=True) < FARTHEST * u.shape[-1] ** 0.5)
    return jnp.where(lost, fresh, u)


def _in_its_lane(log_densities: LogDensities) -> Callable[[Array], Array]:
    """The log density of the one block that a lane of `vmap(axis_name=LANES)` is at.

    A model may know its blocks only all together. A sampler of one block asks for one value and one
    gradient, so the lanes put their blocks together, the model is evaluated once, and every lane
    takes its own: without that, each lane would evaluate all blocks.
    """

    @jax.custom_jvp
    def log_density(x: Array) -> Array:
        return log_densities(jax.lax.all_gather(x, LANES))[jax.lax.axis_index(LANES)]

    @log_density.defjvp
    def with_gradient(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (x,), (direction,) = primals, tangents
        values, backwards = jax.vjp(log_densities, jax.lax.all_gather(x, LANES))
        (gradients,) = backwards(jnp.ones_like(values))
        lane = jax.lax.axis_index(LANES)
        return values[lane], gradients[lane] @ direction

    return log_density


@lru_cache(KEPT)
def _chains(bare: ById, with_mala: bool, plan: _Plan) -> Callable[..., tuple[Array, Array]]:
    """Warm-up with adaptation, then sampling; blocks and chains side by side."""
    blocks = bare.value
    import blackjax
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    method = blackjax.mala if with_mala else blackjax.nuts
    kernel = method.build_kernel()
    begin, adapt, finish = dual_averaging_adaptation(0.65 if with_mala else 0.8)

    def density(at: Laplace, theta: Array, data: Data) -> Callable[[Array], Array]:
        of_a_block = _in_its_lane(lambda x: blocks.log_densities(theta, x, data))

        def log_density(u: Array) -> Array:
            value = of_a_block(at.mode + _apply(at.root, u))
            return jnp.where(jnp.isfinite(value), value, -jnp.inf)

        return log_density

    @jax.jit
    def sample(theta: Array, at: Laplace, u: Array, key: Key, data: Data) -> Any:
        num_chains, num_blocks, size = u.shape
        more = () if with_mala else (jnp.ones(size, u.dtype),)  # the mass, in whitened coordinates

        def init(at: Laplace, u: Array) -> Any:
            return jax.vmap(lambda one: method.init(one, density(at, theta, data)))(u)

        def step(key: Key, states: Any, step_size: Array) -> tuple[Any, Array]:
            def one_block(key: Key, states: Any, step_size: Array, at: Laplace) -> Any:
                def one_chain(key: Key, state: Any) -> Any:
                    state, info = kernel(key, state, density(at, theta, data), step_size, *more)
                    return state, info.acceptance_rate

                return jax.vmap(one_chain)(jax.random.split(key, num_chains), states)

            keys = jax.random.split(key, num_blocks)
            return jax.vmap(one_block, axis_name=LANES)(keys, states, step_size, at)

        def warm(carry: Any, key: Key) -> Any:
            states, adaptation = carry
            states, acceptance = step(key, states, jnp.exp(adaptation.log_step_size))
            return (states, jax.vmap(adapt)(adaptation, jnp.mean(acceptance, axis=1))), None

        def draw(states: Any, key: Key) -> Any:
            def some(states: Any, key: Key) -> Any:
                return step(key, states, step_size)

            states, acceptance = jax.lax.scan(some, states, jax.random.split(key, plan.thin))
            return states, (states.position, jnp.mean(acceptance))

        warm_key, draw_key = jax.random.split(key)
        states = jax.vmap(init, (0, 1), axis_name=LANES)(at, u)  # [blocks, chains]
        carry = (states, jax.vmap(begin)(jnp.full(num_blocks, 0.5 * size**-0.25, u.dtype)))
        (states, adaptation), _ = jax.lax.scan(
            warm, carry, jax.random.split(warm_key, plan.warm_up)
        )
        step_size = jax.vmap(finish)(adaptation)
        _, (positions, acceptance) = jax.lax.scan(
            draw, states, jax.random.split(draw_key, plan.num_draws)
        )
        u = jnp.transpose(positions, (2, 0, 1, 3))  # [chains, draws, blocks, size]
        away = jax.vmap(jax.vmap(jax.vmap(_apply), (None, 0)), (None, 0))(at.root, u)
        return at.mode[None, None] + away, jnp.mean(acceptance)

    return sample

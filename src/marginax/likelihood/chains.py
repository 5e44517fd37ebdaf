r"""BlackJAX chains in the blocks of a posterior, one per particle, started from the cloud.

Every block is sampled in whitened coordinates, x = m + R u, by MALA (small blocks) or NUTS (large
ones), with a step size per block and chain that dual averaging adapts. After each step of MALA a
chain may jump: a proposal from t distributions at all modes of the block, accepted as Metropolis
and Hastings have it. So chains come out of long tails, and from one mode to another as often as
they should.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.linalg import solve_positive
from marginax._core.programs import KEPT, ById, program
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.jumps import Jumps, jump, jumps_between
from marginax.likelihood.modes import Laplace, LogDensities
from marginax.likelihood.proposals import Proposal
from marginax.typing import Data, Key

__all__ = ["chain_draws", "has_chains", "with_mala"]

LARGEST_FOR_MALA = 10  # beyond it NUTS mixes better for the same gradients
WARM_UP = 200  # steps in which step sizes adapt
FARTHEST = 5.0  # a particle further out, in standard deviations, is no start
SIDE_BY_SIDE = "blocks"  # the axis along which blocks are sampled


def has_chains() -> bool:
    """Whether BlackJAX is there."""
    try:
        import blackjax  # noqa: F401
    except ImportError:
        return False
    return True


def with_mala(size: int) -> bool:
    """Whether blocks of this many latents are sampled by MALA with jumps, or by NUTS."""
    return size <= LARGEST_FOR_MALA


def chain_draws(
    blocks: Blocks, num_chains: int, num_draws: int
) -> Callable[[Array, Proposal, Array, Key], tuple[np.ndarray, float]]:
    """A function that samples the posterior at a theta, compiled once for all thetas.

    Args:
        blocks: of the problem.
        num_chains: at most; no more than there are particles.
        num_draws: draws to keep per chain.

    Returns:
        `draw(theta, proposal, cloud, key)`: theta flat and free; the modes of every block, of
        which the first whitens it (its root may be a diagonal); the cloud [particles, blocks, size]
        where the chains start. It gives draws [chains, draws, blocks, size] and the mean acceptance
        rate.
    """
    chains = _chains(blocks.bare, with_mala(blocks.start.shape[1]), num_draws)

    def draw(theta: Array, proposal: Proposal, cloud: Array, key: Key) -> tuple[np.ndarray, float]:
        start_key, chain_key = jax.random.split(key)
        start = _whitened(_first_mode(proposal), cloud[:num_chains], start_key)
        draws, acceptance = chains(theta, proposal, start, chain_key, blocks.data)
        return np.asarray(draws), float(acceptance)

    return draw


def _first_mode(proposal: Proposal) -> Laplace:
    return Laplace(*(part[0] for part in proposal.at))


def _apply(root: Array, u: Array) -> Array:
    """R u, for a matrix or a diagonal."""
    return root @ u if root.ndim == 2 else root * u


@jax.jit
def _whitened(at: Laplace, cloud: Array, key: Key) -> Array:
    """Where the chains start; particles that are lost are replaced by a guess."""
    inverse = solve_positive(at.root.mT @ at.root, at.root.mT) if at.root.ndim == 3 else 1 / at.root
    u = jax.vmap(jax.vmap(_apply), (None, 0))(inverse, cloud - at.mode[None])
    fresh = jax.random.normal(key, u.shape, u.dtype)
    lost = ~(jnp.linalg.norm(u, axis=-1, keepdims=True) < FARTHEST * u.shape[-1] ** 0.5)
    return jnp.where(lost, fresh, u)


def _of_one_block(log_densities: LogDensities) -> Callable[[Array], Array]:
    """The log density of the one block that a sampler under `vmap(axis_name=SIDE_BY_SIDE)` is at.

    A model may know its blocks only all together. A sampler of one block asks for one value and one
    gradient, so the samplers put their blocks together, the model is evaluated once, and each takes
    its own: without that, each would evaluate all blocks.
    """

    @jax.custom_jvp
    def log_density(x: Array) -> Array:
        return log_densities(jax.lax.all_gather(x, SIDE_BY_SIDE))[jax.lax.axis_index(SIDE_BY_SIDE)]

    @log_density.defjvp
    def with_gradient(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (x,), (direction,) = primals, tangents
        values, backwards = jax.vjp(log_densities, jax.lax.all_gather(x, SIDE_BY_SIDE))
        (gradients,) = backwards(jnp.ones_like(values))
        own = jax.lax.axis_index(SIDE_BY_SIDE)
        return values[own], gradients[own] @ direction

    return log_density


class _Method(NamedTuple):
    """A sampler of one chain of one block, and how its step size adapts."""

    init: Callable[..., Any]
    kernel: Callable[..., Any]
    has_mass: bool
    begin: Callable[..., Any]
    adapt: Callable[..., Any]
    finish: Callable[..., Any]


def _method(with_mala: bool) -> _Method:
    import blackjax
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    library = blackjax.mala if with_mala else blackjax.nuts
    adaptation = dual_averaging_adaptation(0.65 if with_mala else 0.8)
    return _Method(library.init, library.build_kernel(), not with_mala, *adaptation)


@lru_cache(KEPT)
def _chains(bare: ById, with_mala: bool, num_draws: int) -> Callable[..., tuple[Array, Array]]:
    """Warm-up with adaptation, then sampling; blocks and chains side by side."""
    method = _method(with_mala)

    @program(bare, with_mala, num_draws)
    def sample(theta: Array, proposal: Proposal, u: Array, key: Key, data: Data) -> Any:
        num_chains, num_blocks, size = u.shape
        at = _first_mode(proposal)
        jumps = jumps_between(proposal) if with_mala else None
        init, step = _init_and_step(bare.value, method, theta, at, jumps, data)
        adapt, finish, begin = (
            jax.vmap(jax.vmap(part)) for part in (method.adapt, method.finish, method.begin)
        )

        def warm(carry: Any, key: Key) -> Any:
            states, adaptation = carry
            states, acceptance = step(key, states, jnp.exp(adaptation.log_step_size))
            return (states, adapt(adaptation, acceptance)), None

        def draw(states: Any, key: Key) -> Any:
            states, acceptance = step(key, states, step_size)
            return states, (states.position, jnp.mean(acceptance))

        warm_key, draw_key = jax.random.split(key)
        first = begin(jnp.full((num_blocks, num_chains), 0.5 * size**-0.25, u.dtype))
        (states, adaptation), _ = jax.lax.scan(
            warm, (init(u), first), jax.random.split(warm_key, WARM_UP)
        )
        step_size = finish(adaptation)
        _, (positions, acceptance) = jax.lax.scan(
            draw, states, jax.random.split(draw_key, num_draws)
        )
        u = jnp.transpose(positions, (2, 0, 1, 3))  # [chains, draws, blocks, size]
        away = jax.vmap(jax.vmap(jax.vmap(_apply), (None, 0)), (None, 0))(at.root, u)
        return at.mode[None, None] + away, jnp.mean(acceptance)

    return sample


def _init_and_step(
    blocks: Blocks, method: _Method, theta: Array, at: Laplace, jumps: Jumps | None, data: Data
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`init(u)` and `step(key, states, step_sizes)` for all chains, [blocks, chains]."""
    of_a_block = _of_one_block(lambda x: blocks.log_densities(theta, x, data))

    def density(at: Laplace) -> Callable[[Array], Array]:
        def log_density(u: Array) -> Array:
            value = of_a_block(at.mode + _apply(at.root, u))
            return jnp.where(jnp.isfinite(value), value, -jnp.inf)

        return log_density

    def init(u: Array) -> Any:
        def one_block(at: Laplace, u: Array) -> Any:
            return jax.vmap(lambda one: method.init(one, density(at)))(u)

        return jax.vmap(one_block, (0, 1), axis_name=SIDE_BY_SIDE)(at, u)

    def step(key: Key, states: Any, step_sizes: Array) -> tuple[Any, Array]:
        def one_block(
            key: Key, states: Any, step_sizes: Array, at: Laplace, jumps: Jumps | None
        ) -> Any:
            num_chains, size = states.position.shape
            # The mass, in whitened coordinates.
            more = (jnp.ones(size, states.position.dtype),) if method.has_mass else ()

            def one_chain(key: Key, state: Any, step_size: Array) -> Any:
                step_key, jump_key = jax.random.split(key)
                state, info = method.kernel(step_key, state, density(at), step_size, *more)
                if jumps is not None:
                    state = jump(jump_key, state, density(at), jumps)
                return state, info.acceptance_rate

            return jax.vmap(one_chain)(jax.random.split(key, num_chains), states, step_sizes)

        keys = jax.random.split(key, len(at.mode))
        return jax.vmap(one_block, axis_name=SIDE_BY_SIDE)(keys, states, step_sizes, at, jumps)

    return init, step

"""Posterior draws of the latents at the estimate, and whether they have mixed.

A Stein cloud is small and deterministic; standard errors and predictions want draws. Blocks of few
latents have a grid to draw from (`grid_draws`); larger ones are sampled by chains that start from
the cloud (`chains`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.diagnostics.mixing import mixing
from marginax.likelihood.blocks import MOST_LATENTS, Blocks, as_blocks
from marginax.likelihood.chains import chain_draws, has_chains, with_mala
from marginax.likelihood.grid_draws import can_use_grid, grid_draws, prepare_grid_draws
from marginax.likelihood.modes import Laplace
from marginax.likelihood.proposals import Proposal, as_modes, proposer
from marginax.model.problem import Problem
from marginax.typing import Key

__all__ = [
    "MOST_CHAINS",
    "Posterior",
    "can_draw",
    "independent_draws",
    "posterior_sampler",
    "prepare_draws",
    "too_many_latents",
]

MOST_CHAINS, FEWEST_CHAINS = 20, 8
LONGEST, SHORTEST = 250, 50  # draws of a chain
FEW_NUMBERS = 4_000_000  # kept in all; of more latents fewer draws
MOST_NUMBERS = 40_000_000  # then fewer chains, and then none
STUCK = 0.02  # the share of draws at which a chain must have moved not to be stuck


class Posterior(NamedTuple):
    """Draws of the latents at the estimate, on the reals.

    Attributes:
        draws: [chains, draws, blocks, size].
        sampler: in words.
        rhat: the worst potential scale reduction of any coordinate; near 1 is right.
        effective_draws: of the worst coordinate.
        acceptance: mean acceptance rate.
        num_stuck: chains that hardly moved, of all chains of all blocks.
    """

    draws: np.ndarray
    sampler: str
    rhat: float
    effective_draws: float
    acceptance: float
    num_stuck: int = 0


def can_draw(latent_size: int) -> bool:
    """Whether blocks of this many latents can be drawn from: on a grid, or if BlackJAX is there."""
    return can_use_grid(latent_size) or has_chains()


def too_many_latents(num_latents: int) -> bool:
    """Whether draws of all of them would not fit into memory."""
    return FEWEST_CHAINS * SHORTEST * num_latents > MOST_NUMBERS


def _room(num_latents: int) -> tuple[int, int]:
    """How many chains, and draws of each."""
    draws = np.clip(FEW_NUMBERS // (MOST_CHAINS * num_latents), SHORTEST, LONGEST)
    chains = np.clip(MOST_NUMBERS // (draws * num_latents), FEWEST_CHAINS, MOST_CHAINS)
    return int(chains), int(draws)


def posterior_sampler(problem: Problem) -> Callable[..., Posterior]:
    """`draw(theta, cloud, key, modes)`: draws at theta, compiled once for all thetas.

    theta is flat and free; the cloud is [N, blocks, size], and the modes of the posterior that are
    known [modes, blocks, size]; None for the one at the cloud.
    """
    blocks = as_blocks(problem)
    size = blocks.start.shape[1]
    num_chains, num_draws = _room(blocks.start.size)
    if can_use_grid(size):
        from_grid = grid_draws(blocks, num_chains, num_draws)

        def of_few(
            theta: np.ndarray, cloud: Array, key: Key, modes: Array | None = None
        ) -> Posterior:
            starts = as_modes(jnp.mean(cloud, axis=0) if modes is None else modes)
            return _judged(*from_grid(theta, starts, key), "Metropolis-Hastings on a grid")

        return of_few

    from_chains, propose = chain_draws(blocks, num_chains, num_draws), _whitening(blocks)
    method = "MALA with jumps" if with_mala(size) else "NUTS"

    def of_many(theta: np.ndarray, cloud: Array, key: Key, modes: Array | None = None) -> Posterior:
        proposal = propose(theta, cloud, modes)
        return _judged(*from_chains(jnp.asarray(theta), proposal, cloud, key), method)

    return of_many


def independent_draws(draw: Callable[[int], np.ndarray], size: int) -> Posterior:
    """Draws of one block that need no chains: `draw(count)`, [count, size]."""
    num_chains, num_draws = _room(size)
    draws = draw(num_chains * num_draws).reshape(num_chains, num_draws, 1, size)
    return _judged(draws, 1.0, "Draws by their weights")


def prepare_draws(problem: Problem) -> None:
    """Has ready what `posterior_sampler` compiles for blocks of few latents with one mode each."""
    blocks = as_blocks(problem)
    if can_use_grid(blocks.start.shape[1]):
        prepare_grid_draws(blocks, *_room(blocks.start.size), problem.num_parameters)


def _whitening(blocks: Blocks) -> Callable[[np.ndarray, Array, Array | None], Proposal]:
    """`propose(theta, cloud, modes)`: modes and widths, in which chains take their steps."""
    if blocks.start.shape[1] <= MOST_LATENTS:
        propose = proposer(blocks)

        def by_curvature(theta: np.ndarray, cloud: Array, modes: Array | None) -> Proposal:
            starts = as_modes(jnp.mean(cloud, axis=0) if modes is None else modes)
            return propose(theta, starts, slice(None))[0]

        return by_curvature

    def by_the_cloud(theta: np.ndarray, cloud: Array, modes: Array | None) -> Proposal:
        sd = jnp.std(cloud, axis=0)  # too many for dense curvature
        sd = jnp.where(sd > 0, sd, 1)
        log_root = jnp.sum(jnp.log(sd), axis=1)
        at = Laplace(jnp.mean(cloud, axis=0)[None], sd[None], log_root[None])
        return Proposal(at, jnp.zeros_like(at.log_root))

    return by_the_cloud


def _judged(draws: np.ndarray, acceptance: float, method: str) -> Posterior:
    changes = np.any(np.diff(draws, axis=1) != 0, axis=3)  # chains, draws, blocks
    return Posterior(
        draws,
        f"{method}, {draws.shape[0]} chains of {draws.shape[1]} draws",
        *mixing(draws),
        acceptance,
        num_stuck=int(np.sum(changes.mean(axis=1) < STUCK)),
    )

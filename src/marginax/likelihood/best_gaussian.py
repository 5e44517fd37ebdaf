r"""The Gaussian nearest to the posterior of very many latents.

A moment-matched cloud comes to rest where E_q[s] = 0 and E_q[-grad^2_x l] = S_q^-1: the Gaussian q
that is best in Kullback-Leibler divergence. Without a cloud, over fixed antithetic draws
x_k = m + L^-T z_k of L L' = P:

    P <- P/2 + mean_k H(theta, x_k) / 2,     m <- m + (mean_k H)^-1 mean_k s(x_k) / 2

(undamped it can swing). Its draws have far more even weights than those of mode and curvature; they
are weighed in `weighted_draws`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.likelihood.laplace import Mode
from marginax.likelihood.many_latents import Latents

__all__ = ["Gaussian", "best_gaussian", "fitting_draws"]

FITTING_PAIRS = 64
ROUNDS = 40
AT_REST = 1e-8  # in squared standard deviations of m, and of P relative to itself, per latent


class Gaussian(NamedTuple):
    """N(m, P^-1).

    Attributes:
        mean: m.
        entries: of P on its pattern.
        factor: of P.
    """

    mean: Array
    entries: Array
    factor: Any


def fitting_draws(size: int) -> Float[Array, "k n"]:
    """Standard normal draws and their mirror images, always the same."""
    half = np.random.default_rng(20).standard_normal((FITTING_PAIRS, size))
    return jnp.asarray(np.concatenate([half, -half]))


def best_gaussian(
    latents: Latents, theta: Array, start: Gaussian | Mode, z: Float[Array, "k n"]
) -> Gaussian:
    """From the mode, or from the Gaussian of a theta nearby, to rest.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        start: where to begin.
        z: of `fitting_draws`.
    """
    structure, data = latents.structure, latents.data
    factors = structure.factors
    mean = start.x if isinstance(start, Mode) else start.mean
    entries, factor = start.entries, start.factor
    for _ in range(ROUNDS):
        xs = mean[None] + factors.unwhiten(factor, z)
        score, average = latents.means(theta, xs, data, structure.maps)
        mixed = (entries + average) / 2
        lifted = latents.lift(mixed, jnp.zeros((), mixed.dtype))
        step = factors.solve(latents.lift(average, jnp.zeros((), mixed.dtype)).factor, score) / 2
        if not bool(jnp.all(jnp.isfinite(step))):
            break
        moved = float(jnp.vdot(step, score)) / 2 + _change(latents, mixed, entries)
        mean, entries, factor = mean + step, lifted.values, lifted.factor
        if moved < AT_REST * structure.size:
            break
    return Gaussian(mean, entries, factor)


def _change(latents: Latents, new: Array, old: Array) -> float:
    """How much P moved, as a sum of squares in units of its diagonal."""
    pattern = latents.structure.pattern
    scale = np.sqrt(np.abs(np.asarray(new)[pattern.rows == pattern.cols]))
    relative = np.asarray(new - old) / (scale[pattern.rows] * scale[pattern.cols])
    return float(np.sum(relative**2))

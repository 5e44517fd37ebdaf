"""Maximum marginal likelihood for latent-variable models with interacting particles, in JAX."""

from marginax import kernels, models, momentum
from marginax.algorithms import (
    coin_em,
    ipla,
    kipla,
    m_svgd_em,
    mpgd,
    pgd,
    pqn,
    soul,
    svgd_em,
)
from marginax.ascent import exact_m_step
from marginax.base import Algorithm
from marginax.trajectory import Trajectory, trajectory

__version__ = "0.1.0.dev0"

__all__ = [
    "Algorithm",
    "Trajectory",
    "coin_em",
    "exact_m_step",
    "ipla",
    "kernels",
    "kipla",
    "m_svgd_em",
    "models",
    "momentum",
    "mpgd",
    "pgd",
    "pqn",
    "soul",
    "svgd_em",
    "trajectory",
]

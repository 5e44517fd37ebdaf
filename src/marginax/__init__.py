"""Maximum marginal likelihood for latent-variable models with interacting particles, in JAX."""

from marginax import kernels, models, momentum, stopping
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
from marginax.checkpoint import Checkpoint
from marginax.minibatch import minibatched
from marginax.result import Run, RunError
from marginax.run import run
from marginax.trajectory import Trajectory, trajectory

__version__ = "0.1.0.dev0"

__all__ = [
    "Algorithm",
    "Checkpoint",
    "Run",
    "RunError",
    "Trajectory",
    "coin_em",
    "exact_m_step",
    "ipla",
    "kernels",
    "kipla",
    "m_svgd_em",
    "models",
    "minibatched",
    "momentum",
    "mpgd",
    "pgd",
    "pqn",
    "run",
    "soul",
    "stopping",
    "svgd_em",
    "trajectory",
]

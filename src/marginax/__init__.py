"""Maximum marginal likelihood for latent-variable models with interacting particles, in JAX."""

from marginax import bijections, diagnostics, kernels, metrics, models, momentum, stopping
from marginax._version import __version__
from marginax.algorithms import (
    asvgd_em,
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
from marginax.checkpoint import Checkpoint, CheckpointError
from marginax.em_gradient import em_gradient
from marginax.estimate import Fit
from marginax.fit import fit
from marginax.groups import pad_groups
from marginax.interop.numpyro import from_numpyro
from marginax.memory import OutOfMemoryError
from marginax.minibatch import minibatched
from marginax.problem import Problem
from marginax.processes import LostProcessError
from marginax.result import Run, RunError
from marginax.run import run
from marginax.trajectory import Trajectory, trajectory

__all__ = [
    "Algorithm",
    "Checkpoint",
    "CheckpointError",
    "Fit",
    "LostProcessError",
    "OutOfMemoryError",
    "Problem",
    "Run",
    "RunError",
    "Trajectory",
    "__version__",
    "asvgd_em",
    "bijections",
    "coin_em",
    "diagnostics",
    "em_gradient",
    "exact_m_step",
    "fit",
    "from_numpyro",
    "ipla",
    "kernels",
    "kipla",
    "m_svgd_em",
    "metrics",
    "minibatched",
    "models",
    "momentum",
    "mpgd",
    "pad_groups",
    "pgd",
    "pqn",
    "run",
    "soul",
    "stopping",
    "svgd_em",
    "trajectory",
]

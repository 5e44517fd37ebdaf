"""Maximum marginal likelihood for latent-variable models with interacting particles, in JAX."""

from marginax import diagnostics, kernels, models
from marginax._core.disk_cache import configure
from marginax._version import __version__
from marginax.algorithms import (
    Algorithm,
    adjusted_pmgd,
    asvgd_em,
    coin_em,
    ipla,
    jala_em,
    kipla,
    m_svgd_em,
    mcem,
    mpgd,
    pgd,
    pqn,
    soul,
    svgd_em,
    tuning_free,
)
from marginax.errors import CheckpointError, LostProcessError, OutOfMemoryError, RunError
from marginax.fitting.fitter import fit
from marginax.fitting.result import Fit
from marginax.flows import metrics, momentum, proximal
from marginax.flows.m_step import em_gradient
from marginax.flows.optimizers import conditional_m_steps, exact_m_step
from marginax.formulas.front import mixed
from marginax.formulas.result import MixedFit
from marginax.interop.numpyro import from_numpyro
from marginax.model import transforms
from marginax.model.groups import pad_groups
from marginax.model.log_joint import LogJoint
from marginax.model.minibatches import minibatched
from marginax.model.problem import Problem
from marginax.model.structure import structure_of
from marginax.model.unnormalized import WithPrior, unnormalized_prior
from marginax.running import stopping
from marginax.running.checkpoints import Checkpoint
from marginax.running.result import Run
from marginax.running.runner import run
from marginax.running.trajectories import Trajectory, trajectory

__all__ = [
    "Algorithm",
    "Checkpoint",
    "CheckpointError",
    "Fit",
    "LogJoint",
    "LostProcessError",
    "MixedFit",
    "OutOfMemoryError",
    "Problem",
    "Run",
    "RunError",
    "Trajectory",
    "WithPrior",
    "__version__",
    "adjusted_pmgd",
    "asvgd_em",
    "coin_em",
    "conditional_m_steps",
    "configure",
    "diagnostics",
    "em_gradient",
    "exact_m_step",
    "fit",
    "from_numpyro",
    "ipla",
    "jala_em",
    "kernels",
    "kipla",
    "m_svgd_em",
    "mcem",
    "metrics",
    "minibatched",
    "mixed",
    "models",
    "momentum",
    "mpgd",
    "pad_groups",
    "pgd",
    "pqn",
    "proximal",
    "run",
    "soul",
    "stopping",
    "structure_of",
    "svgd_em",
    "trajectory",
    "transforms",
    "tuning_free",
    "unnormalized_prior",
]


def __dir__() -> list[str]:
    """What users need: completion would list the folders of the package too."""
    return sorted(__all__)

"""The family: one file per method, with its State, Info and one constructor like the paper."""

from marginax.algorithms._adjusted_pmgd import adjusted_pmgd
from marginax.algorithms._asvgd_em import asvgd_em
from marginax.algorithms._coin_em import coin_em
from marginax.algorithms._ipla import ipla
from marginax.algorithms._jala_em import jala_em
from marginax.algorithms._kipla import kipla
from marginax.algorithms._m_svgd_em import m_svgd_em
from marginax.algorithms._mcem import mcem
from marginax.algorithms._mpgd import mpgd
from marginax.algorithms._pgd import pgd
from marginax.algorithms._pqn import pqn
from marginax.algorithms._soul import soul
from marginax.algorithms._svgd_em import svgd_em
from marginax.algorithms._tuning_free import tuning_free
from marginax.algorithms.contract import Algorithm

__all__ = [
    "Algorithm",
    "adjusted_pmgd",
    "asvgd_em",
    "coin_em",
    "ipla",
    "jala_em",
    "kipla",
    "m_svgd_em",
    "mcem",
    "mpgd",
    "pgd",
    "pqn",
    "soul",
    "svgd_em",
    "tuning_free",
]

"""The family: one file per method, with its State, Info and one constructor like the paper."""

from marginax.algorithms.asvgd_em import asvgd_em
from marginax.algorithms.coin_em import coin_em
from marginax.algorithms.ipla import ipla
from marginax.algorithms.kipla import kipla
from marginax.algorithms.m_svgd_em import m_svgd_em
from marginax.algorithms.mpgd import mpgd
from marginax.algorithms.pgd import pgd
from marginax.algorithms.pqn import pqn
from marginax.algorithms.soul import soul
from marginax.algorithms.svgd_em import svgd_em

__all__ = [
    "asvgd_em",
    "coin_em",
    "ipla",
    "kipla",
    "m_svgd_em",
    "mpgd",
    "pgd",
    "pqn",
    "soul",
    "svgd_em",
]

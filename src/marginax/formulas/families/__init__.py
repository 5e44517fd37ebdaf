"""Families: the distribution of a response given its linear predictor, a short file each."""

from marginax.formulas.families.base import Family, Parameter
from marginax.formulas.families.beta import beta as _beta
from marginax.formulas.families.binomial import binomial as _binomial
from marginax.formulas.families.gamma import gamma as _gamma
from marginax.formulas.families.gaussian import gaussian as _gaussian
from marginax.formulas.families.negative_binomial import negative_binomial as _negative_binomial
from marginax.formulas.families.ordinal import ordinal as _ordinal
from marginax.formulas.families.poisson import poisson as _poisson
from marginax.formulas.families.student import student as _student

__all__ = ["FAMILIES", "Family", "Parameter"]

FAMILIES = {
    family.name: family
    for family in (
        _gaussian,
        _binomial,
        _poisson,
        _negative_binomial,
        _gamma,
        _beta,
        _ordinal,
        _student,
    )
}

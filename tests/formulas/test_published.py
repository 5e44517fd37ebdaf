"""Answers of lme4, glmmTMB and ordinal on public data sets (tests/data/mixed/README.md).

Computed with lme4 1.1-31 (bobyqa, rhoend 1e-10), ordinal 2022.11-16 (clmm, nAGQ = 30); those of
sleepstudy, Dyestuff, Penicillin and Pastes are also in lme4's own documentation.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marginax as mx

ROOT = Path(__file__).parents[2]


def read(name):
    folder = "examples/data" if name in ("sleepstudy", "salamanders") else "tests/data/mixed"
    return pd.read_csv(ROOT / folder / f"{name}.csv")


# Formula, data, REML, log likelihood, fixed effects with standard errors, sds and correlations.
LINEAR = [
    (
        "Reaction ~ Days + (Days | Subject)",
        "sleepstudy",
        False,
        -875.9696722,
        [(251.40510485, 6.632276421), (10.46728596, 1.502236793)],
        [23.78056498578, 5.71683457989, 0.08131997459, 25.59181583202],
    ),
    (
        "Reaction ~ Days + (Days | Subject)",
        "sleepstudy",
        True,
        -871.814136,
        [(251.40510485, 6.824555776), (10.46728596, 1.545788932)],
        [24.7404476167, 5.92213325958, 0.06555134285, 25.59181589262],
    ),
    (
        "Reaction ~ Days + (Days || Subject)",
        "sleepstudy",
        False,
        -876.0016276,
        [(251.40510485, 6.707673972), (10.46728596, 1.519314488)],
        [24.171266541, 5.799408547, 25.556134569],
    ),
    (
        "Yield ~ 1 + (1 | Batch)",
        "Dyestuff",
        False,
        -163.6635299,
        [(1527.5, 17.69455374)],
        [37.26034616, 49.51009979],
    ),
    (
        "Yield ~ 1 + (1 | Batch)",
        "Dyestuff",
        True,
        -159.8271384,
        [(1527.5, 19.38341194)],
        [42.00059463, 49.51010009],
    ),
    (
        "Yield ~ 1 + (1 | Batch)",
        "Dyestuff2",
        False,
        -81.43651833,
        [(5.6656, 0.6669857396)],
        [0.0, 3.653231351],
    ),
    (
        "diameter ~ 1 + (1 | plate) + (1 | sample)",
        "Penicillin",
        False,
        -166.0941743,
        [(22.97222222, 0.7445958606)],
        [0.8455721911, 1.7706464447, 0.5499321937],
    ),
    (
        "diameter ~ 1 + (1 | plate) + (1 | sample)",
        "Penicillin",
        True,
        -165.4302945,
        [(22.97222222, 0.8085733606)],
        [0.846704303, 1.9315583316, 0.5499231426],
    ),
    (
        "strength ~ 1 + (1 | batch/cask)",
        "Pastes",
        False,
        -123.9972329,
        [(60.05333333, 0.6421353271)],
        [1.0950596085, 2.9040776008, 0.8234075525],
    ),
    (
        "strength ~ 1 + (1 | batch/cask)",
        "Pastes",
        True,
        -123.4953729,
        [(60.05333333, 0.6768700965)],
        [1.2873651671, 2.9040775842, 0.8234075448],
    ),
]


@pytest.mark.parametrize(
    ("formula", "data", "reml", "value", "fixed", "numbers"),
    LINEAR,
    ids=[f"{row[1]}-{'REML' if row[2] else 'ML'}-{i}" for i, row in enumerate(LINEAR)],
)
def test_linear_models_are_those_of_lme4(formula, data, reml, value, fixed, numbers):
    fit = mx.mixed(formula, read(data), reml=reml)
    assert fit.ok, fit.warnings
    assert fit.log_likelihood == pytest.approx(value, abs=1e-3)
    if reml:
        assert fit.reml_criterion == pytest.approx(-2 * value, abs=1e-3)
    rows = fit.fixed_rows()
    np.testing.assert_allclose([row[1] for row in rows], [x for x, _ in fixed], rtol=1e-6)
    np.testing.assert_allclose([row[2] for row in rows], [se for _, se in fixed], rtol=1e-4)
    found = [one.estimate for one in fit.solution.numbers]
    np.testing.assert_allclose(found, numbers, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_profile_intervals_are_those_of_lme4():
    # confint(lmer(Reaction ~ Days + (Days | Subject), sleepstudy)), from lme4's documentation
    fit = mx.mixed("Reaction ~ Days + (Days | Subject)", read("sleepstudy"))
    for name, ends in {
        "Days": (7.358653, 13.575919),
        "sd(Days | Subject)": (3.801164, 8.753383),
        "corr(Intercept, Days | Subject)": (-0.481501, 0.684986),
        "sigma": (22.898262, 28.857997),
    }.items():
        np.testing.assert_allclose(fit.profile_interval(name), ends, rtol=2e-3)


@pytest.mark.slow
def test_binomial_counts_are_those_of_lme4_with_quadrature():
    # glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial, nAGQ = 25)
    fit = mx.mixed(
        "cbind(incidence, size - incidence) ~ C(period) + (1 | herd)", read("cbpp"), "binomial"
    )
    assert fit.ok
    expected = [-1.399230452, -0.991403664, -1.127819482, -1.579470728]
    errors = [0.2335115566, 0.30676793, 0.3267683298, 0.4275944649]
    rows = fit.fixed_rows()
    np.testing.assert_allclose([row[1] for row in rows], expected, rtol=1e-4)
    np.testing.assert_allclose([row[2] for row in rows], errors, rtol=1e-3)
    np.testing.assert_allclose(fit.solution.numbers[0].estimate, 0.6475184621, rtol=1e-4)


@pytest.mark.slow
def test_ordered_categories_are_those_of_the_ordinal_package():
    # clmm(rating ~ temp + contact + (1 | judge), wine, nAGQ = 30)
    fit = mx.mixed("rating ~ temp + contact + (1 | judge)", read("wine"), "ordinal")
    assert fit.ok
    assert fit.log_likelihood == pytest.approx(-81.53246071, abs=1e-3)
    np.testing.assert_allclose(fit.solution.fixed, [3.061890991, 1.833433363], rtol=1e-4)
    expected = [1.28773313**0.5, -1.623487454, 1.512796038, 4.227053453, 6.086152276]
    np.testing.assert_allclose([one.estimate for one in fit.solution.numbers], expected, rtol=1e-4)


@pytest.mark.slow
def test_counts_are_those_of_lme4_with_quadrature():
    # glmer(count ~ mined + (1 | site), Salamanders, poisson, nAGQ = 25); mined[no] is its reference
    fit = mx.mixed("count ~ mined + (1 | site)", read("salamanders"), "poisson")
    assert fit.ok
    intercept, mined = fit.solution.fixed
    np.testing.assert_allclose([intercept + mined, -mined], [-1.505594411, 2.264636553], rtol=1e-4)
    np.testing.assert_allclose(fit.solution.numbers[0].estimate, 0.3333451847**0.5, rtol=1e-4)

"""The fuzzer's oracle beside closed forms, and one data set through the whole of it."""

import re
import subprocess
import sys
from pathlib import Path

import fuzz_draws
import hard_gaussian
import hard_models
import jax
import numpy as np
import pytest
from fuzz_families import LINKS, PRIORS, Family, is_sensible, log_joint
from fuzz_judge import Oracle
from fuzz_marginals import gamma_poisson_log_marginal, log_marginal
from fuzz_marginals import log_joint as marginals_log_joint
from grid_oracle import log_integrals

HERE = Path(__file__).parent


def rows(y):
    groups = len(y)
    ones = {"width": np.ones(groups), "known": np.ones(groups), "z": np.ones(y.shape)}
    return {"y": y, "mask": np.ones(y.shape, bool), **ones}


@pytest.mark.parametrize("sd", [0.0, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_grid_of_a_linear_mixed_model_is_gaussian(sd, noise):
    random = np.random.default_rng(0)
    y = 30.0 + max(sd, 1.0) * random.normal(size=(20, 1)) + random.normal(size=(20, 5))
    theta = {"mean": 29.0, "sd": sd, "noise": noise}
    exact = hard_gaussian.gaussian_log_marginal(theta, y)
    found = log_marginal(Family("normal", "normal"), rows(y))(theta)
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_grid_of_two_latents_is_gaussian():
    case = hard_gaussian.slopes_apart(0, apart=1.0)
    theta = {"mean": 0.7, "sd": 1.2, "mean_slope": 2.2, "sd_slope": 0.3, "noise": 0.9}
    data = {name: np.asarray(value, float) for name, value in case.problem.data.items()}
    found = log_marginal(Family("slopes", "normal"), data)(theta)
    np.testing.assert_allclose(found, case.log_marginal(theta), rtol=1e-9)


@pytest.mark.parametrize("shape", [0.1, 0.3, 3.0, 100.0])
def test_grid_of_gamma_and_poisson_is_negative_binomial(shape):
    random = np.random.default_rng(1)
    y = random.poisson(random.gamma(shape, 4.0 / shape, (50, 1)) * np.ones(3)).astype(float)
    theta = {"mean": 4.0, "shape": shape}
    exact = gamma_poisson_log_marginal(theta, y)
    found = log_marginal(Family("gamma", "poisson"), rows(y))(theta)
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_grid_of_two_classes_is_a_mixture_of_gaussians():
    case = hard_models.two_classes(0, rows=1)
    y = np.asarray(case.problem.data["y"], float)[:, 0]
    theta = {"low": 0.2, "gap": 5.0, "p": 0.4, "noise": 0.7}
    variance = 1 + 0.7**2
    classes = [np.exp(-((y - at) ** 2) / (2 * variance)) for at in (0.2, 5.2)]
    density = (0.6 * classes[0] + 0.4 * classes[1]) / np.sqrt(2 * np.pi * variance)
    np.testing.assert_allclose(case.log_marginal(theta), np.log(density).sum(), rtol=1e-9)


def test_grid_finds_narrow_mass_far_from_its_anchor():
    at = np.array([[0.0], [1e3], [-3e4]])
    log_density = lambda v: -0.5 * ((v - at - 7.0) / 1e-2) ** 2 - np.log(1e-2)  # noqa: E731
    found = log_integrals(log_density, at, np.ones_like(at))
    np.testing.assert_allclose(found, 0.5 * np.log(2 * np.pi), atol=1e-6)


def test_an_oracle_without_a_fit_finds_the_maximum_of_a_linear_mixed_model():
    case = hard_gaussian.in_units(0, unit=1e9)
    found = hard_models.answer(case)
    y = np.asarray(case.problem.data["y"], float)
    within = np.sqrt(np.var(y, axis=1, ddof=1).mean())
    np.testing.assert_allclose(found.theta["noise"], within, rtol=1e-4)
    np.testing.assert_allclose(found.theta["mean"], y.mean(), rtol=1e-4)
    np.testing.assert_allclose(found.standard_errors["noise"], within / np.sqrt(240), rtol=1e-2)


def test_a_variance_of_zero_is_at_an_end():
    assert hard_models.answer(hard_gaussian.variance_of_zero(0)).ends == ("sd",)
    assert hard_models.answer(hard_gaussian.variance_of_zero(0, outlier=1e4)).ends == ("sd",)


def test_half_the_binary_groups_are_all_zero():
    data = hard_models.binary_groups(0).problem.data
    assert 140 < int(np.sum(np.asarray(data["y"]).sum(axis=1) == 0)) < 190


def test_units_are_undone():
    for index in range(40):
        of = fuzz_draws.chunk(0, index)
        one = fuzz_draws.draw(of, 0, index)
        assert is_sensible(of.family)
        back = one.in_ones(one.in_units(one.truth))
        for name, value in one.truth.items():
            np.testing.assert_allclose(back[name], value, rtol=1e-9, atol=1e-9)
        true = {**one.truth}
        true.update({k: max(true[k], 0.1) for k in true if of.family.kinds[k] == "positive"})
        oracle = Oracle(one)
        assert np.isfinite(oracle._of_theta(true))


ONE_LATENT = [
    Family(prior, likelihood, covariate)
    for prior in PRIORS
    for likelihood in LINKS
    for covariate in (False, True)
    if prior != "slopes" and is_sensible(Family(prior, likelihood, covariate))
]


@pytest.mark.usefixtures("as_users_write")
@pytest.mark.parametrize("prior", sorted(set(PRIORS) - {"slopes"}))
def test_both_sides_have_the_same_models(prior):
    """The log joint that is fitted, in the data's units, and the oracle's, in units of 1."""
    for number, family in enumerate(one for one in ONE_LATENT if one.prior == prior):
        one = fuzz_draws.draw(
            fuzz_draws.Chunk(family, (4, 3), jax.config.jax_enable_x64), 3, number
        )
        theta = {
            name: max(value, 0.2) if family.kinds[name] == "positive" else value
            for name, value in one.truth.items()
        }
        v = np.random.default_rng(number).uniform(0.05, 0.95, size=(4, 1))
        positive = prior in ("gamma", "lognormal")
        x = np.exp(v[:, 0]) * one.units.rows if positive else latents_in_units(one, v[:, 0])
        found = jax.vmap(log_joint(family), (None, 0, 0))(one.in_units(theta), x, one.data)
        size = (
            np.log(x) if positive else np.log(latents_in_units(one, 1) - latents_in_units(one, 0))
        )
        rows_of_each = one.data["mask"].sum(axis=1) * np.log(one.units.rows)
        exact = marginals_log_joint(family, theta, v, one.data_in_ones)[:, 0]
        np.testing.assert_allclose(np.asarray(found) + size + rows_of_each, exact, rtol=1e-6)


def latents_in_units(one, v):
    """A latent on the reals in the units of the data; that of a uniform prior has none."""
    family, units = one.chunk.family, one.units
    if family.prior == "uniform":
        return v * 1.0
    shift = np.log(units.rows) if family.likelihood == "gamma" else 0.0
    return v * {"identity": units.rows, "square": units.rows**0.5}.get(family.link, 1.0) + shift


@pytest.mark.slow
def test_one_fit_through_the_fuzzer():
    command = [sys.executable, str(HERE / "fuzz.py"), "--seed", "1", "--only", "31"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "ok: #31 normal x normal" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "number", "warning"),
    [
        (25, 191, "at other maxima the log likelihood is lower by 0.03."),
        (31, 2077, "The likelihood is flat in gap, low:"),
    ],
)
def test_two_classes_of_which_one_is_infinitely_far_or_empty(seed, number, warning):
    """Believed: starts agreed on a maximum lower than a plateau; `low` alone had an error."""
    command = [sys.executable, str(HERE / "fuzz.py"), f"--seed={seed}", f"--only={number}"]
    said = " ".join(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert warning in said
    assert "WRONG" not in said
    below = float(re.search(r"below the maximum by (\S+),", said)[1])
    assert abs(below) < 1e-3

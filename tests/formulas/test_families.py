"""Every family is held to the same contract; its density beside SciPy's."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import typer
from scipy import stats
from scipy.special import expit, ndtr

import marginax as mx
from marginax.cli.app import app
from marginax.formulas.families import FAMILIES
from marginax.formulas.families.zero_inflation import with_extra_zeros
from marginax.formulas.links import LINKS
from marginax.formulas.responses import Response

ETA = np.array([-3.0, -0.4, 0.0, 0.7, 2.5])
TRIALS = np.array([1.0, 4.0, 10.0, 3.0, 7.0])
CUTS = np.array([-1.0, 0.3, 2.0])
PLACES = np.array([0, 1, 2, 3, 1])


def of_categories(link):
    below = np.column_stack(
        [np.zeros(5), LINKS[link].mean(CUTS[None, :] - ETA[:, None]), np.ones(5)]
    )
    return np.log(np.diff(below, axis=1)[np.arange(5), PLACES])


# Family, link, y, parameters, log density by SciPy.
COUNTS = np.array([0.0, 1.0, 0.0, 3.0, 20.0])
SHARES = np.array([0.01, 0.3, 0.5, 0.9, 0.99])
SUCCESSES = np.array([1.0, 0.0, 5.0, 3.0, 2.0])
CASES = [
    ("gaussian", "identity", ETA + 1, {"sigma": 0.7}, stats.norm.logpdf(1.0, 0, 0.7) + 0 * ETA),
    ("binomial", "logit", SUCCESSES, {}, stats.binom.logpmf(SUCCESSES, TRIALS, expit(ETA))),
    ("binomial", "probit", SUCCESSES, {}, stats.binom.logpmf(SUCCESSES, TRIALS, ndtr(ETA))),
    (
        "binomial",
        "cloglog",
        SUCCESSES,
        {},
        stats.binom.logpmf(SUCCESSES, TRIALS, -np.expm1(-np.exp(ETA))),
    ),
    ("poisson", "log", COUNTS, {}, stats.poisson.logpmf(COUNTS, np.exp(ETA))),
    (
        "negative_binomial",
        "log",
        COUNTS,
        {"size": 1.7},
        stats.nbinom.logpmf(COUNTS, 1.7, 1.7 / (1.7 + np.exp(ETA))),
    ),
    (
        "gamma",
        "log",
        np.exp(ETA) + 0.5,
        {"shape": 2.2},
        stats.gamma.logpdf(np.exp(ETA) + 0.5, 2.2, scale=np.exp(ETA) / 2.2),
    ),
    (
        "beta",
        "logit",
        SHARES,
        {"precision": 6.0},
        stats.beta.logpdf(SHARES, 6 * expit(ETA), 6 * expit(-ETA)),
    ),
    ("ordinal", "logit", PLACES.astype(float), {"cut": CUTS}, of_categories("logit")),
    ("ordinal", "probit", PLACES.astype(float), {"cut": CUTS}, of_categories("probit")),
    (
        "student",
        "identity",
        ETA + 2,
        {"sigma": 0.7, "df": 3.5},
        stats.t.logpdf(2 / 0.7, 3.5) - np.log(0.7) + 0 * ETA,
    ),
]


@pytest.mark.parametrize(
    ("name", "link", "y", "values", "expected"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_log_densities_are_scipys(name, link, y, values, expected):
    family = FAMILIES[name]
    values = {key: jnp.asarray(value) for key, value in values.items()}
    found = family.log_density(link, jnp.asarray(y), jnp.asarray(ETA), values, jnp.asarray(TRIALS))
    np.testing.assert_allclose(found + family.constant(y, TRIALS), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "link", "y", "values"), [c[:4] for c in CASES], ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_one_mode_is_claimed_where_log_densities_are_concave(name, link, y, values):
    """A family that said so by mistake would have no other modes looked for."""
    family = FAMILIES[name]
    values = {key: jnp.asarray(value) for key, value in values.items()}
    grid = np.linspace(-6, 6, 241)

    def along(one, trials):
        there = jnp.asarray(np.full_like(grid, one)), jnp.asarray(grid)
        return family.log_density(link, *there, values, jnp.full(len(grid), trials))

    bends = [np.diff(along(one, trials), 2) for one, trials in zip(y, TRIALS, strict=True)]
    scale = max(np.max(np.abs(bend)) for bend in bends)
    assert family.is_log_concave == all(np.all(bend <= 1e-9 * scale) for bend in bends)


def test_the_cases_are_all_families_and_links():
    assert {(c[0], c[1]) for c in CASES} | {("beta", "probit"), ("beta", "cloglog")} == {
        (name, link) for name, family in FAMILIES.items() for link in family.links
    }


def test_every_family_is_where_users_look():
    docs = Path(__file__).parents[2] / "docs"
    pages = "".join(page.read_text() for page in docs.rglob("*.md"))
    command = typer.main.get_command(app).commands["mixed"]
    (option,) = [one for one in command.params if "--family" in one.opts]
    for name in FAMILIES:
        assert f'"{name}"' in mx.mixed.__doc__, f"name {name} in the docstring of formulas/front.py"
        helped = re.search(rf"\b{name}\b", option.help)
        assert helped, f"name {name} in the help of --family in cli/app.py"
        assert f"| `{name}` |" in pages, f"put {name} into the table of families in docs/mixed.md"


def test_extra_zeros_beside_a_sum():
    family = with_extra_zeros(FAMILIES["poisson"])
    values = {"zero_probability": jnp.asarray(0.2)}
    found = family.log_density("log", jnp.asarray(COUNTS), jnp.asarray(ETA), values, jnp.ones(5))
    expected = 0.8 * stats.poisson.pmf(COUNTS, np.exp(ETA)) + 0.2 * (COUNTS == 0)
    np.testing.assert_allclose(np.exp(found + family.constant(COUNTS, TRIALS)), expected)


VALUES = {
    "sigma": 0.7,
    "size": 1.7,
    "shape": 2.2,
    "precision": 6.0,
    "df": 7.0,
    "cut": CUTS,
    "zero_probability": 0.3,
}


@pytest.mark.parametrize("name", [*FAMILIES, "zero-inflated negative_binomial"])
def test_simulated_responses_have_the_mean_and_variance_that_are_said(name):
    # 40,000 draws: means and variances within 6 standard errors, 1 failure in 10^8
    zero = name.startswith("zero")
    family = FAMILIES[name.split()[-1]]
    family = with_extra_zeros(family) if zero else family
    link, count = family.links[0], 40_000
    values = {one.name: np.asarray(VALUES[one.name]) for one in family.parameters}
    eta, trials = np.full(count, 0.4), np.full(count, 5.0)
    mean = LINKS[link].mean(eta) if family.mean is None else family.mean(link, eta, values)
    y = family.simulate(np.random.default_rng(0), mean, values, trials)
    y = y / trials if name == "binomial" else y
    variance = family.variance(mean, values, trials)
    expected = mean if mean.ndim == 1 else mean @ np.arange(mean.shape[1])
    assert np.mean(y) == pytest.approx(expected[0], abs=6 * np.sqrt(variance[0] / count))
    assert np.var(y) == pytest.approx(variance[0], rel=0.12)
    response = Response("y", y * trials if name == "binomial" else y)
    if name == "binomial":
        response = response._replace(trials=trials)
    checked = family.check(response, None)
    assert len(checked.values) == count


@pytest.mark.parametrize("link", LINKS)
def test_links_are_their_own_inverses(link):
    functions = LINKS[link]
    np.testing.assert_allclose(functions.forward(functions.mean(ETA)), ETA, rtol=1e-9, atol=1e-12)
    slope = (functions.mean(ETA + 1e-6) - functions.mean(ETA - 1e-6)) / 2e-6
    np.testing.assert_allclose(functions.slope(ETA), slope, rtol=1e-6)


@pytest.mark.slow
def test_a_family_of_ones_own():
    family = FAMILIES["gaussian"]._replace(name="normal by quadrature")
    random = np.random.default_rng(0)
    g = np.repeat(np.arange(10), 5)
    y = 2.0 + random.normal(size=10)[g] + 0.5 * random.normal(size=50)
    table = {"y": y, "g": g}
    exact = mx.mixed("y ~ 1 + (1 | g)", table)
    fit = mx.mixed("y ~ 1 + (1 | g)", table, family)
    assert fit.ok
    np.testing.assert_allclose(fit.estimates, exact.estimates, rtol=1e-4)
    assert fit.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(
        [one.standard_error for one in fit.solution.numbers],
        [one.standard_error for one in exact.solution.numbers],
        rtol=1e-3,
    )

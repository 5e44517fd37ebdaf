"""The page on trust has every sentence that the code can say, and none that it cannot."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

import marginax as mx

DOCS = Path(__file__).parents[2] / "docs"
MADE = runpy.run_path(str(DOCS / "sentences.py"))


def test_every_sentence_of_the_code_is_explained():
    assert MADE["unexplained"]() == [], "explain these in docs/sentences.toml"


def test_nothing_is_explained_that_no_code_says():
    assert MADE["left_over"]() == []


def test_the_page_is_what_the_code_says():
    page = (DOCS / "trust.md").read_text()
    assert MADE["written"](page) == page, "run `python docs/sentences.py`"


def test_a_sentence_is_found_wherever_it_stands(tmp_path):
    import ast

    code = '''
def words(n):
    """A docstring is no verdict: it is not said."""
    if n > 3:
        raise ValueError(f"{n} is too many: give fewer.")
    label = "no sentence"
    return [f"The cloud of {n} " "is odd. " f"{label} Look at it."]
'''
    assert list(MADE["said_in"](ast.parse(code))) == ["The cloud of … is odd. … Look at it."]


def _on_the_page(said, *tables):
    entries = [entry for name in tables for entry in MADE["EXPLAINED"][name]]
    for sentence in said:
        assert any(MADE["pattern"](entry).match(sentence) for entry in entries), sentence


def test_what_formulas_say_is_on_the_page():
    group = np.repeat(np.arange(6), 5)
    x = np.tile(np.linspace(-1.0, 1.0, 5), 6)
    y = np.where(np.arange(30) == 3, np.nan, x + np.tile([0.1, -0.1, 0.2, -0.1, -0.1], 6))
    fit = mx.mixed("y ~ x + (1 | g)", {"y": y, "x": x, "g": group})
    assert len(fit.notes) == 2  # a row that was left out, and a variance of 0
    _on_the_page(fit.notes, "formulas")


def test_what_a_run_says_is_on_the_page():
    model = mx.models.ToyHierarchical(prior_variance=12.0, noise_variance=12.0)
    y = model.simulate(jax.random.key(1), 10.0, 20)
    particles = jax.random.normal(jax.random.key(2), (20, 20))
    method = mx.m_svgd_em(model.log_joint, 0.3, 0.3, mx.kernels.rbf(5.0))
    run = mx.run(method, 0.0, particles, y, max_steps=100, key=jax.random.key(3))
    assert run.status == "max_steps"
    _on_the_page([run.reason], "run_reasons")
    assert run.cloud_check.warnings
    _on_the_page(run.cloud_check.warnings, "cloud")


@pytest.mark.slow
def test_what_a_fit_says_is_on_the_page(as_users_write):
    def log_joint(theta, x, y):  # the spread is written without its constraint
        return -0.5 * x**2 - 0.5 * np.log(2 * np.pi) + _normal(y, theta["a"] + theta["b"], x, theta)

    def _normal(y, mean, x, theta):
        return -0.5 * jax.numpy.sum((y - mean - theta["sd"] * x) ** 2)

    y = 2.0 + np.random.default_rng(0).normal(size=(30, 1)) + np.zeros((30, 3))
    theta = {"a": 0.0, "b": 0.0, "sd": -1.0}
    fit = mx.fit(mx.Problem.grouped(log_joint, y, theta=theta, latent=0.0), draw_posterior=False)
    assert any(one.startswith("The likelihood is flat in a, b") for one in fit.warnings)
    _on_the_page(fit.warnings, "fit_warnings")
    _on_the_page(fit.notes, "fit_notes")

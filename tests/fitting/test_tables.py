"""The table of a fit: one source for text, HTML and JSON, with what is not known left out."""

import inspect
import json
from types import SimpleNamespace

import numpy as np
import pytest

from marginax.cli import writing
from marginax.cli.page import _estimates, _likelihood
from marginax.fitting import tables
from marginax.fitting.tables import summary_table, summary_text, verdict
from marginax.likelihood.results import ImportanceLikelihood, QuadratureLikelihood

summary_of = inspect.unwrap(writing.summary_of)  # without the tests' type checker
QUADRATURE = QuadratureLikelihood(-12.5, 2e-13, np.zeros(4), np.zeros(4), np.ones(4), 0.0, 29)
WEIGHTS = ImportanceLikelihood(
    *(-12.5, 0.03, None, np.zeros(1), np.ones(1), 0.0),
    *(8192, "Gaussian", 8192.0, None, np.diag([0.01, 0.0])),
)


def made(likelihood=QUADRATURE, errors=(0.5, np.nan), **more):
    """What a table asks of a fit: two parameters, the second at a boundary."""
    errors = np.array(errors)
    fields = {
        "names": ("mean", "sd"),
        "estimates": np.array([-2.0, 1e-6]),
        "information": np.eye(2),
        "standard_errors": errors,
        "confidence_intervals": lambda level: np.stack([-2 * errors, 2 * errors], axis=1),
        "score_covariance": np.zeros((2, 2)),
        "monte_carlo_error": np.array([0.05, 0.0]),
        "likelihood": likelihood,
        "aic": 29.0,
        "bic": 27.77,
        "draws": None,
        "problem": SimpleNamespace(sample_size=4, num_observations=None, num_groups=4),
        "method": "M-SVGD-EM",
        "timings": {"start": 1.0},
        "converged": True,
        "ok": True,
        "warnings": (),
        "notes": (),
        "num_starts": 3,
        "num_agreeing": 3,
    }
    fit = SimpleNamespace(**(fields | more))
    fit.summary_table = lambda level=0.95: summary_table(fit, level)
    return fit


def test_a_row_has_everything_once():
    mean, sd = made().summary_table().rows
    assert (mean.name, mean.estimate, mean.standard_error, mean.z) == ("mean", -2.0, 0.5, -4.0)
    assert (mean.low, mean.high) == (-1.0, 1.0)
    assert (sd.standard_error, sd.z, sd.low, sd.high) == (None, None, None, None)


def test_text_html_and_json_say_the_same():
    fit = made()
    text, table = summary_text(fit), fit.summary_table()
    html = _estimates(table) + _likelihood(table)
    summary = json.loads(json.dumps(summary_of(fit, {"title": "t"}), allow_nan=False))
    for title in table.titles:
        assert title in text
        assert f">{title}</th>" in html
    for line in table.cells:
        assert all(cell in text for cell in line)
    assert '<td class="column-estimate">−2</td>' in html
    assert summary["parameters"][0] == {
        "name": "mean", "estimate": -2.0, "standard_error": 0.5, "z": -4.0, "interval": [-1.0, 1.0]
    }  # fmt: skip
    assert summary["parameters"][1]["standard_error"] is None
    assert summary["log_likelihood"] == -12.5
    assert "-12.500 (error 2e-13)" in text
    assert "−12.500 (error 2e-13)" in html  # the minus of the error's exponent is not the number's
    assert summary["bic"] == 27.77
    assert "27.77 (n = 4 groups)" in text


def test_a_new_column_reaches_all_three(monkeypatch):
    # A column once had to be written in three files, and JSON had none of z.
    double = tables.Column(
        "twice", "twice", lambda row: 2 * row.estimate, lambda row: f"{2 * row.estimate:.2f}", 8
    )
    monkeypatch.setattr(tables, "COLUMNS", (*tables.COLUMNS, double))
    fit = made()
    assert "-4.00" in summary_text(fit)
    assert ">−4.00</td>" in _estimates(fit.summary_table())
    assert summary_of(fit, {})["parameters"][0]["twice"] == -4.0


def test_without_standard_errors_their_columns_are_left_out():
    fit = made(None, information=None)
    table = fit.summary_table()
    assert table.titles == ["parameter", "estimate"]
    assert "log likelihood not computed" in summary_text(fit)
    assert "was not computed" in _likelihood(table)
    assert summary_of(fit, {})["parameters"][0]["standard_error"] is None
    assert summary_of(fit, {})["log_likelihood"] is None


def test_what_draws_say_is_said():
    fit = made(WEIGHTS, score_covariance=WEIGHTS.score_covariance)
    text = summary_text(fit)
    assert "by importance sampling, 8192 draws from a Gaussian at the mode; 8192 effective" in text
    assert "equal weights" in text
    assert "Monte Carlo error of the estimates: at most 10.0% of a standard error" in text


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_the_level_is_in_the_heading(level):
    assert made().summary_table(level).titles[-1] == f"{100 * level:g} % interval"


def test_unbounded_errors_are_told():
    _, sd = made(errors=(0.5, np.inf)).summary_table().cells
    assert sd[2:4] == ["unbounded", "-"]


def test_the_verdict_tells_an_end_from_a_reason_to_doubt():
    assert verdict(made()) == "CONVERGED, 3 starts agree."
    assert verdict(made(num_agreeing=2)).startswith("CONVERGED, 2 of 3 starts led here")
    assert verdict(made(num_starts=1, num_agreeing=1)) == "CONVERGED."
    doubted = {"ok": False, "warnings": ("Something.",)}
    assert verdict(made(**doubted)) == "CONVERGED, with a warning:"
    two = {"ok": False, "warnings": ("One.", "Two.")}
    assert verdict(made(converged=False, **two)) == "NOT CONVERGED, 2 warnings:"

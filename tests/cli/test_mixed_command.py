"""`marginax mixed` as a new user would type it."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from marginax.cli.app import app

SLEEP = str(Path(__file__).parents[2] / "examples" / "data" / "sleepstudy.csv")
FORMULA = "Reaction ~ Days + (Days | Subject)"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(as_users_write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def shell(*words):
    return CliRunner().invoke(app, ["mixed", *words])


def test_the_summary_is_printed_and_nothing_written():
    ended = shell(FORMULA, "--data", SLEEP)
    assert ended.exit_code == 0, ended.output
    assert "logLik -875.970" in ended.stdout
    assert "CONVERGED." in ended.stdout
    assert "sleepstudy.csv: 180 rows, 3 columns." in ended.stderr
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_a_report():
    table = pd.read_csv(SLEEP)
    table.loc[3, "Days"] = np.nan
    table.to_parquet("sleep.parquet")
    ended = shell(FORMULA, "--data", "sleep.parquet", "--reml", "--out", "here")
    assert ended.exit_code == 0, ended.output
    names = ["figure.png", "random_effects.csv", "report.html", "summary.json"]
    assert sorted(path.name for path in Path("here").iterdir()) == names
    summary = json.loads(Path("here/summary.json").read_text())
    assert summary["ok"] is True
    assert summary["reml"] is True
    assert summary["num_observations"] == 179
    assert "1 of 180 rows were left out" in summary["notes"][0]
    assert [row["name"] for row in summary["fixed_effects"]] == ["Intercept", "Days"]
    assert len(pd.read_csv("here/random_effects.csv")) == 36
    page = Path("here/report.html").read_text()
    assert "Reaction ~ Days + (Days | Subject)" in page
    assert "1 of 180 rows were left out" in page
    assert re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,', page) == [
        "Estimates",
        "Reaction along Days",
        "Residuals",
        "Intercept | Subject",
        "Days | Subject",
    ]
    assert "&lt; 2e−16" in page  # and not 1.4e-297


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((FORMULA, "--data", "nowhere.csv"), "nowhere.csv cannot be read: No such file"),
        ((FORMULA, "--data", "table.xls"), "data come from .csv and .parquet files"),
        (("Reaction ~ Day + (1 | Subject)", "--data", SLEEP), "Did you mean 'Days'?"),
        ((FORMULA, "--data", SLEEP, "--family", "poisson"), "not a whole number"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, sentence):
    ended = shell(*words)
    assert ended.exit_code == 2
    assert sentence in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.output


@pytest.mark.slow
def test_two_fits_are_compared():
    for name, formula in (("small", "Reaction ~ Days + (1 | Subject)"), ("large", FORMULA)):
        assert shell(formula, "--data", SLEEP, "--out", name).exit_code == 0
    ended = CliRunner().invoke(app, ["compare", "large", "small"])
    assert ended.exit_code == 0, ended.output
    # lme4's anova: chi-square 42.139 on 2 degrees, p = 7.072e-10
    assert "chi-square 42.139 on 2 degrees, p 7.07e-10" in ended.stdout
    assert "too large" in ended.stdout
    refused = CliRunner().invoke(app, ["compare", "large", "nowhere"])
    assert refused.exit_code == 2
    assert "cannot be read" in refused.stderr

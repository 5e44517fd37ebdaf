"""`marginax fit` as a whole: files, exit codes, and what happens to a result on a bad machine."""

import errno
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import datafile, modelfile, writing
from marginax.cli.app import app

FLAT = """
import jax.numpy as jnp
import marginax as mx
from jax.scipy.stats import norm

def problem(data):
    def log_joint(theta, x, group):
        terms = norm.logpdf(group["y"], x, 1.0)
        return norm.logpdf(x, theta["<a>"] + theta["b"]) + jnp.sum(group["mask"] * terms)

    groups = {name: data[name] for name in ("y", "mask")}
    return mx.Problem.grouped(log_joint, groups, theta={"<a>": 0.0, "b": 0.0}, latent=0.0)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(as_users_write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def shell(*words):
    return CliRunner().invoke(app, [*words])


@pytest.mark.slow
def test_a_template_from_new_to_the_report(monkeypatch):
    assert shell("new", "glmm").exit_code == 0
    ended = shell("fit", "glmm.py", "--data", "glmm.csv", "--out", "here/results")
    assert ended.exit_code == 0, ended.output
    assert "CONVERGED, 3 starts agree." in ended.stdout
    assert "Report: here/results/report.html" in ended.stdout
    assert "glmm.csv: 60 rows of clinic, treated, patients, events." in ended.stderr
    assert "3 parameters, 1 latent in each of 30 groups" in ended.stderr
    out = Path("here/results")
    names = ["figure.png", "fit.npz", "posterior.nc", "report.html", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == names

    summary = json.loads((out / "summary.json").read_text())
    assert summary["converged"] is True
    assert summary["seed"] == 0
    assert summary["versions"]["marginax"] == mx.__version__
    table = {row["name"]: row for row in summary["parameters"]}
    for name, simulated in (("intercept", -1.0), ("treatment", -0.7), ("sd clinic", 0.8)):
        row = table[name]
        assert abs(row["estimate"] - simulated) < 3 * row["standard_error"]
        assert row["interval"][0] < row["estimate"] < row["interval"][1]
    assert summary["aic"] == pytest.approx(-2 * summary["log_likelihood"] + 6)

    page = (out / "report.html").read_text()
    assert "Converged, 3 starts agree." in page
    pictures = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,', page)
    assert pictures == ["Estimates", "Random effects: latent", "Paths of θ from 1 start"]
    assert "prefers-color-scheme: dark" in page
    assert "<!-- " not in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is fetched

    model, data = modelfile.load_model("glmm.py"), datafile.read_table(Path("glmm.csv"))
    fit = mx.Fit.load(out / "fit.npz", modelfile.problem_of(model, data, {})[0])
    assert fit.ok
    assert fit.estimates.dtype == np.float64
    arviz = pytest.importorskip("arviz")
    written, made = arviz.from_netcdf(str(out / "posterior.nc")), fit.to_arviz()
    assert written.posterior.sizes["group"] == 30
    assert written.groups() == made.groups()
    for group in made.groups():  # all but when and by which ArviZ it was made
        assert written[group].equals(made[group])
        assert written[group].attrs.items() <= made[group].attrs.items()

    check_without_extras(monkeypatch, fit, summary)
    check_full_disk(monkeypatch, fit, summary)


def check_without_extras(monkeypatch, fit, about):
    with monkeypatch.context() as without:
        for name in ("matplotlib.figure", "h5netcdf"):
            without.setitem(sys.modules, name, None)
        skipped = writing.write_results(fit, about, Path("bare"))
    assert [words.split()[0] for words in skipped] == ["posterior.nc", "figure.png"]
    assert all("pip install" in words for words in skipped)
    names = ["fit.npz", "report.html", "summary.json"]
    assert sorted(path.name for path in Path("bare").iterdir()) == names
    page = Path("bare/report.html").read_text()
    assert "figure.png was not written" in page
    assert "<img" not in page


def check_full_disk(monkeypatch, fit, about):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(np, "savez_compressed", full)
        with pytest.raises(OSError, match=r"Cannot write full/fit.npz: No space left"):
            writing.write_results(fit, about, Path("full"))
    assert [path.name for path in Path("full").iterdir()] == []


@pytest.mark.slow
def test_a_fit_with_warnings_is_written_and_ends_with_3():
    random = np.random.default_rng(0)
    rows = "".join(f"{i % 20},{random.normal():.3f}\n" for i in range(60))
    Path("data.csv").write_text("who,y\n" + rows)
    Path("flat.py").write_text(FLAT)
    ended = shell("fit", "flat.py", "--data", "data.csv", "--group", "who", "--num-starts", "2")
    assert ended.exit_code == 3, ended.output
    assert "CONVERGED, with" in ended.stdout
    out = Path("fit-flat")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["ok"] is False
    assert summary["converged"] is True
    assert "flat in" in summary["warnings"][0]
    assert {row["standard_error"] for row in summary["parameters"]} == {None}
    page = (out / "report.html").read_text()
    assert "Converged, with" in page
    assert "unbounded" in page
    assert "&lt;a&gt;" in page
    assert "<a>" not in page

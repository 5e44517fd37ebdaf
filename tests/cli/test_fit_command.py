"""`marginax fit` as a whole: files, exit codes, and what happens to a result on a bad machine."""

import errno
import inspect
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import datafile, fit_command, modelfile, writing
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
    panels = ["Estimates", "Predictions", "Residuals", "Random effects: latent"]
    assert pictures == [*panels, "Paths of θ from 1 start"]
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


class Drawn:
    """What predictions ask of a fit: two draws of the latents of three groups."""

    draws = True
    theta = 10.0

    def __init__(self, problem):
        self.problem, self.plotted = problem, []

    def predict(self, fn, *, key, num_draws):
        latents = jnp.arange(6.0).reshape(2, 3)
        return jax.vmap(fn, (0, None, 0))(jax.random.split(key, 2), self.theta, latents)

    def plot(self, *given, **more):
        self.plotted.append((given, more))
        return "a figure"


predictions = inspect.unwrap(modelfile.predictions)  # without the tests' type checker
draw = inspect.unwrap(fit_command._figure)


def a_model(predict, along=None):
    return modelfile.Model(Path("m.py"), "problem", predict, "m", predict, along)


def test_predictions_of_one_group_become_those_of_all(monkeypatch):
    monkeypatch.setattr(fit_command, "predictions", predictions)
    data = {"y": jnp.zeros((3, 4)), "t": jnp.ones((3, 4))}

    def predict(key, theta, x, group):
        return {"y": theta * x + group["t"]}

    grouped = SimpleNamespace(data=data, num_groups=3, group_log_joint=predict)
    fit = Drawn(grouped)
    name, made = predictions(a_model(predict), fit)
    assert name == "y"
    np.testing.assert_allclose(made[1, 2], 10.0 * 5 + np.ones(4))
    assert made.shape == (2, 3, 4)

    def of_all(key, theta, x, data):
        return {"y": theta * x[:, None] + data["t"]}

    whole = SimpleNamespace(data=data, num_groups=None, group_log_joint=None)
    again = predictions(a_model(of_all), Drawn(whole))[1]
    np.testing.assert_allclose(again, made)
    assert predictions(a_model(None), fit) is None
    draw(fit, a_model(predict, "t"))
    assert fit.plotted[0][0][1] == "y"
    assert fit.plotted[0][1] == {"x": "t"}


def test_a_predict_that_fails_costs_the_predictions_and_not_the_figure(monkeypatch, capsys):
    monkeypatch.setattr(fit_command, "predictions", predictions)

    def predict(key, theta, x, group):
        return {"y": group["weight"]}

    problem = SimpleNamespace(data={"y": jnp.zeros((3, 4))}, num_groups=3, group_log_joint=predict)
    fit = Drawn(problem)
    assert draw(fit, a_model(predict)) == "a figure"
    assert fit.plotted == [((), {})]
    said = " ".join(capsys.readouterr().err.split())
    assert "Note: predictions were not drawn: predict() in m.py: KeyError: 'weight'" in said
    assert draw(fit, a_model(lambda key, theta, x, group: x))
    assert "must return a dict with one entry" in " ".join(capsys.readouterr().err.split())


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

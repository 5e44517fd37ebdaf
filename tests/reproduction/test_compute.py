"""`marginax reproduce`: resumable, whole files only, clear errors, a report that stands alone."""

import errno
import json
import os
import re
import sys
import types

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax import cli, reproduction
from marginax.cli.app import app
from marginax.reproduction import compute, experiments, report, results, sizes
from marginax.reproduction.results import Labelled

ARRAY = Labelled(np.array([1.0, 2.0], np.float32), ("step",), {"step": (1, 2)})
TINY = sizes.Size(
    "tiny",
    toy=sizes.ToySize(12, 2, 3, 2, 2, 1, (0.1, 0.5), (0.0, 0.9)),
    logistic=sizes.LogisticSize(12, 14, 2000, 2, 3, 1, 5, (4,), 1, (0.1, 0.5), (0.0, 0.9)),
    network=sizes.NetworkSize(3, 2, 1, (2, 3), (0.0, 1.0)),
)


@pytest.fixture
def counted(monkeypatch):
    """One experiment that counts how often it is run."""
    calls = []

    def count(size, progress):
        calls.append(size)
        progress(3)
        return {"numbers": ARRAY}

    fake = experiments.Experiment("toy_methods", "toy", count, lambda size: 3)
    monkeypatch.setattr(compute, "chosen", lambda which: (fake,))
    return calls


def test_a_finished_experiment_is_not_run_again(counted, tmp_path):
    for size, runs in (("quick", 1), ("quick", 1), ("full", 2), ("full", 2)):
        reproduction.reproduce("toy", size=size, out=tmp_path)
        assert len(counted) == runs
    found = results.read(tmp_path, "full", "toy_methods")
    np.testing.assert_array_equal(found.arrays["numbers"].values, ARRAY.values)
    assert found.arrays["numbers"].coords == ARRAY.coords
    settings = found.about["settings"]
    assert settings.items() >= json.loads(json.dumps(vars(sizes.FULL.toy))).items()
    assert settings["marginax"] == mx.__version__
    assert results.read(tmp_path, "quick", "toy_methods") is not None  # a folder per size


def test_numbers_of_another_version_are_made_anew(counted, tmp_path, monkeypatch):
    reproduction.reproduce("toy", size="quick", out=tmp_path)
    monkeypatch.setattr(compute, "__version__", "0.0.1")
    reproduction.reproduce("toy", size="quick", out=tmp_path)
    assert len(counted) == 2


def damage(data):
    middle = len(data) // 2
    return {
        "other": b"not an archive",
        "empty": b"",
        "truncated": data[:middle],
        "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
    }


@pytest.mark.parametrize("how", ["other", "empty", "truncated", "flipped"])
def test_a_damaged_file_is_made_anew(counted, tmp_path, how):
    """As an interrupted copy from another machine leaves it."""
    reproduction.reproduce("toy", size="quick", out=tmp_path)
    path = tmp_path / "results" / "quick" / "toy_methods.npz"
    path.write_bytes(damage(path.read_bytes())[how])
    with pytest.warns(UserWarning, match="cannot be read and is ignored"):
        reproduction.reproduce("toy", size="quick", out=tmp_path)
    assert len(counted) == 2


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_nothing_half_written(monkeypatch, counted, tmp_path, interruption):
    """Ctrl-C in the middle of a file, and a disk that fills up."""

    def breaks(file, **arrays):
        file.write(b"half")
        raise interruption

    monkeypatch.setattr(np, "savez_compressed", breaks)
    with pytest.raises(type(interruption)) as caught:
        reproduction.reproduce("toy", size="quick", out=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    if isinstance(interruption, OSError):
        assert "Choose a folder you can write to" in caught.value.strerror


def test_an_unwritable_folder_is_refused_before_any_run(counted, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Cannot write to"):
        reproduction.reproduce("toy", size="quick", out=tmp_path / "file")
    assert counted == []


def shell(*words):
    return CliRunner().invoke(app, ["reproduce", *words])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["bar"], 2, "There is no experiment 'bar'"),
        (["--quick", "--full"], 2, "exclude each other"),
        (["--device", "abacus"], 2, "There is no device 'abacus'"),
        (["--render", "/nowhere"], 2, "no finished experiments in /nowhere/results/full"),
        (["--out", os.devnull], 1, "Cannot write to"),
    ],
)
def test_errors_are_one_line(words, code, says):
    ended = shell(*words)
    assert ended.exit_code == code
    assert says in ended.stderr
    assert "Traceback" not in ended.output
    assert len(ended.stderr.strip().splitlines()) == 1


def test_ctrl_c_says_what_is_kept(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "reproduce", interrupted)
    ended = shell("toy")
    assert ended.exit_code == 130
    assert "finished is kept" in ended.stderr


def test_the_shell_without_typer_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "marginax.cli.app")
    with pytest.raises(SystemExit, match=re.escape("pip install 'marginax[cli]'")):
        cli.main()


def test_without_matplotlib_results_are_kept(monkeypatch, counted, tmp_path):
    reproduction.reproduce("toy", size="quick", out=tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="Drawing needs matplotlib"):
        reproduction.render(tmp_path)
    assert results.read(tmp_path, "quick", "toy_methods") is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "num_figures", "num_claims"), [("toy", 8, 6), ("logistic", 8, 3), ("network", 6, 3)]
)
def test_a_part_at_a_tiny_size(tmp_path, part, num_figures, num_claims):
    """Every experiment makes as many runs as its bar announces, and every figure is drawn."""
    done = types.SimpleNamespace(runs=0)
    for experiment in experiments.chosen(part):
        size = getattr(TINY, experiment.part)
        done.runs = 0

        def count(runs):
            done.runs += runs

        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            arrays = experiment.compute(size, count)
        assert done.runs == experiment.num_runs(size), experiment.name
        about = {"seconds": 1.0, "num_runs": done.runs, "size": "tiny"} | dict.fromkeys(
            ("date", "device", "dtype", "marginax", "jax", "optax", "numpy", "python"), "x"
        )
        about["settings"] = experiment.settings(TINY)
        results.write(tmp_path, "tiny", experiment.name, results.Finished(arrays, about))
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    page = reproduction.render(tmp_path, "tiny").read_text()
    assert dict(mpl.rcParams) == before  # a user's settings: they were changed for good
    assert "This is not the full set" in page
    assert page.count("<figure") == page.count("data:image/png;base64,") == num_figures
    assert "<!--" not in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is fetched
    assert len(list((tmp_path / "figures").iterdir())) == 2 * num_figures
    table = page[page.index('class="claims"') : page.index("</table>")]
    assert table.count("<tr>") == 1 + num_claims
    tables = list((tmp_path / "csv").iterdir())
    assert tables
    for path in tables:
        assert len(path.read_text().splitlines()) > 1


def test_captions_and_figures_belong_together():
    figures = pytest.importorskip("marginax.reproduction.figures")
    assert [drawing.name for drawing in figures.DRAWINGS] == list(figures.captions())


def test_seconds_of_different_machines_are_not_added():
    about = dict.fromkeys(("date", "dtype", "marginax", "jax", "optax", "numpy", "python"), "x")
    about |= {"size": "full", "num_runs": 3}
    here = results.Finished({}, about | {"device": "cpu: here", "seconds": 40.0})
    there = results.Finished({}, about | {"device": "gpu: there", "seconds": 2.0})
    row = "<tr><td>toy: all of it</td><td>6</td><td>{}</td><td>497 s</td><td></td><td>{}</td>"
    mixed = report.html({"toy_mpgd_tuning": here, "toy_learning_rates": there}, [])
    assert row.format("—", "several") in mixed
    assert "<td>40.0 s</td><td></td><td>full</td><td>cpu: here</td>" in mixed
    alone = report.html({"toy_mpgd_tuning": there, "toy_learning_rates": there}, [])
    assert row.format("4 s", "gpu: there") in alone


def test_a_report_of_one_part_keeps_the_figures_numbers():
    shown = report.Shown("figure_17_network", "", "title", "words")
    about = dict.fromkeys(("date", "device", "dtype", "marginax", "jax", "optax", "numpy"), "x")
    about |= {"python": "x", "size": "full", "num_runs": 1, "seconds": 1.0}
    page = report.html({"network_clouds": results.Finished({}, about)}, [shown])
    assert "Figure 17. title" in page
    assert "not the full set" not in page

"""SECURITY.md, line by line: the test that holds a promise, or that a line is none."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax._core import disk_cache
from marginax.cli import datafile
from marginax.cli.app import app

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "SECURITY.md").read_text()
# Parts of its lines, and the tests: those of this file by their name alone.
PROMISES = {
    "`marginax info` prints them": ["cli/test_commands.py::test_info"],
    "has every line below beside the test": ["test_every_line_has_its_test"],
    "| the file is imported, and run": ["test_a_model_file_is_run_and_what_lies_beside_it"],
    "so is what it imports from its own folder": [
        "test_a_model_file_is_run_and_what_lies_beside_it"
    ],
    "functions that it names are called": ["test_a_formula_calls_functions"],
    "`marginax fit --data FILE.csv`": [
        "test_cells_of_a_table_are_text",
        "project/test_untrusted_files.py::test_data_with_a_pickle",
    ],
    "by pandas |": ["test_cells_of_a_table_are_text"],
    "read by your pyarrow or pandas": ["cli/test_datafile.py::test_parquet"],
    "a pyarrow before 14.0.1": ["test_an_old_pyarrow_is_refused"],
    '`Fit.load("fit.npz", problem)`': [
        "project/test_untrusted_files.py::test_a_saved_fit_with_a_pickle",
        "project/test_untrusted_files.py::test_another_file_is_no_saved_fit",
    ],
    "the `summary.json` in each": ["test_a_comparison_reads_one_file_of_each_folder"],
    "read by orbax and without unpickling": [
        "project/test_untrusted_files.py::test_a_checkpoint_is_read_without_unpickling",
        "project/test_untrusted_files.py::test_a_checkpoint_made_of_pickles",
    ],
    "a checksum notices damage": [
        "running/test_checkpoints.py::test_a_damaged_checkpoint_is_passed_over",
        "running/test_checkpoints.py::test_a_value_changed_behind_the_checksum_is_noticed",
    ],
    "the results of `marginax reproduce`": [
        "project/test_untrusted_files.py::test_an_experiment_with_a_pickle"
    ],
    "A checkpoint is refused where it does not belong": [
        "running/test_checkpoints.py::test_another_run_is_refused"
    ],
    "a saved fit where it does not belong": [
        "hard/test_saving.py::test_another_problem_is_refused",
        "fitting/test_result.py::test_save_and_load",
    ],
    "| JAX and marginax load and run": [
        "_core/test_executables.py::test_another_process_neither_traces_nor_compiles"
    ],
    "holds machine code, and Python objects": [
        "_core/test_executables.py::test_another_process_neither_traces_nor_compiles"
    ],
    "made with mode 0700": [
        "_core/test_disk_cache.py::test_a_run_keeps_its_programs_and_finds_them_again",
        "_core/test_disk_cache.py::test_the_users_cache_folder_is_the_usual_one",
    ],
    "`marginax info` says where": ["test_info_says_where_programs_are_kept"],
    "or `configure` choose another": [
        "_core/test_disk_cache.py::test_switched_off_and_on_in_python",
        "_core/test_disk_cache.py::test_switched_off_by_the_environment",
    ],
    "belongs to another user": [
        "_core/test_disk_cache.py::test_another_users_folder_is_not_written_to"
    ],
    "that others may write to, is not used": [
        "_core/test_disk_cache.py::test_nor_one_that_others_may_write_to"
    ],
    "Where JAX's own options choose a folder": [
        "_core/test_disk_cache.py::test_options_of_jax_that_are_set_win"
    ],
    "HTML with no script": ["test_reports_have_no_script_and_escape_names"],
    "load nothing from elsewhere": ["test_reports_have_no_script_and_escape_names"],
    "are escaped in them": ["test_reports_have_no_script_and_escape_names"],
    "opens no network connection": ["test_nothing_goes_over_the_network"],
}
# What is asked of the reader, or follows from the words alone.
NO_PROMISE = [
    "Report a vulnerability privately",
    "Say what was run",
    "Fixes are made for the latest release",
    "| they are called |",
    "Fit only model files and formulas that you trust",
    "may come from anybody",
    "They can still be wrong",
    "This guards against mistakes",
    "Keep checkpoints where only you can write",
    "Share a cache with nobody",
    "`jax.distributed`, which you start",
]


def lines_of(page):
    """The rows of its tables and the sentences of its paragraphs."""
    for part in page.split("\n\n"):
        if part.startswith("|"):
            yield from part.strip().split("\n")[2:]
        elif not part.startswith("#"):
            yield from re.split(r"(?<=[.!?]) (?=[A-Z`])", " ".join(part.split()))


def names_of(path):
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_line_has_its_test():
    known = [*PROMISES, *NO_PROMISE]
    lines = list(lines_of(PAGE))
    assert len(lines) > 25
    for line in lines:
        assert any(part in line for part in known), f"Which test holds this? {line}"
    for part in known:
        assert sum(part in line for line in lines) == 1, f"SECURITY.md says no more: {part}"


@pytest.mark.parametrize("test", sorted({one for many in PROMISES.values() for one in many}))
def test_the_tests_that_it_names_are_there(test):
    file, _, name = test.rpartition("::")
    path = REPOSITORY / "tests" / file if file else Path(__file__)
    assert name in names_of(path)


def shell(*words):
    return CliRunner().invoke(app, list(words))


def test_a_model_file_is_run_and_what_lies_beside_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("beside_it.py").write_text("from pathlib import Path\nPath('beside').touch()\n")
    Path("model.py").write_text(
        "from pathlib import Path\nimport beside_it\nPath('imported').touch()\n"
        "def problem(data):\n    Path('called').touch()\n"
    )
    Path("d.csv").write_text("y\n1\n2\n")
    assert shell("fit", "model.py", "--data", "d.csv").exit_code == 2
    assert all(Path(name).exists() for name in ("beside", "imported", "called"))
    sys.modules.pop("beside_it")


def test_a_formula_calls_functions(tmp_path):
    table = pd.DataFrame({"y": [1.0, 2.0, 4.0, 3.0], "x": [0.0, 1.0, 2.0, 3.0], "g": [0, 0, 1, 1]})
    written = tmp_path / "written"
    with pytest.raises(ValueError, match="cannot be computed"):
        mx.mixed(f"y ~ np.savetxt('{written}', x) + (1 | g)", table)
    assert written.exists()


def test_cells_of_a_table_are_text(tmp_path):
    cells = ["__import__('os').abort()", "=cmd|' /C calc'!A0", "{{7*7}}", "!!python/object"]
    path = tmp_path / "d.csv"
    path.write_text("word,y\n" + "".join(f'"{cell}",{i}\n' for i, cell in enumerate(cells)))
    assert datafile.read_table(path)["word"].tolist() == cells
    ended = shell("mixed", "y ~ 1 + (1 | word)", "--data", str(path))
    assert ended.exit_code == 2, "a group for every row: read, and refused as a model"


@pytest.mark.parametrize("here", ["0.17.1", "14.0.0"])
def test_an_old_pyarrow_is_refused(here, monkeypatch, tmp_path):
    path = str(tmp_path / "d.parquet")
    pd.DataFrame({"y": [1.0, 2.0], "g": [0, 1]}).to_parquet(path)
    assert datafile.read_table(Path(path))["y"].tolist() == [1.0, 2.0]
    monkeypatch.setattr(datafile, "version", lambda name: here)
    for words in (("fit", "model.py"), ("mixed", "y ~ 1 + (1 | g)")):
        ended = shell(*words, "--data", path)
        assert ended.exit_code == 2
        assert f"pyarrow {here} may run code" in ended.stderr


def test_a_comparison_reads_one_file_of_each_folder(tmp_path):
    told = {"log_likelihood": -3.0, "aic": 8.0, "parameters": [{"name": "a"}]}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(told))
        (tmp_path / name / "fit.npz").write_bytes(b"no archive")
    assert shell("compare", str(tmp_path / "one"), str(tmp_path / "two")).exit_code == 0
    for other in ("[1]", "3", '{"log_likelihood": [], "parameters": [{"name": "a"}]}', "{"):
        (tmp_path / "two" / "summary.json").write_text(other)
        ended = shell("compare", str(tmp_path / "one"), str(tmp_path / "two"))
        assert ended.exit_code == 2
        assert "is no summary of a fit" in ended.stderr


def test_info_says_where_programs_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(disk_cache, "_chosen", [tmp_path])
    monkeypatch.setattr(disk_cache, "is_of_jax", lambda: False)
    monkeypatch.setenv("COLUMNS", "400")  # or the path goes over several lines
    assert str(tmp_path) in shell("info").stdout


BAD = '<script>alert("1")</script>'
MODEL = """
import jax.numpy as jnp
import marginax as mx
from jax.scipy.stats import norm

def problem(data):
    def log_joint(theta, x, y):
        return norm.logpdf(x, theta["m"], 1.0) + norm.logpdf(y, x, 1.0)

    name, = [name for name in data if name != "n"]
    return mx.Problem.grouped(
        log_joint, data[name], theta={"m": 0.0}, latent=0.0, names={"m": name}
    )
"""


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_reports_have_no_script_and_escape_names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    rows = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    table = pd.DataFrame({BAD: rows[:, 0], "n": rows[:, 1]})
    table.to_csv("<b>.csv", index=False)
    ended = shell("fit", "model.py", "--data", "<b>.csv", "--num-starts", "1", "--out", "fit")
    assert ended.exit_code == 0, ended.output
    # Names of columns do not stand in a formula as they are; levels of factors do in its terms.
    levels = np.where(np.arange(40) % 2, BAD, "<i>")
    groups = np.repeat([f"<u>{i}" for i in range(8)], 5)
    pd.DataFrame({"y": rows[:, 0], "f": levels, "g": groups}).to_csv("<b>2.csv", index=False)
    ended = shell("mixed", "y ~ f + (1 | g)", "--data", "<b>2.csv", "--out", "mixed")
    assert ended.exit_code in (0, 3), ended.output
    for folder, known in (("fit", "&lt;script&gt;"), ("mixed", "&lt;script&gt;")):
        page = Path(folder, "report.html").read_text()
        assert known in page
        assert not re.search(r"<(script|b>\.csv|b>2\.csv|i>|u>)", page, re.IGNORECASE)
        assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:|#)", page)
        assert not re.search(r"url\(|@import|\bon\w+\s*=|javascript:", page)


def test_the_papers_report_has_no_script():
    page = (REPOSITORY / "src/marginax/reproduction/report.html").read_text()
    assert not re.search(r"<script|url\(|@import|\bon(load|error|click)\s*=", page)


WITHOUT_NETWORK = """
import os, sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event.startswith("socket.") else 0)
from marginax.cli.app import app
for words in (["fit", "model.py", "--data", "d.csv", "--num-starts", "1", "--out", "fit"],
              ["mixed", "y ~ 1 + (1 | g)", "--data", "d.csv"]):
    code = app(words, standalone_mode=False)
    assert code in (0, 3, None), code
assert os.path.exists("fit/report.html")
sockets = [os.readlink(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{one}") or os.path.islink(f"/proc/self/fd/{one}")]
print([event for event in seen if event in ("socket.connect", "socket.getaddrinfo", "socket.bind",
                                            "socket.sendto", "socket.gethostbyname")],
      [one for one in sockets if one.startswith("socket:")])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="open files as Linux shows them")
def test_nothing_goes_over_the_network(tmp_path):
    """Neither by Python's sockets, nor by one that compiled code has left open."""
    (tmp_path / "model.py").write_text(MODEL.replace('if name != "n"', 'if name != "g"'))
    rows = np.random.default_rng(0).normal(size=40).round(3)
    table = pd.DataFrame({"y": rows, "g": np.repeat(range(8), 5)})
    table.to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "alone.py").write_text(WITHOUT_NETWORK)
    ran = subprocess.run(
        [sys.executable, "alone.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env=os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().splitlines()[-1] == "[] []"

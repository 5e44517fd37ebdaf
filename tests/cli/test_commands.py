"""The shell: help, `info`, `new`, which function of a model file is meant, and exit codes."""

import errno
import sys
import textwrap
import types
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import about, datafile, fit_command, modelfile, starters
from marginax.cli.app import app
from marginax.errors import CheckpointError

CSV = "school,score\na,1.0\nb,2.5\na,0.5\n"
PROBLEM = """
import jax.numpy as jnp
import marginax as mx

def helper(theta, x, y):
    return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)

def problem(data, scale=1.0):
    y = mx.pad_groups(data["school"], y=data["score"])["y"]
    return mx.Problem.grouped(helper, scale * y, theta=0.0, latent=0.0)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(as_users_write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def files():
    Path("model.py").write_text(PROBLEM)
    Path("data.csv").write_text(CSV)


def shell(*words):
    return CliRunner().invoke(app, [*words])


def refused(ended, code=2):
    """An error in one line, after what was already said; nothing written."""
    assert ended.exit_code == code, ended.output
    assert "Traceback" not in ended.output
    lines = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert ended.stderr.strip().endswith(lines[0])
    assert ended.stdout == ""
    assert not list(Path().glob("fit-*"))
    return lines[0]


def test_every_option_has_words():
    commands = typer.main.get_command(app).commands
    assert set(commands) == {"fit", "mixed", "compare", "new", "info", "reproduce"}
    for name, command in commands.items():
        assert command.help
        said = shell(name, "--help").stdout
        assert command.help.split()[0] in said
        for parameter in command.params:
            assert parameter.help, (name, parameter.name)
    top = shell("--help").stdout
    assert all(name in top for name in commands)
    assert "..." not in top.split("Commands:")[1]  # no short help is cut
    said = " ".join(shell("fit", "--help").stdout.split())
    assert "float64" in said
    assert "0 nothing to warn of, 3 warnings" in said


def test_info(monkeypatch):
    ended = shell("info")
    assert ended.exit_code == 0
    for word in ("marginax", mx.__version__, "python", "jaxlib", "numpyro", "float64", "cpu"):
        assert word in ended.stdout
    monkeypatch.setattr(about, "installed", lambda name: None if name == "arviz" else "1.0")
    assert "pip install 'marginax[arviz]'" in " ".join(shell("info").stdout.split())


@pytest.mark.parametrize("kind", starters.KINDS)
def test_new_writes_a_model_of_its_data(kind):
    ended = shell("new", kind, "--out", "sub/mine.py")
    assert ended.exit_code == 0
    assert "marginax fit sub/mine.py --data sub/mine.csv" in ended.stdout
    assert sorted(path.name for path in Path("sub").iterdir()) == ["mine.csv", "mine.py"]
    model = modelfile.load_model("sub/mine.py")
    assert model.name == "problem"
    problem, notes = modelfile.problem_of(model, datafile.read_table(Path("sub/mine.csv")), {})
    assert problem.num_groups >= 30
    assert notes == []
    assert max(map(len, Path("sub/mine.py").read_text().splitlines())) <= 100
    again = shell("new", kind, "--out", "sub/mine.py")
    assert "sub/mine.py is there already and is not overwritten" in refused(again)


def test_new_says_what_there_is():
    assert "Did you mean 'irt'?" in refused(shell("new", "irtt"))
    assert "a model is a Python file" in refused(shell("new", "lmm", "--out", "here"))
    Path("lmm.csv").write_text("mine")
    assert "lmm.csv is there already" in refused(shell("new", "lmm"))
    assert not Path("lmm.py").exists()


def chosen(text, name=""):
    Path("m.py").write_text(text)
    return modelfile.load_model(f"m.py{name}")


def test_which_function_is_meant():
    two = "from math import sqrt\nimport jax\ndef _p(): pass\ndef a(y): pass\ndef b(y): pass\n"
    assert chosen(two, ":b").name == chosen(two, ":b").title == "b"
    assert chosen(two + "def model(y): pass\n").name == "model"
    found = chosen(two + "def model(y): pass\ndef problem(d): pass\n")
    assert (found.name, found.title) == ("problem", "m")
    assert (
        chosen("from math import sqrt\n@__import__('jax').jit\ndef only(y): pass\n").name == "only"
    )
    with pytest.raises(ValueError, match="m.py defines a, b, and none is called problem or model"):
        chosen(two)
    with pytest.raises(ValueError, match="no function 'c'; it defines a, b"):
        chosen(two, ":c")
    with pytest.raises(ValueError, match="defines no function"):
        chosen("x = 1\n")


def test_a_model_may_import_what_lies_beside_it():
    Path("beside.py").write_text("K = 3\n")
    before = list(sys.path)
    assert chosen("from beside import K\ndef model(y): return K\n").function(0) == 3
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def model(:\n", "m.py cannot be imported: SyntaxError in line 1"),
        ("\nimport nonsense_that_is_not\n", "ModuleNotFoundError in line 2: No module named"),
        ("import sys\nsys.exit(4)\n", "SystemExit in line 2"),
        (
            "def problem(data):\n    return 1 / 0\n",
            "problem() in m.py failed: ZeroDivisionError in",
        ),
        ("def problem(data):\n    data['scor']\n", "There is no column 'scor'; there are school"),
        ("def problem(data):\n    pass\n", "returned NoneType, but a function of `data` must"),
        ("def problem(data, k):\n    pass\n", "needs k too. Give it with --set k=..."),
        ("def a(y): pass\ndef b(y): pass\n", "defines a, b, and none is called"),
        ("def model(scor): pass\n", "needs a column 'scor', but the data have school, score. Did"),
    ],
)
def test_bad_models(files, text, says):
    Path("m.py").write_text(text)
    said = refused(shell("fit", "m.py", "--data", "data.csv"))
    assert says in said
    if "1 / 0" in text:
        assert "in line 2: division by zero" in said


def test_the_line_is_that_of_the_first_error(files):
    Path("m.py").write_text(PROBLEM.replace("jnp.sum", "jnp.summ"))
    said = refused(shell("fit", "m.py", "--data", "data.csv"))
    assert "failed: ValueError in line 6: log_joint " in said
    assert "failed at the start with Attr" in said


def test_debug_shows_the_traceback(files):
    Path("m.py").write_text("def problem(data):\n    return 1 / 0\n")
    ended = shell("fit", "m.py", "--data", "data.csv", "--debug")
    assert isinstance(ended.exception, ValueError)
    assert isinstance(ended.exception.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.py"], "There is no file nowhere.py"),
        (["data.csv"], "data.csv is not a model: give a Python file"),
        (["model.py:helpr"], "Did you mean 'helper'?"),
        (["model.py", "--set", "scal=2"], "has no argument 'scal', only data, scale. Did you mean"),
        (["model.py", "--set", "scale"], "write --set key=value"),
        (["model.py", "--group", "scool"], "There is no column 'scool'"),
    ],
)
def test_bad_words(files, words, says):
    assert says in refused(shell("fit", *words, "--data", "data.csv"))


def test_settings_are_numbers_where_they_look_like_it():
    pairs = ["a=1", "b=1.5", "c=true", "d=x=y", "e="]
    found = modelfile.read_settings(pairs)
    assert found == {"a": 1, "b": 1.5, "c": True, "d": "x=y", "e": ""}
    assert isinstance(found["a"], int)
    assert found["c"] is True


def test_settings_reach_the_function(files):
    model = modelfile.load_model("model.py")
    table = datafile.read_table(Path("data.csv"))
    problem, _ = modelfile.problem_of(model, table, {"scale": 2.0})
    np.testing.assert_array_equal(problem.data, [[2.0, 1.0], [5.0, 5.0]])


def test_a_numpyro_model_gets_its_columns(files, monkeypatch, capsys):
    given = {}
    problem, _ = modelfile.problem_of(
        modelfile.load_model("model.py"), datafile.read_table(Path("data.csv")), {}
    )

    def from_numpyro(model, **arguments):
        given.update(arguments, model=model.__name__)
        return problem

    fake = types.SimpleNamespace(from_numpyro=from_numpyro)
    monkeypatch.setitem(sys.modules, "marginax.interop.numpyro", fake)
    model = chosen("def schools(school, k, score=None, other=7, **rest): pass\n")
    found, notes = modelfile.problem_of(model, datafile.read_table(Path("data.csv")), {"k": 2})
    assert found is problem
    assert given.pop("model") == "schools"
    assert set(given) == {"school", "k", "score"}
    np.testing.assert_array_equal(given["school"], [0, 1, 0])
    np.testing.assert_array_equal(given["score"], [1.0, 2.5, 0.5])
    assert notes == ["Column 'school' is text: its 2 values became numbers (a is 0, b is 1)."]


def test_a_real_numpyro_model(files):
    pytest.importorskip("numpyro")
    text = """
        import numpy as np, numpyro, numpyro.distributions as dist
        def model(school, score):
            mean = numpyro.param("mean", 0.0)
            with numpyro.plate("schools", len(np.unique(school))):
                x = numpyro.sample("x", dist.Normal(mean, 1.0))
            numpyro.sample("y", dist.Normal(x[school], 1.0), obs=score)
    """
    model = chosen(textwrap.dedent(text))
    problem, _ = modelfile.problem_of(model, datafile.read_table(Path("data.csv")), {})
    assert (problem.num_parameters, problem.latent_size, problem.num_groups) == (1, 1, 2)


def ends(monkeypatch, error, *words):
    def fit(problem, **options):
        raise error

    monkeypatch.setattr(fit_command, "fit", fit)
    return shell("fit", "model.py", "--data", "data.csv", *words)


def test_exit_codes_without_a_result(files, monkeypatch):
    ended = ends(monkeypatch, KeyboardInterrupt())
    assert ended.exit_code == 130
    assert "There is no result, and none was written." in ended.stderr
    assert "checkpoints are kept" in ends(monkeypatch, KeyboardInterrupt(), "--resume").stderr
    assert "Memory ran out" in refused(ends(monkeypatch, MemoryError()), 1)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "No space left" in refused(ends(monkeypatch, full), 1)
    bad = ValueError("log_joint is\nNaN")
    assert "The fit failed with ValueError: log_joint is NaN" in refused(ends(monkeypatch, bad))
    other = CheckpointError("The folder holds another run.")
    assert "holds another run. Without --resume" in refused(ends(monkeypatch, other))


def test_an_unwritable_folder_is_refused_before_the_fit(files, monkeypatch):
    Path("in_the_way").write_text("")
    ended = ends(monkeypatch, AssertionError("too late"), "--out", "in_the_way/results")
    assert "in_the_way: Not a directory" in refused(ended, 1)


def test_what_reaches_the_fit(files, monkeypatch):
    seen = {}

    def fit(problem, **options):
        seen.update(options, problem=problem)
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_command, "fit", fit)
    words = ["--seed", "7", "--num-starts", "2", "--resume", "--out", "there", "--set", "scale=3"]
    shell("fit", "model.py", "--data", "data.csv", *words)
    assert seen["num_starts"] == 2
    assert seen["checkpoint"] == Path("there/checkpoint")
    assert (jax.random.key_data(seen["key"]) == jax.random.key_data(jax.random.key(7))).all()
    assert seen["problem"].data.max() == 7.5
    assert seen["problem"].data.dtype == np.float64

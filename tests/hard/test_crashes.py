"""What crashed, hung or aborted, and is refused in a sentence before any time is spent."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax._core import memory
from marginax.algorithms.contract import check_algorithm
from marginax.cli.app import app
from marginax.cli.datafile import Columns, NoColumn, listed, read_table
from marginax.errors import CheckpointError
from marginax.fitting import arguments
from marginax.fitting.arguments import check_fit
from marginax.running.checkpoints import check_folder
from marginax.running.sharding import check_mesh

KEY = jax.random.key(0)


def log_joint(theta, x, y):
    return -0.5 * jnp.sum((x - theta) ** 2) - 0.5 * jnp.sum((y["y"] - x) ** 2)


DATA = {"y": jnp.arange(3.0)}
X = jax.random.normal(KEY, (5, 3))


def problem(**more):
    return mx.Problem(log_joint, theta=0.0, latent=jnp.zeros(3), data=DATA, **more)


def run(data=DATA, x=X, theta=0.0, **more):
    method = mx.m_svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
    return mx.run(method, theta, x, data, max_steps=10, diagnose=False, key=KEY, **more)


# Arguments of another kind. Their annotations are checked in tests, so the checks are called.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm": "x"}, "algorithm is 'x', but it must be an Algorithm"),
        ({"algorithm": mx.pgd}, "algorithm is the function pgd, but it must be an Algorithm"),
        ({"kernel": "x"}, "kernel is 'x', but it must be made by"),
        ({"mesh": "x"}, "mesh is 'x', but it must be a `jax.sharding.Mesh`"),
        ({"checkpoint": 5}, "checkpoint is 5, but it must be the path of a folder"),
    ],
)
def test_arguments_of_another_kind_are_refused(given, words):
    """They failed with AttributeErrors, some after the starts had been climbed."""
    with pytest.raises(TypeError, match=words):
        check_fit(problem(), KEY, {}, given.pop("checkpoint", None), **given)


IN_A_PROCESS = """
import jax, jax.numpy as jnp, marginax as mx

def log_joint(theta, x, y):
    return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

problem = mx.Problem(log_joint, theta=0.0, latent=jnp.zeros(3), data=jnp.ones(3))
method = mx.pgd(log_joint, 0.1, 0.1)
run = {"data": jnp.ones(3), "max_steps": 5, "key": jax.random.key(0)}
for call in (
    lambda: mx.fit(problem, algorithm="x"),
    lambda: mx.fit(problem, mesh="x"),
    lambda: mx.fit(problem, num_particles=1e9),
    lambda: mx.fit(problem, num_particles=10**12),
    lambda: mx.run("x", 0.0, jnp.zeros((5, 3)), **run),
    lambda: mx.run(method, 0.0, jnp.zeros((5, 3)), **run, mesh="x"),
    lambda: mx.trajectory("x", 0.0, jnp.zeros((5, 3)), jnp.ones(3), 5, key=jax.random.key(0)),
    lambda: mx.run(method, 0.0, jnp.zeros((5, 3)), **run, checkpoint=__file__),
    lambda: mx.fit(problem, checkpoint=__file__),
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_process_lives_on_and_ends(tmp_path):
    """Too many particles aborted it, and orbax's threads kept it from ending."""
    script = tmp_path / "script.py"
    script.write_text(IN_A_PROCESS)
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    said = ran.stdout.strip().splitlines()
    for line, words in zip(
        said,
        (
            *("TypeError algorithm is 'x'", "TypeError mesh is 'x'"),
            "ValueError num_particles is 1000000000.0, but it counts something",
            "ValueError num_particles is 1000000000000, but so many particles",
            *("TypeError algorithm is 'x'", "TypeError mesh is 'x'", "TypeError algorithm is 'x'"),
            *("CheckpointError The checkpoint folder",) * 2,
        ),
        strict=True,
    ):
        assert line.startswith(words)


def test_check_functions_take_what_is_right():
    check_algorithm(mx.pgd(log_joint, 0.1, 0.1))
    check_mesh(jax.make_mesh((1,), ("particles",)))


# Data.


@pytest.mark.parametrize("extra", [np.array(["a", "b", "c"]), "abc", object()])
def test_data_that_are_no_numbers_are_refused(extra):
    """A column that the log joint never looks at failed with an error of JAX's, in the loop."""
    with pytest.raises(TypeError, match=r"data\['id'\] .*a model computes with numbers"):
        run(DATA | {"id": extra})


@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
@pytest.mark.usefixtures("as_users_write")
def test_half_precision_is_for_storing(half):
    """A theta in bfloat16 failed with 'not inexact' after the first block."""
    assert run({"y": DATA["y"].astype(half)}).num_steps == 10
    with pytest.raises(TypeError, match=r"theta has dtype .*float16.*astype\(jnp.float32\)"):
        run(theta=jnp.zeros((), half))
    with pytest.raises(TypeError, match="particles has dtype .*float16"):
        run(x=X.astype(half))


# Memory.


def test_more_particles_than_memory_holds_are_refused(monkeypatch):
    """The system ended the process, without a word."""
    monkeypatch.setattr(arguments, "memory_size", lambda: 10**9)
    few = {"num_particles": 10**6}
    check_fit(problem(), KEY, few, None)
    with pytest.raises(ValueError, match=r"num_particles is 100000000, .* and there are 1 GB"):
        check_fit(problem(), KEY, {"num_particles": 10**8}, None)
    monkeypatch.setattr(arguments, "memory_size", lambda: None)  # nobody knows
    check_fit(problem(), KEY, {"num_particles": 10**8}, None)
    with pytest.raises(ValueError, match="1e9|1000000000.0, but it counts something: .*integer"):
        check_fit(problem(), KEY, {"num_particles": 1e9}, None)


def test_the_memory_of_a_container_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    limit.write_text("12345678\n")
    monkeypatch.setattr(memory, "_LIMITS", (str(limit), str(tmp_path / "nothing")))
    if jax.local_devices()[0].memory_stats() is None:  # a CPU
        assert memory.memory_size() == 12345678
        limit.write_text("max\n")
        assert memory.memory_size() > 12345678


# Checkpoints.


@pytest.mark.parametrize("within", ["", "folder", "folder/in/it"])
def test_a_checkpoint_onto_a_file_is_refused(tmp_path, within):
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / within if within else tmp_path / "file"
    with pytest.raises(CheckpointError, match="file is a file. Choose one"):
        run(checkpoint=place)
    with pytest.raises(CheckpointError, match="file is a file. Choose one"):
        check_fit(problem(), KEY, {}, mx.Checkpoint(place))
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_checkpoint_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    def read_only(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("marginax._core.files.tempfile.TemporaryFile", read_only)
    with pytest.raises(CheckpointError, match="cannot be used: Permission denied. Choose one"):
        check_folder(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_shell_says_that_a_file_is_in_the_way(tmp_path):
    (tmp_path / "model.py").write_text(
        "import marginax as mx, jax.numpy as jnp\n"
        "def problem(data):\n"
        "    def log_joint(theta, x, y):\n"
        "        return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)\n"
        "    return mx.Problem.grouped(log_joint, data['y'], theta=0.0, latent=0.0)\n"
    )
    (tmp_path / "data.csv").write_text("y\n1.5\n2.5\n4.0\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint").write_text("in the way")
    model, data, out = (str(tmp_path / name) for name in ("model.py", "data.csv", "out"))
    double = jax.config.jax_enable_x64
    try:
        ran = CliRunner().invoke(
            app, ["fit", model, "--data", data, "--out", out, "--resume"], catch_exceptions=False
        )
    finally:
        jax.config.update("jax_enable_x64", double)
    assert ran.exit_code == 2
    assert "checkpoint is a file. Choose one" in ran.output
    assert "Without --resume it is not looked at." in ran.output


# Wide tables.


@pytest.mark.slow
def test_a_table_of_very_many_columns_is_read_at_once(tmp_path):
    """Names were counted one by one among all: 100 seconds of silence for 60,000."""
    names = [f"column{i}" for i in range(60_000)]
    path = tmp_path / "wide.csv"
    path.write_text(f"{','.join(names)}\n{','.join(['1'] * len(names))}\n")
    began = time.perf_counter()
    table = read_table(path)
    assert time.perf_counter() - began < 20
    assert len(table) == len(names)
    with pytest.raises(NoColumn, match=r"column29, ... \(60000 in all\)") as refused:
        table["colum7"]
    assert len(str(refused.value)) < 1000
    path.write_text(f"{','.join(names)},column7\n")
    with pytest.raises(ValueError, match="two columns named 'column7'"):
        read_table(path)


def test_few_names_are_all_listed():
    assert listed(["a", "b"]) == "a, b"
    with pytest.raises(NoColumn, match="there are y, group"):
        Columns(y=np.zeros(1), group=np.zeros(1))["t"]

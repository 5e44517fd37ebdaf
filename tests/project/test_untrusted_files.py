"""Files from somebody else: whatever is pickled in them is refused, and never unpickled."""

import io
import json
import pickle
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax.cli.app import app
from marginax.fitting.saving import FORMAT, fingerprint
from marginax.reproduction import results

unpickled = []  # names that any unpickler of this process has looked up
sys.addaudithook(lambda event, args: unpickled.append(args) if event == "pickle.find_class" else 0)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "a pickle was run"


def member(array):
    """An array as a member of an .npz file, pickled if it must be."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def write_bomb(path, trace, name, **others):
    with zipfile.ZipFile(path, "w") as file:
        for key, array in others.items():
            file.writestr(f"{key}.npy", member(array))
        file.writestr(f"{name}.npy", member(np.array([Bomb(trace)], dtype=object)))


def problem():
    def log_joint(theta, x, y):
        return -0.5 * (x - theta) ** 2 - 0.5 * (y - x) ** 2

    return mx.Problem.grouped(log_joint, jnp.ones(3), theta=0.0, latent=0.0)


def test_the_bomb_is_one(tmp_path, trace):
    write_bomb(tmp_path / "d.npz", trace, "x")
    unpickled.clear()
    with np.load(tmp_path / "d.npz", allow_pickle=True) as file:
        file["x"]
    assert trace.exists()
    assert unpickled


@pytest.mark.parametrize("name", ["words", "unconstrained_theta", "run.theta.0", "not_asked_for"])
def test_a_saved_fit_with_a_pickle(name, tmp_path, trace):
    path = tmp_path / "fit.npz"
    others = (
        {} if name == "words" else {"words": np.array(json.dumps({"format": 1, "problem": {}}))}
    )
    write_bomb(path, trace, name, **others)
    with pytest.raises(ValueError, match=r"fit.npz is not a saved fit, or it is damaged \(Object"):
        mx.Fit.load(path, problem())
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"theta": 1}),
        member(np.ones(3)),  # an .npy file
        b"",
    ],
)
def test_another_file_is_no_saved_fit(content, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="fit.npz is not a saved fit"):
        mx.Fit.load(path, problem())


@pytest.mark.parametrize("words", ["[1, 2]", "{}", "3", "{"])
def test_words_of_something_else_are_no_saved_fit(words, tmp_path):
    np.savez(tmp_path / "fit.npz", words=np.array(words))
    with pytest.raises(ValueError, match="fit.npz is not a saved fit"):
        mx.Fit.load(tmp_path / "fit.npz", problem())


@pytest.mark.parametrize("of_the_problem", [None, "another", {"names": []}])
def test_a_saved_fit_without_its_numbers(of_the_problem, tmp_path):
    words = {"format": FORMAT, "problem": of_the_problem or fingerprint(problem())}
    np.savez(tmp_path / "fit.npz", words=np.array(json.dumps(words)))
    with pytest.raises(ValueError, match="fit.npz is not a saved fit, or it is damaged"):
        mx.Fit.load(tmp_path / "fit.npz", problem())


@pytest.mark.parametrize("whole", [False, True])
def test_data_with_a_pickle(whole, tmp_path, trace, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("def problem(data):\n    raise AssertionError('too late')\n")
    if whole:  # no archive at all, but a pickle under its name
        Path("d.npz").write_bytes(pickle.dumps(Bomb(trace)))
    else:
        write_bomb("d.npz", trace, "x", y=np.ones(2))
    ended = CliRunner().invoke(app, ["fit", "model.py", "--data", "d.npz"])
    assert ended.exit_code == 2
    assert "d.npz is not an .npz file of plain arrays" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not trace.exists()


def test_an_experiment_with_a_pickle(tmp_path, trace):
    path = results._path(tmp_path, "quick", "toy")
    path.parent.mkdir(parents=True)
    write_bomb(path, trace, "__about__")
    with pytest.warns(UserWarning, match="cannot be read and is ignored"):
        assert results.read(tmp_path, "quick", "toy") is None
    assert not trace.exists()


def run(folder, max_steps):
    method = mx.pgd(lambda theta, x, y: -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2), 0.1, 0.1)
    start, data = jnp.linspace(-1.0, 1.0, 8).reshape(4, 2), jnp.ones(2)
    more = {"block_size": 5, "stop": mx.stopping.never(), "diagnose": False}
    checkpoint = mx.Checkpoint(folder, every_seconds=0.0)
    return mx.run(
        method, 0.0, start, data, max_steps=max_steps, checkpoint=checkpoint, key=jax.random.key(0),
        **more,)  # fmt: skip


def test_a_checkpoint_is_read_without_unpickling(tmp_path):
    run(tmp_path, 10)
    unpickled.clear()
    assert run(tmp_path, 15).num_steps == 15
    assert unpickled == []


def test_a_checkpoint_made_of_pickles(tmp_path, trace):
    folder = tmp_path / "run"
    run(folder, 10)
    before = [path for path in folder.rglob("*") if path.is_file()]
    assert before
    for path in before:
        path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.warns(UserWarning, match="could not be read and was passed over"):
        assert run(folder, 10).num_steps == 10
    assert not trace.exists()

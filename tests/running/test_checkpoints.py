"""Checkpoints: resumed runs are bit-identical, damage is noticed, others' folders refused."""

import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import assert_equal
from kill_and_resume import kill_and_resume

import marginax as mx
from marginax.errors import CheckpointError

MODEL = mx.models.ToyHierarchical(12.0, 12.0)
Y = MODEL.simulate(jax.random.key(0), 10.0, 4)
X = jax.random.normal(jax.random.key(1), (6, 4))
SETTINGS = {"block_size": 20, "stop": mx.stopping.never()}


def run(max_steps, folder=None, *, key=2, step=0.05, y=Y, x=X, **more):
    method = mx.pgd(MODEL.log_joint, step, 0.05)
    checkpoint = None if folder is None else mx.Checkpoint(folder, every_seconds=0.0)
    more = SETTINGS | {"max_steps": max_steps, "checkpoint": checkpoint} | more
    return mx.run(method, 0.0, x, y, key=jax.random.key(key), **more)


def assert_identical(a, b):
    pair = [(r.theta, r.state, r.history) for r in (a, b)]
    jax.tree.map(np.testing.assert_array_equal, *pair)
    assert (a.num_steps, a.status) == (b.num_steps, b.status)


@pytest.mark.slow
@pytest.mark.float32
def test_resumed_equals_unbroken(tmp_path):
    whole = run(160)
    run(70, tmp_path)
    again = run(160, tmp_path)
    # 70 is no multiple of the block size: the log of blocks differs, the numbers must not.
    assert_equal(again.state.particles, whole.state.particles)
    run(80, tmp_path / "even")
    assert_identical(run(160, tmp_path / "even"), whole)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(160, tmp_path)
    steps = []
    again = run(160, tmp_path, callback=lambda report: steps.append(report.num_steps))
    assert steps == []
    assert_identical(again, first)


@pytest.mark.slow
def test_starts_and_stopping_resume_too(tmp_path):
    starts = {"x": jnp.stack([X, X + 1.0]), "num_starts": 2, "stop": mx.stopping.averaged(0.05)}

    def both(max_steps, folder=None):
        method = mx.pgd(MODEL.log_joint, 0.05, 0.05)
        checkpoint = None if folder is None else mx.Checkpoint(folder, every_seconds=0.0)
        return mx.run(
            method, jnp.zeros(2), starts["x"], Y, max_steps=max_steps,
            num_starts=2, stop=starts["stop"], block_size=20, checkpoint=checkpoint,
            key=jax.random.key(2))  # fmt: skip

    whole = both(20_000)
    both(600, tmp_path)
    assert_identical(both(20_000, tmp_path), whole)


def test_typed_keys_in_a_state_survive(tmp_path):
    class State(NamedTuple):
        theta: jax.Array
        particles: jax.Array
        key: jax.Array

    class Info(NamedTuple):
        theta_score: jax.Array

    def init(key, theta, particles):
        return State(jnp.asarray(theta), particles, key)

    def step(key, state, data):
        own, _ = jax.random.split(state.key)
        shaken = state.particles + 0.01 * jax.random.normal(own, state.particles.shape)
        return State(state.theta, shaken, own), Info(state.theta)

    method = mx.Algorithm(init, step, stochastic=True)

    def go(max_steps, checkpoint=None):
        return mx.run(
            method,
            0.0,
            X,
            max_steps=max_steps,
            checkpoint=checkpoint,
            key=jax.random.key(0),
            **SETTINGS,
        )

    whole = go(80)
    go(40, tmp_path)
    np.testing.assert_array_equal(go(80, tmp_path).particles, whole.particles)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"step": 0.06}, "another algorithm"),
        ({"y": Y + 1.0}, "other data"),
        ({"x": X[:4]}, "other shapes"),
        ({"key": 3}, "another key"),
        ({"x": X + 1.0}, "another start"),
    ],
)
def test_another_run_is_refused(tmp_path, change, word):
    run(40, tmp_path)
    with pytest.raises(CheckpointError, match=f"holds a run with .*{word}.*another folder"):
        run(80, tmp_path, **change)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    whole = run(160)
    run(80, tmp_path)
    run(120, tmp_path)
    newest = tmp_path / "120" / "run"
    files = [path for path in newest.rglob("*") if path.is_file() and path.stat().st_size > 100]
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        if damage == "truncate":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "flip":
            content[len(content) // 2] ^= 0xFF
            path.write_bytes(content)
        else:
            path.unlink()
    with pytest.warns(
        UserWarning, match="checkpoint at step 120 could not be read and was passed over"
    ):
        again = run(160, tmp_path)
    np.testing.assert_array_equal(again.state.particles, whole.state.particles)


def test_a_value_changed_behind_the_checksum_is_noticed(tmp_path, monkeypatch):
    run(40, tmp_path)
    import orbax.checkpoint as ocp

    restore = ocp.CheckpointManager.restore

    def tampered(self, step, args):
        result = restore(self, step, args=args)
        if "run" in result:
            first = next(iter(result["run"]))
            result["run"][first] = result["run"][first] + 1
        return result

    monkeypatch.setattr(ocp.CheckpointManager, "restore", tampered)
    with pytest.warns(UserWarning, match="checksum"):
        assert run(80, tmp_path).num_steps == 80


FULL_DISK = """
import resource, signal, sys, warnings
import jax, marginax as mx
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = mx.models.ToyHierarchical(12.0, 12.0)
y = model.simulate(jax.random.key(0), 10.0, 200)
x = jax.random.normal(jax.random.key(1), (100, 200))
method = mx.pgd(model.log_joint, 0.01, 0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # larger writes fail
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    run = mx.run(method, 0.0, x, y, key=jax.random.key(2), max_steps=100_000, block_size=20,
                 checkpoint=mx.Checkpoint(sys.argv[1], every_seconds=0.0))
print(run.status, run.num_steps, bool(abs(run.theta) < 1e6))
print(run.reason)
print([str(w.message)[:40] for w in caught if "checkpoint" in str(w.message)])
"""


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_keeps_the_result(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    status, reason, caught = ran.stdout.strip().splitlines()[-3:]
    assert status.startswith("interrupted")
    assert status.endswith("True")
    assert "checkpoint could not be written to" in reason
    assert "result is here, in memory" in reason
    assert "checkpoint could not be written" in caught


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be used.*Choose one"):
        run(40, tmp_path / "file" / "folder")


@pytest.mark.slow
def test_killed_runs_resume_bit_identically():
    hits, _, identical = kill_and_resume(kills=1, max_steps=50_000)
    assert hits == 1
    assert identical


def test_an_interrupt_before_the_first_block_leaves_nothing_half_written(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("marginax.running.loop.guarded_block", interrupt)
        assert run(160, tmp_path).status == "interrupted"
    assert not [path for path in tmp_path.iterdir() if "tmp" in path.name or path.name == "0"]
    assert_identical(run(160, tmp_path), run(160))


def test_a_passing_fault_of_the_disk_costs_no_checkpoint(tmp_path, monkeypatch):
    # The bug: a checkpoint that could not be read once was deleted for good.
    import orbax.checkpoint as ocp

    once = {"checkpoint": mx.Checkpoint(tmp_path, every_seconds=3600.0)}  # at the end alone
    whole = run(400)
    run(200, **once)

    def fault(self, step, args):
        raise OSError("Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(ocp.CheckpointManager, "restore", fault)
        with pytest.warns(UserWarning, match="step 200 could not be read.*Stale file handle"):
            run(100, **once)
    steps = []
    again = run(400, **once, callback=lambda report: steps.append(report.num_steps))
    assert steps[0] == 220
    assert_identical(again, whole)
    # And one that cannot be read is written anew when the run comes there.
    with monkeypatch.context() as patched:
        patched.setattr(ocp.CheckpointManager, "restore", fault)
        with pytest.warns(UserWarning, match="could not be read"):
            run(400, **once)
    assert_identical(run(400, **once), whole)

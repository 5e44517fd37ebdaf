"""The loop over blocks: what a resumed run must know, and what an ending must not cost or lose."""

import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_run import NEVER, TOY, X, Y

import marginax as mx
from marginax.running.backtracking import guarded_block, reset_at_rest
from marginax.running.start_log import DIVERGED, StartLog
from marginax.running.steps import Block

QUIET = {"block_size": 20, "stop": NEVER, "diagnose": False}


def climbing(theta, x, y):
    """Theta climbs at a constant speed, for ever."""
    return theta - 0.5 * jnp.sum(x**2)


@pytest.mark.parametrize("on_divergence", ["stop", "backtrack"])
def test_a_resumed_run_is_measured_by_its_own_start(tmp_path, on_divergence):
    # The bug: the yardstick of a runaway was where the run was resumed, here 6e7 times its start.
    method = mx.svgd_em(climbing, 1e6, 0.1, mx.kernels.rbf(1.0))

    def run(max_steps, **more):
        settings = QUIET | {"max_steps": max_steps, "on_divergence": on_divergence}
        return mx.run(method, 0.0, X, **settings, key=jax.random.key(0), **more)

    whole = run(180)
    run(60, checkpoint=tmp_path)
    again = run(180, checkpoint=tmp_path)
    assert (again.status, again.reason) == (whole.status, whole.reason)
    np.testing.assert_array_equal(again.theta, whole.theta)


def test_a_start_that_has_failed_stays_so_when_resumed(tmp_path):
    # The bug: the verdict was not saved, and a start that had run away went on.
    starts = jnp.array([0.0, 1e4]), jnp.stack([X, X])

    def log_joint(theta, x, y):
        return TOY.log_joint(theta, x, y) + jnp.where(theta > 100, 10 * theta**2, 0.0)

    method = mx.pgd(log_joint, 0.05, 0.01)

    def run(max_steps, **more):
        settings = QUIET | {"max_steps": max_steps, "on_divergence": "stop", "num_starts": 2}
        return mx.run(method, *starts, Y, **settings, key=jax.random.key(0), **more)

    whole = run(600)
    assert whole.statuses == ("max_steps", "diverged")
    run(400, checkpoint=tmp_path)
    again = run(600, checkpoint=tmp_path)
    assert (again.statuses, again.reasons, again.steps_per_start) == (
        whole.statuses,
        whole.reasons,
        whole.steps_per_start,
    )
    jax.tree.map(np.testing.assert_array_equal, again.state, whole.state)


def test_a_start_that_has_ended_costs_nothing_more():
    # The bug: a start that ended far out was judged again in every block, each run twice.
    calls = []
    log = StartLog(
        num_steps=np.array([40, 40]),
        num_blocks=np.array([2, 2]),
        factor=np.ones(2),
        failed=np.array([0, DIVERGED]),
        block_steps=np.full((2, 2), 20),
        summaries=np.zeros((2, 2, 8)),
        records=np.zeros((2, 2)),
        seconds=np.zeros(()),
    )

    def call(steps, first=False):
        calls.append(steps)
        return Block(None, None, None), np.array([2.0, 1e9])

    steps = np.array([20, 0])
    _, taken, factor, failed = guarded_block(call, pytest.fail, log, steps, np.ones(2))
    assert len(calls) == 1
    np.testing.assert_array_equal(taken, steps)
    np.testing.assert_array_equal(factor, 1.0)
    np.testing.assert_array_equal(failed, log.failed)


RESET = {
    "asvgd_em": lambda: mx.asvgd_em(TOY.log_joint, 0.1, 0.1, mx.kernels.rbf(5.0)),
    "kipla": lambda: mx.kipla(TOY.log_joint, 0.01, 1.0),
    "mpgd": lambda: mx.mpgd(TOY.log_joint, 0.1, 1.0, 10.0),
    "m_svgd_em": lambda: mx.m_svgd_em(
        TOY.log_joint, 0.1, 0.1, mx.kernels.rbf(5.0), theta_momentum=mx.momentum.nesterov()
    ),
}


@pytest.mark.parametrize("name", RESET)
def test_momentum_is_declared(name):
    # The bug: a field that is not declared keeps the momentum that has just thrown the run out.
    method = RESET[name]()
    state = mx.trajectory(method, 0.0, X, Y, 30, key=jax.random.key(0)).state
    with_axis = jax.tree.map(lambda leaf: leaf[None], (jax.random.key(1), state))
    rest = reset_at_rest(method, jax.vmap(method.init), *with_axis, np.array([0.5]))
    rest = jax.tree.map(lambda leaf: leaf[0], rest)
    fresh = method.init(jax.random.fold_in(jax.random.key(1), 1), state.theta, state.particles)
    kept = {"theta", "particles"} | {field for field in state._fields if "optimizer" in field}
    for field in state._fields:
        expected = getattr(state if field in kept else fresh, field)
        jax.tree.map(np.testing.assert_array_equal, getattr(rest, field), expected)
    moved = [field for field in state._fields if field not in kept]
    assert moved
    assert any(
        np.any(np.asarray(a) != np.asarray(b))
        for field in moved
        for a, b in zip(
            jax.tree.leaves(getattr(state, field)),
            jax.tree.leaves(getattr(rest, field)),
            strict=True,
        )
    )


class Collapsed(NamedTuple):
    theta: jax.Array
    particles: jax.Array


def collapsing():
    """All particles in one place after a step, and a theta that runs away after some blocks."""
    base = mx.svgd_em(TOY.log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))

    def init(key, theta, particles):
        return Collapsed(*base.init(key, theta, particles)[:2])

    def step(key, state, data):
        return Collapsed(1.5 * state.theta, jnp.zeros_like(state.particles)), Info(state.theta)

    def rescale(factor):
        return mx.Algorithm(init, step, None, rescale, stochastic=True)

    return rescale(1.0)


class Info(NamedTuple):
    theta_score: jax.Array


def test_a_cloud_in_one_point_ends_in_a_verdict():
    # The bug: a start in one point is refused, and so was the reset of a run that had come there.
    ran = mx.run(collapsing(), 1.0, X, Y, max_steps=200, key=jax.random.key(0), **QUIET)
    assert ran.status == "diverged"
    assert "halved 8 times" in ran.reason


def test_a_callback_that_raises_leaves_no_folder_open(tmp_path, monkeypatch):
    import orbax.checkpoint as ocp

    closed, close = [], ocp.CheckpointManager.close
    monkeypatch.setattr(
        ocp.CheckpointManager, "close", lambda self: closed.append(True) or close(self)
    )

    def callback(report):
        raise ZeroDivisionError("of the callback's own")

    method = mx.pgd(TOY.log_joint, 0.05, 0.05)
    with pytest.raises(ZeroDivisionError, match="callback's own"):
        mx.run(
            *(method, 0.0, X, Y),
            key=jax.random.key(0),
            **(QUIET | {"max_steps": 100, "checkpoint": tmp_path, "callback": callback}),
        )
    assert closed == [True]


@pytest.mark.parametrize("num_starts", [None, 2])
def test_an_average_has_the_dtype_of_theta(num_starts):
    # The bug: NumPy averages float32 with whole numbers as weights in float64.
    x = X.astype(jnp.float32)
    starts = (
        (jnp.float32(0.0), x)
        if num_starts is None
        else (jnp.zeros(2, "float32"), jnp.stack([x] * 2))
    )
    with jax.enable_x64(True):
        method = mx.pgd(TOY.log_joint, 0.05, 0.05)
        settings = QUIET | {"max_steps": 80, "num_starts": num_starts}
        ran = mx.run(method, *starts, Y.astype(jnp.float32), key=jax.random.key(0), **settings)
    assert ran.state.theta.dtype == ran.theta.dtype == jnp.float32
    assert float(jnp.max(ran.theta)) > 1.0


def test_integers_of_numpy_count_wherever_something_is_counted():
    two, log_joint = (
        np.int64(2),
        mx.minibatched(
            lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2),
            lambda theta, x, y: -0.5 * (y - x) ** 2,
            num_data=np.int64(6),
        ),
    )
    method = mx.soul(log_joint, 0.01, 0.01, num_warmup=two)
    start = (jnp.zeros(2), jnp.zeros((2, 4)), jnp.arange(6.0))
    counts = {
        "max_steps": np.int64(40),
        "block_size": np.int32(20),
        "num_starts": two,
        "batch_size": two,
    }
    ran = mx.run(method, *start, **counts, diagnose=False, key=jax.random.key(0))
    assert ran.steps_per_start == (40, 40)


def test_runs_compare_and_errors_travel():
    # The bugs: == of two runs compared arrays, and a RunError could not come back from a worker.
    method = mx.pgd(TOY.log_joint, 0.05, 0.05)
    with pytest.raises(mx.RunError) as caught:
        mx.run(method, 0.0, X, Y, max_steps=20, throw=True, key=jax.random.key(0), **QUIET)
    back = pickle.loads(pickle.dumps(caught.value))
    assert str(back) == str(caught.value)
    np.testing.assert_array_equal(back.run.particles, caught.value.run.particles)
    assert back.run != caught.value.run
    assert caught.value.run in [caught.value.run]
    assert len({back.run, caught.value.run}) == 2

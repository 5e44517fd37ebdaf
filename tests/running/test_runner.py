"""The loop: what it computes, how it ends, and what it says."""

import contextlib
import os
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_run import KERNEL, METHODS, NEVER, TOY, X, Y, run

import marginax as mx


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [7, 100])
@pytest.mark.parametrize("name", ["m_svgd_em", "mpgd"])
def test_run_is_trajectory_cut_into_blocks(name, block_size):
    method = METHODS[name](0.2)
    ran = run(method, max_steps=50, block_size=block_size, stop=NEVER)
    end = mx.trajectory(method, 0.0, X, Y, 50, key=jax.random.key(2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), ran.state, end.state)
    assert ran.num_steps == 50
    recorded = end.history[block_size - 1 :: block_size]
    np.testing.assert_allclose(ran.history[: len(recorded)], recorded, rtol=1e-10)


def test_converged():
    ran = run()
    assert ran.status == "converged"
    assert ran.converged
    assert abs(float(ran.theta - Y.mean())) < 1e-3
    assert ran.num_steps < 4000
    assert "left to go" in ran.reason
    assert "converged after" in repr(ran)
    assert set(ran.timings) == {"start", "first_block", "total"}


def test_max_steps():
    ran = run(METHODS["svgd_em"](0.3), max_steps=60)
    assert (ran.status, ran.num_steps) == ("max_steps", 60)
    assert "All 60 steps" in ran.reason


def test_time_limit():
    ran = run(stop=mx.stopping.settled() | mx.stopping.max_seconds(1e-3), block_size=10)
    assert ran.status == "time_limit"
    assert ran.num_steps == 10


def test_throw_raises_the_same_sentence():
    with pytest.raises(mx.RunError, match="max_steps: All 60 steps") as caught:
        run(METHODS["svgd_em"](0.3), max_steps=60, throw=True)
    assert caught.value.run.num_steps == 60
    assert run(throw=True).converged


def test_a_callback_sees_host_numbers_and_may_stop():
    seen = []

    def callback(report):
        seen.append(report)
        return report.num_steps >= 40

    ran = run(callback=callback, block_size=20)
    assert (ran.status, ran.num_steps) == ("interrupted", 40)
    assert "callback asked to stop" in ran.reason
    assert isinstance(seen[0].theta, np.ndarray)
    assert seen[0].statuses == ("running",)
    assert seen[0].velocity[0] > 0


def test_a_callbacks_exception_propagates():
    def callback(report):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(callback=callback)


def test_an_interrupt_returns_the_last_whole_block():
    def callback(report):
        if report.num_steps == 60:
            raise KeyboardInterrupt

    ran = run(callback=callback, block_size=20)
    assert (ran.status, ran.num_steps) == ("interrupted", 60)
    end = mx.trajectory(METHODS["m_svgd_em"](0.3), 0.0, X, Y, 60, key=jax.random.key(2))
    np.testing.assert_allclose(ran.theta, end.theta, rtol=1e-10)


CTRL_C = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import jax, marginax as mx
model = mx.models.ToyHierarchical(12.0, 12.0)
y = model.simulate(jax.random.key(0), 10.0, 20)
x = jax.random.normal(jax.random.key(1), (20, 20))
method = mx.svgd_em(model.log_joint, 1e-6, 1e-6, mx.kernels.rbf(5.0))
started = threading.Event()
def press():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
run = mx.run(method, 0.0, x, y, key=jax.random.key(2), max_steps=10**9, block_size=500,
             callback=lambda report: started.set() if report.num_steps == 1000 else None)
print(run.status, run.num_steps >= 1000, run.reason)
"""


@pytest.mark.slow
def test_ctrl_c_as_a_signal():
    ran = subprocess.run(
        [sys.executable, "-c", CTRL_C], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("interrupted True Ctrl-C")
    assert "Traceback" not in ran.stderr


def test_ctrl_c_that_something_swallows_still_ends_the_run():
    """As a callback of the garbage collector would."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(report):
        if report.num_steps == 60:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    try:
        ran = run(callback=press, block_size=20, stop=NEVER)
        assert (ran.status, ran.num_steps) == ("interrupted", 60)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("num_starts", [None, 2])
def test_a_second_run_does_not_compile_again(num_starts):
    traces = 0

    def counted(theta, latent, data):
        nonlocal traces
        traces += 1
        return TOY.log_joint(theta, latent, data)

    method = mx.m_svgd_em(counted, 0.3, 0.3, KERNEL)
    starts = (0.0, X) if num_starts is None else (jnp.zeros(2), jnp.stack([X, X + 1]))
    run(method, *starts, max_steps=130, block_size=50, num_starts=num_starts)
    first = traces
    run(method, *starts, max_steps=170, block_size=50, num_starts=num_starts)
    assert traces == first  # nor is the start's check


def test_one_restart_is_not_compared_with_others():
    ran = run(METHODS["m_svgd_em"](0.3), jnp.zeros(1), X[None], num_starts=1, max_steps=20)
    assert ran.status == "max_steps"
    assert ran.reason.startswith("All 20 steps were taken")


@pytest.mark.slow
def test_starts_agree_and_each_is_the_run_alone():
    starts = jnp.array([-3.0, 0.0, 3.0])
    clouds = jax.random.normal(jax.random.key(5), (3, 20, 20))
    method = METHODS["m_svgd_em"](0.3)
    ran = run(method, starts, clouds, num_starts=3)
    assert ran.statuses == ("converged",) * 3
    assert "3 of 3 starts converged and agree" in ran.reason
    assert ran.theta.shape == (3,)
    assert "start 2: converged" in repr(ran)
    keys = jax.random.split(jax.random.key(2), 3)
    alone = mx.run(method, starts[1], clouds[1], Y, max_steps=4000, key=keys[1])
    np.testing.assert_allclose(ran.theta[1], alone.theta, rtol=1e-8)
    assert ran.steps_per_start[1] == alone.num_steps


def test_a_start_that_has_ended_does_not_move_on():
    # A rule that fires on the way, so that the starts end at different times and far from rest.
    def passing_five(blocks):
        passed = len(blocks.steps) > 0 and blocks.theta_mean[-1, 0] > 5
        return mx.stopping.Verdict("converged", "Passing five.") if passed else None

    starts, clouds = jnp.array([0.0, -8.0]), jnp.stack([X, X - 8.0])
    method, rule = METHODS["svgd_em"](0.3), mx.stopping.StoppingRule(passing_five)
    ran = run(method, starts, clouds, num_starts=2, stop=rule, block_size=20)
    assert ran.converged
    assert 60 <= ran.steps_per_start[0] < ran.steps_per_start[1]
    keys = jax.random.split(jax.random.key(2), 2)
    for i in range(2):
        alone = mx.run(
            method,
            starts[i],
            clouds[i],
            Y,
            max_steps=4000,
            stop=rule,
            block_size=20,
            key=keys[i],
        )
        assert ran.steps_per_start[i] == alone.num_steps
        np.testing.assert_allclose(ran.theta[i], alone.theta, rtol=1e-9)
        np.testing.assert_allclose(ran.particles[i], alone.particles, rtol=1e-7)


def test_starts_that_disagree_say_so():
    def two_modes(theta, x, y):
        return -4 * (theta**2 - 1) ** 2 - 0.5 * jnp.sum((x - theta) ** 2)

    method = mx.m_svgd_em(two_modes, 0.02, 0.1, mx.kernels.rbf(1.0))
    cloud = jax.random.normal(jax.random.key(0), (2, 10, 2))
    ran = run(method, jnp.array([-0.5, 0.5]), cloud, None, num_starts=2, max_steps=20_000)
    assert ran.converged
    assert "DISAGREE" in ran.reason
    assert not ran.starts_agree
    assert "from -1 to 1" in ran.reason


@pytest.mark.slow
def test_one_diverging_start_leaves_the_others_alone():
    def one_sided(theta, x, y):  # theta above zero runs away, below it settles at -1
        return jnp.where(theta > 0, theta**2, -((theta + 1) ** 2)) - 0.5 * jnp.sum(x**2)

    method = mx.m_svgd_em(one_sided, 0.1, 0.1, mx.kernels.rbf(1.0))
    cloud = jax.random.normal(jax.random.key(0), (2, 10, 2))
    ran = run(
        method, jnp.array([-0.5, 0.5]), cloud, None, num_starts=2, max_steps=4000,
        on_divergence="stop",
    )  # fmt: skip
    assert ran.statuses == ("converged", "diverged")
    assert ran.status == "diverged"
    np.testing.assert_allclose(ran.theta[0], -1.0, atol=1e-3)
    assert bool(jnp.isfinite(ran.theta[1]))


@pytest.mark.slow
def test_the_estimate_of_a_noisy_method_is_an_average():
    ran = run(METHODS["pgd"](0.1), max_steps=6000, block_size=50, stop=NEVER)
    history = mx.trajectory(METHODS["pgd"](0.1), 0.0, X, Y, 6000, key=jax.random.key(2)).history
    last = 50 * (60 // 16 * 16)  # whole batches of blocks, about half of the run
    np.testing.assert_allclose(ran.theta, history[-last:].mean(), rtol=1e-9)
    np.testing.assert_allclose(ran.state.theta, history[-1], rtol=1e-9)


def test_progress_is_silent_unless_asked(capfd):
    run(max_steps=200)
    assert capfd.readouterr().err == ""
    run(max_steps=200, progress=True)
    shown = capfd.readouterr().err
    assert "step/s" in shown
    assert "theta=" in shown
    assert "velocity=" in shown


def test_run_is_a_pytree():
    ran = run(max_steps=100, stop=NEVER)
    doubled = jax.jit(lambda r: jax.tree.map(lambda leaf: 2 * leaf, r))(ran)
    assert isinstance(doubled, mx.Run)
    assert doubled.theta == 2 * ran.theta
    assert doubled.reason == ran.reason


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_steps": 0}, "max_steps is 0"),
        ({"block_size": -1}, "block_size is -1"),
        ({"on_divergence": "pray"}, "on_divergence is 'pray'.*'backtrack' or 'stop'"),
        ({"num_starts": 3, "theta": np.zeros(3)}, "num_starts is 3.*leading axis of that length"),
        ({"particles": X.at[0, 0].set(jnp.nan)}, "particles is not finite"),
        ({"data": Y[:3]}, "log_joint failed at the start"),
        ({"batch_size": 5}, "not built by `marginax.minibatched`"),
    ],
)
def test_bad_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=f"(?s){sentence}"):
        run(**arguments)


MEMORY = """
import resource, sys
import jax, jax.numpy as jnp
import marginax as mx
model = mx.models.ToyHierarchical()
y = model.simulate(jax.random.key(0), 1.0, 10_000)
x = jax.random.normal(jax.random.key(1), (100, 10_000))
method = mx.m_svgd_em(model.log_joint, 1e-5, 0.1, mx.kernels.rbf("mean"))
peaks = []
for steps in (40, int(sys.argv[1])):
    mx.run(method, 0.0, x, y, key=jax.random.key(2), max_steps=steps, block_size=20,
           stop=mx.stopping.never())
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(peaks[1] - peaks[0])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_steps():
    # One cloud is 4 MB: keeping even every block's cloud would add 4 MB per 20 steps, 60 MB here.
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY, "340"], capture_output=True, text=True, check=True
    )
    assert float(ran.stdout) < 20

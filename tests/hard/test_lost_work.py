"""Nothing that was found is lost: Ctrl-C at every point of a fit, and runs that go on."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import assert_equal
from random_intercepts import intercepts

import marginax as mx
from marginax.fitting import particles, stages, strategies
from marginax.likelihood import climbs
from marginax.running import loop

KEY = jax.random.key(0)


def pressing(function, at=1, after=True):
    """The function, with Ctrl-C after (or before) its n-th call."""
    calls = []

    def pressed(*args, **kwargs):
        calls.append(1)
        if len(calls) == at and not after:
            raise KeyboardInterrupt
        result = function(*args, **kwargs)
        if len(calls) == at:
            raise KeyboardInterrupt
        return result

    return pressed


@pytest.fixture(scope="module")
def whole():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return mx.fit(intercepts(), key=KEY, draw_posterior=False)


def fit_of(**more):
    """The fit, in which Ctrl-C was pressed; not the end of all tests if it goes through."""
    try:
        return mx.fit(intercepts(), key=KEY, **more)
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C went through, and all was lost")


def check_kept(fit, whole, words):
    """It is what the climbs knew: the estimate, its curvature, and that it was stopped."""
    assert not fit.converged
    assert words in fit.warnings[0]
    np.testing.assert_allclose(fit.estimates, whole.estimates, rtol=1e-3)
    np.testing.assert_allclose(fit.standard_errors, whole.standard_errors, rtol=1e-2)
    assert fit.likelihood is None
    assert fit.draws is None
    assert "NOT CONVERGED" in str(fit)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_ctrl_c_while_the_starts_are_climbed_keeps_the_climbs_that_ended(
    whole, monkeypatch, tmp_path
):
    """All of them were lost, where the page says that Ctrl-C returns what there is."""
    monkeypatch.setattr(climbs, "climb", pressing(climbs.climb, at=2))
    fit = fit_of()
    check_kept(fit, whole, "Ctrl-C while the starts were climbed")
    assert fit.run.num_steps == 0
    assert "before the particles' first step" in fit.run.reason
    fit.save(tmp_path / "fit.npz")
    assert str(mx.Fit.load(tmp_path / "fit.npz", intercepts())) == str(fit)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_ctrl_c_before_any_climb_has_ended_is_ctrl_c(monkeypatch):
    monkeypatch.setattr(climbs, "climb", pressing(climbs.climb, after=False))
    with pytest.raises(KeyboardInterrupt):
        mx.fit(intercepts(), key=KEY)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
@pytest.mark.parametrize("where", ["cloud", "start of the run", "after the run", "before draws"])
def test_ctrl_c_between_stages_keeps_the_best_climb(whole, monkeypatch, where):
    module, name = {
        "cloud": (particles, "start_particles"),
        "start of the run": (strategies, "run"),
        "after the run": (stages, "first_ending"),
        "before draws": (stages, "may_draw"),
    }[where]
    after = where == "cloud"
    monkeypatch.setattr(module, name, pressing(getattr(module, name), after=after))
    fit = fit_of()
    if where == "before draws":
        assert "without posterior draws" in fit.warnings[0]
        np.testing.assert_allclose(fit.log_likelihood, whole.log_likelihood)
    else:
        check_kept(fit, whole, "Ctrl-C between two stages")
    assert (fit.run.num_steps == 0) == (where in ("cloud", "start of the run"))


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_ctrl_c_while_the_particles_program_compiles(whole, monkeypatch):
    """The stage ends without a step, and those after it go on."""
    monkeypatch.setattr(loop, "_launch", pressing(loop._launch, after=False))
    fit = fit_of(draw_posterior=False)
    assert fit.run.status == "interrupted"
    np.testing.assert_allclose(fit.estimates, whole.estimates, rtol=1e-3)
    np.testing.assert_allclose(fit.log_likelihood, whole.log_likelihood, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_nothing_is_known_without_a_likelihood_and_without_a_step(monkeypatch):
    monkeypatch.setattr(strategies, "run", pressing(strategies.run, after=False))
    with pytest.raises(KeyboardInterrupt):
        mx.fit(intercepts(), key=KEY, compute_likelihood=False)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_ctrl_c_gives_no_standard_errors_of_a_sample(monkeypatch):
    """The curvature of some groups is not the information of all."""
    for name, value in (("MANY_STARTS", 6), ("SAMPLE", 5)):
        monkeypatch.setattr(strategies, name, value)
    monkeypatch.setattr(strategies, "run", pressing(strategies.run, after=False))
    fit = fit_of(draw_posterior=False)
    assert fit.information is None
    assert any("no standard errors" in warning for warning in fit.warnings)


IN_A_SHELL = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import jax, jax.numpy as jnp
import marginax as mx
from marginax.fitting import stages
from marginax.likelihood import climbs

climb, ended = climbs.climb, []
def pressed(*args, **kwargs):
    if len(ended) == 1:
        os.kill(os.getpid(), signal.SIGINT)
    ended.append(climb(*args, **kwargs))
    return ended[-1]
climbs.climb = pressed

def log_joint(theta, x, y):
    return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)

y = jnp.arange(12.0).reshape(6, 2)
fit = mx.fit(mx.Problem.grouped(log_joint, y, theta=0.0, latent=0.0))
print(len(ended), fit.converged, round(float(fit.theta), 3), fit.warnings[0])
"""


@pytest.mark.slow
def test_ctrl_c_as_a_signal_keeps_what_there_is():
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_SHELL], capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("1 False 5.5 Ctrl-C while the starts were climbed")
    assert "Traceback" not in ran.stderr


# Blocks, and what `run` makes of them.

TOY = mx.models.ToyHierarchical(12.0, 12.0)
Y = TOY.simulate(jax.random.key(0), 10.0, 4)
X = jax.random.normal(jax.random.key(1), (6, 4))


def run(method, max_steps, **more):
    return mx.run(method, 0.0, X, Y, key=jax.random.key(2), max_steps=max_steps, **more)


@pytest.mark.slow
def test_where_a_run_stops_does_not_depend_on_how_long_it_might_have_run():
    """Blocks were max_steps / 200 long, and rules look at blocks."""
    method = mx.pgd(TOY.log_joint, 0.05, 0.05)
    runs = [
        run(method, most, stop=mx.stopping.averaged(0.08), diagnose=False)
        for most in (8_000, 30_000, 200_000)
    ]
    assert runs[0].converged
    assert runs[0].num_steps > 2000  # after the blocks have grown
    for other in runs[1:]:
        assert other.num_steps == runs[0].num_steps
        assert_equal(other.theta, runs[0].theta)
        assert other.reason == runs[0].reason


@pytest.mark.slow
def test_growing_blocks_resume_bit_identically(tmp_path):
    """Also a run that ended between two blocks, and then may go on."""
    method = mx.pgd(TOY.log_joint, 0.05, 0.05)
    more = {"stop": mx.stopping.averaged(0.08), "diagnose": False}
    unbroken = run(method, 30_000, **more)
    for most in (1234, 2345, 30_000):
        ran = run(method, most, checkpoint=tmp_path / "run", **more)
    assert ran.num_steps == unbroken.num_steps
    assert_equal(ran.state.particles, unbroken.state.particles)
    np.testing.assert_allclose(ran.theta, unbroken.theta, rtol=1e-12)


def test_blocks_grow_with_the_steps_taken():
    done, sizes = 0, []
    while done < 10_000:
        (size,) = loop.block_sizes(np.array([done]), None)
        sizes.append(int(size))
        done += int(size)
    assert sizes[:200] == [10] * 200
    assert sizes[200:300] == [20] * 100
    assert sizes[300:400] == [40] * 100
    assert loop.count_blocks(0, 10_000, None) == len(sizes)
    assert loop.block_sizes(np.array([2345, 10**9]), None).tolist() == [15, 640]
    assert loop.count_blocks(2345, 2400, None) == 3
    assert loop.count_blocks(0, 10**9, None) < 1.6e6
    assert loop.block_sizes(np.array([0, 95]), 20).tolist() == [20, 20]


def test_a_replaced_step_is_the_one_that_runs():
    """`trajectory` took it, `run` the one of `rescale`, and told of that one's convergence."""
    method = mx.m_svgd_em(TOY.log_joint, 0.3, 0.3, mx.kernels.rbf(5.0))

    def held(key, state, data):
        after, info = method.step(key, state, data)
        return after._replace(theta=jnp.full_like(after.theta, 7.0)), info

    mine = method._replace(step=held)
    ran = run(mine, 40, stop=mx.stopping.never())
    end = mx.trajectory(mine, 0.0, X, Y, 40, key=jax.random.key(2))
    assert float(ran.theta) == float(end.theta) == 7.0
    assert mine.rescale is None
    assert method._replace(step=method.step).rescale is method.rescale
    assert method._replace(step=held, rescale=method.rescale).rescale is method.rescale
    # And what is compiled for one is not taken for a copy of it.
    one_block = {"block_size": 40, "stop": mx.stopping.never(), "diagnose": False}
    last = run(method, 40, **one_block)
    mean = run(method._replace(stochastic=True), 40, **one_block)
    assert float(mean.theta) != float(last.theta)

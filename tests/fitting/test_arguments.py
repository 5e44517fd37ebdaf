"""What `fit` refuses before any time is spent, and what it hands on."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.fitting import strategies
from marginax.fitting.arguments import check_fit
from marginax.fitting.plan import Plan, make_plan
from marginax.fitting.strategies import RunOptions
from marginax.running.result import Run


def problem(size=2, **more):
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta["m"]) ** 2)

    return mx.Problem(log_joint, theta={"m": 0.0}, latent=jnp.zeros(size), **more)


def test_arguments_that_cannot_work_are_refused_first(monkeypatch):
    key = jax.random.key(0)
    check_fit(problem(), key, {"max_steps": 5, "num_particles": None}, None)
    check_fit(problem(), jax.random.PRNGKey(0), {}, None)

    def model(y):
        return y

    with pytest.raises(TypeError, match=r"the function model, but .* `marginax.from_numpyro"):
        check_fit(model, key, {}, None)
    with pytest.raises(TypeError, match=r"key is 0, which is no random key: give `jax.random.key"):
        check_fit(problem(), 0, {}, None)
    for name in ("max_steps", "num_particles", "num_starts"):
        with pytest.raises(ValueError, match=f"{name} is 0, but there must be at least one"):
            mx.fit(problem(), key=key, **{name: 0})
    with pytest.raises(ValueError, match="has 2 names, but theta has 1 numbers"):
        mx.fit(problem(names={"m": ["a", "b"]}), key=key)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match="needs orbax"):
        mx.fit(problem(), key=key, checkpoint="folder")


def test_names_of_what_theta_does_not_have_are_refused():
    with pytest.raises(ValueError, match="names has mean, which theta does not have; it has m"):
        problem(names={"mean": ["a"]})


def test_a_given_algorithm_may_have_fewer_particles_than_a_block_has_latents():
    """The rule's own check was made first, though its kernel is not used."""
    model = problem(30)
    with pytest.raises(ValueError, match="needs more than 30"):
        make_plan(model, 20)
    plan = make_plan(model, 20, algorithm=mx.ipla(model.unconstrained_log_joint, 0.1))
    assert plan.num_particles == 20
    assert plan.words == "the given algorithm"
    assert (
        make_plan(model, algorithm=plan.algorithm).num_particles == make_plan(model).num_particles
    )


@pytest.mark.slow
def test_batches_with_very_many_parameters_have_an_optimizer(key):
    """The EM gradient refuses them with advice that a user of fit cannot follow."""

    def log_joint(theta, x, y):
        return -0.5 * (x - theta[0]) ** 2 - 0.5 * jnp.sum(theta**2) - 0.5 * (y - x) ** 2

    model = mx.Problem.grouped(log_joint, jnp.ones(4), theta=jnp.zeros(300), latent=0.0)
    method = make_plan(model).in_batches
    state = method.init(key, model.start_theta(), jax.random.normal(key, (5, 4)))
    state, _ = method.step(key, state, model.data)
    assert np.all(np.isfinite(state.theta))


@pytest.mark.parametrize("given", ["folder", mx.Checkpoint("folder", max_to_keep=2), None])
def test_the_second_run_has_a_checkpoint_of_its_own(given, monkeypatch):
    """The long one, four times as many steps, had none."""
    folders = []

    def ran(*args, checkpoint, **kwargs):
        folders.append(checkpoint)
        words = ("max_steps", "", 1, {}, ("max_steps",), ("",), (1,))
        return Run(jnp.zeros(1), jnp.zeros(1), None, None, *words)

    monkeypatch.setattr(strategies, "run", ran)
    model = problem()
    method = mx.ipla(model.unconstrained_log_joint, 0.1)
    plan = Plan(method, 5, "two runs", lambda theta, particles: method, method, method)
    strategy = strategies.choose_strategy(model, plan, jax.random.key(0), None)
    options = RunOptions(10, given, progress=False)
    strategy.run_particles(np.zeros((1, 1)), jnp.zeros((1, 5, 2)), jax.random.key(0), options)
    assert folders[0] is given
    if given is None:
        assert folders[1] is None
    else:
        assert str(folders[1].directory) == "folder/then"
        assert folders[1].max_to_keep == getattr(given, "max_to_keep", 3)


@pytest.mark.slow
def test_a_folder_within_a_checkpoint_does_not_disturb_it(tmp_path, key):
    pytest.importorskip("orbax.checkpoint")
    model = problem()
    method = mx.m_svgd_em(model.unconstrained_log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
    cloud = jax.random.normal(key, (5, 2))

    def go(folder):
        return mx.run(
            method,
            model.start_theta(),
            cloud,
            max_steps=4,
            block_size=2,
            checkpoint=folder,
            key=key,
        )

    first, inner = go(tmp_path / "run"), go(tmp_path / "run" / "then")
    again = go(tmp_path / "run")
    assert again.num_steps == first.num_steps == inner.num_steps
    np.testing.assert_array_equal(again.theta["m"], first.theta["m"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["max_steps", "interrupted", "diverged"])
def test_an_early_end_on_the_way_to_the_estimate_is_told(ending, monkeypatch, key):
    """Ctrl-C while the particles followed left no trace."""
    y = jnp.ones((20, 2))
    model = mx.Problem.grouped(
        lambda theta, x, y: -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2),
        y,
        theta=0.0,
        latent=0.0,
    )
    monkeypatch.setattr(strategies, "BATCH", 10)
    cloud = jax.random.normal(key, (1, 4, 20))
    monkeypatch.setattr(strategies, "MANY", 10)
    monkeypatch.setattr(strategies, "MANY_STARTS", 10)
    monkeypatch.setattr(strategies, "SAMPLE", 5)
    plan = make_plan(model)
    before = mx.run(plan.held, jnp.zeros(1), cloud, y, max_steps=1, num_starts=1, key=key)
    monkeypatch.setattr(
        strategies,
        "run",
        lambda *args, **kwargs: strategies.replace(before, status=ending, reason="it ended"),
    )
    strategy = strategies.choose_strategy(model, plan, key, None)
    after = strategy.follow(before, np.ones(1), key, RunOptions(10, progress=False))
    if ending == "max_steps":
        assert after.statuses == before.statuses
    else:
        assert after.status == ending
        assert after.statuses == (ending,)
        assert "it ended" in after.reason

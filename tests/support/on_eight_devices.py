"""Scenarios on eight fake CPU devices, which must be asked for before JAX starts.

    python on_eight_devices.py NAME

prints nothing and ends with 0 if the scenario holds; `test_sharding` runs them all at once.
"""

import sys
import tempfile
from functools import cache
from importlib import import_module
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import marginax as mx  # noqa: E402
from marginax.likelihood.methods import choose_likelihood  # noqa: E402

blockwise_module = import_module("marginax.kernels.blocks")
NUM_PARTICLES, NUM_GROUPS = 16, 24
MESHES = {
    "particles": jax.make_mesh((8,), ("particles",)),
    "groups": jax.make_mesh((8,), ("groups",)),
    "both": jax.make_mesh((2, 4), ("particles", "groups")),
}
PLACES = {
    "particles": P("particles"),
    "groups": P(None, "groups"),
    "both": P("particles", "groups"),
}


def log_joint(theta, x, y):
    prior = -0.5 * ((x["a"] - theta["mean"]) / theta["sd"]) ** 2 - jnp.log(theta["sd"])
    slopes = jnp.sum(x["b"] ** 2)
    return prior - 0.5 * slopes - 0.5 * jnp.sum((y["y"] - x["a"] - jnp.sum(x["b"]) * y["t"]) ** 2)


@cache
def problem():
    numbers = np.random.default_rng(0)
    y = numbers.normal(size=(NUM_GROUPS, 5)) + 2 * numbers.normal(size=(NUM_GROUPS, 1))
    data = {"y": y, "t": np.tile(np.linspace(-1, 1, 5), (NUM_GROUPS, 1))}
    return mx.Problem.grouped(
        log_joint,
        data,
        theta={"mean": 0.0, "sd": 1.0},
        latent={"a": 0.0, "b": jnp.zeros(2)},
        theta_transforms={"sd": mx.transforms.positive},
    )


def cloud(*lead):
    numbers = np.random.default_rng(1)
    shape = (*lead, NUM_PARTICLES, NUM_GROUPS)
    return {"a": numbers.normal(size=shape), "b": numbers.normal(size=(*shape, 2))}


def run(method, mesh=None, **more):
    settings = {"max_steps": 20, "block_size": 10, "stop": mx.stopping.never()} | more
    particles = settings.pop("particles", None) or cloud()
    theta = settings.pop("theta", None) or problem().start_theta()
    mesh = None if mesh is None else MESHES[mesh]
    return mx.run(
        method, theta, particles, problem().data, mesh=mesh, key=jax.random.key(2), **settings
    )


def assert_same(a, b, tolerance=1e-10):
    def close(x, y):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=tolerance)

    jax.tree.map(close, a, b)


def assert_spread(state, place):
    """The cloud, and all that has its shape, in parts of the right size on all eight devices."""
    kept = [state.particles]
    kept += [getattr(state, name) for name in ("particles_ahead", "particle_momentum") if
             hasattr(state, name)]  # fmt: skip
    for leaf in jax.tree.leaves(kept):
        assert leaf.sharding.spec == place, leaf.sharding
        assert len(leaf.sharding.device_set) == 8
        assert leaf.addressable_shards[0].data.size == leaf.size // 8
    for leaf in jax.tree.leaves(state.theta):
        assert leaf.sharding.is_fully_replicated


def free(step):
    kernel = mx.kernels.rbf(1.0)
    return mx.m_svgd_em(problem().unconstrained_log_joint, step / 5, step, kernel)


def same_answer():
    per_group = mx.kernels.blockwise(mx.kernels.rbf(1.0))
    methods = {
        "joint": free(0.02),
        "per group": mx.m_svgd_em(problem().unconstrained_log_joint, 0.002, 0.02, per_group),
        "noisy": mx.mpgd(problem().unconstrained_log_joint, 0.01, 1.0, 10.0),
    }
    blockwise_module.TILE = 2 * NUM_PARTICLES**2  # two groups at a time: tiles also when spread
    for kind, method in methods.items():
        with_check = kind == "joint"
        alone = run(method, diagnose=with_check)
        for name, place in PLACES.items():
            if (kind, name) in {("per group", "particles"), ("per group", "both")}:
                continue  # hundreds of small collectives, which fake devices take minutes for
            if kind == "noisy" and name != "both":
                continue  # the others have nothing to add, and compile for as long
            spread = run(method, name, diagnose=with_check)
            assert_spread(spread.state, place)
            assert_same(spread.state, alone.state)
            assert_same((spread.theta, spread.history), (alone.theta, alone.history))
            assert [c.verdict for c in spread.cloud_checks] == [
                c.verdict for c in alone.cloud_checks
            ]


def starts_and_backtracking():
    particles = cloud(2)
    theta = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1]), problem().start_theta())
    settings = {"num_starts": 2, "particles": particles, "theta": theta, "diagnose": False}
    alone = run(free(0.02), **settings)
    for name, place in PLACES.items():
        spread = run(free(0.02), name, **settings)
        assert_spread(spread.state, P(None, *place))
        assert_same(spread.state, alone.state)
    # A step that is too large: back, momentum reset, half the step.
    large = run(mx.mpgd(problem().unconstrained_log_joint, 1e6, 1.0, 10.0), "both", diagnose=False)
    assert_spread(large.state, PLACES["both"])
    assert "halved" in large.reason, large.reason


def checkpoints_under_another_mesh():
    whole = run(free(0.02), max_steps=60)
    with tempfile.TemporaryDirectory() as folder:
        for steps, name in ((20, "groups"), (40, "both"), (60, None)):
            found = run(free(0.02), name, max_steps=steps, checkpoint=folder)
            assert found.num_steps == steps
            if name:
                assert_spread(found.state, PLACES[name])
        assert_same(found.state, whole.state)


def kept_where_xla_would_not():
    """A step after which every device could hold all of the cloud, and XLA would let it."""

    class State(NamedTuple):
        theta: jax.Array
        particles: jax.Array

    class Info(NamedTuple):
        theta_score: jax.Array

    def step(key, state, data):
        to_mean = lambda leaf: jnp.broadcast_to(jnp.mean(leaf, keepdims=True), leaf.shape)  # noqa: E731
        return State(state.theta, jax.tree.map(to_mean, state.particles)), Info(state.theta["sd"])

    method = mx.Algorithm(lambda key, theta, particles: State(theta, particles), step)
    record = lambda state, info: state.particles["a"]  # noqa: E731
    for name, place in PLACES.items():
        found = run(method, name, record=record)
        assert_spread(found.state, place)
        assert found.history.shape == (2, NUM_PARTICLES, NUM_GROUPS)


def only_theta_is_sent_between_groups():
    """The program of a block: nothing as large as a group's part of the cloud is communicated."""
    from marginax.fitting.plan import make_plan

    by_hand = mx.m_svgd_em(
        problem().unconstrained_log_joint, 0.002, 0.02, mx.kernels.blockwise(mx.kernels.rbf(1.0))
    )
    blockwise_module.TILE = NUM_PARTICLES**2
    _check_what_is_sent(by_hand, most=6)
    # The EM gradient adds up second and third derivatives as well, but not chunk by chunk.
    _check_what_is_sent(make_plan(problem(), NUM_PARTICLES).algorithm, most=40)


def _check_what_is_sent(method, most):
    from marginax._core.programs import ById
    from marginax.running.sharding import lay_out
    from marginax.running.steps import advance, over_starts

    keys, own = jax.random.split(jax.random.key(0), 1), method.replicated
    theta = jax.tree.map(lambda leaf: leaf[None], problem().start_theta())
    layout = lay_out(MESHES["groups"], cloud(1))
    theta, particles, data = layout.spread(theta, cloud(1), problem().data)
    state = layout.placed(over_starts(method.init, single=True)(keys, theta, particles), own)
    fixed = ById(method, mark=method.step)
    program = advance(fixed, lambda state, info: state.theta, None, 0, True)
    kept = layout.keep(program, state, own)
    counts = (jnp.zeros(1, int), jnp.full(1, 10), jnp.ones(1))
    text = kept.lower(keys, state, data, *counts).compile().as_text()
    assert 1 <= text.count("all-reduce(") <= most, text.count("all-reduce(")
    for kind in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
        assert f"{kind}(" not in text, kind


def likelihood_by_groups():
    theta = np.array([0.2, 0.1])
    alone, spread = (choose_likelihood(problem(), theta, mesh) for mesh in (None, MESHES["groups"]))
    a, b = alone.evaluate(theta, alone.start), spread.evaluate(theta, spread.start)
    assert b.extra.sharding.spec == P(None, "groups")
    assert_same(tuple(a), tuple(b))
    same = ("log_likelihood", "by_group", "mean", "sd")
    a, b = (one.describe(theta, one.start) for one in (alone, spread))
    assert_same([getattr(a, name) for name in same], [getattr(b, name) for name in same])


def fits():
    settings = {"num_particles": 16, "num_starts": 1, "draw_posterior": False}
    alone = mx.fit(problem(), key=jax.random.key(0), **settings)
    spread = mx.fit(problem(), key=jax.random.key(0), mesh=MESHES["both"], **settings)
    assert spread.ok
    assert_spread(spread.run.state, P(None, *PLACES["both"]))
    assert_same(spread.theta, alone.theta)
    assert_same(spread.information, alone.information, 1e-8)


def refusals():
    odd = jax.make_mesh((5,), ("particles",), devices=jax.devices()[:5])
    with pytest.raises(ValueError, match=r"16 particles, .* the 5 devices .* Take 20 particles"):
        mx.run(free(0.1), problem().start_theta(), cloud(), problem().data,
               max_steps=1, mesh=odd, key=jax.random.key(0))  # fmt: skip
    seven = jax.make_mesh((7,), ("groups",), devices=jax.devices()[:7])
    with pytest.raises(ValueError, match=r"24 groups, .* the 7 devices .* divides 24"):
        mx.fit(problem(), key=jax.random.key(0), mesh=seven)
    named = jax.make_mesh((8,), ("data",))
    with pytest.raises(ValueError, match=r"axes \('data',\), but only 'particles' and 'groups'"):
        mx.fit(problem(), key=jax.random.key(0), mesh=named)
    flat = mx.Problem(
        lambda theta, x, y: -0.5 * (x - theta) ** 2 - 0.5 * (y - x) ** 2,
        theta=0.0,
        latent=0.0,
        data=jnp.ones(()),
    )
    with pytest.raises(ValueError, match="this problem has no groups"):
        mx.fit(flat, key=jax.random.key(0), mesh=MESHES["groups"])
    method = mx.pgd(flat.unconstrained_log_joint, 0.1, 0.1)
    with pytest.raises(ValueError, match=r"shape \(16,\) and no axis 1, which runs over groups"):
        mx.run(method, 0.0, jnp.zeros(16), jnp.ones(()), max_steps=1,
               mesh=MESHES["groups"], key=jax.random.key(0))  # fmt: skip


SCENARIOS = {
    function.__name__: function
    for function in (
        same_answer,
        starts_and_backtracking,
        checkpoints_under_another_mesh,
        kept_where_xla_would_not,
        only_theta_is_sent_between_groups,
        likelihood_by_groups,
        fits,
        refusals,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()

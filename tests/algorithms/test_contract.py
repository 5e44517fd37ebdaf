"""What every algorithm promises, checked for all of them: a new algorithm joins here first."""

import pickle
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from every_algorithm import (
    ALGORITHMS,
    BLOCKS,
    DETERMINISTIC,
    RBF,
    REPLICATED,
    RESET,
    WITHOUT_RESCALE,
    N,
    assert_trees_close,
    log_joint,
    m_step,
    start,
)

import marginax as mx
from marginax.algorithms._jala_em import JALAEMState

EVERY = pytest.mark.parametrize("name", ALGORITHMS)
# The Newton step and the metric take long to compile; the other tests have them at every commit.
EVERY_IN_TIME = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "m_svgd_em_curvature" else [])
        for name in ALGORITHMS
    ],
)


@lru_cache
def method_and_step(name):
    """The method with its step compiled, once for all tests that take one."""
    algorithm = ALGORITHMS[name](log_joint, 0.05)
    return algorithm, jax.jit(algorithm.step)


def signature(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)


@EVERY
def test_state_is_arrays_with_theta_and_particles_first(name, key):
    theta, particles, data = start()
    state = ALGORITHMS[name](log_joint, 0.05).init(key, theta, particles)
    assert state._fields[:2] == ("theta", "particles")
    assert_trees_close((state.theta, state.particles), (theta, particles))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))


@EVERY
def test_what_a_loop_reads_off_it(name):
    algorithm = ALGORITHMS[name](log_joint, 0.05)
    assert algorithm.log_joint is log_joint
    # Where these fail for a new method, `every_algorithm.py` has the lists to put its name into.
    assert algorithm.stochastic == (name not in DETERMINISTIC), "is it in DETERMINISTIC?"
    assert algorithm.blocks == BLOCKS.get(name, "whole"), "is it in BLOCKS?"
    assert (algorithm.rescale is None) == (name in WITHOUT_RESCALE), "is it in WITHOUT_RESCALE?"


@EVERY
def test_what_is_reset_and_what_is_replicated_is_declared(name, key):
    """All fields that a backtrack or a mesh must know of, and none that the State does not have."""
    theta, particles, _ = start()
    algorithm = ALGORITHMS[name](log_joint, 0.05)
    state = algorithm.init(key, theta, particles)
    assert set(algorithm.reset_on_backtrack) <= set(state._fields[2:])
    assert set(algorithm.replicated) <= set(state._fields)
    structure = jax.tree.structure(theta)
    for field in state._fields:
        value = getattr(state, field)
        # Whatever is a tree like theta belongs to it, and is whole on every device.
        if jax.tree.structure(value) == structure:
            assert field in algorithm.replicated, f"{field} is like theta: is it in replicated?"
    held = set(algorithm.replicated)
    assert REPLICATED & set(state._fields) == held, "is it in REPLICATED? Its names are for all"
    # A method that goes on in its old direction after a backtrack would run away again: what a
    # step would do to an unmoved start must be that of a fresh one.
    reset = set(algorithm.reset_on_backtrack)
    assert RESET & set(state._fields) == reset, "is it in RESET? Its names are for all methods"


def test_fields_that_the_state_does_not_have_are_refused(key):
    theta, particles, data = start()
    for what in ("reset_on_backtrack", "replicated"):
        wrong = mx.pgd(log_joint, 0.05, 0.05)._replace(**{what: ("momentum",)})
        with pytest.raises(ValueError, match=f"{what} names momentum, but its State has the field"):
            mx.run(wrong, theta, particles, data, key=key, max_steps=1)


def test_a_copy_with_another_step_loses_what_was_made_for_the_old_one():
    method = mx.pgd(log_joint, 0.05, 0.05)._replace(identity="pgd")
    assert method.identity == "pgd"
    assert method.rescale is not None
    for same in (method._replace(blocks="leaves"), method._replace(step=method.step)):
        assert (same.rescale, same.identity) == (method.rescale, None)
    other = method._replace(step=mx.ipla(log_joint, 0.05).step)
    assert other.rescale is None
    assert method._replace(step=other.step, rescale=method.rescale).rescale is method.rescale


@pytest.mark.parametrize(
    "make",
    [lambda optimizer: mx.jala_em(log_joint, optimizer, 0.05),
     lambda optimizer: mx.mcem(log_joint, optimizer, 0.05, 2)],
    ids=["jala_em", "mcem"],
)  # fmt: skip
def test_newton_steps_of_theta_are_told_the_model_particles_and_data(make, key):
    """The density is quadratic in theta, so that one Newton step is the M-step."""
    theta, particles, data = start()
    for optimizer in (mx.em_gradient(), mx.exact_m_step(m_step)):
        method = make(optimizer)
        state, _ = jax.jit(method.step)(key, method.init(key, theta, particles), data)
        used = particles if isinstance(state, JALAEMState) else state.particles
        assert_trees_close(state.theta, m_step(used, data), rtol=1e-9)


def test_options_at_their_ends_and_beyond():
    def refused(make, words):
        with pytest.raises(ValueError, match=words):
            make()

    def coin(damping):
        return lambda: mx.coin_em(log_joint, RBF, damping=damping)

    def jala(share):
        return lambda: mx.jala_em(log_joint, 0.1, 0.1, resample_below=share)

    for fine in (coin(0.0), jala(0.0), jala(1.0)):
        fine()
    for damping in (-0.5, float("inf"), float("nan")):
        refused(coin(damping), "damping is")
    for share in (-0.5, 1.5):
        refused(jala(share), "resample_below is")


@pytest.mark.parametrize(
    ("make", "documented"),
    [
        (lambda **given: mx.mcem(log_joint, 0.05, 0.05, **given), {"num_moves": 10}),
        (lambda **given: mx.jala_em(log_joint, 0.05, 0.05, **given), {"resample_below": 0.5}),
        (lambda **given: mx.soul(log_joint, 0.05, 0.05, **given), {"averaging_weight": 1.0}),
        (lambda **given: mx.asvgd_em(log_joint, 0.05, 0.05, RBF, **given), {"ridge": 0.1}),
    ],
    ids=["mcem", "jala_em", "soul", "asvgd_em"],
)
def test_what_an_option_is_by_default(make, documented, key):
    theta, particles, data = start()
    ends = []
    for method in (make(), make(**documented)):
        state, step = method.init(key, theta, particles), jax.jit(method.step)
        for _ in range(2):  # at the first step nothing has momentum yet
            state, _ = step(key, state, data)
        ends.append(state)
    jax.tree.map(np.testing.assert_array_equal, *ends)


def test_of_init_and_step_alone_a_loop_assumes_little():
    """One block, an estimate that comes to rest, and no steps to shrink."""
    method = mx.pgd(log_joint, 0.05, 0.05)
    alone = mx.Algorithm(method.init, method.step)
    assert not alone.stochastic
    assert alone.blocks == "whole"
    assert alone.replicated == ("theta",)
    assert alone.reset_on_backtrack == ()
    assert (alone.log_joint, alone.rescale, alone.identity, alone.frame) == (None,) * 4


@pytest.mark.parametrize(
    "make",
    [
        lambda kernel: mx.svgd_em(log_joint, 0.1, 0.1, kernel),
        lambda kernel: mx.m_svgd_em(log_joint, 0.1, 0.1, kernel),
        lambda kernel: mx.asvgd_em(log_joint, 0.1, 0.1, kernel, quadratic=None),
        lambda kernel: mx.coin_em(log_joint, kernel),
    ],
    ids=["svgd_em", "m_svgd_em", "asvgd_em", "coin_em"],
)
def test_blocks_are_those_of_the_kernel(make, key):
    method = make(mx.kernels.blockwise(RBF, "leaves"))
    assert method.blocks == "leaves"
    assert not method.stochastic
    assert make(mx.kernels.random_batches(mx.kernels.rbf(1.0), 5)).stochastic
    theta, (intercepts, scale), _ = start()
    together = (intercepts, jnp.ones_like(scale))
    make(RBF).init(key, theta, together)  # one kernel over both leaves: they differ in the first
    with pytest.raises(ValueError, match="start in the same place"):
        method.init(key, theta, together)


@EVERY
@pytest.mark.parametrize("dtype", [pytest.param(jnp.float32, marks=pytest.mark.float32), float])
def test_step_keeps_structure_shape_dtype_and_weak_type(name, dtype, key):
    algorithm = ALGORITHMS[name](log_joint, 0.05)
    theta, particles, data = start(jnp.dtype(dtype) if dtype is not float else None)
    state = algorithm.init(key, theta, particles)
    after, _ = jax.eval_shape(algorithm.step, key, state, data)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert signature(after) == signature(state)
    assert after.theta["mean"].dtype == theta["mean"].dtype


@EVERY
def test_python_floats_are_accepted_as_theta(name, key):
    _, particles, data = start()
    theta = {"mean": np.zeros(3), "scale": 0.0}
    algorithm = ALGORITHMS[name](log_joint, 0.05)
    # Only traced: a weak type that turned strong would fail in the scan's carry.
    end = jax.eval_shape(lambda: mx.trajectory(algorithm, theta, particles, data, 2, key=key))
    assert end.state.theta["scale"].dtype == jnp.result_type(float)


@EVERY_IN_TIME
def test_jit_changes_nothing_and_compiles_once(name, key):
    traces = 0

    def counted(theta, latent, data):
        nonlocal traces
        traces += 1
        return log_joint(theta, latent, data)

    algorithm = ALGORITHMS[name](counted, 0.05)
    theta, particles, data = start()
    state = algorithm.init(key, theta, particles)
    plain, _ = algorithm.step(key, state, data)
    step = jax.jit(algorithm.step)
    jitted, _ = step(key, state, data)
    tolerance = 1e-12 if jax.config.jax_enable_x64 else 1e-5
    assert_trees_close(jitted, plain, rtol=tolerance, atol=tolerance)
    traced_once = traces
    step(jax.random.key(9), jitted, jax.tree.map(lambda leaf: leaf + 1, data))
    assert traces == traced_once


@pytest.mark.slow
@pytest.mark.float32
@EVERY_IN_TIME
def test_trajectory_is_the_step_repeated(name, key):
    algorithm, step = method_and_step(name)
    theta, particles, data = start()
    end = jax.jit(lambda: mx.trajectory(algorithm, theta, particles, data, 4, key=key))()
    init_key, step_key = jax.random.split(key)
    state = algorithm.init(init_key, theta, particles)
    for t in range(4):
        state, _ = step(jax.random.fold_in(step_key, t), state, data)
        tolerance = 1e-9 if jax.config.jax_enable_x64 else 1e-4
        recorded = jax.tree.map(lambda leaf, t=t: leaf[t], end.history)
        assert_trees_close(recorded, state.theta, rtol=tolerance, atol=tolerance)
    assert_trees_close(end.state, state, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@EVERY_IN_TIME
def test_vmap_over_steps_and_seeds_is_a_loop(name):
    theta, particles, data = start()

    def run(step_size, key):
        algorithm = ALGORITHMS[name](log_joint, step_size)
        # The start depends on the step too, for the method that has no step.
        shifted = jax.tree.map(lambda leaf: leaf + step_size, particles)
        return mx.trajectory(algorithm, theta, shifted, data, 3, key=key).theta

    step_sizes, keys = jnp.array([0.01, 0.05]), jax.random.split(jax.random.key(3), 2)
    swept, one_run = jax.jit(jax.vmap(run))(step_sizes, keys), jax.jit(run)
    tolerance = 1e-9 if jax.config.jax_enable_x64 else 1e-4
    for i in range(2):
        single = one_run(step_sizes[i], keys[i])
        picked = jax.tree.map(lambda leaf, i=i: leaf[i], swept)
        assert_trees_close(picked, single, rtol=tolerance, atol=tolerance)


@EVERY
def test_state_survives_pickling(name, key):
    algorithm, step = method_and_step(name)
    theta, particles, data = start()
    state = algorithm.init(key, theta, particles)
    again = pickle.loads(pickle.dumps(state))
    after = [step(key, s, data)[0] for s in (state, again)]
    assert_trees_close(after[0], after[1], rtol=0, atol=0)


@pytest.mark.float32
@pytest.mark.parametrize("name", ["svgd_em", "m_svgd_em", "m_svgd_em_restart", "coin_em"])
def test_pytree_equals_ravelled_and_order_does_not_matter(name, key):
    theta, particles, data = start()

    def flat_log_joint(theta, x, data):
        return log_joint({"mean": theta[:3], "scale": theta[3]}, (x[:3], x[3]), data)

    flat_theta = jnp.concatenate([theta["mean"], theta["scale"][None]])
    flat_particles = jnp.concatenate([particles[0], particles[1][:, None]], axis=1)
    order = jnp.array([4, 2, 0, 1, 3])
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if jax.config.jax_enable_x64 else {"atol": 1e-4}
    tree = mx.trajectory(ALGORITHMS[name](log_joint, 0.05), theta, particles, data, 5, key=key)
    flat = mx.trajectory(
        ALGORITHMS[name](flat_log_joint, 0.05), flat_theta, flat_particles[order], data, 5, key=key
    )
    np.testing.assert_allclose(flat.theta[:3], tree.theta["mean"], **tolerance)
    np.testing.assert_allclose(flat.particles[:, 3], tree.particles[1][order], **tolerance)


@pytest.mark.parametrize(
    ("optimizer", "still"),
    [
        (optax.sgd(0.01, momentum=0.5), False),
        (optax.adam(0.01), False),
        (optax.rmsprop(0.01), False),
        (optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01)), False),
        (optax.contrib.cocob(), False),
        (optax.sgd(optax.cosine_decay_schedule(0.1, 10)), False),
        (optax.set_to_zero(), True),
    ],
)
@pytest.mark.parametrize("method", [mx.svgd_em, mx.m_svgd_em])
def test_any_optax_optimizer_fits_both_slots(method, optimizer, still, key):
    theta, particles, data = start()
    algorithm = method(log_joint, optimizer, optimizer, RBF)
    with jax.numpy_dtype_promotion("standard"):  # optax counts steps in integers
        end = mx.trajectory(algorithm, theta, particles, data, 3, key=key)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(end.state))
    moved = jax.tree.map(
        lambda a, b: bool(jnp.any(a != b)), (end.theta, end.particles), (theta, particles)
    )
    assert all(m != still for m in jax.tree.leaves(moved))


def test_record_chooses_what_is_kept(key):
    theta, particles, data = start()
    end = mx.trajectory(
        ALGORITHMS["svgd_em"](log_joint, 0.05),
        theta,
        particles,
        data,
        4,
        record=lambda state, info: (state.particles[1], info.theta_score["scale"]),
        key=key,
    )
    assert end.history[0].shape == (4, N)
    assert end.history[1].shape == (4,)

"""The skeleton of the documentation is an algorithm: it keeps the contract and finds its answer."""

import importlib.util
from pathlib import Path

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx

FILE = Path(__file__).parents[2] / "docs" / "reference" / "skeleton.py"
spec = importlib.util.spec_from_file_location("skeleton", FILE)
skeleton = importlib.util.module_from_spec(spec)
spec.loader.exec_module(skeleton)
joint_ascent = skeleton.joint_ascent
H = 0.07


def test_three_iterations_by_hand(key):
    end = mx.trajectory(
        joint_ascent(hand.log_joint, H), hand.THETA, hand.PARTICLES, hand.DATA, 3, key=key
    )
    theta, particles = hand.THETA, hand.PARTICLES
    for _ in range(3):
        theta = theta + H * hand.grad_theta(theta, particles)
        particles = particles + H * hand.scores(theta, particles)
    np.testing.assert_allclose(end.theta, theta, rtol=1e-12)
    np.testing.assert_allclose(end.particles, particles, rtol=1e-12)


def test_one_particle_is_svgd_em(key):
    # A single particle has nobody to repel it: k(x, x) = 1, and its velocity is its score.
    methods = joint_ascent(hand.log_joint, H), mx.svgd_em(hand.log_joint, H, H, mx.kernels.rbf(1.3))
    start = (hand.THETA, hand.PARTICLES[:1], hand.DATA)
    ends = [mx.trajectory(method, *start, 20, key=key) for method in methods]
    np.testing.assert_allclose(ends[0].theta, ends[1].theta, rtol=1e-12)
    np.testing.assert_allclose(ends[0].particles, ends[1].particles, rtol=1e-12)


def test_a_run_converges_to_the_known_answer(key):
    model = mx.models.ToyHierarchical(1.0, 1.0)
    y = jnp.array([1.0, 2.0, 6.0])
    cloud = jax.random.normal(key, (5, 3))
    run = mx.run(joint_ascent(model.log_joint, 0.2), 0.0, cloud, y, max_steps=2000, key=key)
    assert run.status == "converged"
    np.testing.assert_allclose(run.theta, 3.0, atol=1e-6)  # the mean of y
    np.testing.assert_allclose(run.particles[4], (y + 3.0) / 2, atol=1e-6)  # the mode
    assert not run.cloud_check.ok  # and that this is no cloud is noticed


def test_a_step_that_is_too_large_is_halved(key):
    model = mx.models.ToyHierarchical(1.0, 1.0)
    y, cloud = jnp.array([1.0, 2.0, 6.0]), jax.random.normal(key, (5, 3))
    run = mx.run(joint_ascent(model.log_joint, 3.0), 0.0, cloud, y, max_steps=2000, key=key)
    assert run.status == "converged"
    assert "halved" in run.reason


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_step_keeps_shapes_and_dtypes(key, dtype):
    method = joint_ascent(hand.log_joint, H)
    start = [jnp.asarray(part, dtype) for part in (hand.THETA, hand.PARTICLES, hand.DATA)]
    state = method.init(key, *start[:2])
    after, _ = jax.eval_shape(method.step, key, state, start[2])
    assert state._fields[:2] == ("theta", "particles")
    assert [leaf.dtype for leaf in after] == [dtype, dtype]
    assert [leaf.shape for leaf in after] == [leaf.shape for leaf in state]

"""Shrinking a method's steps: the same method, built with smaller ones."""

import jax
import jax.numpy as jnp
import pytest
from every_algorithm import ALGORITHMS, RBF, assert_trees_close, log_joint, start

import marginax as mx

# Every option that a new method could forget to pass on.
VARIANTS = {
    "svgd_em_metric": lambda lj, h: mx.svgd_em(
        lj, h, h, RBF, particle_metric=mx.metrics.curvature()
    ),
    "m_svgd_em_options": lambda lj, h: mx.m_svgd_em(
        lj,
        h,
        h,
        RBF,
        theta_momentum=0.3,
        particle_momentum=0.6,
        particle_metric=mx.metrics.curvature(),
    ),
    # A step so long that the cloud slows down at once: with restarts it would start again.
    "asvgd_em_no_restart": lambda lj, h: mx.asvgd_em(lj, h, 10 * h, RBF, restart=None),
    "asvgd_em_options": lambda lj, h: mx.asvgd_em(lj, h, 10 * h, RBF, ridge=0.5, damping=0.7),
    "jala_em_options": lambda lj, h: mx.jala_em(
        lj,
        h,
        h,
        start_log_density=lambda x: -jnp.sum(x[0] ** 2) - x[1] ** 2,
        resample_below=0.9,
    ),
    "mpgd_scale": lambda lj, h: mx.mpgd(lj, h, 1.5, 3.0, theta_scale=0.3),
    "soul_options": lambda lj, h: mx.soul(
        lj,
        h,
        h,
        num_warmup=1,
        theta_bounds=(-0.19, 0.31),
        averaging_weight=lambda count: 1.0 / (1 + count.astype(float)),
    ),
}
METHODS = {
    name: make
    for name, make in (ALGORITHMS | VARIANTS).items()
    # There is no step; or a Newton step, which is none.
    if not name.startswith("coin_em") and name != "m_svgd_em_curvature"
}


def three_steps(algorithm):
    theta, particles, data = start()
    state, step = algorithm.init(jax.random.key(0), theta, particles), jax.jit(algorithm.step)
    for seed in range(3):
        state, _ = step(jax.random.key(seed), state, data)
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_rescaled_is_built_with_smaller_steps(name):
    make = METHODS[name]
    rescaled, smaller = make(log_joint, 0.08).rescale(0.5), make(log_joint, 0.04)
    assert_trees_close(three_steps(rescaled), three_steps(smaller), rtol=1e-9, atol=1e-12)
    again = rescaled.rescale(2.0)
    found, expected = ((m.log_joint, m.blocks, m.stochastic) for m in (again, smaller))
    assert found == expected


def test_the_newton_step_of_theta_is_damped():
    theta, particles, data = start()
    whole = mx.svgd_em(log_joint, mx.em_gradient(), 0.1, RBF)
    moves = []
    for method in (whole, whole.rescale(0.5)):
        state = method.init(jax.random.key(0), theta, particles)
        after, _ = jax.jit(method.step)(jax.random.key(0), state, data)
        moves.append(float(after.theta["scale"] - theta["scale"]))
    assert moves[1] == pytest.approx(0.5 * moves[0], rel=1e-9)

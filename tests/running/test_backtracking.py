"""Runs that run away: backtracked, or ended with the last finite state and the right word."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy_run import KERNEL, METHODS, NEVER, TOY, X, Y, run

import marginax as mx
from marginax.running.backtracking import reset_at_rest

# D = 200, step 0.3: beyond the stability limit 2 * 12 / 200 of theta, every method returns NaN.
Y200 = TOY.simulate(jax.random.key(3), 10.0, 200)
X200 = jax.random.normal(jax.random.key(4), (20, 200))


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
@pytest.mark.parametrize("name", METHODS)
def test_divergence_is_backtracked(name):
    # MPGD's exact integrator bears 0.3; give it a step that it does not bear.
    method = METHODS[name](0.3 if name != "mpgd" else 3.0)
    ran = run(method, particles=X200, data=Y200, max_steps=60_000)
    assert ran.status == "converged", ran.reason
    assert "halved" in ran.reason
    tolerance = 0.15 if name in ("pgd", "mpgd") else 0.02  # noise and the rule's own tolerance
    assert abs(float(ran.theta - Y200.mean())) < tolerance


@pytest.mark.parametrize("name", METHODS)
def test_divergence_without_backtracking_ends_finite(name):
    method = METHODS[name](0.3 if name != "mpgd" else 3.0)
    ran = run(method, particles=X200, data=Y200, on_divergence="stop", stop=NEVER)
    assert ran.status == "diverged"
    assert "last finite state" in ran.reason
    assert all(
        bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((ran.theta, ran.state))
    )
    # It really is the last one: the next step is not finite, or has already run away.
    end = mx.trajectory(method, 0.0, X200, Y200, ran.num_steps + 1, key=jax.random.key(2))
    size = jnp.max(jnp.abs(jnp.concatenate([end.theta[None], end.particles.ravel()])))
    assert not size < 1e8


def at_rest(method, key, state):
    """What a backtrack makes of the state of one start."""
    with_axis = jax.tree.map(lambda leaf: leaf[None], (key, state))
    rest = reset_at_rest(method, jax.vmap(method.init), *with_axis, np.array([0.5]))
    return jax.tree.map(lambda leaf: leaf[0], rest)


def cliff(theta, x, y):
    """Uphill until theta reaches 1, NaN beyond."""
    return theta + 0 * jnp.sqrt(1 - theta) - 0.5 * jnp.sum(x**2)


def test_a_nan_without_a_runaway_is_called_nonfinite():
    method = mx.svgd_em(cliff, 0.3, 0.1, mx.kernels.rbf(1.0))
    ran = run(method, theta=0.0, data=None, on_divergence="stop", max_steps=1000)
    assert ran.status == "nonfinite"
    assert "NaN" in ran.reason
    assert bool(jnp.isfinite(ran.theta))


def test_backtracking_keeps_optimizer_states_and_resets_momentum():
    method = mx.m_svgd_em(
        TOY.log_joint, optax.adagrad(0.1), 0.3, KERNEL, theta_momentum=mx.momentum.nesterov()
    )
    state = mx.trajectory(method, 0.0, X, Y, 30, key=jax.random.key(0)).state
    rest = at_rest(method, jax.random.key(0), state)
    np.testing.assert_array_equal(rest.theta_ahead, state.theta)
    np.testing.assert_array_equal(rest.particles_ahead, state.particles)
    assert rest.theta_momentum_state == 0
    assert state.theta_momentum_state == 30
    jax.tree.map(
        np.testing.assert_array_equal, rest.theta_optimizer_state, state.theta_optimizer_state
    )


def test_a_method_without_a_step_is_not_backtracked():
    ran = run(mx.coin_em(cliff, mx.kernels.rbf(1.0)), data=None, max_steps=5000)
    assert ran.status == "nonfinite"
    assert "halved" not in ran.reason
    assert bool(jnp.isfinite(ran.theta))

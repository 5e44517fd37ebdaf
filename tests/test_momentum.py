"""The rules, one value at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.momentum import look_ahead


def alphas(rule, alignments):
    state, values = rule.init(), []
    for alignment in alignments:
        alpha, state = rule.update(state, jnp.asarray(alignment, float))
        values.append(float(alpha))
    return values


def test_constant():
    assert alphas(mx.momentum.constant(0.9), [1, -1, 1]) == [0.9, 0.9, 0.9]


def test_nesterov_starts_without_momentum():
    np.testing.assert_allclose(alphas(mx.momentum.nesterov(), [1, -1, 1]), [0, 1 / 4, 2 / 5])


def test_schedule_counts_from_one():
    assert alphas(mx.momentum.schedule(lambda k: k / 10), [1, 1, 1]) == pytest.approx(
        [0.1, 0.2, 0.3]
    )


def test_adaptive_restart_uses_the_new_count_at_once():
    # k: 1, 2, restart 0, 1; alpha = k / (k + 3) in the same step, and no step back at a restart.
    expected = [1 / 4, 2 / 5, 0, 1 / 4]
    np.testing.assert_allclose(alphas(mx.momentum.adaptive_restart(), [1, 0, -1, 1]), expected)


def test_liu_constant():
    # mu gamma = 0.04: b = 0.04, R = sqrt(0.0016 + 4 * 1.04 * 0.04) = sqrt(0.168).
    root = np.sqrt(0.168)
    expected = (2.04 - root) / (2.04 + root)
    np.testing.assert_allclose(alphas(mx.momentum.liu(0.1, 0.4), [1.0]), [expected], rtol=1e-12)


def test_look_ahead_extrapolates_the_difference_of_iterates():
    new, old = {"a": jnp.array([3.0, 1.0])}, {"a": jnp.array([1.0, 2.0])}
    ahead, _ = look_ahead(mx.momentum.constant(0.5), (), new, new, old)
    np.testing.assert_allclose(ahead["a"], [4.0, 0.5])


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 1.5, float("nan"), np.zeros(2)])
def test_bad_momentum(alpha):
    with pytest.raises(ValueError, match="momentum is"):
        mx.momentum.constant(alpha)
    with pytest.raises(ValueError, match="between 0 and 1"):
        mx.momentum.liu(2.0, 1.0)


def test_momentum_can_be_swept():
    model = mx.models.ToyHierarchical()
    y, x = jnp.array([1.0, 3.0]), jax.random.normal(jax.random.key(0), (5, 2))

    def final(alpha):
        method = mx.m_svgd_em(model.log_joint, 0.1, 0.1, mx.kernels.rbf(1.0), theta_momentum=alpha)
        return mx.trajectory(jax.random.key(0), method, 0.0, x, y, 10).theta

    swept = jax.vmap(final)(jnp.array([0.0, 0.5, 0.9]))
    np.testing.assert_allclose(swept[1], final(0.5), rtol=1e-12)


@pytest.mark.parametrize("slot", ["theta_momentum", "particle_momentum"])
def test_a_momentum_per_group_needs_groups(slot):
    # The bug: an IndexError from within, for a theta or particles without an axis over groups.
    method = mx.m_svgd_em(
        lambda theta, x, y: -0.5 * (x - theta) ** 2,
        *(0.1, 0.1, mx.kernels.rbf(1.0)),
        **{slot: mx.momentum.per_group(0.5)},
    )
    with pytest.raises(ValueError, match="per_group was given.*without per_group"):
        method.init(jax.random.key(0), 0.0, jnp.arange(5.0))

"""The rules, one value at a time."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import marginax as mx
from marginax.flows.momentum import look_ahead, start


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


def test_wag_has_an_acceleration_of_4_by_default():
    rule = mx.momentum.wag()
    state = rule.init()
    for k in (1, 2, 3):
        factors, state = rule.update(state, jnp.asarray(1.0))
        np.testing.assert_allclose(factors, [(k - 1) / k, (k + 4 - 2) / k], rtol=1e-12)


def test_liu_constant():
    # mu gamma = 0.04: b = 0.04, R = sqrt(0.0016 + 4 * 1.04 * 0.04) = sqrt(0.168).
    root = np.sqrt(0.168)
    expected = (2.04 - root) / (2.04 + root)
    np.testing.assert_allclose(alphas(mx.momentum.liu(0.1, 0.4), [1.0]), [expected], rtol=1e-12)


def test_look_ahead_extrapolates_the_difference_of_iterates():
    new, old = {"a": jnp.array([3.0, 1.0])}, {"a": jnp.array([1.0, 2.0])}
    ahead, _ = look_ahead(mx.momentum.constant(0.5), (), new, new, old, old)
    np.testing.assert_allclose(ahead["a"], [4.0, 0.5])


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 1.5, float("nan"), np.zeros(2)])
def test_bad_momentum(alpha):
    with pytest.raises(ValueError, match="momentum is"):
        mx.momentum.constant(alpha)


@pytest.mark.parametrize(
    ("step_size", "strong_convexity"),
    [(2.0, 1.0), (0.1, 0.0), (1.0, 1.0), (-0.1, 1.0), (np.array([0.1, 0.2]), 0.4)],
)
def test_liu_needs_a_product_between_0_and_1(step_size, strong_convexity):
    with pytest.raises(ValueError, match="between 0 and 1"):
        mx.momentum.liu(step_size, strong_convexity)


@pytest.mark.parametrize("slot", ["theta_momentum", "particle_momentum"])
def test_a_rule_that_was_not_called(slot):
    m_svgd_em = inspect.unwrap(mx.m_svgd_em)  # as users have it, without the tests' type checker
    for bad, words in ((mx.momentum.adaptive_restart, ".*; call it"), ("fast", "'fast', but")):
        with pytest.raises(TypeError, match=f"{slot} is {words}"):
            m_svgd_em(None, 0.1, 0.1, mx.kernels.rbf(1.0), **{slot: bad})


CURVATURES = np.array([1.0, 5.0, 25.0])


def cloud_of_groups():
    keys = jax.random.split(jax.random.key(0))
    shapes = ((8, 3), (8, 3, 2))
    return [1.0 + jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]


def run_of_groups(groups, rule):
    """Clouds and counts of 40 steps of some of the groups, theta held where it is."""
    curvatures = jnp.asarray(CURVATURES[groups])

    def log_joint(theta, x, data):
        quartic = jnp.sum(curvatures * x[0] ** 4)  # not alike up to time either
        squares = x[0] ** 2 + jnp.sum(x[1] ** 2, axis=-1) + 0.5 * x[0] * x[1][:, 0]
        return -0.5 * jnp.sum(curvatures * squares) - 0.05 * quartic + 0 * theta

    method = mx.m_svgd_em(
        log_joint,
        optax.set_to_zero(),
        0.03,
        mx.kernels.blockwise(mx.kernels.rbf("mean")),
        particle_momentum=rule,
    )
    start = [leaf[:, groups] for leaf in cloud_of_groups()]
    return mx.trajectory(
        method,
        0.0,
        start,
        None,
        40,
        record=lambda state, info: (state.particles, state.particle_momentum_state),
        key=jax.random.key(0),
    ).history


@pytest.mark.slow
def test_per_group_is_the_rule_for_each_group_alone():
    restart = mx.momentum.adaptive_restart()
    clouds, counts = run_of_groups([0, 1, 2], mx.momentum.per_group(restart))
    assert counts.shape == (40, 3)
    restarted = np.asarray(counts) == 0
    assert np.any(restarted.any(axis=1) & ~restarted.all(axis=1))  # some restart while others go on
    for group in range(3):
        alone, count = run_of_groups([group], restart)
        np.testing.assert_array_equal(counts[:, group], count)
        for together, apart in zip(clouds, alone, strict=True):
            np.testing.assert_allclose(together[:, :, [group]], apart, rtol=1e-9, atol=1e-12)


def test_a_constant_per_group_is_that_constant():
    found, _ = run_of_groups([0, 1, 2], mx.momentum.per_group(0.5))
    expected, _ = run_of_groups([0, 1, 2], 0.5)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_groups_are_matched_each_by_itself():
    """Where one group's particles pass each other and another's do not."""
    new, (rule, alpha) = cloud_of_groups(), (mx.momentum.riemannian(0.5), 0.5)
    random = np.random.default_rng(3)
    orders = [random.permutation(8), np.arange(8), random.permutation(8)]
    old = []
    for leaf in new:
        moved = [leaf[order, group] - 0.01 * group for group, order in enumerate(orders)]
        old.append(jnp.stack(moved, axis=1))
    found, _ = look_ahead(mx.momentum.per_group(rule), (), new, new, old, old)
    for leaf, one in zip(new, found, strict=True):
        shift = 0.01 * np.arange(3).reshape(1, 3, *[1] * (leaf.ndim - 2))
        np.testing.assert_allclose(one, leaf + alpha * shift, rtol=1e-12)


def test_momentum_can_be_swept():
    model = mx.models.ToyHierarchical()
    y, x = jnp.array([1.0, 3.0]), jax.random.normal(jax.random.key(0), (5, 2))

    def final(alpha):
        method = mx.m_svgd_em(model.log_joint, 0.1, 0.1, mx.kernels.rbf(1.0), theta_momentum=alpha)
        return mx.trajectory(method, 0.0, x, y, 10, key=jax.random.key(0)).theta

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


def test_a_momentum_per_group_needs_the_same_groups_in_every_leaf():
    rule = mx.momentum.per_group(mx.momentum.nesterov())
    with pytest.raises(ValueError, match="the same groups"):
        start(rule, (jnp.zeros((5, 3, 2)), jnp.zeros((5, 4))))
    counts = start(rule, (jnp.zeros((5, 3, 2)), jnp.zeros((5, 3))))
    assert [leaf.shape[0] for leaf in jax.tree.leaves(counts)] == [3]

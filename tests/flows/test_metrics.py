"""The curvature metric and the EM gradient: factors, equivariance, limits, and what they refuse."""

import dataclasses

import by_hand as hand
import jax
import jax.numpy as jnp
import mixed_models as mm
import numpy as np
import optax
import pytest

import marginax as mx
from marginax._core import partition
from marginax.flows import stein
from marginax.flows.metrics import (
    Factors,
    _columns,
    _factors,
    _of_blocks,
    _stiffness,
    block_factors,
)
from marginax.flows.optimizers import ascend
from marginax.flows.scores import latent_scores, mean_log_joint, theta_score


def factors(log_joint, theta, particles, data, over, **options):
    largest = options.get("largest_block", 64)
    compiled = jax.jit(lambda *given: block_factors(over, largest, log_joint, *given, "whole")[1:])
    return compiled(theta, particles, data)


def test_factors_multiply_to_the_hessian_of_every_block():
    data = mm.simulate_slopes(0, num_groups=5)
    # Intercepts and slopes in very different units: relative floors must not touch them.
    units = jnp.array([1e4, 1e-3])

    def log_joint(theta, u, data):
        return mm.slopes_log_joint(theta, u * units, data)

    particles = jax.random.normal(jax.random.key(0), (6, 5, 2))
    with jax.numpy_rank_promotion("allow"):
        (lower,), (inverse,) = factors(log_joint, mm.slopes_start(), particles, data, "leading")
        mean = particles.mean(axis=0)
        hessian = -jax.jit(jax.hessian(lambda u: log_joint(mm.slopes_start(), u, data)))(mean)
    for g in range(5):
        np.testing.assert_allclose(lower[g] @ lower[g].T, hessian[g, :, g], rtol=1e-9)
        np.testing.assert_allclose(inverse[g] @ lower[g], np.eye(2), atol=1e-9)


def test_absolute_curvature_of_probes_by_hand():
    """Two blocks, two probes that disagree, and a coordinate that has no curvature at all."""
    columns = np.random.default_rng(0).normal(size=(2, 2, 3, 3)) * [[[[1.0]]], [[[500.0]]]]
    columns[1, :, 2] = columns[1, :, :, 2] = 0.0
    variances = np.array([[0.3, 2.0, 1.0], [0.5, 0.7, 0.04]])
    roots, inverses = _factors(jnp.asarray(columns), jnp.asarray(variances))
    for block, variance, root, inverse in zip(columns, variances, roots, inverses, strict=True):
        diagonal = np.sqrt(np.mean([np.diag(probe) ** 2 for probe in block], axis=0))
        scale = np.sqrt(np.maximum(diagonal, 1e-6 / variance))
        scaled = [probe / np.outer(scale, scale) for probe in block]
        squares, vectors = np.linalg.eigh(np.mean([a @ a.T for a in scaled], axis=0))
        values = np.sqrt(np.maximum(squares, 0))
        values = np.maximum(values, 1e-6 * max(values.max(), 1))
        expected = np.diag(scale) @ (vectors * np.sqrt(values)) @ vectors.T
        np.testing.assert_allclose(root, expected, rtol=1e-7, atol=1e-9 * np.max(expected))
        np.testing.assert_allclose(inverse @ root, np.eye(3), atol=1e-8)


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_probes_by_hand_where_blocks_depend_on_each_other(num_blocks):
    """Column u of block g is (H w e_u)_g / w_g: what leaks in is not symmetric."""
    root = np.random.default_rng(1).normal(size=(6, 6))
    hessian = root @ root.T
    shape = (num_blocks, 6 // num_blocks)
    mean = jnp.zeros(shape)
    families = partition.families("leading", mean)
    found = _columns(
        lambda x: jnp.reshape(jnp.asarray(hessian) @ jnp.ravel(x), shape), mean, families, 0
    )
    sign_key, size_key = jax.random.split(jax.random.key(0))
    probes = (4 if num_blocks > 1 else 1, num_blocks)
    sizes = np.exp(jax.random.uniform(size_key, probes, float, -0.35, 0.35))
    weights = sizes * np.asarray(jax.random.rademacher(sign_key, probes))
    assert found.shape == (num_blocks, len(weights), shape[1], shape[1])
    for k, weight in enumerate(weights):
        for u in range(shape[1]):
            answer = (hessian @ np.outer(weight, np.eye(shape[1])[u]).ravel()).reshape(shape)
            np.testing.assert_allclose(found[:, k, :, u], answer / weight[:, None], rtol=1e-12)


def test_a_coordinate_alone_is_measured_by_its_curvature_or_its_cloud():
    columns = jnp.asarray([[[[-4.0]]], [[[0.0]]], [[[0.0]]]])
    root, inverse = _factors(columns, jnp.asarray([[0.3], [0.04], [0.0]]))
    np.testing.assert_allclose(np.ravel(root), [2.0, (1e-6 / 0.04) ** 0.5, 1e-3], rtol=1e-12)
    np.testing.assert_allclose(np.ravel(inverse), 1 / np.ravel(root), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("over", ["whole", "coordinates"])
def test_dependent_blocks_do_not_lose_their_curvature(over):
    # A random walk: columns of its curvature (-1, 2, -1) sum to zero, and a naive probe with ones
    # in every block would find none at all.
    def log_joint(theta, x, data):
        return -0.5 * jnp.sum(jnp.diff(x) ** 2) - 1e-3 * jnp.sum(x**2) + 0 * theta

    d = 50
    particles = jax.random.normal(jax.random.key(1), (4, d))
    (lower,), _ = factors(log_joint, 0.0, particles, None, over)
    exact = -np.asarray(jax.hessian(lambda x: log_joint(0.0, x, None))(particles.mean(axis=0)))
    if over == "whole":
        np.testing.assert_allclose(lower[0] @ lower[0].T, exact, atol=1e-9)
    else:
        found = np.asarray(lower[:, 0, 0] ** 2)
        assert np.all(found > 0.25 * np.diag(exact))
        assert np.mean(found) > np.mean(np.diag(exact))
        assert np.all(found < 3 * np.diag(exact))


def test_large_blocks_get_diagonal_curvature():
    def log_joint(theta, x, data):
        return -0.5 * jnp.sum(jnp.arange(1.0, 9.0) * x**2) + 0 * theta

    particles = jax.random.normal(jax.random.key(1), (4, 8))
    (lower,), _ = factors(log_joint, 0.0, particles, None, "whole", largest_block=4)
    assert lower.shape == (8, 1, 1)
    np.testing.assert_allclose(lower[:, 0, 0] ** 2, np.arange(1.0, 9.0), rtol=1e-9)


def test_blocks_of_up_to_64_numbers_are_dense_by_default():
    assert mx.metrics.curvature().largest_block == 64
    assert repr(mx.metrics.curvature()) == "curvature(largest_block=64)"
    of_rows = mx.metrics.curvature("leading", largest_block=9)
    assert repr(of_rows) == "curvature(blocks='leading', largest_block=9)"


def test_a_metric_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        mx.metrics.curvature().largest_block = 9


def test_moves_are_shortened_where_the_cloud_sees_more_curvature_and_never_lengthened():
    families = partition.families("coordinates", jnp.zeros(3))
    roots = jnp.array([2.0, 0.5, 3.0])[:, None, None]
    units = _of_blocks(Factors(families, (roots,), (1 / roots,)))
    u, move = np.random.default_rng(3).normal(size=(2, 7, 3))
    slopes = np.array([0.25, 1.0, 4.0])
    found = units.displacement(jnp.asarray(move), jnp.asarray(u), jnp.asarray(-slopes * u))
    np.testing.assert_allclose(found, move / [2.0, 0.5, 3.0] / [1.0, 1.0, 4.0], rtol=1e-6)


def test_a_flat_or_convex_direction_stays_finite():
    def log_joint(theta, x, data):
        return 0.5 * x[0, 0] ** 2 + 0.0 * x[0, 1] + 0 * jnp.sum(x) + 0 * theta

    particles = jax.random.normal(jax.random.key(1), (4, 2, 2))
    lower, inverse = factors(log_joint, 0.0, particles, None, "leading")
    assert all(bool(jnp.all(jnp.isfinite(m))) for m in (*lower, *inverse))
    np.testing.assert_allclose(lower[0][0, 0, 0], 1.0, rtol=1e-6)  # |-1|


@pytest.mark.parametrize(
    "kernel",
    [
        mx.kernels.rbf("mean"),
        mx.kernels.moment_matched(mx.kernels.rbf("mean")),
    ],
    ids=repr,
)
@pytest.mark.slow
def test_steps_do_not_depend_on_units(kernel):
    """Scaling a block's coordinates scales its particles' moves, and nothing else."""
    units = np.array([100.0, 0.01])
    data = mm.simulate_slopes(1, num_groups=4)
    x = jax.random.normal(jax.random.key(0), (7, 4, 2))

    def scaled_joint(theta, u, data):
        return mm.slopes_log_joint(theta, u / jnp.asarray(units), data)

    def moved(log_joint, x):
        method = mx.m_svgd_em(
            log_joint,
            mx.em_gradient(),
            0.5,
            mx.kernels.blockwise(kernel),
            particle_metric=mx.metrics.curvature(),
        )
        return mx.trajectory(method, mm.slopes_start(), x, data, 5, key=jax.random.key(0))

    with jax.numpy_rank_promotion("allow"):
        plain, scaled = moved(mm.slopes_log_joint, x), moved(scaled_joint, x * units)
    np.testing.assert_allclose(
        np.asarray(scaled.particles) / units, plain.particles, rtol=1e-6, atol=1e-8
    )
    assert mm.distance(plain.theta, scaled.theta) < 1e-8


@pytest.mark.slow
def test_flow_is_a_displacement_and_the_covector_that_belongs_to_it():
    """uphill = H phi with the raised H, for correlated coordinates of different scales."""
    precision = np.array([[400.0, 15.0], [15.0, 1.0]])

    def log_joint(theta, x, data):
        quadratic = -0.5 * jnp.einsum("gi,ij,gj->", x, jnp.asarray(precision), x)
        return quadratic - 0.01 * jnp.sum(x**4) + 0 * theta

    x = jax.random.normal(jax.random.key(0), (7, 3, 2)) * jnp.array([[[0.05, 2.0]]]) + 0.3
    scores = latent_scores(log_joint, 0.0, x, None)
    kernel, metric = mx.kernels.blockwise(mx.kernels.rbf("mean")), mx.metrics.curvature()
    flow = jax.jit(lambda x: stein.flow(kernel, metric, log_joint, jnp.zeros(()), x, None))
    phi, uphill = flow(x)
    mean = np.asarray(x.mean(axis=0))
    for g in range(3):
        hessian = precision + np.diag(0.12 * mean[g] ** 2)
        lower = np.linalg.cholesky(hessian)
        u, t = x[:, g] @ lower, np.linalg.solve(lower, np.asarray(scores[:, g]).T).T
        u, t = np.asarray(u), np.asarray(t)
        slope = -np.linalg.lstsq(u - u.mean(axis=0), t - t.mean(axis=0), rcond=None)[0]
        stiffness = max(1.0, np.linalg.eigvalsh((slope + slope.T) / 2)[-1])
        moved = np.asarray(mx.kernels.rbf("mean").velocity(jnp.asarray(u), jnp.asarray(t)))
        expected = np.linalg.solve(lower.T, moved.T).T / stiffness
        np.testing.assert_allclose(phi[:, g], expected, rtol=1e-5)
        np.testing.assert_allclose(uphill[:, g], stiffness * expected @ hessian, rtol=1e-5)


def em_step(log_joint, theta, particles, data=None):
    optimizer = mx.em_gradient()
    direction = theta_score(log_joint, theta, particles, data)
    extra = {"log_joint": log_joint, "particles": particles, "data": data}
    step = jax.jit(lambda theta, g: ascend(optimizer, g, optimizer.init(theta), theta, **extra)[0])
    return step(theta, direction)


def test_em_gradient_is_newton_where_newton_is_right():
    # Near the maximum over the cloud no limit binds, and the step is H^-1 g.
    x = hand.PARTICLES
    theta = np.array([x.mean() + 0.1, np.log(np.mean((x - x.mean()) ** 2)) + 0.05])
    newton = theta - np.linalg.solve(hand.hessian_theta(theta, x), hand.grad_theta(theta, x))
    actual = em_step(hand.log_joint, jnp.asarray(theta), jnp.asarray(x), jnp.asarray(hand.DATA))
    np.testing.assert_allclose(actual, newton, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1e3, 1e-3])
def test_em_gradient_limits_a_log_sd_and_leaves_a_mean_alone(unit):
    x = unit * jnp.array([[3.0], [5.0]])

    def log_joint(theta, x, data):
        log_sd = theta["log_sd"]
        return -0.5 * jnp.sum((x - theta["mean"]) ** 2) * jnp.exp(-2 * log_sd) - log_sd * x.size

    log_unit = np.log(unit)
    far = {"mean": jnp.asarray(4.0 * unit), "log_sd": jnp.asarray(8.0 + log_unit)}
    new = em_step(log_joint, far, x)  # Newton would go down by exp(16) / 2
    np.testing.assert_allclose(new["log_sd"], 7.0 + log_unit, rtol=1e-6)
    near = {"mean": jnp.asarray(-96.0 * unit), "log_sd": jnp.asarray(3.0 + log_unit)}
    mean_only = jax.tree.map(jnp.asarray, near)
    new = em_step(lambda m, x, d: log_joint({**mean_only, "mean": m}, x, d), near["mean"], x)
    np.testing.assert_allclose(new, 4.0 * unit, rtol=1e-9)  # a hundred units in one step


@pytest.mark.slow
def test_em_gradient_is_limited_by_a_third_derivative_of_any_size():
    """Third derivatives of 0, 0.4 and 4, beside a curvature of 1."""

    def log_joint(theta, x, data):
        u = theta - 1.0
        return jnp.sum(-0.5 * u**2 + data * u**3 / 6 + 10 * u) - 0.5 * jnp.sum(x**2)

    theta, x = jnp.ones(3), jnp.arange(4.0)[:, None]
    bend = jnp.array([0.0, 0.4, 4.0])
    method = mx.svgd_em(log_joint, mx.em_gradient(), 0.1, mx.kernels.rbf(1.0))
    state = method.init(jax.random.key(0), theta, x)
    after, _ = method.step(jax.random.key(0), state, bend)
    # The whole Newton step is 10; the curvature of 1 may change by twice its size.
    np.testing.assert_allclose(after.theta - 1, [10.0, 2 / 0.4, 2 / 4.0], rtol=1e-9)


def test_em_gradient_of_parameters_that_go_together():
    """Limits are of the directions in which the curvature is apart, with its size in each."""
    along, across = np.array([1.0, 1.0]) / 2**0.5, np.array([1.0, -1.0]) / 2**0.5
    hessian = 1.8 * np.outer(along, along) + 0.2 * np.outer(across, across)

    def log_joint(theta, x, bend):
        u = theta - 1.0
        cube = bend * (along @ u) ** 3 / 6
        return -0.5 * u @ hessian @ u + cube + (50 * along + across) @ u - 0.5 * jnp.sum(x**2)

    method = mx.svgd_em(log_joint, mx.em_gradient(), 0.1, mx.kernels.rbf(1.0))
    state = method.init(jax.random.key(0), jnp.ones(2), jnp.arange(4.0)[:, None])
    for bend, length in ((0.5, 2 * 1.8 / 0.5), (0.0, 50 / 1.8)):
        after, _ = method.step(jax.random.key(0), state, jnp.asarray(bend))
        expected = length * along + across / 0.2
        np.testing.assert_allclose(after.theta - 1, expected, rtol=1e-7)


def test_em_gradient_without_curvature_is_finite():
    def log_joint(theta, x, data):
        return -0.5 * theta[0] ** 2 + theta[0] + 1e-7 * theta[1] - 0.5 * jnp.sum(x**2)

    method = mx.svgd_em(log_joint, mx.em_gradient(), 0.1, mx.kernels.rbf(1.0))
    state = method.init(jax.random.key(0), jnp.zeros(2), jnp.arange(4.0)[:, None])
    after, _ = method.step(jax.random.key(0), state, None)
    np.testing.assert_allclose(after.theta, [1.0, 1e-7 / 1e-6], rtol=1e-9)


@pytest.mark.parametrize("p", [1, 3])
def test_stiffness_is_the_largest_slope_over_the_cloud(p):
    random = np.random.default_rng(2)
    root = random.normal(size=(p, p))
    slope = root @ root.T
    u = random.normal(size=(50, p)) + 4.0
    found = _stiffness(jnp.asarray(u), jnp.asarray(2.0 - u @ slope))
    np.testing.assert_allclose(found, np.linalg.eigvalsh(slope)[-1], rtol=1e-6)


def test_em_gradient_with_few_particles_rests_at_the_same_place(key):
    """The gradient is over all particles, so only the way there changes."""
    x = jax.random.normal(key, (20, 3)) + 1.0

    def log_joint(theta, x, y):  # a location and a log standard deviation
        return -0.5 * jnp.sum((x - theta[0]) ** 2) * jnp.exp(-2 * theta[1]) - 3 * theta[1]

    exact = jnp.array([jnp.mean(x), jnp.log(jnp.std(x))])
    for count in (None, 2):
        optimizer = mx.em_gradient(count)

        @jax.jit
        def update(theta, optimizer=optimizer):
            gradient = jax.grad(lambda t: -mean_log_joint(log_joint, t, x, None))(theta)
            step, _ = optimizer.update(
                gradient, optimizer.init(theta), theta, log_joint=log_joint, particles=x, data=None
            )
            return theta + step

        theta = jnp.zeros(2)
        for _ in range(60):
            theta = update(theta)
        np.testing.assert_allclose(theta, exact, atol=1e-4)
    with pytest.raises(
        ValueError, match="curvature_particles is 0, but it must be an integer of at least 1"
    ):
        mx.em_gradient(0)


def test_em_gradient_refuses_a_large_theta():
    with pytest.raises(ValueError, match="257 numbers"):
        mx.em_gradient().init(jnp.zeros(257))


@pytest.mark.slow
def test_em_gradient_composes_with_optax_and_other_methods():
    y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (50, 3))

    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

    damped = optax.chain(mx.em_gradient(), optax.scale(0.5))
    kernel = mx.kernels.blockwise(mx.kernels.linear())
    with jax.numpy_rank_promotion("allow"):
        still = mx.svgd_em(log_joint, damped, 0.3, kernel)
        end = mx.trajectory(still, 0.0, x0, y, 300, key=jax.random.key(1))
        np.testing.assert_allclose(end.theta, 2.0, rtol=1e-6)
        noisy = mx.trajectory(
            mx.pgd(log_joint, damped, 0.1), 0.0, x0, y, 300, key=jax.random.key(1)
        )
    assert abs(float(jnp.mean(noisy.history[100:])) - 2.0) < 0.15


def test_groups_that_move_alone_are_those_that_are_seen_whole():
    """Else a step on some of the groups would not be that of all of them."""
    x = jnp.zeros((5, 7, 3))  # seven groups of three numbers
    within = mx.kernels.blockwise(mx.kernels.rbf(1.0), "leading")

    def alone(kernel, **curvature):
        metric = mx.metrics.curvature(**curvature) if curvature else None
        return stein._groups_move_alone(kernel, metric, x)

    assert alone(within)
    assert alone(mx.kernels.blockwise(mx.kernels.rbf(1.0), "coordinates"))
    assert not alone(mx.kernels.rbf(1.0))
    assert alone(within, largest_block=3)
    assert alone(within, largest_block=20)  # 7 x 3 numbers in all, but 3 in a group
    assert not alone(within, largest_block=2)
    assert alone(within, blocks="leading")
    assert not alone(within, blocks="coordinates")
    by_coordinate = mx.kernels.blockwise(mx.kernels.rbf(1.0), "coordinates")
    assert alone(by_coordinate, blocks="leading")
    assert not alone(by_coordinate, largest_block=64)


def test_a_step_of_0_is_said_how_to_hold_still():
    with pytest.raises(ValueError, match="theta_optimizer is 0.*set_to_zero"):
        mx.pgd(hand.log_joint, 0, 0.1)
    with pytest.raises(ValueError, match="theta_optimizer"):
        mx.pgd(hand.log_joint, -1, 0.1)
    mx.pgd(hand.log_joint, 1, 0.1)


def test_refusals():
    kernel = mx.kernels.rbf(1.0)
    with pytest.raises(TypeError, match="particle_metric"):
        mx.svgd_em(hand.log_joint, 0.1, 0.1, kernel, particle_metric=mx.metrics.curvature)
    with pytest.raises(ValueError, match="largest_block is 0"):
        mx.metrics.curvature(largest_block=0)
    with pytest.raises(ValueError, match="blocks is 'rows'"):
        mx.metrics.curvature("rows")

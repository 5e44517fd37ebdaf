"""Particles in the units of a sparse curvature: by hand with dense matrices; what is refused."""

import re

import jax
import jax.numpy as jnp
import many_latents as many
import numpy as np
import pytest

import marginax as mx
from marginax.flows.sparse_metric import _first_units, _stiffness, sparse_curvature
from marginax.flows.stein import _groups_move_alone, carried, memory_of

N, D, STEP, WIDTH = 5, 6, 0.3, 0.8


def log_joint(theta, x, y):
    """A walk with a skewed end, whose curvature depends on theta and on x."""
    moves = jnp.exp(theta) * jnp.sum(jnp.diff(x) ** 2) / 2
    return -moves - jnp.sum(jnp.exp(x) - y * x) - 0.1 * theta**2 + 0.5 * (D - 1) * theta


def problem():
    y = jnp.array([1.0, 3.0, 2.0, 0.0, 5.0, 1.0])
    return mx.Problem(log_joint, jnp.asarray(0.4), jnp.zeros(D), y)


def cloud():
    return np.random.default_rng(1).normal(size=(N, D)) + np.linspace(-1, 1, D)


def first_units(x, root):
    """The first cloud as it stands, or every latent in its own spread: what is less correlated."""
    away = x - x.mean(axis=0)
    each = [away @ root, away / away.std(axis=0)]
    beside = [np.array([np.corrcoef(u[:, i : i + 2].T)[0, 1] for i in range(D - 1)]) for u in each]
    return each[0] if np.mean(beside[0] ** 2) <= np.mean(beside[1] ** 2) else each[1]


def root_by_hand(theta, m):
    walk = np.diff(np.eye(D), axis=0)
    return np.linalg.cholesky(np.exp(theta) * walk.T @ walk + np.diag(np.exp(m)))


def scores_by_hand(theta, x, y):
    walk = np.diff(np.eye(D), axis=0)
    return -np.exp(theta) * x @ walk.T @ walk - np.exp(x) + y


def test_three_steps_by_hand():
    """The cloud is carried about its mean, then moves; every coordinate of u has its kernel."""
    model = problem()
    structure = mx.structure_of(model, "chain")
    assert repr(structure) == "6 latents, 16 non-zeros, a chain"
    kernel = mx.kernels.blockwise(mx.kernels.rbf(WIDTH), "coordinates")
    metric = mx.metrics.curvature(structure=structure)
    method = mx.svgd_em(log_joint, 0.05, STEP, kernel, particle_metric=metric)
    state = method.init(jax.random.key(0), 0.4, jnp.asarray(cloud()))
    step = jax.jit(method.step)
    y, theta, x, before = np.asarray(model.data), 0.4, cloud(), None
    for _ in range(3):
        state, _ = step(jax.random.key(0), state, model.data)
        spread = np.sum(np.diff(x, axis=1) ** 2, axis=1) / 2
        theta = theta + 0.05 * np.mean(-np.exp(theta) * spread - 0.2 * theta + 0.5 * (D - 1))
        m = x.mean(axis=0)
        root = root_by_hand(theta, m)
        u = first_units(x, root) if before is None else (x - m) @ before
        x = m + u @ np.linalg.inv(root)
        u = (x - m) @ root
        t = scores_by_hand(theta, x, y) @ np.linalg.inv(root).T
        away = u[:, None] - u[None]  # [i, j, d]
        k = np.exp(-(away**2) / (2 * WIDTH**2))
        move = np.mean(k * t[None] + k * away / WIDTH**2, axis=1)
        stiffness = -np.sum(t * u, axis=0) / np.sum(u**2, axis=0)
        x = x + STEP * (move / np.maximum(1, stiffness)) @ np.linalg.inv(root)
        before = root
        np.testing.assert_allclose(state.theta, theta, rtol=1e-12)
        np.testing.assert_allclose(state.particles, x, rtol=1e-10)


def test_a_gpu_has_all_that_a_step_needs():
    """Lowered for one, a step calls nothing on the host."""
    model = problem()
    kernel = mx.kernels.blockwise(mx.kernels.rbf(WIDTH), "coordinates")
    metric = mx.metrics.curvature(structure=mx.structure_of(model, "chain"))
    method = mx.svgd_em(log_joint, 0.05, STEP, kernel, particle_metric=metric)
    state = method.init(jax.random.key(0), 0.4, jnp.asarray(cloud()))
    traced = jax.jit(method.step).trace(jax.random.key(0), state, model.data)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    called = set(re.findall(r"custom_call @([\w.]+)", text))
    assert all(name.startswith(("cusolver", "cublas", "cu_threefry")) for name in called), called


@pytest.mark.parametrize("as_it_stands", [True, False])
def test_a_first_cloud_by_hand(as_it_stands):
    """Drawn from the posterior's Gaussian it is taken as it stands, latent by latent it is not."""
    model = problem()
    structure = mx.structure_of(model, "chain")
    metric = sparse_curvature(structure)
    random = np.random.default_rng(5)
    center = np.linspace(-1, 1, D)
    u = random.normal(size=(60, D))
    u -= u.mean(axis=0)
    if as_it_stands:
        x = center + u @ np.linalg.inv(root_by_hand(0.4, center))
    else:
        x = center + u * [0.1, 3.0, 0.5, 7.0, 1.0, 0.0]
    root = root_by_hand(0.4, x.mean(axis=0))
    away = x - x.mean(axis=0)
    sd = away.std(axis=0)
    expected = away if as_it_stands else away / np.where(sd > 0, sd, 1) @ np.linalg.inv(root)
    _, (moved,) = carried(
        metric, memory_of(metric, jnp.asarray(x)), jnp.asarray(0.4), (jnp.asarray(x),), model.data
    )
    np.testing.assert_allclose(moved, x.mean(axis=0) + expected, rtol=1e-9, atol=1e-9)


def test_which_first_units_have_less_correlation_between_neighbours():
    """Of many small clouds, in some of which neighbours go together and in some against."""
    structure = mx.structure_of(problem(), "chain")
    root = root_by_hand(0.4, np.zeros(D))
    entries = jnp.asarray((root @ root.T)[structure.pattern.rows, structure.pattern.cols])
    clouds = np.random.default_rng(7).normal(size=(60, N, D))
    clouds -= clouds.mean(axis=1, keepdims=True)
    factor = structure.factors.factor(entries)
    found = jax.jit(jax.vmap(lambda x: _first_units(structure, factor, x)))(jnp.asarray(clouds))
    expected = [first_units(x, root) for x in clouds]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    as_they_stand = sum(np.allclose(u, x @ root) for x, u in zip(clouds, expected, strict=True))
    assert 10 < as_they_stand < 50


def test_latents_that_never_meet_are_taken_as_they_stand():
    def apart(theta, x, y):
        return -jnp.sum(jnp.exp(x) - y * x) + 0.0 * theta

    structure = mx.structure_of(mx.Problem(apart, 0.4, jnp.zeros(D), jnp.ones(D)))
    assert list(structure.pattern.rows) == list(structure.pattern.cols)
    factor = structure.factors.factor(jnp.linspace(1.0, 9.0, D))
    x = cloud() - cloud().mean(axis=0)
    found = _first_units(structure, factor, jnp.asarray(x))
    np.testing.assert_allclose(found, x * np.sqrt(np.linspace(1.0, 9.0, D)), rtol=1e-9)


def test_units_by_hand():
    """u = M' (x - m), t = M^-1 s, and a move's direction is H times its displacement."""
    model = problem()
    metric = sparse_curvature(mx.structure_of(model, "chain"))
    x = cloud() + 3.0
    m = x.mean(axis=0)
    root = root_by_hand(0.4, m)
    inverse = np.linalg.inv(root)
    s, move, u = np.random.default_rng(4).normal(size=(3, N, D))
    u -= u.mean(axis=0)
    slopes = np.linspace(0.2, 5.0, D)

    @jax.jit
    def answers(x, s, move, u, t):
        theta = jnp.asarray(0.4)
        memory, _ = carried(metric, memory_of(metric, x), theta, (x,), model.data)
        units = metric.units(log_joint, theta, x, model.data, "coordinates", memory)
        there = units.whiten(x), units.whiten_scores(s)
        return *there, units.displacement(move, u, t), units.direction(move)

    expected = [
        (x - m) @ root,
        s @ inverse.T,
        move / np.maximum(1, slopes) @ inverse,
        move @ inverse @ root @ root.T,
    ]
    found = answers(*map(jnp.asarray, (x, s, move, u, -slopes * u)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_groups_do_not_move_alone_in_units_of_all_latents():
    metric = sparse_curvature(mx.structure_of(problem()))
    kernel = mx.kernels.blockwise(mx.kernels.rbf(WIDTH), "leading")
    for groups in (jnp.zeros((N, D // 2, 2)), jnp.zeros((N, D))):
        assert _groups_move_alone(kernel, None, groups)
        assert not _groups_move_alone(kernel, metric, groups)


def test_every_cloud_is_carried_about_the_mean_of_the_first():
    model = problem()
    metric = sparse_curvature(mx.structure_of(model, "chain"))
    x, ahead = jnp.asarray(cloud()), jnp.asarray(cloud() + np.linspace(0.5, 2, D))
    memory, _ = carried(metric, memory_of(metric, x), jnp.asarray(0.4), (x,), model.data)
    _, (moved, moved_ahead) = carried(metric, memory, jnp.asarray(-1.3), (x, ahead), model.data)
    m = cloud().mean(axis=0)
    turn = root_by_hand(0.4, m) @ np.linalg.inv(root_by_hand(-1.3, m))
    for found, before in ((moved, x), (moved_ahead, ahead)):
        np.testing.assert_allclose(found, m + (np.asarray(before) - m) @ turn, rtol=1e-9)


def test_a_frame_leads_back_to_the_latents():
    model = problem()
    metric = sparse_curvature(mx.structure_of(model, "chain"))
    x = jnp.asarray(cloud())
    frame = metric.frame(jnp.asarray(0.4), x, model.data)
    m = cloud().mean(axis=0)
    np.testing.assert_allclose(frame.cloud, (cloud() - m) @ root_by_hand(0.4, m), rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(frame.to_latent)(frame.cloud), x, rtol=1e-9)


def test_stiffness_is_the_slope_of_the_scores():
    random = np.random.default_rng(6)
    u = random.normal(size=(40, 3)) + [0.0, 5.0, 2.0]
    u[:, 2] = 2.0  # a coordinate in which the cloud has no spread
    slopes = np.array([0.3, 4.0, 1.0])
    found = _stiffness(jnp.asarray(u), jnp.asarray(1.0 - slopes * u))
    np.testing.assert_allclose(found, [0.3, 4.0, 0.0], rtol=1e-9, atol=1e-12)


def test_clouds_keep_their_shape_in_the_units():
    model = problem()
    metric = sparse_curvature(mx.structure_of(model))
    x = jnp.asarray(cloud())
    memory, (x,) = carried(metric, memory_of(metric, x), jnp.asarray(0.4), (x,), model.data)
    memory, (moved,) = carried(metric, memory, jnp.asarray(-1.3), (x,), model.data)
    m = cloud().mean(axis=0)
    kept = (np.asarray(moved) - m) @ root_by_hand(-1.3, m)
    np.testing.assert_allclose(kept, (np.asarray(x) - m) @ root_by_hand(0.4, m), rtol=1e-9)


@pytest.mark.slow
def test_a_cloud_drawn_latent_by_latent_gets_the_posteriors_shape():
    """A kernel per coordinate of u left it the shape that it had."""
    model = many.volatility(40)
    metric = sparse_curvature(mx.structure_of(model, "chain"))
    theta = model.start_theta()
    x = jnp.asarray(1.0 + 0.1 * np.random.default_rng(0).normal(size=(400, 40)))
    _, (moved,) = carried(metric, memory_of(metric, x), theta, (x,), model.data)

    def minus(x):
        return -model.unconstrained_log_joint(theta, x, model.data)

    exact = np.linalg.inv(np.asarray(jax.hessian(minus)(x.mean(axis=0))))
    scale = np.sqrt(np.diag(exact))
    found = np.cov(np.asarray(moved).T) / np.outer(scale, scale)
    # 400 draws: entries of a correlation matrix to 0.05 each, the worst of 800 to 0.25.
    np.testing.assert_allclose(found, exact / np.outer(scale, scale), atol=0.25)


@pytest.mark.slow
def test_particles_find_the_estimate_of_a_series():
    """Latent by latent the persistence came to rest tens of standard errors away."""
    model = many.volatility(300, seed=2)
    structure = mx.structure_of(model)
    fit = mx.fit(model, draw_posterior=False)
    method = mx.tuning_free(model.unconstrained_log_joint, structure=structure)
    x = 0.3 * jax.random.normal(jax.random.key(0), (40, 300))
    end = mx.trajectory(method, model.start_theta(), x, model.data, 250, key=jax.random.key(1))
    ends = np.array([end.theta[name] for name in ("atanh", "mean", "sd")])
    away = np.abs(ends - fit.unconstrained_theta) * np.sqrt(np.diag(fit.information))
    np.testing.assert_array_less(away, 1.0)


def test_what_cannot_be_a_metric_is_refused():
    model = problem()
    with pytest.raises(ValueError, match="Give one of them"):
        mx.metrics.curvature("leading", structure=mx.structure_of(model))
    with pytest.raises(ValueError, match="computed on the host"):
        mx.metrics.curvature(structure=mx.structure_of(model, "sparse"))


def smooth(theta, x, y):
    """A walk seen with noise, whose posterior is Gaussian: neighbours go together."""
    noise = 6 * theta - jnp.sum((y - x) ** 2) * jnp.exp(theta) / 2
    return noise - 10 * jnp.sum(jnp.diff(x) ** 2)


@pytest.mark.slow
def test_whether_blocks_are_independent_is_asked_in_the_units_of_the_metric():
    """In x neighbours interact, and a kernel latent by latent would miss it; in u none do."""
    given = mx.Problem(smooth, jnp.asarray(0.3), jnp.zeros(12), jnp.linspace(-1, 1, 12))
    x = jnp.asarray(np.random.default_rng(2).normal(size=(8, 12)))
    blocks = {"blocks": "coordinates"}
    at = given.unconstrained_log_joint, jnp.asarray(0.3), x, given.data
    method = mx.tuning_free(at[0], structure=mx.structure_of(given))
    in_x = mx.diagnostics.check(*at, **blocks)
    in_u = mx.diagnostics.check(*at, **blocks, frame=method.frame)
    assert any("not independent" in words for words in in_x.warnings)
    assert not any("not independent" in words for words in in_u.warnings)
    assert in_u.cross_block_curvature < 1e-6 < 0.1 < in_x.cross_block_curvature
    # Where the curvature changes over the cloud, what the units leave is still said.
    bent = problem()
    away = jnp.asarray(3 * cloud())
    frame = mx.tuning_free(log_joint, structure=mx.structure_of(bent)).frame
    told = mx.diagnostics.check(log_joint, jnp.asarray(0.4), away, bent.data, **blocks, frame=frame)
    assert told.cross_block_curvature > 0.01


@pytest.mark.slow
def test_run_asks_in_these_units():
    y = jnp.linspace(-1, 1, 12) + jnp.asarray(np.random.default_rng(1).normal(size=12))
    given = mx.Problem(smooth, jnp.asarray(0.3), jnp.zeros(12), y)
    x = jnp.asarray(np.random.default_rng(2).normal(size=(20, 12)))
    method = mx.tuning_free(given.unconstrained_log_joint, structure=mx.structure_of(given))
    ran = mx.run(method, jnp.asarray(0.3), x, given.data, key=jax.random.key(0), max_steps=20)
    assert not any("not independent" in words for words in ran.cloud_check.warnings)

"""Batches of groups: only theirs moves, and theta's score is that of all on average."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import marginax as mx
from marginax.flows import m_step, momentum, scores
from marginax.flows.optimizers import ascend
from marginax.model.minibatches import batch_rows
from marginax.running import group_batches

NUM_GROUPS, N = 12, 8
Y = jax.random.normal(jax.random.key(3), (NUM_GROUPS, 4)) + jnp.arange(12.0)[:, None] / 4


def log_joint(theta, x, y):
    """y_i ~ N(x, 1), x ~ N(mean, exp(log_sd)^2), of one group."""
    z = (x["level"] - theta["mean"]) * jnp.exp(-theta["log_sd"])
    return -0.5 * z**2 - theta["log_sd"] - 0.5 * jnp.sum((y - x["level"]) ** 2)


PROBLEM = mx.Problem.grouped(
    log_joint, Y, theta={"mean": 0.0, "log_sd": 0.0}, latent={"level": 0.0}
)
THETA = PROBLEM.start_theta()
CLOUD = {"level": jax.random.normal(jax.random.key(0), (N, NUM_GROUPS))}
KERNEL = mx.kernels.blockwise(mx.kernels.rbf("mean"))
METHODS = {
    "m_svgd_em": lambda log_joint: mx.m_svgd_em(
        log_joint, optax.adagrad(0.1), optax.adagrad(0.5), KERNEL,
        particle_momentum=momentum.per_group(momentum.adaptive_restart()),
    ),
    "svgd_em": lambda log_joint: mx.svgd_em(log_joint, 0.01, 0.1, KERNEL),
    "coin_em": lambda log_joint: mx.coin_em(log_joint, KERNEL),
    "pgd": lambda log_joint: mx.pgd(log_joint, 0.01, 0.01),
    "mpgd": lambda log_joint: mx.mpgd(log_joint, 0.01, 1.0, 10.0),
}  # fmt: skip


def run(method, steps, **options):
    options = {"stop": mx.stopping.never(), "diagnose": False, **options}
    return mx.run(method, THETA, CLOUD, Y, max_steps=steps, key=jax.random.key(1), **options)


@pytest.mark.slow
def test_a_batch_of_all_groups_is_a_step_on_all():
    # Deterministic and blockwise, so that the order of the groups does not matter.
    for name in ("m_svgd_em", "svgd_em"):
        method = METHODS[name](PROBLEM.unconstrained_log_joint)
        whole, batched = run(method, 7), run(method, 7, batch_size=NUM_GROUPS)
        for one, other in zip(
            jax.tree.leaves(whole.state), jax.tree.leaves(batched.state), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_only_the_sampled_groups_move_and_remember(name):
    method = METHODS[name](PROBLEM.unconstrained_log_joint)
    start = method.init(jax.random.split(jax.random.key(1))[0], THETA, CLOUD)
    state = run(method, 1, batch_size=3).state
    axes = group_batches.group_axes(method.init, start)
    moved = np.ptp(np.asarray(state.particles["level"] - CLOUD["level"]), axis=0) > 0
    assert moved.sum() == 3
    per_group = 0
    for axis, old, new in zip(
        jax.tree.leaves(axes), jax.tree.leaves(start), jax.tree.leaves(state), strict=True
    ):
        if axis >= 0:
            per_group += 1
            np.testing.assert_array_equal(
                jnp.compress(~moved, old, axis=axis), jnp.compress(~moved, new, axis=axis)
            )
    # particles and, where there are such things, look-aheads, AdaGrad's sums, counts, velocities,
    # and what a coin knows: its start, and four sums.
    assert per_group == {"m_svgd_em": 4, "svgd_em": 1, "coin_em": 6, "pgd": 1, "mpgd": 2}[name]


@pytest.mark.slow
def test_the_theta_score_of_batches_is_that_of_all_on_average():
    # The bug: the score of a batch counted as that of all groups, or the latents' rescaled too.
    key, rows = jax.random.key(5), []
    found = []
    for t in range(4):
        rows.append(batch_rows(key, jnp.array(t), NUM_GROUPS, 3))
        part = {"level": CLOUD["level"][:, rows[-1]]}
        found.append(scores.theta_score(PROBLEM.unconstrained_log_joint, THETA, part, Y[rows[-1]]))
    full = scores.theta_score(PROBLEM.unconstrained_log_joint, THETA, CLOUD, Y)
    for name in full:
        mean = np.mean([one[name] for one in found])
        np.testing.assert_allclose(mean, full[name], rtol=1e-12)
    part = {"level": CLOUD["level"][:, rows[0]]}
    of_part = scores.latent_scores(PROBLEM.unconstrained_log_joint, THETA, part, Y[rows[0]])
    of_all = scores.latent_scores(PROBLEM.unconstrained_log_joint, THETA, CLOUD, Y)
    np.testing.assert_allclose(of_part["level"], of_all["level"][:, rows[0]], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2**9, 8])
def test_the_em_gradient_does_not_depend_on_the_weight(rows, monkeypatch):
    # The bug: a gradient of all groups over a curvature of the batch, a step too long by G / B.
    module = m_step
    monkeypatch.setattr(module, "ROWS", rows)  # all at once, or in chunks
    optimizer = mx.em_gradient()
    rows = jnp.arange(4)
    part, y = {"level": CLOUD["level"][:, rows]}, Y[rows]
    few = mx.Problem.grouped(log_joint, y, theta=PROBLEM.theta, latent=PROBLEM.latent)
    steps = []
    for problem in (PROBLEM, few):
        gradient = scores.theta_score(problem.unconstrained_log_joint, THETA, part, y)
        moved, _ = ascend(
            optimizer, gradient, optimizer.init(THETA), THETA,
            log_joint=problem.unconstrained_log_joint, particles=part, data=y,
        )  # fmt: skip
        steps.append([float(moved["mean"]), float(moved["log_sd"])])
    np.testing.assert_allclose(*steps, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_write")
def test_catching_up_moves_particles_only():
    # One step after five of the particles alone is, for theta, one step.
    counted = mx.m_svgd_em(
        PROBLEM.unconstrained_log_joint,
        optax.chain(optax.scale_by_adam(), optax.scale(-0.1)),
        0.1,
        KERNEL,
    )
    plain, after = (
        run(counted, 1, batch_size=3),
        run(counted, 1, batch_size=3, group_warmup_steps=5),
    )
    assert int(after.state.theta_optimizer_state[0].count) == 1
    far, near = (
        float(jnp.abs(r.particles["level"] - CLOUD["level"]).max()) for r in (after, plain)
    )
    assert far > 2 * near


@pytest.mark.slow
def test_batches_find_the_estimate():
    from scipy.optimize import minimize

    def negative(theta):  # group means are N(mean, sd^2 + 1/4)
        v = np.exp(2 * theta[1]) + 0.25
        return np.sum(0.5 * (np.asarray(Y).mean(axis=1) - theta[0]) ** 2 / v + 0.5 * np.log(v))

    exact = minimize(negative, [0.0, 0.0], tol=1e-12).x
    method = mx.m_svgd_em(
        PROBLEM.unconstrained_log_joint,
        0.003,
        0.5,
        mx.kernels.blockwise(mx.kernels.moment_matched(mx.kernels.rbf("mean"))),
        theta_momentum=0.0,
        particle_momentum=momentum.per_group(momentum.adaptive_restart()),
        particle_metric=mx.metrics.curvature(),
    )
    ran = run(method, 20_000, batch_size=4, group_warmup_steps=2, stop=mx.stopping.averaged(0.02))
    assert ran.status == "converged"
    np.testing.assert_allclose([ran.theta["mean"], ran.theta["log_sd"]], exact, atol=0.02)


@pytest.mark.slow
def test_every_row_once_an_epoch_in_an_order_that_looks_random():
    for num in (1, 2, 5, 17, 1000):
        key = jax.random.key(num)
        for epoch in range(3):
            places = epoch * num + jnp.arange(num)  # batches of one row: a step is a row
            rows = jax.vmap(lambda t, key=key, num=num: batch_rows(key, t, num, 1))(places)
            assert sorted(rows[:, 0].tolist()) == list(range(num))
        assert sorted(batch_rows(key, jnp.array(0), num, num).tolist()) == list(range(num))
    # Of 10,000 epochs of 10 rows, each row is first in about 1,000 (sd 30), and each pair of
    # neighbours as often as every other: 9 places x 10,000 / 90 pairs = 1,000 (sd 32).
    orders = np.asarray(
        jax.vmap(lambda t: batch_rows(jax.random.key(0), t, 10, 10))(jnp.arange(10_000))
    )
    for place in range(10):
        assert np.abs(np.bincount(orders[:, place], minlength=10) - 1000).max() < 150
    pairs = np.bincount((10 * orders[:, :-1] + orders[:, 1:]).ravel(), minlength=100)
    assert np.abs(pairs.reshape(10, 10)[~np.eye(10, dtype=bool)] - 1000).max() < 160


def test_what_warmup_steps_need():
    method = METHODS["svgd_em"](PROBLEM.unconstrained_log_joint)
    with pytest.raises(ValueError, match="group_warmup_steps is 2, but it counts the extra steps"):
        run(method, 1, group_warmup_steps=2)
    with pytest.raises(ValueError, match="group_warmup_steps is -1"):
        run(method, 1, batch_size=3, group_warmup_steps=-1)
    with pytest.raises(ValueError, match="batch_size is 13, but it must be between 1 and the 12"):
        run(method, 1, batch_size=13)

"""Proximal maps by what they minimise, and the methods that take them by hand and by their laws."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._core import trees
from marginax.flows.proximal import Smooth

SCALE = 0.4


def total(g, point, start):
    return g(point) + np.sum((point - start) ** 2) / (2 * SCALE)


OPERATORS = {
    "soft threshold": (mx.proximal.soft_threshold(1.5), lambda x: 1.5 * np.sum(np.abs(x))),
    "groups": (
        mx.proximal.group_soft_threshold(1.5),
        lambda x: 1.5 * np.sum(np.sqrt(np.sum(x**2, axis=-1))),
    ),
    "nuclear": (mx.proximal.nuclear(1.5), lambda x: 1.5 * np.sum(np.linalg.svd(x)[1])),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_minimises(name):
    operator, g = OPERATORS[name]
    random = np.random.default_rng(0)
    start = random.normal(size=(3, 4))
    found = np.asarray(operator(jnp.asarray(start), SCALE))
    least = total(g, found, start)
    for size in (1e-3, 1e-2, 0.1, 1.0):  # it is convex: what no neighbour is below is the least
        for _ in range(200):
            near = found + size * random.normal(size=start.shape) * random.integers(0, 2, (3, 4))
            assert total(g, near, start) >= least - 1e-12


def test_groups_along_the_last_axis_shrink_to_nothing_and_no_further():
    random = np.random.default_rng(3)
    x = random.normal(size=(2, 3, 4))
    x[0, 1] *= 0.05  # shorter than what is taken off
    x[1, 2] = 0.0
    found = np.asarray(mx.proximal.group_soft_threshold(1.5)(jnp.asarray(x), SCALE))
    for at in np.ndindex(2, 3):
        length = np.linalg.norm(x[at])
        share = max(0.0, 1 - 1.5 * SCALE / length) if length else 0.0
        np.testing.assert_allclose(found[at], share * x[at], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["soft_threshold", "group_soft_threshold", "nuclear"])
def test_the_weight_is_1_by_default(name):
    make, x = getattr(mx.proximal, name), jnp.asarray(np.random.default_rng(4).normal(size=(3, 4)))
    np.testing.assert_array_equal(make()(x, SCALE), make(1.0)(x, SCALE))


def test_a_laplace_prior_has_a_weight_of_1_by_default():
    theta, x = mx.proximal.laplace_around_theta()(jnp.asarray(1.0), jnp.full(4, 1000.0), SCALE)
    assert theta == pytest.approx(1 + 4 * SCALE, rel=1e-12)
    np.testing.assert_allclose(x, 1000 - SCALE, rtol=1e-12)


@pytest.mark.parametrize("weight", [0.2, 5.0])
def test_theta_goes_towards_far_latents_as_far_as_it_can(weight):
    prox = mx.proximal.laplace_around_theta(weight)
    theta, x = prox(jnp.asarray(1.0), jnp.full(4, 1000.0), 1.0)
    assert theta == pytest.approx(1 + 4 * weight, rel=1e-12)
    np.testing.assert_allclose(x, 1000 - weight, rtol=1e-12)


def test_a_box_is_its_nearest_point():
    operator = mx.proximal.box(-1.0, jnp.array([0.5, 2.0]))
    np.testing.assert_array_equal(operator(jnp.array([3.0, -3.0]), 0.1), [0.5, -1.0])


def test_the_joint_map_of_a_laplace_prior_minimises():
    random = np.random.default_rng(1)
    prox = mx.proximal.laplace_around_theta(1.3)
    for _ in range(20):
        start = random.normal(size=4)
        theta, x = prox(jnp.asarray(start[0]), jnp.asarray(start[1:]), SCALE)
        found = np.array([theta, *x])

        def g(point):
            return 1.3 * np.sum(np.abs(point[1:] - point[0]))

        least = total(g, found, start)
        for _ in range(300):
            near = found + 10 ** random.uniform(-4, 0) * random.normal(size=4)
            assert total(g, near, start) >= least - 1e-12
        together = found + 0.01  # along which g does not change
        assert total(g, together, start) >= least


def nothing(theta, latent, scale):
    return theta, latent


@pytest.mark.parametrize("smoothing", [None, 0.3])
def test_the_map_of_nothing_is_ipla_and_pgd(smoothing):
    cloud = jnp.asarray(np.concatenate([hand.PARTICLES, [[0.3, 0.8]]]))
    start = (jnp.asarray(hand.THETA), cloud, jnp.asarray(hand.DATA), 5)
    options = {"prox": nothing, "smoothing": smoothing}
    pairs = [(mx.ipla(hand.log_joint, 0.1), mx.ipla(hand.log_joint, 0.1, **options))]
    if smoothing is not None:
        smooth = mx.pgd(hand.log_joint, 0.1, 0.1, **options)
        pairs.append((mx.pgd(hand.log_joint, 0.1, 0.1), smooth))
    for pair in pairs:
        one, two = (mx.trajectory(method, *start, key=jax.random.key(2)) for method in pair)
        # Four particles, so that a mean of equal thetas is exact.
        np.testing.assert_array_equal(one.theta, two.theta)
        np.testing.assert_array_equal(one.particles, two.particles)


def prox_by_hand(theta, x, scale, weight=0.7):
    """Of weight sum |x_d|, and of theta's first number, |a| likewise."""

    def shrink(z):
        return np.sign(z) * np.maximum(np.abs(z) - weight * scale, 0)

    return np.array([shrink(theta[0]), theta[1]]), shrink(x)


def prox(theta, latent, scale, weight=0.7):
    operator = mx.proximal.soft_threshold(weight)
    return jnp.stack([operator(theta[0], scale), theta[1]]), operator(latent, scale)


@pytest.mark.parametrize("method", ["MYIPLA", "MYPGD", "PIPGLA"])
def test_three_steps_by_hand(method):
    h, lam, n = 0.05, 0.2, len(hand.PARTICLES)
    theta, x = hand.THETA, hand.PARTICLES
    made = {
        "MYIPLA": mx.ipla(hand.log_joint, h, prox=prox, smoothing=lam),
        "MYPGD": mx.pgd(hand.log_joint, h, h, prox=prox, smoothing=lam),
        "PIPGLA": mx.ipla(hand.log_joint, h, prox=prox),
    }[method]
    state = made.init(jax.random.key(0), jnp.asarray(theta), jnp.asarray(x))
    for t in range(3):
        key = jax.random.fold_in(jax.random.key(5), t)
        state, _ = made.step(key, state, jnp.asarray(hand.DATA))
        theta_key, x_key = jax.random.split(key)
        if method == "MYPGD":
            x_key = key
        w = np.asarray(trees.normal_like(x_key, jnp.asarray(x)))
        w_theta = np.asarray(trees.normal_like(theta_key, jnp.asarray(theta)))
        drift_theta, drift_x = hand.grad_theta(theta, x), hand.scores(theta, x)
        if method != "PIPGLA":
            near = [prox_by_hand(theta, one, lam) for one in x]
            drift_theta = drift_theta - np.mean([theta - a for a, _ in near], axis=0) / lam
            drift_x = drift_x - (x - np.array([b for _, b in near])) / lam
        noise = 0.0 if method == "MYPGD" else np.sqrt(2 * h / n) * w_theta
        theta, x = theta + h * drift_theta + noise, x + h * drift_x + np.sqrt(2 * h) * w
        if method == "PIPGLA":
            near = [prox_by_hand(theta, one, h) for one in x]
            theta = np.mean([a for a, _ in near], axis=0)
            x = np.array([b for _, b in near])
    np.testing.assert_allclose(state.theta, theta, rtol=1e-12)
    np.testing.assert_allclose(state.particles, x, rtol=1e-12)


def sparse_logistic():
    """Covariates, answers, and the maximum for weights x_d ~ Laplace(theta, 1), on a grid."""
    random = np.random.default_rng(3)
    u = random.normal(size=(60, 2))
    y = (random.random(60) < 1 / (1 + np.exp(-u @ np.array([2.0, 0.9])))).astype(float)
    grid = np.linspace(-4, 8, 601)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    logits = np.einsum("nk,kij->nij", u, np.stack([a, b]))
    fits = np.exp(np.sum(y[:, None, None] * logits - np.logaddexp(0, logits), axis=0))
    thetas = np.linspace(0.0, 3.0, 301)
    priors = np.exp(-np.abs(grid[None] - thetas[:, None]))
    likelihood = np.einsum("ti,tj,ij->t", priors, priors, fits)
    return u, y, thetas[np.argmax(likelihood)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["MYIPLA", "MYPGD", "PIPGLA"])
def test_sparse_logistic_regression_finds_the_marginal_maximum(method):
    # Budget: theta's mean over the second half has a standard error near 0.03 here, and
    # discretisation moves it by as much.
    u, y, exact = sparse_logistic()

    def smooth_part(theta, x, data):
        logits = data["u"] @ x
        return jnp.sum(data["y"] * logits - jnp.logaddexp(0.0, logits)) + 0.0 * theta

    around, h = mx.proximal.laplace_around_theta(), 0.02
    made = {
        "MYIPLA": lambda: mx.ipla(smooth_part, h, prox=around, smoothing=0.05),
        "MYPGD": lambda: mx.pgd(smooth_part, h, h, prox=around, smoothing=0.05),
        "PIPGLA": lambda: mx.ipla(smooth_part, h, prox=around),
    }[method]()
    x = jax.random.normal(jax.random.key(0), (100, 2))
    data = {"u": jnp.asarray(u), "y": jnp.asarray(y)}
    end = mx.trajectory(made, jnp.zeros(()), x, data, 6000, key=jax.random.key(1))
    assert abs(float(jnp.mean(end.history[3000:])) - exact) < 0.12
    ridge = float(jnp.mean(end.particles[:, 1]))
    assert 0.3 < ridge < 2.0


def test_smoothing_without_a_map_is_refused():
    with pytest.raises(ValueError, match="there is no prox to smooth"):
        mx.ipla(hand.log_joint, 0.1, smoothing=0.1)
    with pytest.raises(ValueError, match="prox is given without smoothing"):
        mx.pgd(hand.log_joint, 0.1, 0.1, prox=nothing)
    assert Smooth(nothing, 0.1).pulls(jnp.ones(2), jnp.ones((3, 2)))[0].tolist() == [0.0, 0.0]

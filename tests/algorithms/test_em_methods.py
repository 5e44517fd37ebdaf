"""MCEM, ECM, ECME and adjusted PMGD: by hand in NumPy, coincidences and stationary laws."""

import by_hand as hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from langevin_by_hand import KEYS, N, assert_path, noise, three_steps
from long_runs import compiled

import marginax as mx

STEP = 0.3  # long enough that some moves are refused


def value(theta, x):
    a, b = theta
    prior = -0.5 * np.exp(-b) * np.sum((x - a) ** 2) - 0.5 * b * len(x)
    return prior - 0.5 * np.sum((hand.DATA - x) ** 2) - hand.QUARTIC * np.sum(x**4)


def log_ratio(x, y, theta_x, theta_y):
    """Of one particle's move from x to y, at which theta changes with it."""
    forwards = np.sum((y - x - STEP * hand.grad_x(theta_x, x)) ** 2)
    backwards = np.sum((x - y - STEP * hand.grad_x(theta_y, y)) ** 2)
    return value(theta_y, y) - value(theta_x, x) + (forwards - backwards) / (4 * STEP)


def best(x):
    a = np.mean(x)
    return np.array([a, np.log(np.mean((x - a) ** 2))])


def maximizer(particles, data):
    a = jnp.mean(particles)
    return jnp.stack([a, jnp.log(jnp.mean((particles - a) ** 2))])


def test_mcem():
    theta, x, path, shares = hand.THETA, hand.PARTICLES, [], []
    for step_key in KEYS:
        kept = []
        for key in jax.random.split(step_key, 4):
            move_key, accept_key = jax.random.split(key)
            drift = STEP * hand.scores(theta, x)
            y = x + drift + np.sqrt(2 * STEP) * noise(move_key, x)
            heights = np.asarray(jax.random.uniform(accept_key, (N,)))
            accepted = [
                np.log(height) < log_ratio(a, b, theta, theta)
                for height, a, b in zip(heights, x, y, strict=True)
            ]
            x = np.where(np.array(accepted)[:, None], y, x)
            kept += accepted
        g = hand.grad_theta(theta, x)  # over the moved cloud, at the theta it was moved at
        s, theta = hand.scores(theta, x), theta + 0.05 * g
        path.append((theta, x, g, s))
        shares.append(np.mean(kept))
    assert 0 < np.mean(shares) < 1  # the path must exercise what it tests
    steps = three_steps(mx.mcem(hand.log_joint, 0.05, STEP, 4))
    assert_path(steps, path)
    np.testing.assert_allclose([info.acceptance for _, info in steps], shares, rtol=1e-12)


def test_adjusted_pmgd():
    theta, x, path, answers, chances = hand.THETA, hand.PARTICLES, [], [], []
    for key in (*KEYS, *jax.random.split(jax.random.key(8), 5)):
        move_key, accept_key = jax.random.split(key)
        g, theta = hand.grad_theta(theta, x), best(x)
        s = hand.scores(theta, x)
        y = x + STEP * s + np.sqrt(2 * STEP) * noise(move_key, x)
        ratio = sum(log_ratio(a, b, theta, best(y)) for a, b in zip(x, y, strict=True))
        answers.append(np.log(jax.random.uniform(accept_key)) < ratio)
        chances.append(min(1.0, np.exp(ratio)))
        if answers[-1]:
            theta, x = best(y), y
        path.append((theta, x, g, s))
    assert 0 < np.mean(answers) < 1  # the path must exercise what it tests
    method = mx.adjusted_pmgd(hand.log_joint, mx.exact_m_step(maximizer), STEP)
    state = method.init(KEYS[0], jnp.array(hand.THETA), jnp.array(hand.PARTICLES))
    steps = []
    for key in (*KEYS, *jax.random.split(jax.random.key(8), 5)):
        state, info = jax.jit(method.step)(key, state, jnp.array(hand.DATA))
        steps.append((state, info))
    assert_path(steps, path)
    np.testing.assert_allclose([info.acceptance for _, info in steps], chances, rtol=1e-9)
    assert 1.0 in chances
    assert min(chances) < 1.0


MODEL = mx.models.ToyHierarchical(1.0, 1.0)
M_STEP = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
D, FEW = 3, 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "exact", "num_steps"),
    [
        # theta <- the mean of N D draws of N(theta / 2, 1/2): P = P / 4 + 1 / (2 N D).
        (mx.mcem(MODEL.log_joint, M_STEP, 0.4, 12), 2 / (3 * FEW * D), 15),
        # exp(sum l(theta*(X), X^n)): of x-bar N(0, 1 / (N D)), whatever the step; unadjusted it
        # would be 2 / (N D (2 - h)), a quarter more at 0.4.
        (mx.adjusted_pmgd(MODEL.log_joint, M_STEP, 0.4), 1 / (FEW * D), 100),
    ],
    ids=["mcem", "adjusted_pmgd"],
)
def test_stationary_variance_of_theta(algorithm, exact, num_steps, key):
    replicas, y = 20_000, jnp.zeros(D)

    def final(key):
        start = jnp.zeros((FEW, D))
        return mx.trajectory(algorithm, 0.0, start, y, num_steps, key=key).theta

    variance = float(jnp.var(compiled(jax.vmap(final))(jax.random.split(key, replicas))))
    # 4 standard errors of a variance from independent normal replicas: budget 6e-5 per method.
    assert abs(variance - exact) < 4 * exact * np.sqrt(2 / replicas)


def mean_step(theta, particles, data):
    return theta.at[0].set(jnp.mean(particles))


def variance_step(theta, particles, data):
    return theta.at[1].set(jnp.log(jnp.mean((particles - theta[0]) ** 2)))


def halfway(theta, data):
    return theta.at[0].set((theta[0] + jnp.mean(data)) / 2)


@pytest.mark.parametrize("make", [mx.pgd, mx.mcem], ids=["pgd", "mcem"])
def test_ecm_with_one_block_is_the_exact_m_step(make):
    exact, one, in_turn = (
        three_steps(make(hand.log_joint, m_step, 0.1))
        for m_step in (
            mx.exact_m_step(maximizer),
            mx.conditional_m_steps(lambda theta, particles, data: maximizer(particles, data)),
            # The variance is taken about the mean that was found before it: here the maximum too.
            mx.conditional_m_steps(mean_step, variance_step),
        )
    )
    for (a, _), (b, _), (c, _) in zip(exact, one, in_turn, strict=True):
        np.testing.assert_array_equal(a.theta, b.theta)
        np.testing.assert_array_equal(a.particles, b.particles)
        np.testing.assert_allclose(a.theta, c.theta, rtol=1e-12)


def test_ecme_takes_likelihood_steps_after_all_others():
    m_step = mx.conditional_m_steps(mean_step, variance_step, likelihood_steps=[halfway])
    theta, x = jnp.array(hand.THETA), jnp.array(hand.PARTICLES)
    update, _ = m_step.update(theta, (), theta, particles=x, data=jnp.array(hand.DATA))
    a, b = best(hand.PARTICLES)  # the variance about the cloud's mean, not about the later one
    expected = [(a + np.mean(hand.DATA)) / 2, b]
    np.testing.assert_allclose(theta + update, expected, rtol=1e-12)


def test_ecme_never_lowers_the_likelihood():
    """y_d ~ N(mean, 1 + s), x_d ~ N(mean, s): the E-step is exact with two particles."""
    y = np.array([1.0, 2.5, 6.0, -1.0])

    def variance(theta, particles, data):
        return theta | {"s": jnp.mean((particles - theta["mean"]) ** 2)}

    def mean(theta, data):  # its maximum whatever s
        return theta | {"mean": jnp.mean(data)}

    def log_likelihood(theta):
        return -0.5 * float(
            np.sum(np.log(1 + theta["s"]) + (y - theta["mean"]) ** 2 / (1 + theta["s"]))
        )

    def after(theta, m_step, num_steps):
        values = [log_likelihood(theta)]
        for _ in range(num_steps):
            shrunk = theta["s"] / (1 + theta["s"])
            centre = theta["mean"] + shrunk * (y - theta["mean"])
            cloud = jnp.stack([centre + jnp.sqrt(shrunk), centre - jnp.sqrt(shrunk)])
            update, _ = m_step.update(theta, (), theta, particles=cloud, data=jnp.array(y))
            theta = jax.tree.map(jnp.add, theta, update)
            values.append(log_likelihood(theta))
        return theta, np.array(values)

    start = {"mean": jnp.asarray(50.0), "s": jnp.asarray(0.1)}
    ecme = mx.conditional_m_steps(variance, likelihood_steps=[mean])
    theta, values = after(start, ecme, 400)
    assert np.all(np.diff(values) > -1e-9)
    np.testing.assert_allclose([theta["mean"], theta["s"]], [y.mean(), y.var() - 1], rtol=1e-3)
    # The other order loses with its second step some of what the first has won.
    wrong = mx.conditional_m_steps(lambda t, x, y: variance(mean(t, y), x, y))
    moved = log_likelihood(mean(start, jnp.array(y)))
    assert after(start, wrong, 1)[1][-1] < moved - 1


def test_what_the_slots_refuse():
    with pytest.raises(ValueError, match="nothing to maximize"):
        mx.conditional_m_steps()
    wrong = mx.conditional_m_steps(mean_step, lambda theta, particles, data: theta[:1])
    with pytest.raises(ValueError, match="Maximizer 2 of conditional_m_steps returned theta of"):
        three_steps(mx.mcem(hand.log_joint, wrong, 0.1))
    wrong = mx.conditional_m_steps(likelihood_steps=[halfway, lambda theta, data: theta[:1]])
    with pytest.raises(ValueError, match="Likelihood step 2 of conditional_m_steps returned theta"):
        three_steps(mx.mcem(hand.log_joint, wrong, 0.1))
    make = mx.adjusted_pmgd.__wrapped__
    for bad in (0.1, mx.conditional_m_steps(mean_step, variance_step)):
        with pytest.raises(TypeError, match="adjusted_pmgd needs `exact_m_step"):
            make(hand.log_joint, bad, 0.1)

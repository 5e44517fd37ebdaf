"""Likelihoods of many dependent latents, against dense matrices and a filter on a grid."""

import jax
import jax.numpy as jnp
import many_latents as many
import numpy as np
import pytest
import scipy.optimize

import marginax as mx
from marginax.likelihood.best_gaussian import best_gaussian, fitting_draws
from marginax.likelihood.blocks import as_blocks
from marginax.likelihood.laplace import find_mode, laplace_gradient, laplace_value
from marginax.likelihood.many_latents import latents_of
from marginax.likelihood.newton import climb
from marginax.likelihood.structured import structured_likelihood
from marginax.likelihood.weighted_draws import weigh
from marginax.model import structure


def start_of(problem):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(problem.start_theta())])


def find_structure(blocks, theta):
    def density(x, theta, data):
        return blocks.log_densities(theta, x[None], data)[0]

    return structure.find_structure(density, blocks.start[0], theta, blocks.data)


@pytest.fixture(scope="module")
def volatility():
    problem = many.volatility(80)
    blocks = as_blocks(problem)
    theta = np.array([np.arctanh(0.9), -0.8, np.log(0.4)])  # atanh, mean, log sd
    return problem, latents_of(blocks, find_structure(blocks, theta)), jnp.asarray(theta)


@pytest.mark.parametrize(
    ("problem", "entries", "words"),
    [
        (many.crossed(12, 7, 60), None, "dense"),
        (many.volatility(500), 1498, "a chain"),
    ],
    ids=["crossed", "volatility"],
)
@pytest.mark.slow
def test_the_curvature_is_the_hessian_on_its_pattern(problem, entries, words):
    blocks = as_blocks(problem)
    theta = start_of(problem) + 0.1
    found = find_structure(blocks, theta)
    assert found.words.endswith(words)
    assert entries in (None, found.pattern.nonzeros)
    x = jnp.asarray(np.random.default_rng(0).normal(size=found.size))
    values = found.curvature(jnp.asarray(theta), x, blocks.data, found.maps)

    def minus(x):
        return -blocks.log_densities(jnp.asarray(theta), x[None], blocks.data)[0]

    if entries is None:
        found_matrix = found.pattern.matrix(values).toarray()
        np.testing.assert_allclose(found_matrix, jax.hessian(minus)(x), atol=1e-10)
    else:  # products with it, for a Hessian of 500 x 500 takes long
        v = np.random.default_rng(1).normal(size=found.size)
        product = jax.jvp(jax.grad(minus), (x,), (jnp.asarray(v),))[1]
        np.testing.assert_allclose(found.pattern.matrix(values) @ v, product, atol=1e-9)


@pytest.mark.slow
def test_without_a_pattern_the_curvature_is_whole_or_there_is_a_sentence(monkeypatch):
    def log_joint(theta, x, y):
        return -theta * jax.nn.logsumexp(x) - 0.5 * jnp.sum(x**2)

    problem = mx.Problem(log_joint, jnp.asarray(1.0), jnp.zeros(30))
    blocks, theta = as_blocks(problem), np.array([1.0])
    found = find_structure(blocks, theta)
    assert found.words == "30 latents, 900 non-zeros, dense"
    x = jnp.asarray(np.random.default_rng(0).normal(size=30))
    values = found.curvature(jnp.asarray(theta), x, blocks.data, found.maps)
    whole = -jax.hessian(lambda x: log_joint(1.0, x, None))(x)
    np.testing.assert_allclose(found.pattern.matrix(values).toarray(), whole, atol=1e-12)
    monkeypatch.setattr(structure, "LARGEST_DENSE", 20)
    assert "full" in find_structure(blocks, theta)


@pytest.mark.slow
def test_laplaces_gradient_is_that_of_its_value(volatility):
    """A lost third derivative or mixed derivative would show in single digits of the gradient."""
    _, latents, theta = volatility

    def value(theta):
        return laplace_value(latents, find_mode(latents, jnp.asarray(theta), latents.start))

    mode = find_mode(latents, theta, latents.start)
    assert mode.is_found
    gradient, _ = laplace_gradient(latents, theta, mode)
    for i, move in enumerate(1e-4 * np.eye(3)):
        slope = (value(theta + move) - value(theta - move)) / 2e-4
        np.testing.assert_allclose(gradient[i], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_gaussian_posteriors_are_exact():
    problem = many.crossed(12, 7, 60)
    theta = {"mean": 0.8, "first": 1.2, "second": 0.6, "noise": 0.5}
    flat = np.array([np.log(1.2), 0.8, np.log(0.5), np.log(0.6)])  # first, mean, noise, second
    function = structured_likelihood(problem, flat)
    value = function.describe(flat, function.start)
    expected = many.crossed_log_likelihood(problem.data, theta)
    np.testing.assert_allclose(value.log_likelihood, expected, rtol=1e-10)
    assert (value.error, value.num_draws, value.is_reliable) == (0.0, None, True)
    top = climb(function.evaluate_finely, flat, function.start)

    def negative(flat):
        first, mean, noise, second = flat
        at = {
            "mean": mean,
            "first": np.exp(first),
            "second": np.exp(second),
            "noise": np.exp(noise),
        }
        return -many.crossed_log_likelihood(problem.data, at)

    exact = scipy.optimize.minimize(negative, flat, method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(top.theta, exact.x, atol=1e-4)
    np.testing.assert_allclose(top.local.value, -exact.fun, rtol=1e-9)
    errors = np.sqrt(np.diag(np.linalg.inv(-top.local.hessian)))
    by_differences = scipy.optimize.approx_fprime
    hessian = np.array(
        [
            (
                by_differences(exact.x + m, negative, 1e-6)
                - by_differences(exact.x - m, negative, 1e-6)
            )
            / 2e-3
            for m in 1e-3 * np.eye(4)
        ]
    )
    np.testing.assert_allclose(errors, np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-3)


@pytest.mark.slow
def test_weighted_draws_give_the_likelihood_with_its_error(volatility):
    problem, latents, theta = volatility
    exact = many.volatility_log_likelihood(np.asarray(problem.data), -0.8, 0.9, 0.4)
    mode = find_mode(latents, theta, latents.start)
    gaussian = best_gaussian(latents, theta, mode, fitting_draws(80))
    found = [weigh(latents, theta, gaussian, 2048, seed) for seed in range(10)]
    off = np.array([one.log_likelihood - exact for one in found])
    stated = np.array([one.error for one in found])
    # Ten sets of draws: beyond two stated errors in one of ten at the most, budget 0.08; and no
    # bias, of the mean of ten, beyond four of its errors.
    assert np.sum(np.abs(off) < 2 * stated) >= 9
    assert abs(off.mean()) < 4 * stated.mean() / np.sqrt(10)
    # Without paths: weights of many times the variance, and a value that is off by itself.
    z = np.random.default_rng(0).standard_normal((2048, 80))
    xs = gaussian.mean[None] + latents.structure.factors.unwhiten(gaussian.factor, z)
    plain = np.asarray(latents.values(theta, xs, latents.data)) + np.sum(z**2, axis=1) / 2
    assert np.var(plain) > 10 * np.var(found[0].logs)
    # Draws go on from those that there are.
    more = weigh(latents, theta, gaussian, 4096, 0, found[0].chunks)
    assert len(more.logs) == 4096
    assert np.array_equal(more.logs[:2048], found[0].logs)
    assert more.error < 0.9 * found[0].error
    assert abs(laplace_value(latents, mode) - exact) > 3 * stated.mean()


@pytest.mark.slow
def test_the_score_of_theta_without_its_noise(volatility):
    """Stein's identity with a wrong sign or factor would add noise, or a bias."""
    problem, latents, theta = volatility
    y = np.asarray(problem.data)

    def exact(theta):
        atanh, mean, log_sd = theta
        return many.volatility_log_likelihood(y, mean, np.tanh(atanh), np.exp(log_sd))

    mode = find_mode(latents, theta, latents.start)
    gaussian = best_gaussian(latents, theta, mode, fitting_draws(80))
    drawn = weigh(latents, theta, gaussian, 8192, 0)
    slopes = [
        (exact(np.asarray(theta) + m) - exact(np.asarray(theta) - m)) / 2e-4
        for m in 1e-4 * np.eye(3)
    ]
    errors = np.sqrt(np.diag(drawn.score_covariance))
    np.testing.assert_array_less(np.abs(drawn.score - slopes), 4 * errors + 1e-4)
    # The plain weighted mean of scores, of draws as many.
    z = jax.random.normal(jax.random.key(5), (8192, 80))
    xs = gaussian.mean[None] + latents.structure.factors.unwhiten(gaussian.factor, z)
    plain = jax.vmap(jax.grad(lambda theta, x: latents.score(theta, x, latents.data)[0]), (None, 0))
    scores = plain(theta, xs)
    assert np.all(errors < np.std(np.asarray(scores), axis=0) / np.sqrt(8192) / 3)


def test_draws_are_of_the_posterior():
    problem = many.crossed(12, 7, 60)
    flat = np.array([np.log(1.2), 0.8, np.log(0.5), np.log(0.6)])
    function = structured_likelihood(problem, flat)
    value = function.describe(flat, function.start)
    draws = function.draw(flat, function.start, jax.random.key(0), 4000)
    assert draws.shape == (4000, 19)
    # Four standard errors of means and standard deviations, of 19 of each: budget 2e-3.
    np.testing.assert_array_less(np.abs(draws.mean(0) - value.mean[0]), 4 * value.sd[0] / 4000**0.5)
    np.testing.assert_allclose(draws.std(0), value.sd[0], rtol=4 / 8000**0.5)


@pytest.mark.slow
def test_fit_of_crossed_effects(tmp_path):
    """More than 400 latents, which had no likelihood: now exact."""
    problem = many.crossed(380, 40, 1500)
    fit = mx.fit(problem)
    assert fit.ok, fit.warnings
    assert "exact, for a Gaussian posterior" in fit.likelihood.method
    exact = many.crossed_log_likelihood(problem.data, {k: float(v) for k, v in fit.theta.items()})
    np.testing.assert_allclose(fit.log_likelihood, exact, rtol=1e-10)
    fit.save(tmp_path / "crossed.npz")
    again = mx.Fit.load(tmp_path / "crossed.npz", problem)
    assert again.likelihood.method == fit.likelihood.method
    np.testing.assert_array_equal(again.likelihood.sd, fit.likelihood.sd)


@pytest.mark.slow
def test_fit_of_a_state_space_model():
    problem = many.volatility(500, seed=4)
    fit = mx.fit(problem)
    assert fit.ok, fit.warnings
    theta = {name: float(value) for name, value in fit.theta.items()}
    y = np.asarray(problem.data)
    exact = many.volatility_log_likelihood(y, theta["mean"], np.tanh(theta["atanh"]), theta["sd"])
    assert abs(fit.log_likelihood - exact) < max(0.03, 3 * fit.likelihood.error)

    def negative(at):
        return -many.volatility_log_likelihood(y, at[0], np.tanh(at[1]), np.exp(at[2]), 300)

    start = [theta["mean"], theta["atanh"], np.log(theta["sd"])]
    best = scipy.optimize.minimize(negative, start, method="Nelder-Mead").x
    errors = np.array(fit.standard_errors)
    errors[2] /= theta["sd"]
    np.testing.assert_array_less(np.abs(np.array(start) - best) / errors, 0.05)

"""`fit` against exact maxima, standard errors and likelihoods, and the failures it must report."""

import fit_models
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import marginax as mx
from marginax.model.transforms import positive

pytestmark = pytest.mark.usefixtures("as_users_write")
# Two samples where the answer is less certain than elsewhere.
SEEDS = {name: (0,) for name in fit_models.CASES} | {
    "poisson": (0, 1),
    "item response": (0, 1),
    "gamma-poisson": (0, 1),
    "logistic": (1,),
}
CASES = [(name, seed) for name, seeds in SEEDS.items() for seed in seeds]
# With posterior draws, which do not change the estimate but can give warnings: MALA and NUTS.
DRAWN = [("slopes", 0), ("crossed", 0), ("gamma-poisson", 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_exact_answers(name, seed):
    case = fit_models.CASES[name](seed)
    exact = fit_models.exact(case)
    fit = mx.fit(case.problem, key=jax.random.key(seed), draw_posterior=(name, seed) in DRAWN)
    assert fit.ok, fit
    off = np.abs(fit.unconstrained_theta - exact.theta) / exact.standard_errors
    assert np.max(off) < 0.05
    errors = np.sqrt(np.diag(fit.unconstrained_covariance))
    np.testing.assert_allclose(errors, exact.standard_errors, rtol=0.05)
    likelihood = fit.likelihood
    assert abs(likelihood.log_likelihood - exact.log_likelihood) < 0.1
    allowed = 4 * (likelihood.error + case.error) + 1e-3
    assert abs(likelihood.log_likelihood - exact.log_likelihood) < allowed


def intercepts(y, constrain=True):
    """y_gi ~ N(x_g, within^2), x_g ~ N(mean, between^2)."""

    def log_joint(theta, x, y):
        prior = norm.logpdf(x, theta["mean"], theta["between"])
        return prior + jnp.sum(norm.logpdf(y, x, theta["within"]))

    return mx.Problem.grouped(
        log_joint,
        jnp.asarray(y),
        theta={"mean": 0.0, "between": 1.0, "within": 1.0},
        latent=0.0,
        theta_transforms={"between": positive, "within": positive},
    )


@pytest.fixture(scope="module")
def random_intercept():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        random = np.random.default_rng(3)
        y = 2 + random.normal(size=(30, 1)) + 0.5 * random.normal(size=(30, 4))
        return y, mx.fit(intercepts(y), key=jax.random.key(0))


@pytest.mark.slow
def test_constrained_scale_by_the_delta_method(random_intercept):
    """Balanced data: the exact estimates come from the analysis of variance."""
    y, fit = random_intercept
    groups, n = y.shape
    means, within = y.mean(axis=1), np.mean(np.var(y, axis=1, ddof=1))
    between = np.mean((means - means.mean()) ** 2) - within / n
    assert fit.names == ("mean", "between", "within")
    np.testing.assert_allclose(
        fit.estimates, [means.mean(), np.sqrt(between), np.sqrt(within)], rtol=1e-4
    )
    se_mean = np.sqrt((between + within / n) / groups)
    se_within = np.sqrt(within / (2 * groups * (n - 1)))
    np.testing.assert_allclose(fit.standard_errors[[0, 2]], [se_mean, se_within], rtol=1e-4)
    low, high = fit.confidence_intervals()[0]
    half = 1.95996 * se_mean
    np.testing.assert_allclose([low, high], means.mean() + np.array([-half, half]), rtol=1e-4)
    assert np.all(fit.monte_carlo_error == 0)


def test_random_effects_are_shrunk_means(random_intercept):
    y, fit = random_intercept
    theta = fit.theta
    between, within = float(theta["between"]) ** 2, float(theta["within"]) ** 2
    weight = between / (between + within / y.shape[1])
    latents = fit.random_effects()
    expected = float(theta["mean"]) + weight * (y.mean(axis=1) - float(theta["mean"]))
    np.testing.assert_allclose(latents.mean, expected, rtol=1e-6)
    np.testing.assert_allclose(latents.sd, np.sqrt(between * (1 - weight)), rtol=1e-5)
    np.testing.assert_allclose(latents.high - latents.low, 2 * 1.95996 * latents.sd, rtol=1e-4)


@pytest.mark.slow
def test_information_criteria_and_ratio_test(random_intercept):
    y, fit = random_intercept
    value = fit.log_likelihood
    assert fit.aic == -2 * value + 6
    np.testing.assert_allclose(fit.bic, -2 * value + 3 * np.log(30))

    def no_groups(theta, x, y):  # between = 0, with a latent that does nothing
        return norm.logpdf(x) + jnp.sum(norm.logpdf(y, theta["mean"], theta["within"]))

    smaller = mx.Problem.grouped(
        no_groups,
        jnp.asarray(y),
        theta={"mean": 0.0, "within": 1.0},
        latent=0.0,
        theta_transforms={"within": positive},
    )
    other = mx.fit(smaller, key=jax.random.key(1), num_starts=1, draw_posterior=False)
    test = fit.likelihood_ratio_test(other)
    pooled = norm.logpdf(y, y.mean(), y.std()).sum()
    np.testing.assert_allclose(test.statistic, 2 * (value - pooled), rtol=1e-6)
    assert test.degrees == 1
    assert "variance to 0" in test.note
    with pytest.raises(ValueError, match="Both models have 3 parameters"):
        fit.likelihood_ratio_test(fit)


@pytest.mark.slow
def test_the_summary_says_everything(random_intercept):
    _, fit = random_intercept
    text = str(fit)
    for words in ("estimate", "std. error", "95 % interval", "AIC", "BIC", "30 groups", "time:"):
        assert words in text
    assert text.endswith("CONVERGED, 3 starts agree.")
    assert all(name in text for name in fit.names)


@pytest.mark.slow
def test_a_variance_of_zero_is_reported():
    random = np.random.default_rng(0)
    y = random.normal(size=(30, 4))
    y = y - y.mean(axis=1, keepdims=True) + 0.05 * random.normal(size=(30, 1))
    fit = mx.fit(intercepts(y), key=jax.random.key(0), num_starts=1, draw_posterior=False)
    # Something found and no failure: nothing is wrong with the fit.
    assert fit.ok, fit
    assert fit.converged
    assert any("between is at the boundary" in note for note in fit.notes)
    assert np.isnan(fit.standard_errors[1])
    assert fit.summary_table().rows[1].standard_error is None
    assert "CONVERGED." in str(fit)
    # The rest is right: pooled mean and standard deviation.
    np.testing.assert_allclose(fit.estimates[[0, 2]], [y.mean(), y.std()], rtol=1e-3)


@pytest.mark.slow
def test_a_flat_direction_has_unbounded_errors():
    def log_joint(theta, x, y):
        mean = theta["a"] + theta["b"]
        return norm.logpdf(x, mean, 1.0) + jnp.sum(norm.logpdf(y, x, theta["sd"]))

    y = np.random.default_rng(1).normal(size=(20, 3))
    problem = mx.Problem.grouped(
        log_joint,
        jnp.asarray(y),
        theta={"a": 0.0, "b": 0.0, "sd": 1.0},
        latent=0.0,
        theta_transforms={"sd": positive},
    )
    fit = mx.fit(problem, key=jax.random.key(0), num_starts=1, draw_posterior=False)
    assert any("flat in a, b" in warning for warning in fit.warnings)
    errors = fit.standard_errors
    assert np.all(np.isinf(errors[:2]))
    assert np.isfinite(errors[2])
    assert "unbounded" in str(fit)


@pytest.mark.slow
def test_separation_is_reported():
    t = np.linspace(-2, 2, 20)[:, None] * np.ones((1, 2))

    def log_joint(theta, x, data):
        eta = theta["slope"] * data["t"] + x
        return norm.logpdf(x) + jnp.sum(data["y"] * eta - jax.nn.softplus(eta))

    data = {"t": t, "y": (t > 0).astype(float)}
    problem = mx.Problem.grouped(log_joint, data, theta={"slope": 0.0}, latent=0.0)
    fit = mx.fit(problem, key=jax.random.key(0), num_starts=1, draw_posterior=False)
    assert not fit.ok
    assert any("infinity" in warning for warning in fit.warnings)


@pytest.mark.slow
def test_two_maxima_are_reported():
    """A marginal likelihood with a higher and a lower maximum in theta."""

    def log_joint(theta, x, y):
        well = -((theta["m"] ** 2 - 4) ** 2) / 4 + 0.3 * theta["m"]
        return well / 10 + norm.logpdf(x) + jnp.sum(norm.logpdf(y, x, 1.0))

    problem = mx.Problem.grouped(log_joint, jnp.zeros((10, 2)), theta={"m": -0.2}, latent=0.0)
    fit = mx.fit(problem, key=jax.random.key(0), num_starts=6, draw_posterior=False)
    assert any("Starts disagree" in warning for warning in fit.warnings)
    np.testing.assert_allclose(fit.estimates, [2.037], atol=1e-2)


@pytest.mark.slow
def test_without_polish_there_are_no_standard_errors(random_intercept):
    y, full = random_intercept
    fit = mx.fit(
        intercepts(y),
        key=jax.random.key(0),
        compute_likelihood=False,
        num_starts=1,
        draw_posterior=False,
    )
    np.testing.assert_allclose(fit.estimates, full.estimates, rtol=0.02)
    assert any("no standard errors" in warning for warning in fit.warnings)
    with pytest.raises(ValueError, match="compute_likelihood=False"):
        print(fit.standard_errors)


@pytest.mark.slow
def test_float32_gets_second_order_parts_in_double(random_intercept):
    y, full = random_intercept
    with jax.enable_x64(False):
        single = intercepts(np.float32(y))
        fit = mx.fit(single, key=jax.random.key(0), num_starts=1, draw_posterior=False)
        assert fit.theta["mean"].dtype == jnp.float32
    np.testing.assert_allclose(fit.estimates, full.estimates, rtol=1e-4)
    np.testing.assert_allclose(fit.information, full.information, rtol=1e-4, atol=1e-3)

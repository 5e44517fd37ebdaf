"""Models that go wrong somewhere, and what `fit` says about it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm

import marginax as mx
from marginax.model.transforms import positive

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_write")]


@pytest.fixture
def y():
    random = np.random.default_rng(0)
    return 2 + 0.5 * random.normal(size=(30, 1)) + random.normal(size=(30, 4))


def fitted(log_joint, data, **more):
    options = {
        "theta": {"m": 1.0, "s": 1.0},
        "latent": 1.0,
        "theta_transforms": {"s": positive},
    } | more
    problem = mx.Problem.grouped(log_joint, data, **options)
    return mx.fit(problem, key=jax.random.key(0), draw_posterior=False)


def test_nan_somewhere_is_reported(y):
    def log_joint(theta, x, y):  # no density below 0, said by NaN
        prior = norm.logpdf(x, theta["m"], theta["s"])
        return prior + jnp.sum(norm.logpdf(y, jnp.sqrt(x) ** 2, 1.0))

    fit = fitted(log_joint, y - 1.8)
    assert any("log_joint was NaN at" in warning for warning in fit.warnings)
    assert np.all(np.isfinite(fit.estimates))


def test_minus_infinity_is_zero_density(y):
    """A normal truncated at 0, whose marginal has a closed form."""

    def log_joint(theta, x, y):
        prior = norm.logpdf(x, theta["m"], theta["s"]) - log_ndtr(theta["m"] / theta["s"])
        return jnp.where(x > 0, prior + jnp.sum(norm.logpdf(y, x, 1.0)), -jnp.inf)

    fit = fitted(log_joint, y)
    assert fit.ok, fit

    def log_marginal(m, s):
        means, n = y.mean(axis=1), y.shape[1]
        precision = 1 / s**2 + n
        mean = (m / s**2 + n * means) / precision
        whole = norm.logpdf(means, m, jnp.sqrt(s**2 + 1 / n))
        within = norm.logpdf(y, means[:, None], 1.0).sum(axis=1) + 0.5 * np.log(2 * np.pi / n)
        inside = log_ndtr(mean * jnp.sqrt(precision)) - log_ndtr(m / s)
        return float(jnp.sum(whole + within + inside))

    here = log_marginal(*fit.estimates)
    np.testing.assert_allclose(fit.log_likelihood, here, atol=0.02)
    for away in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.05), (0.0, -0.05)):
        assert log_marginal(*(fit.estimates + np.array(away))) < here


def test_groups_without_data_are_named(y):
    mask = np.ones_like(y)
    mask[[3, 7]] = 0.0

    def log_joint(theta, x, data):
        prior = norm.logpdf(x, theta["m"], theta["s"])
        return prior + jnp.sum(data["mask"] * norm.logpdf(data["y"], x, 1.0))

    fit = fitted(log_joint, {"y": y, "mask": mask})
    assert fit.ok, fit
    assert any("2 of 30 groups (3, 7) say nothing" in note for note in fit.notes)
    rest = fitted(log_joint, {"y": np.delete(y, [3, 7], 0), "mask": np.delete(mask, [3, 7], 0)})
    np.testing.assert_allclose(fit.estimates, rest.estimates, rtol=1e-5)


def test_a_variance_of_zero_on_a_log_scale(y):
    def log_joint(theta, x, y):
        prior = norm.logpdf(x, theta["m"], jnp.exp(theta["log_between"]))
        return prior + jnp.sum(norm.logpdf(y, x, jnp.exp(theta["log_within"])))

    fit = fitted(
        log_joint,
        y - y.mean(axis=1, keepdims=True),
        theta={"m": 0.0, "log_between": 0.0, "log_within": 0.0},
        theta_transforms=None,
    )
    assert any("flat in log_between" in warning for warning in fit.warnings)
    errors = dict(zip(fit.names, fit.standard_errors, strict=True))
    assert np.isinf(errors["log_between"])
    assert np.isfinite(errors["m"])
    assert np.isfinite(errors["log_within"])


def test_theta_may_run_into_nan(y):
    """log(m) is NaN below 0: steps there are refused, and the maximum found."""

    def log_joint(theta, x, y):
        return norm.logpdf(x, jnp.log(theta["m"]), 1.0) + jnp.sum(norm.logpdf(y, x, 1.0))

    fit = fitted(log_joint, y, theta={"m": 1.0}, theta_transforms=None)
    np.testing.assert_allclose(np.log(fit.estimates), [y.mean()], rtol=1e-5)

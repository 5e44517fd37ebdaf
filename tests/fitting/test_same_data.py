"""Which data a problem, a saved fit and a comparison of fits are of."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.fitting.latents import random_effects
from marginax.fitting.saving import _check_same, fingerprint
from marginax.fitting.uncertainty import likelihood_ratio
from marginax.model.problem import in_double_precision


def log_joint(theta, x, y):
    return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)


def problem(y, **more):
    return mx.Problem.grouped(log_joint, y, theta=0.0, latent=0.0, **more)


def test_a_problem_in_another_precision_is_told_from_another_problem():
    """A fit of the shell, in float64, was refused as one of another problem in float32."""
    y = np.random.default_rng(0).normal(size=(4, 2))
    made = fingerprint(problem(jnp.asarray(y)))
    _check_same("fit.npz", made, fingerprint(problem(jnp.asarray(y))))
    with jax.enable_x64(False):
        given = fingerprint(problem(jnp.asarray(y, jnp.float32)))
    assert given["dtypes"] == ["float32"]
    with pytest.raises(ValueError, match=r"float64; call jax.config.update\('jax_enable_x64'"):
        _check_same("fit.npz", made, given)
    with pytest.raises(ValueError, match="make the problem as it was made"):
        _check_same("fit.npz", given, made)
    for other in (y + 1.0, y + 1e-12):  # the second is the same in float32
        with pytest.raises(ValueError, match="another problem"):
            _check_same("fit.npz", made, fingerprint(problem(jnp.asarray(other))))


def test_other_data_have_other_counts():
    """BIC of a bootstrap sample counted the observations of the first data."""
    first = problem(jnp.zeros((4, 2)), num_observations=8)
    assert first.with_data(jnp.ones((4, 2))).num_observations == 8
    assert first.with_data(jnp.ones((6, 2))).num_observations is None
    assert first.with_data(jnp.ones((6, 2)), num_observations=11).num_observations == 11
    whole = mx.Problem(log_joint, theta=0.0, latent=0.0, data=jnp.zeros(3), num_observations=3)
    assert whole.with_data(jnp.zeros(3)).num_observations == 3
    assert whole.with_data(jnp.zeros(5)).num_observations is None


def fitted(size, log_likelihood, error=0.0, num_groups=4, num_observations=None):
    return SimpleNamespace(
        unconstrained_theta=np.zeros(size),
        problem=SimpleNamespace(num_groups=num_groups, num_observations=num_observations),
        log_likelihood=log_likelihood,
        likelihood=SimpleNamespace(error=error),
    )


def test_a_ratio_test_needs_the_same_data():
    one = fitted(2, -10.0)
    with pytest.raises(ValueError, match="One fit has 4 groups and the other 5"):
        likelihood_ratio(one, fitted(3, -9.0, num_groups=5))
    with pytest.raises(ValueError, match="has 8 observations and the other 9"):
        likelihood_ratio(fitted(2, -10.0, num_observations=8), fitted(3, -9.0, num_observations=9))
    assert likelihood_ratio(one, fitted(3, -9.0, num_observations=9)).statistic == 2.0


def test_a_ratio_test_knows_the_errors_of_its_likelihoods():
    smaller = fitted(2, -10.0, error=0.1)
    assert "missed its maximum" not in likelihood_ratio(smaller, fitted(3, -10.3, 0.1)).note
    assert "errors, 0.2 together" in likelihood_ratio(smaller, fitted(3, -10.3, 0.1)).note
    assert "missed its maximum" in likelihood_ratio(smaller, fitted(3, -10.5, 0.1)).note
    assert "missed its maximum" in likelihood_ratio(fitted(2, -10.0), fitted(3, -10.1)).note


def test_double_precision_checks_nothing_again(monkeypatch):
    """The constructor compiles a model to check it; that was done for the problem itself."""
    with jax.enable_x64(False):
        single = problem(jnp.zeros((4, 2), jnp.float32))
    monkeypatch.setattr(mx.Problem, "__post_init__", None)
    double = in_double_precision(single)
    assert double.data.dtype == double.start_theta().dtype == jnp.float64
    assert single.data.dtype == jnp.float32


def test_an_integer_theta_is_told_to_be_floats():
    with pytest.raises(TypeError, match=r"theta must be real numbers\. Give floats"):
        mx.Problem(log_joint, theta=jnp.zeros(2, int), latent=0.0, data=jnp.zeros(2))
    with pytest.raises(TypeError, match="A discrete latent has no gradient"):
        mx.Problem(log_joint, theta=0.0, latent=jnp.zeros(2, int), data=jnp.zeros(2))


def test_a_level_in_per_cent_is_refused():
    with pytest.raises(ValueError, match=r"level is 95.0, but it must be between 0 and 1: 0.95"):
        random_effects(problem(jnp.zeros((4, 2))), None, None, 95.0)

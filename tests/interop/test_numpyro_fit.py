"""Fits of NumPyro models: the same answers as by other ways, and the way back."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import marginax as mx
from marginax.model.transforms import positive

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402
from numpyro.infer import Predictive  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_write")]
GROUPS, SIZE = 12, 4
INDEX = np.repeat(np.arange(GROUPS), SIZE)


def table():
    random = np.random.default_rng(5)
    return random.normal(1.0 + random.normal(0, 0.8, GROUPS)[INDEX], 0.6)


def numpyro_model(index, y):
    mean = numpyro.param("mean", 0.0)
    between = numpyro.param("between", 1.0, constraint=constraints.positive)
    within = numpyro.param("within", 1.0, constraint=constraints.positive)
    with numpyro.plate("groups", GROUPS):
        x = numpyro.sample("x", dist.Normal(mean, between))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x[index], within), obs=y)


def group_log_joint(theta, x, y):
    normal = jax.scipy.stats.norm.logpdf
    prior = normal(x["x"], theta["mean"], theta["between"])
    return prior + jnp.sum(normal(y, x["x"], theta["within"]))


def by_hand(theta, x, y):
    prior = stats.norm(theta["mean"], theta["between"]).logpdf(x).sum()
    return prior + stats.norm(x[INDEX], theta["within"]).logpdf(y).sum()


def marginal(free, y):
    """The group means and what is left, both Gaussian: the likelihood in closed form."""
    mean, between, within = free[0], np.exp(free[1]), np.exp(free[2])
    block = within**2 * np.eye(SIZE) + between**2
    rows = y.reshape(GROUPS, SIZE)
    return stats.multivariate_normal(np.full(SIZE, mean), block).logpdf(rows).sum()


def test_the_same_model_three_ways(key):
    y = table()
    bridged = mx.from_numpyro(numpyro_model, INDEX, y)
    written = mx.Problem.grouped(
        group_log_joint,
        y.reshape(GROUPS, SIZE),
        theta={"mean": 0.0, "between": 1.0, "within": 1.0},
        latent={"x": 0.0},
        theta_transforms={"between": positive, "within": positive},
    )
    theta = {"mean": 0.4, "between": 0.7, "within": 1.1}
    x = np.random.default_rng(0).normal(size=GROUPS)
    expected = by_hand(theta, x, y)
    for problem in (bridged, written):
        found = problem.log_joint(theta, {"x": jnp.asarray(x)}, problem.data)
        np.testing.assert_allclose(found, expected, rtol=1e-10)

    best = optimize.minimize(lambda free: -marginal(free, y), np.zeros(3), tol=1e-10).x
    exact = {"mean": best[0], "between": np.exp(best[1]), "within": np.exp(best[2])}
    for problem in (bridged, written):
        fit = mx.fit(problem, key=key, num_starts=1, draw_posterior=False)
        assert fit.ok
        for name, value in exact.items():
            np.testing.assert_allclose(fit.theta[name], value, atol=1e-4)
        np.testing.assert_allclose(fit.log_likelihood, marginal(best, y), atol=1e-6)


def gamma_model(size, y=None):
    rate = numpyro.param("rate", 1.0, constraint=constraints.positive)
    with numpyro.plate("groups", size):
        x = numpyro.sample("x", dist.Gamma(2.0, rate))
        numpyro.sample("y", dist.Poisson(x), obs=y)


def test_a_gamma_latent_and_the_way_back(key):
    """Where NumPyro's own SVGD gives almost 0 (0.009), because the latents are constrained.

    y is negative binomial, whose rate has its maximum at 2 / mean(y) = 0.615.
    """
    y = np.random.default_rng(3).multinomial(195, np.full(60, 1 / 60)).astype(float)
    fit = mx.fit(mx.from_numpyro(gamma_model, 60, y=y), key=key, num_starts=1)
    assert fit.ok
    np.testing.assert_allclose(fit.theta["rate"], 0.615, atol=0.01)
    exact = 120 / 195
    np.testing.assert_allclose(fit.theta["rate"], exact, atol=1e-4)
    back = fit.to_numpyro()
    predictive = Predictive(gamma_model, back.posterior_samples, params=back.params)
    predicted = predictive(jax.random.key(1), 60)["y"]  # a posterior predictive check
    assert predicted.shape == (5000, 60)
    # The posterior of x_g is Gamma(2 + y_g, rate + 1).
    np.testing.assert_allclose(predicted.mean(axis=0), (2 + y) / (exact + 1), rtol=0.15)
    assert fit.problem.num_groups == 60


@pytest.mark.parametrize("in_groups", [True, False])
def test_two_threads_run_a_model_one_after_the_other(in_groups):
    """NumPyro has one list of handlers: a thread that runs meanwhile would substitute its own."""

    def model(y):
        mean = numpyro.param("mean", 0.0)
        time.sleep(0.01)
        if in_groups:
            with numpyro.plate("groups", 3):
                x = numpyro.sample("x", dist.Normal(mean, 1.0))
                time.sleep(0.01)
                numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        else:
            x = numpyro.sample("x", dist.Normal(mean, 1.0).expand([3]).to_event(1))
            time.sleep(0.01)
            numpyro.sample("y", dist.Normal(x, 1.0).to_event(1), obs=y)

    y, x, means = np.array([1.0, 2.0, 4.0]), np.array([0.5, 3.0, 2.0]), np.arange(6.0)
    problem = mx.from_numpyro(model, y)
    assert (problem.num_groups == 3) == in_groups

    def density(mean):
        return float(problem.unconstrained_log_joint({"mean": mean}, {"x": x}, problem.data))

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(density, means))
    expected = stats.norm.logpdf(x, means[:, None], 1).sum(axis=1) + stats.norm.logpdf(y, x).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)

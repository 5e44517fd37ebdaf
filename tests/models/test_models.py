"""The models against closed forms and scipy, the data against the paper's preprocessing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import marginax as mx
from marginax.models import RandomInterceptTheta

RNG = np.random.default_rng(3)


def normal(x, mean, variance):
    return scipy.stats.norm.logpdf(x, mean, np.sqrt(variance)).sum()


def test_toy_joint_is_marginal_times_posterior():
    model = mx.models.ToyHierarchical(144.0, 1.0)
    y = model.simulate(jax.random.key(0), 10.0, 4)
    theta, x = jnp.array(7.0), jnp.array(RNG.normal(size=4))
    posterior = normal(x, model.posterior_mean(theta, y), model.posterior_variance)
    marginal = normal(y, 7.0, 145.0)
    np.testing.assert_allclose(model.log_marginal(theta, y), marginal, rtol=1e-12)
    np.testing.assert_allclose(model.log_joint(theta, x, y), marginal + posterior, rtol=1e-12)
    assert jax.grad(model.log_marginal)(model.maximum_likelihood(y), y) == pytest.approx(
        0, abs=1e-12
    )


def test_random_intercept_joint_is_marginal_times_posterior():
    model = mx.models.RandomIntercept
    theta = RandomInterceptTheta(jnp.array(1.0), jnp.array(0.3), jnp.array(-0.5))
    y = model.simulate(jax.random.key(0), theta, 6, 4)
    covariance = np.exp(-1.0) * np.eye(4) + np.exp(0.6)
    marginal = scipy.stats.multivariate_normal(np.ones(4), covariance).logpdf(y).sum()
    np.testing.assert_allclose(model.log_marginal(theta, y), marginal, rtol=1e-12)
    x = jnp.array(RNG.normal(size=6))
    mean, variance = model.posterior(theta, y)
    np.testing.assert_allclose(
        model.log_joint(theta, x, y), marginal + normal(x, mean, variance), rtol=1e-12
    )


def test_random_intercept_estimate_is_the_maximum():
    model = mx.models.RandomIntercept
    truth = RandomInterceptTheta(jnp.array(1.0), jnp.array(0.3), jnp.array(-0.5))
    y = model.simulate(jax.random.key(1), truth, 40, 5)

    log_marginal = jax.jit(model.log_marginal)

    def loss(flat):
        return -float(log_marginal(RandomInterceptTheta(*map(jnp.asarray, flat)), y))

    best = scipy.optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", tol=1e-12).x
    np.testing.assert_allclose(np.array(model.maximum_likelihood(y)), best, atol=1e-5)


def test_random_intercept_boundary():
    # Groups more alike than noise allows: all variance is noise, and the maximum over it is known.
    y = jnp.array([[1.0, -1.0], [-1.1, 1.1], [0.9, -0.9]])
    estimate = mx.models.RandomIntercept.maximum_likelihood(y)
    assert estimate.log_sd_between == -jnp.inf
    np.testing.assert_allclose(jnp.exp(2 * estimate.log_sd_within), jnp.mean(y**2), rtol=1e-12)


@pytest.mark.slow
def test_probabilistic_pca():
    model = mx.models.ProbabilisticPCA
    truth = mx.models.ProbabilisticPCATheta(
        jnp.array([1.0, 0.0, -1.0, 2.0]), jnp.array(RNG.normal(size=(4, 2))), jnp.array(-0.7)
    )
    y = model.simulate(jax.random.key(0), truth, 60)
    rows = scipy.stats.multivariate_normal(truth.mean, truth.covariance)
    np.testing.assert_allclose(model.log_marginal(truth, y), rows.logpdf(y).sum(), rtol=1e-10)
    best = model.maximum_likelihood(y, 2)
    gradient = jax.grad(model.log_marginal)(best, y)
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in gradient) < 1e-8
    assert model.log_marginal(best, y) > model.log_marginal(truth, y)
    # The joint of one row is the normal of (x, y) together.
    x = jnp.array(RNG.normal(size=(1, 2)))
    w = np.array(truth.loadings)
    both = scipy.stats.multivariate_normal(
        np.concatenate([np.zeros(2), truth.mean]),
        np.block([[np.eye(2), w.T], [w, np.array(truth.covariance)]]),
    )
    expected = both.logpdf(np.concatenate([x[0], y[0]]))
    np.testing.assert_allclose(model.log_joint(truth, x, y[:1]), expected, rtol=1e-10)


def test_logistic_regression():
    data = mx.models.ClassificationData(jnp.array(RNG.normal(size=(8, 3))), jnp.arange(8) % 2)
    x = RNG.normal(size=3)
    probability = scipy.special.expit(np.array(data.features) @ x)
    likelihood = scipy.stats.bernoulli.logpmf(data.labels, probability).sum()
    actual = mx.models.LogisticRegression(5.0).log_joint(jnp.array(0.4), jnp.array(x), data)
    np.testing.assert_allclose(actual, normal(x, 0.4, 5.0) + likelihood, rtol=1e-12)
    predicted = mx.models.LogisticRegression.predict(jnp.array(x)[None, :], data.features)
    np.testing.assert_allclose(predicted[:, 1], probability, rtol=1e-12)
    error = mx.models.error_rate(predicted, data.labels)
    np.testing.assert_allclose(error, np.mean((probability > 0.5) != np.array(data.labels)))


def test_bayesian_network():
    theta = mx.models.NetworkTheta(jnp.array(-0.3), jnp.array(0.2))
    cloud = mx.models.BayesianNetwork.sample_prior(
        jax.random.key(0), theta, 4, num_features=5, num_hidden=3
    )
    data = mx.models.ClassificationData(jnp.array(RNG.normal(size=(6, 5))), jnp.arange(6) % 2)
    w, v = np.array(cloud.w[0]), np.array(cloud.v[0])
    logits = np.tanh(np.array(data.features) @ w.T) @ v.T
    log_probability = logits - scipy.special.logsumexp(logits, axis=1, keepdims=True)
    expected = normal(w, 0, np.exp(-0.6)) + normal(v, 0, np.exp(0.4))
    expected += log_probability[np.arange(6), np.array(data.labels)].sum()
    one = jax.tree.map(lambda leaf: leaf[0], cloud)
    actual = mx.models.BayesianNetwork.log_joint(theta, one, data)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    # LPPD: the log of the mean over particles, not the mean of the logs.
    probabilities = mx.models.BayesianNetwork.predict(cloud, data.features)
    singles = [
        mx.models.BayesianNetwork.predict(
            jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], cloud), data.features
        )
        for i in range(4)
    ]
    np.testing.assert_allclose(probabilities, np.mean(singles, axis=0), rtol=1e-12)
    lppd = mx.models.log_predictive_density(probabilities, data.labels)
    rows = np.mean(singles, axis=0)[np.arange(6), np.array(data.labels)]
    np.testing.assert_allclose(lppd, np.mean(np.log(rows)), rtol=1e-12)


@pytest.mark.parametrize(
    ("load", "seed", "shapes"),
    [
        (mx.models.wisconsin, 45, [(546, 9), (137, 9)]),
        (mx.models.wisconsin, 0, [(546, 9), (137, 9)]),
        (mx.models.mnist_4_vs_9, 0, [(800, 784), (200, 784)]),
    ],
)
def test_splits_are_scikit_learns(load, seed, shapes):
    everything = load(None).train
    features, labels = np.array(everything.features), np.array(everything.labels)
    expected = train_test_split(features, labels, test_size=0.2, random_state=seed)
    split = load(seed)
    actual = (split.train.features, split.test.features, split.train.labels, split.test.labels)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [split.train.features.shape, split.test.features.shape] == shapes
    assert load(None).test.labels.shape == (0,)
    np.testing.assert_allclose(StandardScaler().fit_transform(features), features, atol=1e-9)


def test_data_facts():
    wisconsin = mx.models.wisconsin(None).train
    assert wisconsin.features.shape == (683, 9)
    assert int(wisconsin.labels.sum()) == 239  # malignant
    mnist = mx.models.mnist_4_vs_9(None).train
    assert mnist.features.shape == (1000, 784)
    assert set(np.unique(mnist.labels)) == {0, 1}
    assert bool(jnp.all(jnp.isfinite(mnist.features)))
    constant = jnp.all(mnist.features == mnist.features[:1], axis=0)
    assert bool(jnp.all(jnp.where(constant[None, :], mnist.features == 0, True)))

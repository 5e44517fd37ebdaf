"""The same answer in any units: data and starts multiplied by 1e-12 to 1e12."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from jax.scipy.stats import cauchy, laplace, norm, t

import marginax as mx
from marginax.fitting.starts import in_own_units, overdispersed
from marginax.likelihood.climbs import climb_from_starts, maximum_from
from marginax.likelihood.methods import choose_likelihood

pytestmark = pytest.mark.usefixtures("as_users_write")
RANDOM = np.random.default_rng(0)
TIMES = np.linspace(-1, 1, 5)
X = RANDOM.normal(size=(30, 1))
Y = 1.0 + 0.7 * X + 0.5 * RANDOM.normal(size=(30, 5))


def intercepts(theta, x, d):
    return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(d, x, theta["e"]))


def heavy_prior(theta, x, d):
    prior = t.logpdf(x, 4.0, theta["m"], theta["s"])
    return prior + jnp.sum(norm.logpdf(d, x, theta["e"]))


def kinked_prior(theta, x, d):
    prior = laplace.logpdf(x, theta["m"], theta["s"])
    return prior + jnp.sum(norm.logpdf(d, x, theta["e"]))


def cauchy_noise(theta, x, d):
    return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(cauchy.logpdf(d, x, theta["e"]))


def student_noise(theta, x, d):
    noise = t.logpdf(d, 5.0, x, theta["e"])
    return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(noise)


def whitened(theta, x, d):  # the latent has no unit, the parameters have
    return norm.logpdf(x) + jnp.sum(norm.logpdf(d, theta["m"] + theta["s"] * x, theta["e"]))


def slopes(theta, x, d):
    prior = norm.logpdf(x[0], theta["m"], theta["s"]) + norm.logpdf(x[1], 0.0, theta["s"])
    return prior + jnp.sum(norm.logpdf(d, x[0] + x[1] * TIMES, theta["e"]))


def two_classes(theta, x, d):
    low = norm.logpdf(x, theta["m"] - theta["s"], theta["s"])
    high = norm.logpdf(x, theta["m"] + theta["s"], theta["s"])
    return jnp.logaddexp(low, high) + jnp.sum(norm.logpdf(d, x, theta["e"]))


def gamma_rows(theta, x, d):
    size, shape = theta["m"] * jnp.exp(0.5 * x), 2.0
    rows = (shape - 1) * jnp.log(d) - shape * d / size - shape * jnp.log(size / shape)
    return norm.logpdf(x, 0.0, 1.0) + jnp.sum(rows - gammaln(shape))


FREE = {"s": mx.transforms.positive, "e": mx.transforms.positive}
MODELS = {
    "intercepts": (intercepts, Y, 0.5),
    "heavy prior": (heavy_prior, Y, 0.5),
    "kinked prior": (kinked_prior, Y, 0.5),
    "Cauchy noise": (cauchy_noise, Y, 0.5),
    "Student noise": (student_noise, Y, 0.5),
    "whitened": (whitened, Y, None),
    "slopes": (slopes, Y, 0.5),
    "two classes": (two_classes, Y, 0.5),
    "large start": (intercepts, Y - Y.mean() + 40.0, 3.0),
    "Gamma rows": (gamma_rows, np.exp(Y), None),
}


def maximum(name, unit):
    """theta in units of 1, and the log likelihood, by the stages of a fit that know of units."""
    log_joint, y, latent = MODELS[name]
    if name == "Gamma rows":
        start, transforms = {"m": unit}, {"m": mx.transforms.positive}
    else:
        start, transforms = {"m": 0.0, "s": unit, "e": unit}, FREE
    one = 0.0 if latent is None else latent * unit
    one = np.full(2, one) if name == "slopes" else one
    problem = mx.Problem.grouped(
        log_joint, y * unit, theta=start, latent=one, theta_transforms=transforms
    )
    thetas = overdispersed(problem, jax.random.key(1), 2)
    function = choose_likelihood(problem, thetas[0])
    thetas = in_own_units(problem, function, thetas)
    function, climbs = climb_from_starts(function, thetas)
    top = maximum_from(function, climbs[0].theta[None], climbs)
    at = jax.tree.leaves(problem.constrained_theta(_tree(problem, top.best.theta)))
    theta = np.array([float(leaf) for leaf in at]) / unit
    value = top.likelihood.log_likelihood + y.size * np.log(unit)  # a density has a unit too
    return theta, value, top.best.settled


def _tree(problem, flat):
    return dict(zip(sorted(problem.start_theta()), map(jnp.asarray, flat), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_units_do_not_matter(name):
    theta, value, settled = maximum(name, 1.0)
    assert settled
    for unit in (1e-12, 1e-5, 1e4, 1e12):
        other, other_value, other_settled = maximum(name, unit)
        assert other_settled, unit
        np.testing.assert_allclose(other, theta, rtol=2e-3, atol=1e-4, err_msg=str(unit))
        np.testing.assert_allclose(other_value, value, atol=5e-3, err_msg=str(unit))


def test_units_that_are_out_of_the_range_of_float32():
    """A standard deviation of 1e-12, whose fourth power is 0 there: the start was refused."""
    with jax.enable_x64(False):
        problem = mx.Problem.grouped(
            intercepts,
            Y * 1e-12,
            theta={"m": 0.0, "s": 1e-12, "e": 1e-12},
            latent=1e-12,
            theta_transforms=FREE,
        )
        assert "float64 alone" in problem.loses_digits[0]
        with pytest.raises(ValueError, match=r"not finite"):  # nor is this one in float64
            mx.Problem.grouped(intercepts, Y, theta={"m": 0.0, "s": 0.0, "e": 1.0}, latent=1.0)

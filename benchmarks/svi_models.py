"""The models of `tests/support/fit_models.py` as NumPyro users write them, for `fit_beside_svi`.

Every model is called with the data and with where theta starts. theta's entries are `numpyro.param`
sites on the reals, with the names they have in the problem, so that estimates compare coordinate by
coordinate; the latents are `numpyro.sample` sites, centred as in the problem.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density

import marginax as mx

__all__ = ["MODELS", "check_density"]

TRIALS = 6  # of the binomial model, as in its simulator


def parameters(start: dict) -> dict:
    """One `numpyro.param` site for every entry of theta."""
    return {name: numpyro.param(name, value) for name, value in start.items()}


def slopes(data: Any, start: dict) -> None:
    """Linear, with correlated random intercepts and slopes."""
    theta = parameters(start)
    b, sd, rho = theta["b"], jnp.exp(theta["log_sd"]), jnp.tanh(theta["atanh_rho"])
    scale_tril = sd[:, None] * jnp.array([[1.0, 0.0], [rho, jnp.sqrt(1 - rho**2)]])
    with numpyro.plate("groups", len(data.y), dim=-2):
        x = numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale_tril))
        mean = b[0] + x[..., 0] + (b[1] + x[..., 1]) * data.t
        with numpyro.plate("within", data.y.shape[1], dim=-1):
            noise = jnp.exp(theta["log_sd_noise"])
            numpyro.sample("y", dist.Normal(mean, noise), obs=data.y)


def _linear_predictor(data: Any, theta: dict) -> Any:
    """Of counts with a random intercept per group; to be called inside the groups' plate."""
    x = numpyro.sample("x", dist.Normal(0.0, jnp.exp(theta["log_sd"])))
    return theta["b"][0] + theta["b"][1] * data.t + x


def binomial(data: Any, start: dict) -> None:
    """Counts out of six trials, with a random intercept."""
    theta = parameters(start)
    with numpyro.plate("groups", len(data.y), dim=-2):
        eta = _linear_predictor(data, theta)
        with numpyro.plate("within", data.y.shape[1], dim=-1):
            numpyro.sample("y", dist.Binomial(TRIALS, logits=eta), obs=data.y)


def poisson(data: Any, start: dict) -> None:
    """Counts without a bound, with a random intercept."""
    theta = parameters(start)
    with numpyro.plate("groups", len(data.y), dim=-2):
        eta = _linear_predictor(data, theta)
        with numpyro.plate("within", data.y.shape[1], dim=-1):
            numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=data.y)


def crossed(y: Any, start: dict) -> None:
    """Effects of rows and columns, crossed."""
    theta = parameters(start)
    rows, columns = numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", y.shape[1])
    with rows:
        row = numpyro.sample("row", dist.Normal(0.0, jnp.exp(theta["log_sd_row"])))
    with columns:
        column = numpyro.sample("column", dist.Normal(0.0, jnp.exp(theta["log_sd_column"])))
    with rows, columns:
        mean = theta["mean"] + row + column
        numpyro.sample("y", dist.Normal(mean, jnp.exp(theta["log_sd_noise"])), obs=y)


def item_response(y: Any, start: dict) -> None:
    """Two-parameter logistic model of persons and items."""
    theta = parameters(start)
    with numpyro.plate("persons", y.shape[0], dim=-2):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("items", y.shape[1], dim=-1):
            eta = jnp.exp(theta["log_a"]) * x - theta["b"]
            numpyro.sample("y", dist.BernoulliLogits(eta), obs=y)


def gamma_poisson(y: Any, start: dict) -> None:
    """Counts with a positive rate per group; the guide works on the rate's logarithm."""
    theta = parameters(start)
    shape = jnp.exp(theta["log_a"])
    with numpyro.plate("groups", y.shape[0], dim=-2):
        x = numpyro.sample("x", dist.Gamma(shape, shape / jnp.exp(theta["log_m"])))
        with numpyro.plate("within", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Poisson(x), obs=y)


def one_factor(y: Any, start: dict) -> None:
    """Probabilistic PCA with one component."""
    theta = parameters(start)
    with numpyro.plate("rows", y.shape[0], dim=-2):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("columns", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(theta["w"] * x, jnp.exp(theta["log_sd"])), obs=y)


def logistic(data: Any, start: dict) -> None:
    """Logistic regression whose weights share a learned mean and scale."""
    theta = parameters(start)
    with numpyro.plate("weights", data.features.shape[1]):
        x = numpyro.sample("x", dist.Normal(theta["mean"], jnp.exp(theta["log_sd"])))
    with numpyro.plate("rows", len(data.labels)):
        numpyro.sample("y", dist.BernoulliLogits(data.features @ x), obs=data.labels)


MODELS = {
    "slopes": slopes,
    "binomial": binomial,
    "poisson": poisson,
    "crossed": crossed,
    "item response": item_response,
    "gamma-poisson": gamma_poisson,
    "one factor": one_factor,
    "logistic": logistic,
}


def check_density(name: str, problem: mx.Problem, key: jax.Array) -> None:
    """Asserts that the NumPyro model and the problem's log joint are the same function.

    The latents are a draw from the prior and theta is moved off its start, for a coincidence of
    values at zero would prove nothing.
    """
    model = MODELS[name]
    keys = jax.random.split(key)
    flat, unravel = ravel_pytree(problem.theta)
    theta = unravel(flat + 0.3 * jax.random.normal(keys[0], flat.shape))
    given = trace(seed(model, keys[1])).get_trace(problem.data, problem.theta)
    drawn = {
        site: message["value"]
        for site, message in given.items()
        if message["type"] == "sample" and not message["is_observed"]
    }
    ours, _ = log_density(model, (problem.data, problem.theta), {}, theta | drawn)
    # The plates give the sites axes of length one that the problem's latents do not have.
    whole = problem.start_latent()
    latent = drawn if isinstance(whole, dict) else drawn["x"]
    latent = jax.tree.map(lambda like, value: value.reshape(like.shape), whole, latent)
    theirs = problem.log_joint(theta, latent, problem.data)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8, err_msg=name)

"""NumPyro models of many dependent latents come in with their structure: plates, walks, scans."""

import jax.numpy as jnp
import many_latents as many
import numpy as np
import pytest

import marginax as mx
from marginax.likelihood.structured import structured_likelihood

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_write")]
POSITIVE = dist.constraints.positive
COUNTS = np.random.default_rng(0).poisson(np.exp(np.sin(np.arange(400) / 30))).astype(float)


def crossed(first, second, y):
    mean = numpyro.param("mean", 0.0)
    sds = [numpyro.param(name, 1.0, constraint=POSITIVE) for name in ("first", "second", "noise")]
    with numpyro.plate("of first", 40):
        u = numpyro.sample("u", dist.Normal(0, sds[0]))
    with numpyro.plate("of second", 25):
        v = numpyro.sample("v", dist.Normal(0, sds[1]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean + u[first] + v[second], sds[2]), obs=y)


def walk(y):
    sd = numpyro.param("sd", 0.5, constraint=POSITIVE)
    x = numpyro.sample("x", dist.GaussianRandomWalk(sd, num_steps=len(y)))
    numpyro.sample("y", dist.Poisson(jnp.exp(x)).to_event(1), obs=y)


def scanned(y):
    sd = numpyro.param("sd", 0.5, constraint=POSITIVE)

    def step(before, now):
        x = numpyro.sample("x", dist.Normal(before, sd))
        numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=now)
        return x, None

    scan(step, 0.0, y)


def test_crossed_plates_are_an_arrow_and_exact():
    data = many.crossed_data(40, 25, 300)
    problem = mx.from_numpyro(crossed, data["first"], data["second"], data["y"])
    assert "two crossed factors" in repr(mx.structure_of(problem, "arrow"))
    theta = {"first": 1.2, "mean": 0.8, "noise": 0.5, "second": 0.6}
    order = list(problem.theta)
    flat = np.array([theta[n] if n == "mean" else np.log(theta[n]) for n in order])
    function = structured_likelihood(problem, flat)
    value = function.describe(flat, function.start)
    expected = many.crossed_log_likelihood(data, theta)
    np.testing.assert_allclose(value.log_likelihood, expected, rtol=1e-10)


def test_a_walk_and_its_scan_are_the_same_chain():
    """A scan whose carry was taken to mix all latents would be full."""
    found = []
    for model in (walk, scanned):
        problem = mx.from_numpyro(model, COUNTS)
        assert repr(mx.structure_of(problem)) == "400 latents, 1,198 non-zeros, a chain"
        function = structured_likelihood(problem, np.array([np.log(0.1)]))
        found.append(function.value(np.array([np.log(0.1)]), function.start))
    np.testing.assert_allclose(*found, rtol=1e-9)

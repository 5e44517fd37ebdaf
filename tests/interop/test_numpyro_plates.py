"""Plates of NumPyro models: groups where the likelihood keeps them apart, blocks, minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

import marginax as mx
from marginax.fitting.plan import make_plan
from marginax.interop.numpyro import from_numpyro
from marginax.likelihood.quadrature import quadrature_likelihood

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402

pytestmark = pytest.mark.usefixtures("as_users_write")
G = 7
RANDOM = np.random.default_rng(4)
INDEX = RANDOM.permutation(np.repeat(np.arange(G), [2, 5, 1, 3, 4, 2, 3]))  # a long table
TIME = RANDOM.normal(size=len(INDEX))
Y = RANDOM.normal(1.0, 1.0, size=len(INDEX))


def positive(name, value=1.0):
    return numpyro.param(name, jnp.asarray(value), constraint=constraints.positive)


def slopes(index, time, y):
    """Random intercepts and slopes of a long table."""
    mean, sd = numpyro.param("mean", jnp.zeros(2)), positive("sd", [1.0, 1.0])
    within = positive("within")
    with numpyro.plate("people", G):
        b = numpyro.sample("b", dist.Normal(mean, sd).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(b[index, 0] + b[index, 1] * time, within), obs=y)


def exact_slopes(mean, sd, within):
    total = 0.0
    for g in range(G):
        rows = np.equal(INDEX, g)
        design = np.stack([np.ones(rows.sum()), TIME[rows]], axis=1)
        covariance = design @ np.diag(np.square(sd)) @ design.T + within**2 * np.eye(rows.sum())
        total += stats.multivariate_normal(design @ mean, covariance).logpdf(Y[rows])
    return total


@pytest.mark.slow
def test_a_long_table_is_grouped_and_its_likelihood_exact():
    problem = from_numpyro(slopes, INDEX, TIME, Y)
    assert problem.num_groups == G
    assert problem.num_observations == len(Y)
    rule = quadrature_likelihood(problem)
    theta = np.array([0.3, -0.2, np.log(0.7), np.log(0.4), np.log(0.9)])
    exact = exact_slopes(np.array([0.3, -0.2]), np.array([0.7, 0.4]), 0.9)
    np.testing.assert_allclose(rule.evaluate(theta, rule.start).value, exact, rtol=1e-10)
    np.testing.assert_array_equal(owners(problem)["y"], INDEX)


def owners(problem):
    return problem.group_log_joints.__self__.owners


@pytest.mark.slow
def test_a_term_is_its_groups_even_where_it_is_flat():
    """A change point per person: before it a row does not depend on it."""
    index, time = np.repeat(np.arange(G), 6), np.tile(np.linspace(-6, 6, 6), G)

    def hinge(index, time, y):
        mean, sd = numpyro.param("mean", 0.0), positive("sd")
        with numpyro.plate("people", G):
            x = numpyro.sample("x", dist.Normal(mean, sd))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(jnp.maximum(time - x[index], 0), 1.0), obs=y)

    problem = from_numpyro(hinge, index, time, np.zeros(6 * G))
    np.testing.assert_array_equal(owners(problem)["y"], index)


def test_a_coupling_that_is_nothing_at_the_start_is_seen():
    """A length scale that may grow: knots ten units apart do not see each other at one."""

    def smooth(place, y):
        length, sd = positive("length"), positive("sd")
        with numpyro.plate("knots", G):
            x = numpyro.sample("x", dist.Normal(0.0, sd))
        near = jnp.exp(-0.5 * ((place[:, None] - place[None]) / length) ** 2)
        with numpyro.plate("rows", G):
            numpyro.sample("y", dist.Normal(near @ x, 1.0), obs=y)

    assert from_numpyro(smooth, 10.0 * np.arange(G), np.zeros(G)).num_groups is None


@pytest.mark.slow
def test_bounds_that_differ_from_group_to_group():
    high = np.array([1.0, 1.2, 1.5])

    def model(high):
        m = numpyro.param("m", 0.0)
        with numpyro.plate("people", 3):
            x = numpyro.sample("x", dist.Uniform(jnp.zeros(3), high))
            numpyro.sample("y", dist.Normal(x + m, 1.0), obs=np.zeros(3))

    problem = from_numpyro(model, high)
    assert (problem.num_groups, problem.latent_size) == (3, 1)
    rule = quadrature_likelihood(problem)
    exact = np.sum(np.log((stats.norm.cdf(high) - 0.5) / high))
    found = rule.evaluate(np.zeros(1), rule.start).value
    np.testing.assert_allclose(found, exact, atol=1e-4)


def same_density(model, *args, theta, latent):
    """The sum over groups is what NumPyro says of the whole."""
    problem = from_numpyro(model, *args)
    density, _ = numpyro.infer.util.log_density(model, args, {}, {**theta, **latent})
    owner = problem.group_log_joints.__self__
    assert owner.plate.name == "people"
    found = problem.log_joint(theta, owner.plate.groups_first(latent), problem.data)
    np.testing.assert_allclose(found, density, rtol=1e-12)
    return problem


@pytest.mark.slow
def test_groups_along_an_inner_axis_with_others_outside(key):
    y = RANDOM.normal(size=(3, G))

    def model(y):
        sd = positive("sd")
        with numpyro.plate("people", G), numpyro.plate("kinds", 3):
            x = numpyro.sample("x", dist.Normal(0.0, sd))
        with numpyro.plate("people", G):
            total = numpyro.sample("total", dist.Normal(x.sum(axis=0), 1.0))
            numpyro.sample("y", dist.Normal(total * x, 1.0).to_event(0), obs=y)

    latent = {"x": jax.random.normal(key, (3, G)), "total": jnp.arange(G, dtype=float)}
    with numpyro.handlers.seed(rng_seed=0):
        problem = same_density(model, y, theta={"sd": 0.7}, latent=latent)
    assert jax.tree.map(jnp.shape, problem.latent) == {"x": (3,), "total": ()}


@pytest.mark.slow
def test_nested_groups_and_terms_without_latents(key):
    y, weight = RANDOM.normal(size=(G, 4)), RANDOM.normal(size=G)

    def model(y, weight):
        sd, loading = positive("sd"), numpyro.param("loading", 0.0)  # 0: no latent enters there
        with numpyro.plate("people", G, dim=-2):
            person = numpyro.sample("person", dist.Normal(0.0, sd))
            with numpyro.plate("visits", 4):
                visit = numpyro.sample("visit", dist.Normal(person, 1.0))
        with handlers.mask(mask=(y > -0.5).ravel()), numpyro.plate("rows", G * 4):
            numpyro.sample("y", dist.Normal(loading * visit.ravel(), 1.0), obs=y.ravel())
        with numpyro.plate("again", G):
            numpyro.sample("weight", dist.Normal(sd, 1.0), obs=weight)

    latent = {
        "person": jax.random.normal(key, (G, 1)),
        "visit": jnp.reshape(jnp.arange(G * 4.0), (G, 4)) / 10,
    }
    problem = same_density(model, y, weight, theta={"sd": 0.7, "loading": 0.3}, latent=latent)
    assert problem.num_observations == int((y > -0.5).sum()) + G
    seen = (y > -0.5).ravel()
    np.testing.assert_array_equal(owners(problem)["y"][seen], np.repeat(np.arange(G), 4)[seen])


def test_groups_that_interact_are_one_block_with_named_blocks():
    def pairs(y):
        sd = positive("sd")
        with numpyro.plate("people", G):
            x = numpyro.sample("x", dist.Normal(0.0, sd))
        numpyro.sample("y", dist.Normal(x[:-1] - x[1:], 1.0).to_event(1), obs=y)

    problem = from_numpyro(pairs, Y[: G - 1])
    assert problem.num_groups is None
    assert problem.latent_blocks == {"x": ("people",)}


def test_crossed_effects_are_one_block():
    def crossed(rows, columns, y):
        a, b = positive("a"), positive("b")
        with numpyro.plate("rows", G):
            x = numpyro.sample("x", dist.Normal(0.0, a))
        with numpyro.plate("columns", 3):
            z = numpyro.sample("z", dist.Normal(0.0, b))
        numpyro.sample("y", dist.Normal(x[rows] + z[columns], 1.0).to_event(1), obs=y)

    problem = from_numpyro(crossed, INDEX, INDEX % 3, Y)
    assert problem.num_groups is None
    assert problem.latent_blocks == {"x": ("rows",), "z": ("columns",)}


def test_plates_whose_groups_interact_move_as_blocks():
    def chain():
        sd = positive("sd")
        with numpyro.plate("people", 100):
            b = numpyro.sample("b", dist.Normal(0.0, sd).expand([2]).to_event(1))
        numpyro.factor("together", -0.5 * jnp.sum(jnp.diff(b, axis=0) ** 2))

    words = make_plan(from_numpyro(chain)).words
    assert "20 particles, with curvature block by block" in words


@pytest.mark.slow
def test_subsampled_plates_are_minibatches():
    y = RANDOM.normal(2.0, 1.0, size=60)

    def model(y):
        m = numpyro.param("m", 0.0)
        x = numpyro.sample("x", dist.Normal(m, 1.0))
        with numpyro.plate("rows", 60, subsample_size=6) as rows:
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y[rows])

    problem = from_numpyro(model, y)
    theta, latent = {"m": jnp.asarray(0.5)}, {"x": jnp.asarray(0.3)}
    by_hand = norm.logpdf(0.3, 0.5) + norm.logpdf(y, 0.3).sum()
    np.testing.assert_allclose(problem.log_joint(theta, latent, problem.data), by_hand, rtol=1e-12)
    take = problem.batching.take
    parts = [
        problem.log_joint(theta, latent, take(problem.data, jnp.arange(i, i + 6)))
        for i in range(0, 60, 6)
    ]
    np.testing.assert_allclose(np.mean(parts), by_hand, rtol=1e-12)
    assert np.std(parts) > 1
    # theta's maximum is the mean of y, seen by minibatches.
    method = mx.pgd(problem.unconstrained_log_joint, 2e-3, 2e-3)
    cloud = {"x": jnp.zeros(20)}
    ran = mx.run(
        method,
        {"m": 0.0},
        cloud,
        problem.data,
        max_steps=20_000,
        batch_size=6,
        key=jax.random.key(1),
    )
    np.testing.assert_allclose(ran.theta["m"], y.mean(), atol=0.1)


@pytest.mark.slow
def test_latents_in_a_subsampled_plate_are_taken_whole():
    def model(y):
        m = numpyro.param("m", 0.0)
        with numpyro.plate("people", G, subsample_size=2):
            x = numpyro.sample("x", dist.Normal(m, 1.0))
            batch = numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Normal(x, 1.0), obs=batch)

    problem = from_numpyro(model, Y[:G])
    assert problem.num_groups == G
    assert problem.batching is None
    x = jnp.arange(G) / 10
    by_hand = norm.logpdf(x, 0.5).sum() + norm.logpdf(Y[:G], x).sum()
    found = problem.log_joint({"m": 0.5}, {"x": x}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)
    with pytest.raises(ValueError, match="batch_size is 2, but log_joint was not built"):
        mx.run(
            mx.pgd(problem.unconstrained_log_joint, 0.01, 0.01),
            {"m": 0.0},
            {"x": jnp.zeros((5, G))},
            problem.data,
            max_steps=10,
            batch_size=2,
            key=jax.random.key(0),
        )

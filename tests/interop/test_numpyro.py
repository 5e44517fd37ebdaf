"""NumPyro models as problems: densities to the last digits, and every trap refused or handled."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import marginax as mx

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402
from numpyro.infer.reparam import LocScaleReparam  # noqa: E402

from marginax.interop.numpyro import from_numpyro, to_numpyro  # noqa: E402

pytestmark = pytest.mark.usefixtures("as_users_write")
G, N = 8, 3


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(1.0, 1.0, size=(G, N))


def positive(name, value=1.0):
    return numpyro.param(name, value, constraint=constraints.positive)


def intercepts(y):
    mean, between, within = numpyro.param("mean", 0.0), positive("between"), positive("within")
    with numpyro.plate("groups", y.shape[0]):
        x = numpyro.sample("x", dist.Normal(mean, between))
    with numpyro.plate("groups", y.shape[0]):
        numpyro.sample("y", dist.Normal(x[:, None], within).to_event(1), obs=y)


def test_what_the_bridge_uses_of_numpyro():
    """These moved before; when this fails, look at `interop/numpyro` anew."""
    from numpyro.infer import init_to_uniform, util

    assert list(inspect.signature(util._unconstrain_reparam).parameters) == ["params", "site"]
    expected = ["model", "model_args", "model_kwargs", "params"]
    expected = [*expected, "sum_log_prob"]
    assert list(inspect.signature(util.compute_log_probs).parameters) == expected
    assert "radius" in inspect.signature(init_to_uniform).parameters
    assert isinstance(constraints.positive, type(constraints.greater_than(0.0)))


@pytest.mark.slow
def test_the_same_density_as_written_by_hand(y, key):
    problem = from_numpyro(intercepts, y)
    theta = {"mean": 0.3, "between": 0.8, "within": 1.2}
    x = jax.random.normal(key, (G,))
    by_hand = jnp.sum(norm.logpdf(x, 0.3, 0.8)) + jnp.sum(norm.logpdf(y, x[:, None], 1.2))
    found = problem.log_joint(theta, {"x": x}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)
    # theta has no Jacobian: the density at real values is that at constrained ones.
    free = {"mean": 0.3, "between": np.log(0.8), "within": np.log(1.2)}
    found = problem.unconstrained_log_joint(jax.tree.map(jnp.asarray, free), {"x": x}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def gamma_model(size, y=None):
    """A positive latent: needs a Jacobian on the reals, where theta has none."""
    rate = positive("rate")
    with numpyro.plate("groups", size):
        x = numpyro.sample("x", dist.Gamma(2.0, rate))
        numpyro.sample("y", dist.Poisson(x), obs=y)


@pytest.mark.slow
def test_constrained_latents_get_their_jacobian(key):
    problem = from_numpyro(gamma_model, 3, y=np.array([1.0, 0.0, 3.0]))
    u = jax.random.normal(key, (3,))
    x = jnp.exp(u)
    by_hand = dist.Gamma(2.0, 0.7).log_prob(x).sum() + u.sum()
    by_hand += dist.Poisson(x).log_prob(problem.data[0]).sum()
    found = problem.unconstrained_log_joint({"rate": jnp.log(0.7)}, {"x": u}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


@pytest.mark.slow
def test_supports_that_depend_on_theta(y, key):
    """x ~ Uniform(0, c): its transform moves with c."""

    def model(y):
        c = positive("c", 2.0)
        with numpyro.plate("groups", G):
            x = numpyro.sample("x", dist.Uniform(0.0, c))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    problem = from_numpyro(model, y[:, 0])
    u = jax.random.normal(key, (G,))
    for c in (2.0, 5.0):
        share = jax.nn.sigmoid(u)
        by_hand = jnp.sum(norm.logpdf(y[:, 0], c * share, 1.0))
        by_hand += jnp.sum(jnp.log(share) + jnp.log1p(-share))  # log(1 / c) + log(c s (1 - s))
        found = problem.unconstrained_log_joint({"c": jnp.log(c)}, {"x": u}, problem.data)
        np.testing.assert_allclose(found, by_hand, rtol=1e-10)
    constrained = problem.group_log_joints.__self__.joint.constrained(
        {"c": jnp.asarray(5.0)}, {"x": u}
    )
    np.testing.assert_allclose(constrained["x"], 5 * jax.nn.sigmoid(u), rtol=1e-10)


def test_a_forgotten_latent_is_not_drawn_anew(y):
    problem = from_numpyro(intercepts, y)
    with pytest.raises(ValueError, match="latents \\['x'\\] are not given"):
        problem.log_joint(problem.theta, {}, problem.data)


def test_discrete_latents_are_refused_by_name(y):
    def model(y):
        p = numpyro.param("p", 0.5, constraint=constraints.unit_interval)
        with numpyro.plate("groups", G):
            z = numpyro.sample("z", dist.Bernoulli(p))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    with pytest.raises(ValueError, match="The latent z is discrete.*Sum it out"):
        from_numpyro(model, y[:, 0])


def test_models_without_params_or_latents_are_refused(y):
    def no_params(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    def no_latents(y):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), 1.0), obs=y)

    with pytest.raises(ValueError, match="no `numpyro.param` site.*x"):
        from_numpyro(no_params, y)
    with pytest.raises(ValueError, match="nothing to integrate out"):
        from_numpyro(no_latents, y)


def test_masked_latents_and_trees_of_params_are_refused_by_name(y):
    def half_seen(y):
        m = numpyro.param("m", 0.0)
        with numpyro.plate("groups", G):
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=np.arange(G) < 5)

    def network(y):
        weights = numpyro.param("net", {"w": jnp.zeros(2)})
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x + weights["w"].sum(), 1.0), obs=y)

    with pytest.raises(ValueError, match="The latent y_unobserved is masked"):
        from_numpyro(half_seen, y[:, 0])
    with pytest.raises(ValueError, match="The param net is not an array"):
        from_numpyro(network, y)


def test_arguments_that_the_model_reads_stay_constants(y):
    def model(labels, repeats, y):
        m = numpyro.param("m", 0.0)
        names, index = np.unique(labels, return_inverse=True)
        with numpyro.plate("groups", len(names)):
            x = numpyro.sample("x", dist.Normal(m, 1.0))
        for i in range(repeats):
            masked = dist.Normal(x[index, None], 1.0).mask(np.arange(N) < 2).to_event(1)
            numpyro.sample(f"y{i}", masked, obs=y)

    problem = from_numpyro(model, np.array(["a", "b"] * 4), np.array(2), y)
    assert problem.num_groups == 2
    assert problem.num_observations == 2 * G * 2  # two of three columns, twice


def test_improper_latents_are_there(y):
    def model(y):
        s = positive("s")
        m = numpyro.sample("m", dist.ImproperUniform(constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(m, s), obs=y)

    problem = from_numpyro(model, y)
    found = problem.log_joint({"s": 2.0}, {"m": 0.5}, problem.data)
    np.testing.assert_allclose(found, norm.logpdf(y, 0.5, 2.0).sum(), rtol=1e-12)


def test_a_param_with_a_prior_is_penalised(y):
    def model(y):
        m = numpyro.param("m", 0.0)
        numpyro.factor("prior of m", norm.logpdf(m, 0.0, 0.1))
        x = numpyro.sample("x", dist.Normal(m, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    problem = from_numpyro(model, y)
    by_hand = norm.logpdf(0.4, 0.0, 0.1) + norm.logpdf(0.2, 0.4) + norm.logpdf(y, 0.2).sum()
    found = problem.log_joint({"m": 0.4}, {"x": 0.2}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


@pytest.mark.slow
def test_nested_plates_and_an_index_that_is_read(y):
    """Long data: the model asks how many groups there are, so the index is no traced array."""
    index = np.repeat(np.arange(G), N)

    def model(index, y):
        s, within = positive("s"), positive("within")
        with numpyro.plate("groups", int(index.max()) + 1, dim=-2), numpyro.plate("kinds", 2):
            x = numpyro.sample("x", dist.Normal(0.0, s))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(x[index].sum(axis=1), within), obs=y)

    problem = from_numpyro(model, index, y.ravel())
    assert len(problem.data) == 1  # y
    x = np.random.default_rng(1).normal(size=(G, 2))
    by_hand = norm.logpdf(x, 0, 0.5).sum() + norm.logpdf(y.ravel(), x[index].sum(1), 1.5).sum()
    found = problem.log_joint({"s": 0.5, "within": 1.5}, {"x": x}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_a_state_space_model_by_scan(y):
    def model(y):
        drift = positive("drift")

        def step(x, y_t):
            x = numpyro.sample("x", dist.Normal(x, drift))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)
            return x, None

        scan(step, 0.0, y)

    series = y[:, 0]
    problem = from_numpyro(model, series)
    x = np.random.default_rng(1).normal(size=G)
    before = np.concatenate([[0.0], x[:-1]])
    by_hand = norm.logpdf(x, before, 0.5).sum() + norm.logpdf(series, x, 1.0).sum()
    found = problem.log_joint({"drift": 0.5}, {"x": x}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_reparametrised_masked_and_missing(y):
    mask = np.ones((G, N), bool)
    mask[0] = False

    def model(y, mask, first=None):
        mean, between = numpyro.param("mean", 0.0), positive("between")
        with numpyro.plate("groups", G, dim=-2):
            x = numpyro.sample("x", dist.Normal(mean, between))
            with numpyro.plate("times", N), handlers.mask(mask=mask):
                numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        numpyro.sample("first", dist.Normal(mean, 2.0), obs=first)  # missing: a latent

    centred = handlers.reparam(model, config={"x": LocScaleReparam(0.0)})
    problem = from_numpyro(centred, y, mask)
    assert set(problem.latent) == {"x_decentered", "first"}
    z = np.random.default_rng(1).normal(size=(G, 1))
    by_hand = norm.logpdf(z).sum() + norm.logpdf(0.1, 0.3, 2.0)
    by_hand += jnp.sum(jnp.where(mask, norm.logpdf(y, 0.3 + 0.8 * z), 0.0))
    theta = {"mean": 0.3, "between": 0.8}
    found = problem.log_joint(theta, {"x_decentered": z, "first": 0.1}, problem.data)
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_other_constraints_are_numpyros_own(y):
    def model(y):
        weights = numpyro.param("w", jnp.ones(3) / 3, constraint=constraints.simplex)
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x + weights, 1.0), obs=y)

    problem = from_numpyro(model, y)
    assert problem.num_parameters == 2
    free = problem.start_theta()
    np.testing.assert_allclose(problem.constrained_theta(free)["w"], 1 / 3, rtol=1e-6)


def test_the_way_back_needs_a_numpyro_model():
    problem = mx.Problem(lambda theta, x, y: -(x**2) - theta**2, theta=0.0, latent=0.0)
    with pytest.raises(ValueError, match="not of a NumPyro model"):
        to_numpyro(type("F", (), {"problem": problem})())

"""Groups of a long table, all at once, against the same groups one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.fitting.directions import interacting_groups
from marginax.fitting.fit_state import FitState
from marginax.fitting.warnings import warnings_of
from marginax.likelihood.blocks import as_blocks
from marginax.likelihood.chains import chain_draws, with_mala
from marginax.likelihood.from_draws import louis_moments
from marginax.likelihood.importance import importance_likelihood
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.proposals import proposer
from marginax.likelihood.quadrature import quadrature_likelihood
from marginax.model.transforms import positive
from marginax.running.result import Run

pytestmark = pytest.mark.usefixtures("as_users_write")
SIZES = (3, 1, 4, 2, 3)
INDEX = np.repeat(np.arange(len(SIZES)), SIZES)
THETA = np.array([0.3, -0.4])


def table():
    """Counts y_i ~ Poisson(x_g), x_g > 0 log-normal(m, s)."""
    random = np.random.default_rng(3)
    return random.poisson(np.exp(random.normal(0.5, 0.6, len(SIZES)))[INDEX]).astype(float)


def prior(theta, x):
    z = (jnp.log(x) - theta["m"]) / theta["s"]
    return -0.5 * z**2 - jnp.log(theta["s"]) - jnp.log(x)


def counts(x, y):
    return y * jnp.log(x) - x


HERE = {
    "theta": {"m": 0.0, "s": 1.0},
    "latent": 1.0,
    "theta_transforms": {"s": positive},
    "latent_transforms": positive,
}


def one_by_one():
    def log_joint(theta, x, y):
        return prior(theta, x) + jnp.sum(y["mask"] * counts(x, y["y"]))

    return mx.Problem.grouped(log_joint, mx.pad_groups(INDEX, y=table()), **HERE)


def all_at_once(leak=0.0):
    def log_joints(theta, x, y):
        terms = jax.ops.segment_sum(counts(x[INDEX], y), INDEX, len(SIZES))
        return prior(theta, x) + terms + leak * jnp.roll(x, 1)

    return mx.Problem.grouped(log_joints, table(), num_groups=len(SIZES), **HERE)


PAIR = (one_by_one, all_at_once)


def same(of, rtol=1e-9, atol=1e-11):
    one, other = (of(make()) for make in PAIR)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), one, other)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [quadrature_likelihood, importance_likelihood])
def test_the_same_likelihood(likelihood):
    more = (THETA,) if likelihood is importance_likelihood else ()

    def of(problem):
        rule = likelihood(problem, *more)
        found = rule.evaluate(THETA, rule.start)
        described = rule.describe(THETA, found.extra)
        return found.value, found.gradient, found.hessian, described.by_group, described.sd

    same(of)


def test_the_same_scores_and_information():
    draws = np.random.default_rng(0).normal(size=(2, 5, len(SIZES), 1))
    same(lambda problem: louis_moments(as_blocks(problem))(THETA, Posterior(draws, "", 1, 1, 1)))


@pytest.mark.slow
def test_chains_of_blocks_that_are_known_together_only(key):
    """The same keys give the same draws; and they have the posterior's moments."""

    def of(problem):
        blocks = as_blocks(problem)
        proposal, modes = proposer(blocks)(THETA, blocks.start[None], slice(None))
        cloud = jnp.tile(modes, (8, 1, 1))
        return chain_draws(blocks, 8, 250)(jnp.asarray(THETA), proposal, cloud, key)[0]

    same(of, rtol=1e-7, atol=1e-8)  # 450 steps of a chain carry rounding on
    draws = of(all_at_once())
    rule = quadrature_likelihood(all_at_once())
    exact = rule.describe(THETA, rule.start)
    np.testing.assert_allclose(draws.mean((0, 1)), exact.mean, atol=0.1 * exact.sd.max())
    np.testing.assert_allclose(draws.std((0, 1)), exact.sd, rtol=0.15)


@pytest.mark.slow
def test_large_blocks_that_are_known_together_only(key):
    """NUTS loops until a trajectory turns, in every chain for as long as it takes there."""
    scale = 1.0 + jnp.arange(36.0).reshape(3, 12) / 10

    def alone(theta, x, scale):
        return -0.5 * jnp.sum((x / scale) ** 2) - theta * jnp.sum(x**4)

    def together(theta, x, scale):
        return jax.vmap(alone, (None, 0, 0))(theta, x, scale)

    here = {"theta": 0.1, "latent": jnp.zeros(12)}
    draws = []
    for problem in (
        mx.Problem.grouped(alone, scale, **here),
        mx.Problem.grouped(together, scale, num_groups=3, **here),
    ):
        blocks = as_blocks(problem)
        proposal, _ = proposer(blocks)(np.array([0.1]), blocks.start[None], slice(None))
        cloud = jax.random.normal(key, (4, 3, 12))
        assert not with_mala(12)
        draws.append(chain_draws(blocks, 4, 20)(jnp.array([0.1]), proposal, cloud, key)[0])
    np.testing.assert_allclose(*draws, rtol=1e-6, atol=1e-6)


def test_groups_that_interact_are_refused():
    with pytest.raises(ValueError, match="5 of 5 groups, such as 0, depends on the latent of ano"):
        all_at_once(leak=0.01)


def test_a_coupling_that_starts_at_zero_is_refused_too():
    def log_joints(theta, x, y):
        return -0.5 * x**2 + theta * x * jnp.roll(x, 1)

    with pytest.raises(ValueError, match="3 of 3 groups"):
        mx.Problem.grouped(log_joints, None, theta=0.0, latent=0.0, num_groups=3)


def test_groups_that_turn_out_to_interact_far_from_the_start_are_reported():
    def log_joints(theta, x, y):
        return -0.5 * (x - theta) ** 2 + jax.nn.relu(jnp.roll(x, 1) - 40.0)

    problem = mx.Problem.grouped(log_joints, None, theta=0.0, latent=0.0, num_groups=3)
    words = ("converged",)

    def at(x):
        cloud = jnp.full((1, 2, 3), x)
        ran = Run(jnp.zeros(1), cloud, None, None, *words, "", 1, {}, words, words, (1,))
        found = FitState(np.zeros(1), 0, information=np.eye(1))
        found = found._replace(interacting_groups=interacting_groups(problem, ran, found))
        return warnings_of(problem, ran, found)

    assert at(0.0) == ()
    assert "The log joint of 3 of 3 groups depends on the latent of another" in at(50.0)[0]


def test_one_number_per_group():
    with pytest.raises(ValueError, match=r"shape \(\), but it must have one number per group"):
        mx.Problem.grouped(lambda theta, x, y: jnp.sum(x), None, num_groups=3, **HERE)
    with pytest.raises(ValueError, match="num_groups is 0"):
        mx.Problem.grouped(lambda theta, x, y: x, None, num_groups=0, **HERE)


def test_other_data_of_the_same_groups():
    problem = all_at_once()
    other = problem.with_data(problem.data + 1)
    assert other.num_groups == len(SIZES)
    theta, latent = problem.start_theta(), problem.start_latent() + 0.5  # log x is 0.5
    more = other.unconstrained_log_joint(theta, latent, other.data)
    more -= problem.unconstrained_log_joint(theta, latent, problem.data)
    np.testing.assert_allclose(more, 0.5 * len(INDEX), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "points"), [(quadrature_likelihood, 25), (importance_likelihood, 1024)]
)
def test_chunks_give_what_the_whole_gives(monkeypatch, likelihood, points):
    """Many groups are evaluated some at a time; here two, with a last chunk of one."""
    more = (THETA,) if likelihood is importance_likelihood else ()

    def of(problem):
        rule = likelihood(problem, *more)
        found = rule.evaluate(THETA, rule.start)
        described = rule.describe(THETA, found.extra)
        numbers = {
            name: value
            for name, value in vars(described).items()
            if name not in ("pareto_k", "proposal", "rule")
        }
        return found.value, found.gradient, found.hessian, numbers

    whole = of(one_by_one())
    monkeypatch.setattr("marginax.likelihood.blocks.MOST_POINTS", 2 * points)
    for make in PAIR:  # those that cannot be taken apart go over nodes and draws instead
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), whole, of(make())
        )

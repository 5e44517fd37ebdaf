"""Derivatives and value of a likelihood from draws, against their definitions."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import marginax as mx
from marginax.likelihood import from_draws
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.from_draws import Moments
from marginax.likelihood.posterior import Posterior

CHAINS, DRAWS, BLOCKS = 4, 5, 3
DATA = np.array([1.0, -0.5, 2.0])


def log_densities(theta, x, data):
    """Whose derivatives in theta follow by hand."""
    (a, b), u, v = theta, x[:, 0], x[:, 1]
    return data * (a * u - 0.5 * a**2 * v**2) + b * u * v - b**3 / 6 + a * b * u


def scores_of(theta, x):
    (a, b), u, v = theta, x[..., 0], x[..., 1]
    return np.stack([DATA * (u - a * v**2) + b * u, u * v - b**2 / 2 + a * u], axis=-1)


def hessians_of(theta, x):
    u, v = x[..., 0], x[..., 1]
    return np.stack(
        [np.stack([-DATA * v**2, u], axis=-1), np.stack([u, -theta[1] + 0 * u], axis=-1)], axis=-1
    )


ROOT = np.array([[1.0, 0.0], [0.8, 0.6]])


def noise_by_hand(information, by_chain):
    """Of the smallest eigenvalue of the information scaled to a unit diagonal."""
    size = np.sqrt(np.diag(information))
    w, v = np.linalg.eigh(information / np.outer(size, size))
    along = [v[:, 0] @ (one / np.outer(size, size)) @ v[:, 0] for one in by_chain]
    return np.std(along, ddof=1) / np.sqrt(len(along)) / w[0]


@pytest.mark.parametrize("units", [(1.0, 1.0), (0.1, 3.0), (1e5, 1e-4)])
def test_noise_is_relative_to_the_weakest_direction_in_any_units(units):
    information = ROOT @ ROOT.T
    rng = np.random.default_rng(0)
    by_chain = information + 0.1 * rng.normal(size=(6, 2, 2))
    by_chain = (by_chain + np.swapaxes(by_chain, 1, 2)) / 2
    times = np.outer(units, units)
    expected = noise_by_hand(information, by_chain)
    found = from_draws._noise(information * times, by_chain * times)
    assert found == pytest.approx(expected, rel=1e-8)
    assert 0 < expected < 1


@pytest.mark.parametrize(
    "information", [np.diag([4.0, 0.0]), np.diag([4.0, -1.0]), np.array([[1.0, 2.0], [2.0, 1.0]])]
)
def test_without_information_in_a_direction_the_noise_is_infinite(information):
    by_chain = information + 0.1 * np.random.default_rng(0).normal(size=(6, 2, 2))
    assert from_draws._noise(information, by_chain) == np.inf


def moments(score=0.0, information=1.0, noise=1.0, complete=1.0, relative=0.0):
    parts = (np.full((1, 1), float(x)) for x in (information, noise, complete))
    information, covariance, complete = parts
    return Moments(np.full(1, float(score)), information, covariance, complete, relative)


@pytest.mark.parametrize(("noise", "is_known"), [(0.19, True), (0.2, False), (0.3, False)])
def test_information_is_known_if_it_is_more_than_noise(noise, is_known):
    assert moments(relative=noise).is_known is is_known
    assert Moments(*moments()[:4]).noise == 0


COMPLETE = np.array([[5.0, 1.0], [1.0, 2.0]])
INFORMATION = np.array([[2.0, 0.3], [0.3, 1.0]])
COVARIANCE = np.array([[0.4, 0.1], [0.1, 0.3]])


@pytest.mark.parametrize("units", [(1.0, 1.0), (0.1, 10.0), (1e6, 1e-6)])
def test_a_short_step_is_newtons_with_its_own_error(units):
    score, times = np.array([0.2, -0.1]), np.outer(units, units)
    parts = score * units, INFORMATION * times, COVARIANCE * times, COMPLETE * times
    step, error = from_draws._step(Moments(*parts))
    inverse = np.linalg.inv(INFORMATION)
    np.testing.assert_allclose(step * units, inverse @ score, rtol=1e-8)
    expected = np.sqrt(np.diag(inverse @ COVARIANCE @ inverse))
    np.testing.assert_allclose(error * units, expected, rtol=1e-8)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_long_step_is_two_standard_errors(sign):
    step, _ = from_draws._step(moments(score=sign * 1000.0, information=2.0, complete=4.0))
    assert step[0] == pytest.approx(sign * 2 / np.sqrt(2.0))
    # Of shares of 1/4 and 1/9 of what known latents would say.
    complete, shares = np.diag([4.0, 9.0]), np.array([1 / 4, 1 / 9])
    far = Moments(sign * np.array([1e3, -1e3]), complete * shares, np.eye(2), complete)
    step, _ = from_draws._step(far)
    np.testing.assert_allclose(step, sign * 2 * np.array([1.0, -1.0]), rtol=1e-10)


@pytest.mark.parametrize("information", [0.0, -3.0, 0.019 * 4])
def test_without_information_the_step_is_that_of_the_em_algorithm(information):
    step, error = from_draws._step(moments(1.0, information, noise=0.25, complete=4.0))
    assert step[0] == pytest.approx(1 / 4)
    assert error[0] == pytest.approx(0.5 / 4)
    step, _ = from_draws._step(moments(0.05, 0.021 * 4, complete=4.0))
    assert step[0] == pytest.approx(0.05 / (0.021 * 4))


def test_without_information_in_any_direction_known_latents_tell_the_step():
    step, error = from_draws._step(
        Moments(np.array([0.2, -0.1]), np.zeros((2, 2)), COVARIANCE, COMPLETE)
    )
    inverse = np.linalg.inv(COMPLETE)
    np.testing.assert_allclose(step, inverse @ [0.2, -0.1], rtol=1e-9)
    np.testing.assert_allclose(error, np.sqrt(np.diag(inverse @ COVARIANCE @ inverse)), rtol=1e-9)


def test_a_parameter_that_known_latents_say_nothing_of_has_a_finite_step():
    flat = Moments(np.array([1.0, 0.0]), np.diag([2.0, 0.0]), np.eye(2), np.diag([4.0, 0.0]))
    step, error = from_draws._step(flat)
    np.testing.assert_allclose(step, [0.5, 0.0], atol=1e-12)
    assert np.all(np.isfinite(error))


def climb_through(monkeypatch, answers, rhats=None, **options):
    """A climb from 10 in which step k has these moments; and where it asked for draws."""
    asked, rhats = [], rhats or [1.0] * len(answers)

    def sample(theta, step):
        asked.append((float(theta[0]), step))
        return Posterior(np.zeros((1, 1, 1, 1)), "any", rhats[step], 9.0, 1.0, num_stuck=step)

    def moments_at(theta, posterior):
        assert theta[0] == asked[-1][0]
        return answers[posterior.num_stuck]

    blocks = Blocks(log_densities, None, jnp.zeros((1, 1)), True)
    monkeypatch.setattr(from_draws, "louis_moments", lambda given: moments_at)
    return from_draws.louis_climb(sample, blocks, np.array([10.0]), **options), asked


def test_a_climb_ends_where_the_next_step_is_within_twice_its_error(monkeypatch):
    # Steps of 1 with errors of 0.1, 0.45 and 0.5.
    answers = [moments(1.0, noise=0.01), moments(1.0, noise=0.2), moments(1.0, noise=0.25)]
    found, asked = climb_through(monkeypatch, answers)
    assert asked == [(10.0, 0), (11.0, 1), (12.0, 2)]
    assert found.theta[0] == 12.0
    assert found.moments is answers[2]
    assert (found.num_steps, found.settled) == (2, True)
    assert found.posterior.num_stuck == 2
    found, _ = climb_through(monkeypatch, [moments(1.0, noise=0.27)])
    assert (found.num_steps, found.settled) == (0, True)


def test_a_climb_ends_after_its_most_steps(monkeypatch):
    found, asked = climb_through(monkeypatch, [moments(-1.0, noise=0.01)] * 9, max_steps=3)
    assert asked == [(10.0, 0), (9.0, 1), (8.0, 2), (7.0, 3)]
    assert (found.theta[0], found.num_steps, found.settled) == (7.0, 3, False)
    found, _ = climb_through(monkeypatch, [moments(-1.0, noise=0.01)] * 30)
    assert found.num_steps == 12


@pytest.mark.parametrize(
    ("answer", "rhat", "is_used"),
    [
        (moments(), 1.19, True),
        (moments(), 1.2, False),
        (moments(), np.nan, False),
        (moments(score=np.nan), 1.0, False),
        (moments(information=np.nan), 1.0, False),
        (moments(noise=np.inf), 1.0, False),
        (moments(complete=np.nan), 1.0, False),
        (moments(relative=np.inf), 1.0, True),
    ],
)
def test_no_step_is_taken_from_draws_that_say_nothing(monkeypatch, answer, rhat, is_used):
    found, _ = climb_through(monkeypatch, [answer], [rhat])
    assert (found is not None) is is_used


@pytest.mark.parametrize("most", [100, 2])
def test_louis_moments_are_those_of_their_definitions(monkeypatch, most):
    monkeypatch.setattr(from_draws, "MOST_DRAWS", most)
    given = []
    monkeypatch.setattr(from_draws, "_noise", lambda *both: given.append(both) or 0.125)
    blocks = Blocks(log_densities, jnp.asarray(DATA), jnp.zeros((BLOCKS, 2)), True)
    theta = np.array([0.7, -1.2])
    draws = np.random.default_rng(3).normal(size=(CHAINS, DRAWS, BLOCKS, 2))
    found = from_draws.louis_moments(blocks)(theta, Posterior(draws, "any", 1.0, 9.0, 1.0))
    used = draws if most == 100 else draws[:, [0, 3]]  # no more than two of each chain
    scores, hessians = scores_of(theta, used), hessians_of(theta, used).sum(axis=2)
    mean = scores.mean(axis=(0, 1))
    away = scores - mean
    np.testing.assert_allclose(found.score, mean.sum(axis=0), rtol=1e-10)
    complete = -hessians.mean(axis=(0, 1))
    np.testing.assert_allclose(found.complete, complete, rtol=1e-10)
    missing = np.einsum("csbp,csbq->cpq", away, away) / used.shape[1]
    np.testing.assert_allclose(found.information, complete - missing.mean(axis=0), rtol=1e-9)
    of_chains = scores.sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(found.score_covariance, np.cov(of_chains.T) / CHAINS, rtol=1e-9)
    assert found.noise == 0.125
    ((information, by_chain),) = given
    assert information is found.information
    # Every chain about the mean of all, so that these are independent.
    np.testing.assert_allclose(by_chain, -hessians.mean(axis=1) - missing, rtol=1e-9)


def gaussian_problem(num_groups=3, size=2, spread=1.0):
    """Groups whose latents are N(theta, 1) with one observation each, in units far apart."""
    units = spread ** np.linspace(-1, 1, size)

    def log_joint(theta, x, y):
        prior = jnp.sum(-0.5 * (x / units - theta) ** 2)
        return prior - 0.5 * (y - jnp.sum(x / units)) ** 2

    data = np.arange(float(num_groups))
    latent = jnp.zeros(size)
    return mx.Problem.grouped(log_joint, data, theta=jnp.zeros(()), latent=latent), units


def exact_draws(theta, units, num_groups=3, size=2, seed=0):
    """With exactly the moments of the posterior."""
    precision = np.eye(size) + np.ones((size, size))
    covariance = np.linalg.inv(precision)
    y = np.arange(float(num_groups))
    mean = (theta + y[:, None]) * np.ones(size) @ covariance
    z = np.random.default_rng(seed).normal(size=(40, num_groups, size))
    z = z - z.mean(axis=0)
    whiten = [
        np.linalg.inv(np.linalg.cholesky(z[:, g].T @ z[:, g] / 40)) for g in range(num_groups)
    ]
    z = np.einsum("gpq,sgq->sgp", np.stack(whiten), z)
    root = np.linalg.cholesky(covariance)
    return ((mean + z @ root.T) * units).reshape(4, 10, num_groups, size), mean, covariance


def test_climbs_by_draws_have_a_key_for_every_step(monkeypatch):
    problem, _ = gaussian_problem()
    cloud, key, seen = jnp.zeros((5, 3, 2)), jax.random.key(7), []
    drawn, asked = Posterior(np.zeros((1, 1, 1, 1)), "any", 1.0, 9.0, 1.0), []
    monkeypatch.setattr(
        from_draws, "posterior_sampler", lambda given: lambda *what: asked.append(what) or drawn
    )
    monkeypatch.setattr(
        from_draws, "louis_climb", lambda sample, *rest: seen.append((sample, rest))
    )
    theta = np.array([0.5])
    from_draws.climb_by_draws(problem, theta, cloud, key)
    ((sample, (blocks, start)),) = seen
    assert start is theta
    assert blocks.start.shape == (3, 2)
    assert sample(np.array([1.5]), 3) is drawn
    ((at, of, folded),) = asked
    assert at[0] == 1.5
    assert of is cloud
    assert folded == jax.random.fold_in(key, 3)


@pytest.fixture
def watched(monkeypatch):
    """Seeds of draws by degrees, and the log likelihoods of all that was weighed."""
    at = SimpleNamespace(seeds=[], values=[])
    draws, weighed = from_draws.standard_draws, from_draws.Weighed

    def standard_draws(size, num_draws, degrees, **more):
        at.seeds.append((degrees, more.get("seed")))
        return draws(size, num_draws, degrees, **more)

    def of(chunks):
        found = weighed.of(chunks)
        at.values.append(found.log_marginal.sum())
        return found

    monkeypatch.setattr(from_draws, "standard_draws", standard_draws)
    monkeypatch.setattr(from_draws, "Weighed", SimpleNamespace(of=of))
    return at


def test_of_a_gaussian_posterior_the_likelihood_is_exact_in_any_units(watched):
    problem, units = gaussian_problem(spread=1e5)
    draws, mean, covariance = exact_draws(0.7, units)
    found = from_draws.likelihood_from_draws(problem, np.array([0.7]), draws)
    y = np.arange(3.0)
    # Of y: N(2 theta, 1 + 2); the density lacks its constants, and has its units.
    of_y = multivariate_normal(1.4, 3.0).logpdf(y)
    expected = of_y + 1.5 * np.log(2 * np.pi) + np.log(units).sum()
    np.testing.assert_allclose(found.by_group, expected, rtol=1e-8)
    np.testing.assert_allclose(found.log_likelihood, expected.sum(), rtol=1e-8)
    np.testing.assert_allclose(found.mean, mean * units, rtol=0.02, atol=0)
    np.testing.assert_allclose(
        found.sd / units, np.full((3, 2), covariance[0, 0] ** 0.5), rtol=0.02
    )
    assert found.proposal == "Gaussian"
    assert found.num_draws == 1024
    assert found.error < 1e-7
    assert found.undefined == 0
    assert found.effective_draws == pytest.approx(1024)
    seeds = [seed for degrees, seed in watched.seeds[3:]]
    assert len(set(seeds)) == len(seeds) == 5  # itself, and four others for its error


def test_of_a_heavy_posterior_the_proposal_is_heavy_and_there_is_an_error(watched):
    def log_joint(theta, x, y):
        return -2.0 * jnp.sum(jnp.log1p((x - theta) ** 2 / 3))

    problem = mx.Problem(log_joint, theta=jnp.zeros(()), latent=jnp.zeros(1))
    draws = np.random.default_rng(0).standard_t(3, size=(4, 2500, 1, 1))
    found = from_draws.likelihood_from_draws(problem, np.array([0.0]), draws)
    exact = np.log(np.sqrt(3) * np.pi / 2)  # of Student's t with three degrees of freedom
    assert found.proposal == "t (5 degrees of freedom)"
    assert found.num_draws == 8192
    assert abs(found.log_likelihood - exact) < 0.01
    assert len(watched.values) == 5
    assert found.log_likelihood == watched.values[0]
    assert found.error == pytest.approx(np.std(watched.values, ddof=1))
    assert 0 < found.error < 0.01


def test_draws_on_a_line_or_a_point_are_no_error():
    problem, _ = gaussian_problem()
    line = np.random.default_rng(0).normal(size=(50, 3, 1)) * np.ones(2)
    found = from_draws.likelihood_from_draws(problem, np.array([0.7]), line)
    assert np.isfinite(found.log_likelihood)
    assert not found.is_reliable
    found = from_draws.likelihood_from_draws(problem, np.array([0.7]), np.ones((50, 3, 2)))
    assert np.isfinite(found.log_likelihood)


@pytest.mark.parametrize(("most", "is_there"), [(2, True), (1, False)])
def test_of_too_many_latents_there_is_none(monkeypatch, most, is_there):
    monkeypatch.setattr(from_draws, "MOST_LATENTS", most)
    problem, units = gaussian_problem()
    found = from_draws.likelihood_from_draws(problem, np.array([0.7]), exact_draws(0.7, units)[0])
    assert (found is not None) is is_there

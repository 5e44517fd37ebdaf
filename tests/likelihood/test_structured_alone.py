"""The likelihood of one large block: its stages, with latents known by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from latents_by_hand import K, Y, latents

import marginax as mx
from marginax.likelihood import structured
from marginax.likelihood.best_gaussian import Gaussian
from marginax.likelihood.blocks import Blocks
from marginax.likelihood.functions import LikelihoodFunction, StructuredStart
from marginax.likelihood.laplace import Mode, find_mode, laplace_gradient, louis_hessian
from marginax.likelihood.newton import Local
from marginax.likelihood.results import StructuredLikelihood
from marginax.likelihood.structured_draws import Top
from marginax.likelihood.weighted_draws import Weights

THETA = np.array([0.3, 0.4])
TAU = np.exp(0.4)
START = jnp.asarray([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])  # of which the first counts
Z = jnp.asarray(np.random.default_rng(0).normal(size=(8, 3)))
FITTING = jnp.zeros((2, 3))


def parts(counts=1.0, **others):
    return structured._Parts(latents(counts, **others), START, Z, FITTING)


def lost():
    return parts(score=lambda theta, x, data: (np.nan, jnp.full(3, np.nan)))


def blocks(data=None, num_blocks=2, identity=None):
    data = jnp.asarray(Y) if data is None else data
    return Blocks(log_densities, data, START[:num_blocks], False, identity=identity)


def log_densities(theta, x, data):
    return jnp.stack([jnp.sum(data * x[0]) + theta[0], jnp.asarray(-99.0)])


def test_a_problem_has_its_data_and_start_or_a_sentence(monkeypatch):
    problem = mx.Problem(lambda theta, x, y: -jnp.sum((x - theta) ** 2), jnp.zeros(1), jnp.ones(3))
    of_model, made = latents()._replace(data=None, start=None), []
    monkeypatch.setattr(structured, "as_blocks", lambda given: blocks())
    monkeypatch.setattr(structured, "_latents", lambda asked: of_model)
    function = LikelihoodFunction(START, None, None)
    monkeypatch.setattr(structured, "_climbable", lambda *given: made.append(given) or function)
    assert structured.structured_likelihood(problem, THETA) is function
    ((found, start),) = made
    np.testing.assert_array_equal(found.data, Y)
    np.testing.assert_array_equal(found.start, START[0])
    np.testing.assert_array_equal(start, START)
    monkeypatch.setattr(structured, "_latents", lambda asked: "It is full.")
    assert structured.structured_likelihood(problem, THETA) == "It is full."


def test_structures_are_looked_for_once_for_a_model_and_its_data():
    one = structured._Asked(blocks(), THETA, None)
    again = structured._Asked(blocks(jnp.asarray(Y.copy())), THETA + 1, None)
    assert one == again
    assert hash(one) == hash(again)
    for other in (
        structured._Asked(blocks(jnp.asarray(Y + 1)), THETA, None),
        structured._Asked(blocks(), THETA, "chain"),
        structured._Asked(blocks(), np.zeros(3), None),
        structured._Asked(blocks(num_blocks=1), THETA, None),
    ):
        assert one != other
    assert one != "something else"
    assert one.identity is None
    named = structured._Asked(blocks(identity="a model"), THETA, None)
    assert named.identity.startswith("a model ")
    assert "None" not in named.identity


def test_what_is_kept_of_a_structure_has_no_data(monkeypatch):
    own, seen = latents(), []

    def find(density, x, theta, data, kind, identity):
        seen.append((float(density(x, jnp.asarray(theta), data)), np.asarray(x), kind, identity))
        return own.structure

    monkeypatch.setattr(structured, "find_structure", find)

    def made(blocks, found):
        assert isinstance(blocks, Blocks)
        assert found is own.structure
        return own._replace(data=Y)

    monkeypatch.setattr(structured, "latents_of", made)
    asked = structured._Asked(blocks(identity="a model"), THETA, "chain")
    found = structured._latents.__wrapped__(asked)
    assert found.data is None
    assert found.start.shape == (0,)
    assert seen[0][0] == pytest.approx(0.3)  # that of the first block, at its start
    np.testing.assert_array_equal(seen[0][1], START[0])
    assert seen[0][2:] == ("chain", asked.identity)
    monkeypatch.setattr(structured, "find_structure", lambda *given: "It is full.")
    assert structured._latents.__wrapped__(asked) == "It is full."


def test_the_last_answer_is_kept():
    asked = []

    def evaluate(theta, known):
        asked.append((theta.copy(), known))
        return Local(len(asked), THETA, np.eye(2), known)

    def value(theta, known):
        return again(theta, known).value

    again = structured._remembering(evaluate)
    one, two = ["known"], ["known"]
    assert value(THETA, one) == value(THETA.copy(), one) == 1
    assert value(THETA, two) == 2  # the same to look at, but another
    assert value(THETA + 1, two) == value(THETA + 1, two) == 3
    np.testing.assert_array_equal(asked[2][0], THETA + 1)
    assert asked[2][1] is two


def gaussian_log_likelihood(theta):
    """Of counts = 0: the integral of a Gaussian tilted by Y."""
    mu, log_tau = (float(one) for one in theta)
    precision = np.exp(log_tau) * K
    log_root = np.linalg.slogdet(precision)[1] / 2
    tilted = Y.sum() * mu + Y @ np.linalg.solve(precision, Y) / 2
    return tilted + 1.5 * np.log(2 * np.pi) - log_root + 1.5 * log_tau


def test_a_search_that_fails_begins_anew_at_the_start(monkeypatch):
    begun = []

    def find(latents, theta, start):
        begun.append(np.asarray(start))
        entries = jnp.zeros(6)
        return Mode(start, 0.0, entries, entries, bool(start[0] == good))

    monkeypatch.setattr(structured, "find_mode", find)
    elsewhere = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for good, known, starts in (
        (1.0, elsewhere, [1.0]),
        (0.0, elsewhere, [1.0, 0.0]),
        (8.0, START, [0.0]),  # where it began already
    ):
        begun.clear()
        mode = structured._mode_at(parts(), THETA, known)
        assert [start[0] for start in begun] == starts
        assert mode.is_found is (good != 8.0)


def test_values_and_gradients_of_a_gaussian_posterior_are_exact():
    own = parts(0.0)
    expected = gaussian_log_likelihood(THETA)
    assert structured._value(own, THETA, START) == pytest.approx(expected, rel=1e-12)
    there = structured._at(own, THETA, START)
    assert there.value == pytest.approx(expected, rel=1e-12)
    slope = -Y @ np.linalg.solve(K, Y) / (2 * TAU)
    np.testing.assert_allclose(there.gradient, [Y.sum(), slope], rtol=1e-10)


def test_where_there_is_no_mode_there_is_no_likelihood():
    own = lost()
    assert structured._value(own, THETA, START) == -np.inf
    assert structured._at(own, THETA, START).value == -np.inf
    assert structured._at(own, THETA, START).weights.shape == (0,)
    for evaluate in (structured._evaluate, structured._evaluate_gaussian):
        here = evaluate(own, THETA, START)
        assert here.value == -np.inf
        assert np.all(np.isnan(here.gradient))
        assert here.hessian.shape == (2, 2)
        assert np.all(np.isnan(here.hessian))
        assert here.extra is START
    assert structured._adapt(own, THETA, START).top is None


def test_first_climbs_have_louis_hessian_and_then_correct_it():
    own = parts()
    here = structured._evaluate(own, THETA, START)
    mode = find_mode(own.latents, jnp.asarray(THETA), START[0])
    gradient, weights = laplace_gradient(own.latents, jnp.asarray(THETA), mode)
    np.testing.assert_allclose(here.gradient, gradient, rtol=1e-9)
    louis = louis_hessian(own.latents, jnp.asarray(THETA), mode, weights, Z)
    np.testing.assert_allclose(here.hessian, louis, rtol=1e-9)
    np.testing.assert_allclose(here.extra.modes, mode.x[None], rtol=1e-12)
    # A short step: what the gradient did is what the Hessian says.
    step = np.array([0.01, -0.02])
    there = structured._evaluate(own, THETA + step, here.extra)
    np.testing.assert_allclose(there.hessian @ step, there.gradient - here.gradient, rtol=1e-6)
    np.testing.assert_array_equal(there.extra.theta, THETA + step)
    np.testing.assert_array_equal(there.extra.hessian, there.hessian)
    # A long one: Louis' again.
    far = structured._evaluate(own, THETA + [3.0, 0.0], here.extra)
    mode = find_mode(own.latents, jnp.asarray(THETA + [3.0, 0.0]), START[0])
    _, weights = laplace_gradient(own.latents, jnp.asarray(THETA + [3.0, 0.0]), mode)
    louis = louis_hessian(own.latents, jnp.asarray(THETA + [3.0, 0.0]), mode, weights, Z)
    np.testing.assert_allclose(far.hessian, louis, rtol=1e-6)


def by_differences(own, theta):
    def gradient(theta):
        return structured._at(own, theta, START).gradient

    rows = [(gradient(theta + m) - gradient(theta - m)) / 2e-4 for m in 1e-4 * np.eye(2)]
    return np.array(rows)


def test_differences_give_the_hessian_of_laplaces_approximation():
    own = parts()
    found = structured._differences(own, THETA, structured._at(own, THETA, START))
    np.testing.assert_allclose(found, by_differences(own, THETA), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found, found.T)
    # Without curvature a step is one of some length.
    flat = parts(complete=lambda *given: jnp.zeros((2, 2)))
    found = structured._differences(flat, THETA, structured._at(flat, THETA, START))
    np.testing.assert_allclose(found, by_differences(own, THETA), rtol=1e-2, atol=1e-2)
    tiny = parts(complete=lambda *given: 0.04 * jnp.eye(2))  # steps of 0.1, not of 0.02
    wider = structured._differences(tiny, THETA, structured._at(tiny, THETA, START))
    assert not np.allclose(wider, found, rtol=1e-6)


@pytest.fixture
def quadratic(monkeypatch):
    """Laplace's approximation with its top at 0, and the Hessians that were asked for."""
    exact, about, made = -np.diag([4.0, 1.0]), -np.diag([5.0, 1.5]), []
    mode = Mode(jnp.ones(3), 0.0, jnp.zeros(6), jnp.zeros(6), True)

    def differences(parts, theta, there):
        made.append(theta)
        return exact

    monkeypatch.setattr(
        structured, "_at",
        lambda parts, theta, known: structured._There(mode, -1.0, exact @ theta, jnp.zeros(6)),
    )  # fmt: skip
    monkeypatch.setattr(structured, "_hessian", lambda *given: about)
    monkeypatch.setattr(structured, "_differences", differences)
    return exact, about, made


def test_the_last_steps_have_the_hessian_by_differences_where_it_is_needed(quadratic):
    exact, about, made = quadratic
    away = structured._evaluate_gaussian(parts(), np.array([0.1, 0.1]), START)
    assert away.hessian is about
    assert away.extra.exact is None
    assert made == []
    near = np.array([0.001, 0.001])  # 0.002 of a standard error
    here = structured._evaluate_gaussian(parts(), near, START)
    assert here.hessian is exact
    assert here.extra.exact[0] is near
    assert here.extra.exact[1] is here.extra.hessian is exact
    np.testing.assert_array_equal(here.extra.modes, np.ones((1, 3)))
    assert len(made) == 1
    # It is used again nearby, and not far away.
    again = structured._evaluate_gaussian(parts(), near + 0.0001, here.extra)
    assert again.hessian is exact
    assert again.extra.exact[0] is near
    assert len(made) == 1
    far = structured._evaluate_gaussian(parts(), near + 0.1, here.extra)
    assert far.hessian is about
    assert far.extra.exact is None


def known_at(theta, gradient, hessian, **more):
    return StructuredStart(START, np.asarray(theta), np.asarray(gradient), hessian, **more)


def test_a_correction_explains_the_last_change_and_nothing_else():
    hessian = -np.array([[4.0, 1.0], [1.0, 2.0]])
    known = known_at([1.0, 2.0], [0.5, -0.5], hessian)
    theta, gradient = np.array([1.5, 1.0]), np.array([-1.0, 0.7])
    found = structured._corrected(known, theta, gradient)
    np.testing.assert_allclose(found @ (theta - [1.0, 2.0]), gradient - [0.5, -0.5], rtol=1e-12)
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.matrix_rank(found - hessian, tol=1e-9) == 1
    explained = known.gradient + hessian @ (theta - known.theta)
    np.testing.assert_array_equal(structured._corrected(known, theta, explained), hessian)
    # What was missed is across the step, all but for rounding, in any units.
    for units in (1e-4, 1.0, 1e4):
        across = explained + units * np.array([1.0, 0.5]) + 1e-12
        np.testing.assert_array_equal(structured._corrected(known, theta, across), hessian)
        some = explained + units * np.array([1.0, 0.5 + 1e-6])
        assert not np.array_equal(structured._corrected(known, theta, some), hessian)
    short = np.array([1.0, 2.0]) + 1e-5 * np.array([0.5, -1.0])
    across = known.gradient + hessian @ (short - known.theta) + np.array([1.0, 0.5 + 1e-6])
    assert not np.array_equal(structured._corrected(known, short, across), hessian)


@pytest.mark.parametrize(
    ("away", "most", "is_far"),
    [
        ([0.49, 0.0], 1.0, False), ([0.51, 0.0], 1.0, True), ([-0.51, 0.0], 1.0, True),
        ([0.0, 0.11], 1.0, True), ([0.0, 0.09], 1.0, False),
        ([0.0014, 0.0], 0.003, False), ([0.0016, 0.0], 0.003, True), ([1.4, 0.0], 3.0, False),
        ([1.6, 0.0], 3.0, True),
    ],
)  # fmt: skip
def test_far_is_more_than_so_many_standard_errors(away, most, is_far):
    where, hessian = np.zeros(2) + 3.0, -np.diag([4.0, 100.0])
    assert structured._is_far(where + away, where, hessian, most) is is_far


def test_exactly_so_many_standard_errors_are_not_far():
    assert not structured._is_far(np.array([0.5, 0.0]), np.zeros(2), -np.diag([4.0, 1.0]), 1.0)


def test_of_a_gaussian_posterior_all_is_exact():
    own = parts(0.0)
    found = structured._describe(own, THETA, START)
    expected = gaussian_log_likelihood(THETA)
    assert found.log_likelihood == found.laplace == pytest.approx(expected, rel=1e-12)
    mean = 0.3 + np.linalg.solve(TAU * K, Y)
    sd = np.sqrt(np.diag(np.linalg.inv(TAU * K)))
    np.testing.assert_allclose(found.mean, mean[None], rtol=1e-10)
    np.testing.assert_allclose(found.sd, sd[None], rtol=1e-10)
    assert found.error == found.undefined == 0.0
    assert found.structure == "3 latents"
    assert found.num_draws is found.effective_draws is found.pareto_k is None
    np.testing.assert_array_equal(found.score_covariance, np.zeros((2, 2)))
    draws = structured._draw(own, THETA, START, jax.random.key(1), 5000)
    assert draws.shape == (5000, 3)
    # Six standard errors of three means and three variances: budget 1e-8.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 6 * sd / np.sqrt(5000))
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(TAU * K), atol=0.06)
    assert structured._adapt(own, THETA, START).top is None


GAUSSIAN = Gaussian(jnp.arange(3.0), jnp.zeros(6), None)
FITTED = Gaussian(jnp.ones(3), jnp.zeros(6), None)


@pytest.mark.parametrize(
    ("known", "gaussian", "climbed"),
    [
        (START, FITTED, 1000),
        (known_at(THETA, THETA, np.eye(2)), FITTED, 1000),
        (known_at(THETA, THETA, np.eye(2), gaussian=GAUSSIAN, num_draws=77), GAUSSIAN, 77),
    ],
)
def test_of_another_posterior_value_and_draws_are_by_weights(monkeypatch, known, gaussian, climbed):
    own, asked = parts(), []
    value = StructuredLikelihood(
        0.0, 0.0, np.zeros((1, 3)), np.ones((1, 3)), 0.0, "", 0.0, 9, 9.0, 0.0, np.eye(2)
    )
    monkeypatch.setattr(structured, "best_gaussian", lambda *given: FITTED)
    monkeypatch.setattr(structured, "value_by_draws", lambda *given: asked.append(given) or value)
    monkeypatch.setattr(structured, "resampled", lambda *given: asked.append(given) or np.eye(3))
    assert structured._describe(own, THETA, known) is value
    assert asked[0][2] is gaussian
    assert asked[0][4] == climbed
    assert asked[0][3] == pytest.approx(structured._value(own, THETA, START))
    key = jax.random.key(0)
    np.testing.assert_array_equal(structured._draw(own, THETA, known, key, 3), np.eye(3))
    assert asked[1][2] is gaussian
    assert asked[1][3:] == (key, 3)


def test_last_steps_climb_the_likelihood_itself_by_draws(monkeypatch):
    own, asked, hessian = parts(), [], []
    top = Top(np.array([5.0, 6.0]), GAUSSIAN, 4000)

    def maximum(latents, theta, given, mode, fitting):
        hessian.append(given)
        assert theta is THETA
        assert fitting is FITTING
        return top

    def weigh(latents, theta, gaussian, count, seed):
        asked.append((np.asarray(theta), gaussian, count, seed))
        rest = np.zeros(1), np.zeros((2, 2)), np.zeros(3), np.ones(3), 0, ()
        return Weights(rest[0], -12.0, 0.1, np.array([0.1, 0.2]), *rest[1:])

    monkeypatch.setattr(structured, "maximum_by_draws", maximum)
    monkeypatch.setattr(structured, "weigh", weigh)
    function = structured._adapt(own, THETA, START)
    assert function.top is top.theta
    assert function.negligible == pytest.approx(1e-4)  # a step of 0.01 standard errors, and a half
    there = THETA + 0.1
    here = function.evaluate_finely(there, START)
    np.testing.assert_array_equal(asked[0][0], there)
    assert asked[0][1] is GAUSSIAN
    assert asked[0][2:] == (4000, 1)
    assert here.value == -12.0
    np.testing.assert_array_equal(here.gradient, [0.1, 0.2])
    assert here.hessian is hessian[0]
    np.testing.assert_allclose(hessian[0], by_differences(own, THETA), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(here.extra.modes, [np.arange(3.0)])
    assert here.extra.gaussian is GAUSSIAN
    assert here.extra.num_draws == 4000


def test_a_likelihood_to_be_climbed_has_all_its_parts():
    own = latents(0.0)
    function = structured._climbable(own, START)
    assert function.start is START
    assert function.structure is own.structure
    expected = gaussian_log_likelihood(THETA)
    assert function.value(THETA, START) == pytest.approx(expected)
    here = function.evaluate(THETA, START)
    assert here.value == pytest.approx(expected)
    assert function.evaluate(THETA, START) is here
    assert function.evaluate_finely(THETA, START).value == pytest.approx(expected)
    assert function.describe(THETA, START).log_likelihood == pytest.approx(expected)
    assert function.adapt(THETA, START).top is None
    assert function.draw(THETA, START, jax.random.key(0), 2).shape == (2, 3)
    assert function.rough_gain == pytest.approx(0.02**2 / 2)  # of a step of 0.02 standard errors
    assert function.first_radius == structured.FIRST_RADIUS

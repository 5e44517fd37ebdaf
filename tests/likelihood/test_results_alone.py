"""What each kind of likelihood says of itself: every sentence, and just when it is said."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.likelihood import results
from marginax.likelihood.results import (
    DrawsLikelihood,
    ImportanceLikelihood,
    QuadratureLikelihood,
    StructuredLikelihood,
)

QUADRATURE = QuadratureLikelihood(-100.0, 0.0, np.zeros(1), np.zeros(1), np.ones(1), 0.0, 29)
WEIGHTED = {
    "log_likelihood": -100.0, "error": 0.1, "mean": np.zeros(1), "sd": np.ones(1),
    "undefined": 0.0, "num_draws": 999, "effective_draws": 456.7, "pareto_k": 0.123,
}  # fmt: skip
IMPORTANCE = ImportanceLikelihood(
    **WEIGHTED, by_group=np.zeros(1), proposal="Gaussian", score_covariance=np.eye(1)
)
DRAWS = DrawsLikelihood(**WEIGHTED, by_group=None, proposal="t")
STRUCTURED = StructuredLikelihood(
    **WEIGHTED, structure="a chain", laplace=-101.234, score_covariance=np.eye(1)
)
EXACT = replace(STRUCTURED, num_draws=None, effective_draws=None, pareto_k=None)
MORE_MODES = (
    "The posterior of the latents has several modes, and every search from other points found "
    "more: the likelihood is too low by those not found, and the estimate may be another."
)
UNDEFINED = (
    "log_joint was NaN at 2.5% of the points of the integral, which counted as zero density. If "
    "that is not what NaN means there, the estimate is wrong."
)


def test_defaults_are_those_of_a_good_value():
    assert QUADRATURE.method == "quadrature"
    assert (QUADRATURE.num_modes, IMPORTANCE.num_modes) == (1, 1)
    assert QUADRATURE.modes_complete is IMPORTANCE.modes_complete is True
    assert QUADRATURE.estimate_error == QUADRATURE.score_error == 0
    assert QUADRATURE.quality == EXACT.quality == ""
    for value in (QUADRATURE, IMPORTANCE, DRAWS, STRUCTURED, EXACT):
        assert value.is_reliable is True
        assert value.warnings() == []
    assert STRUCTURED.by_group is None


def test_nothing_can_be_written_into_a_value():
    for value in (QUADRATURE, IMPORTANCE, DRAWS, STRUCTURED):
        with pytest.raises(AttributeError):
            value.error = 1.0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (replace(QUADRATURE, num_modes=3, rule="a rule"),
         "a rule, around up to 3 modes of a posterior"),
        (IMPORTANCE, "importance sampling, 999 draws from a Gaussian at the mode"),
        (replace(IMPORTANCE, num_modes=2),
         "importance sampling, 999 draws from a Gaussian at every mode, around up to 2 modes of a "
         "posterior"),
        (DRAWS, "importance sampling, 999 draws from a t with the mean and covariance of the "
                "posterior draws"),
        (STRUCTURED, "importance sampling, 999 draws from the Gaussian nearest to the posterior "
                     "(a chain)"),
        (EXACT, "exact, for a Gaussian posterior (a chain)"),
    ],
)  # fmt: skip
def test_methods_in_words(value, said):
    assert value.method == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (IMPORTANCE, "457 effective draws in the worst group, Pareto k 0.12"),
        (DRAWS, "457 effective draws, Pareto k 0.12"),
        (replace(DRAWS, pareto_k=None), "457 effective draws, equal weights"),
        (STRUCTURED,
         "457 effective draws, Pareto k 0.12; Laplace's approximation is -1.23 away"),
        (replace(STRUCTURED, laplace=-98.0),
         "457 effective draws, Pareto k 0.12; Laplace's approximation is +2.00 away"),
    ],
)  # fmt: skip
def test_what_weights_say(value, said):
    assert value.quality == said


@pytest.mark.parametrize("value", [IMPORTANCE, DRAWS, STRUCTURED])
@pytest.mark.parametrize(
    ("k", "effective", "is_reliable"),
    [
        (0.69, 201.0, True), (0.7, 200.0, True), (0.71, 201.0, False), (0.69, 199.0, False),
        (None, 200.0, True), (None, 199.0, False), (-0.5, 200.0, True),
    ],
)  # fmt: skip
def test_weights_are_believed_if_light_and_many(value, k, effective, is_reliable):
    value = replace(value, pareto_k=k, effective_draws=effective)
    assert value.is_reliable is is_reliable
    assert (value.warnings() == []) is is_reliable


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (IMPORTANCE, "Importance sampling"),
        (DRAWS, "The log likelihood"),
        (STRUCTURED, "Importance sampling"),
    ],
)
def test_heavy_weights_are_warned_of(value, what):
    heavy = replace(value, pareto_k=1.234, effective_draws=12.3)
    end = "12 effective draws): the posterior is far from Gaussian."
    tail = "Pareto k 1.23, which should be below 0.7; "
    assert heavy.warnings() == [f"{what} cannot be believed ({tail}{end}"]
    few = replace(value, pareto_k=None, effective_draws=12.3)
    assert few.warnings() == [f"{what} cannot be believed ({end}"]


def test_no_effective_draws_at_all_are_too_few():
    assert not results._is_reliable(replace(EXACT, num_draws=9))


def test_every_warning_follows_the_one_before():
    worst = {"undefined": 0.025, "modes_complete": False}
    assert replace(QUADRATURE, **worst).warnings() == [MORE_MODES, UNDEFINED]
    first, *rest = replace(IMPORTANCE, **worst, effective_draws=1.0).warnings()
    assert first.startswith("Importance sampling cannot")
    assert rest == [MORE_MODES, UNDEFINED]
    for value in (DRAWS, STRUCTURED, EXACT):
        assert replace(value, undefined=0.025).warnings() == [UNDEFINED]
    first, second = replace(DRAWS, undefined=0.025, pareto_k=0.8).warnings()
    assert first.startswith("The log likelihood cannot")
    assert second == UNDEFINED
    first, second = replace(STRUCTURED, undefined=0.025, pareto_k=0.8).warnings()
    assert first.startswith("Importance sampling cannot")
    assert second == UNDEFINED


@pytest.mark.parametrize(("share", "is_said"), [(0.9e-9, False), (1e-9, True), (0.5, True)])
def test_shares_of_nothing_are_not_worth_a_word(share, is_said):
    assert bool(replace(QUADRATURE, undefined=share).warnings()) is is_said


@pytest.mark.parametrize(
    ("error", "estimate_error", "said"),
    [
        (0.05, 0.05, None),
        (0.0612, 0.5, "differ by 0.061 in the log likelihood: it is known no better."),
        (0.0, 0.0612,
         "differ by 0.061 standard errors in the estimate: it is known no better."),
    ],
)  # fmt: skip
def test_rules_that_differ_are_warned_of(error, estimate_error, said):
    value = replace(QUADRATURE, error=error, estimate_error=estimate_error)
    head = "Two quadrature rules, the finer with 29 nodes per dimension, "
    assert value.warnings() == ([] if said is None else [head + said])


def with_errors(error=0.0, score_error=0.0, num_groups=1):
    by_group = np.zeros(num_groups)
    return replace(QUADRATURE, error=error, score_error=score_error, by_group=by_group)


@pytest.mark.parametrize(
    ("num_groups", "times", "allowed"),
    [(1, 1.0, 2e-5), (300, 1.0, 2e-5), (600, 1.0, 4e-5), (600, 10.0, 4e-4), (30, 3.0, 6e-5)],
)
def test_two_rules_agree_within_an_error_that_grows_with_the_groups(num_groups, times, allowed):
    flat = -np.eye(1)
    for error, agree in ((0.99 * allowed, True), (allowed, True), (1.01 * allowed, False)):
        assert with_errors(error, 0.0, num_groups).is_accurate(flat, times) is agree
    assert with_errors(1.5e-5).is_accurate(flat)
    assert not with_errors(2.5e-5).is_accurate(flat)


def test_two_rules_agree_within_a_shift_in_standard_errors():
    # A gradient that is wrong by e moves a standard error by e / sqrt(information): here by e / 2.
    hessian = np.array([[-4.0]])
    for times in (1.0, 5.0):
        for share, agree in ((0.99, True), (1.01, False)):
            value = with_errors(0.0, np.array([2 * share * times * 3e-4]))
            assert value.is_accurate(hessian, times) is agree
    exactly = with_errors(0.0, np.array([3e-4]))
    assert exactly.is_accurate(-np.eye(1))  # no less than allowed


def test_the_shift_is_newtons_step_and_its_length():
    root = np.array([[1.0, 0.0, 0.0], [0.5, 3.0, 0.0], [0.2, -0.4, 20.0]])
    information, error = root @ root.T, np.array([0.3, -0.2, 5.0])
    step, largest = with_errors(0.0, error).shift(-information)
    np.testing.assert_allclose(step, np.linalg.solve(information, error), rtol=1e-12)
    # In standard errors along the principal axes of the information scaled to a unit diagonal.
    size = np.sqrt(np.diag(information))
    w, v = np.linalg.eigh(information / np.outer(size, size))
    expected = np.abs(v.T @ (size * step)) * np.sqrt(w)
    np.testing.assert_allclose(largest, expected.max(), rtol=1e-12)


def test_the_shift_does_not_depend_on_units():
    information, error = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.1, -0.3])
    units = np.array([1e6, 1e-3])
    plain = with_errors(0.0, error).shift(-information)
    step, largest = with_errors(0.0, error * units).shift(-information * np.outer(units, units))
    np.testing.assert_allclose(step * units, plain[0], rtol=1e-9)
    np.testing.assert_allclose(largest, plain[1], rtol=1e-9)


def test_an_uneven_hessian_counts_as_the_mean_of_it_and_its_transpose():
    uneven, error = np.array([[2.0, 0.9], [0.1, 1.0]]), np.array([0.1, -0.3])
    even = np.array([[2.0, 0.5], [0.5, 1.0]])
    found, expected = with_errors(0.0, error).shift(-uneven), with_errors(0.0, error).shift(-even)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("flat", "moved"),
    [
        (np.diag([-4.0, 0.0]), [0.25, 0.0]),
        (np.diag([-4.0, 1.0]), [0.25, 0.0]),  # the likelihood rises to both sides
        (np.array([[-4.0, -4.0], [-4.0, -4.0]]), [0.125, 0.125]),
        (np.array([[-4.0, -4.0], [-4.0, -4.0 - 4e-6]]), [0.125, 0.125]),  # 5e-7 of the whole
    ],
)
def test_flat_directions_have_no_standard_error(flat, moved):
    error = np.array([1.0, 1e-9 if flat[0, 1] == 0 else 1.0])
    step, largest = with_errors(0.0, error).shift(flat)
    np.testing.assert_allclose(step, moved, rtol=1e-5, atol=1e-12)
    assert largest == pytest.approx(0.5, rel=1e-5)


def test_a_direction_with_a_little_information_counts():
    little = np.array([[-1.0, -1.0 + 4e-6], [-1.0 + 4e-6, -1.0]])  # of which 4e-6 along (1, -1)
    error = np.array([1e-3, -1e-3])
    step, largest = with_errors(0.0, error).shift(little)
    np.testing.assert_allclose(step, [250.0, -250.0], rtol=1e-6)
    assert largest == pytest.approx(np.sqrt(2) * 1e-3 / 2e-3, rel=1e-6)


def test_of_no_parameters_nothing_moves():
    step, largest = with_errors(0.0, np.zeros(0)).shift(np.zeros((0, 0)))
    assert step.shape == (0,)
    assert largest == 0

"""Which method is chosen for which problem, and how few nodes a sample of the groups allows."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.likelihood import methods
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.quadrature import ORDERS
from marginax.likelihood.results import QuadratureLikelihood

THETA = np.zeros(2)
MESH = jax.make_mesh((1,), ("groups",))


def problem(size, num_groups=None, structure=None):
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - theta[0]) ** 2)

    if num_groups is None:
        return mx.Problem(log_joint, jnp.zeros(2), jnp.zeros(size), structure=structure)
    return mx.Problem.grouped(
        log_joint, np.zeros(num_groups), theta=jnp.zeros(2), latent=jnp.zeros(size)
    )


def with_structure(nonzeros, size):
    structure = SimpleNamespace(pattern=SimpleNamespace(nonzeros=nonzeros), size=size)
    return LikelihoodFunction(None, None, None, structure=structure)


SPARSE = with_structure(3, 1000)
DENSE = with_structure(10**6, 1000)


@pytest.fixture
def chosen(monkeypatch):
    """What was asked for, in order; `chosen.found` is what `structured_likelihood` gives."""
    asked = SimpleNamespace(of=[], found=SPARSE)

    def structured(problem, theta):
        asked.of.append(("structured", problem, theta))
        return asked.found

    def quadrature(problem, mesh=None):
        asked.of.append(("quadrature", problem, mesh))
        return LikelihoodFunction(None, None, None)

    def importance(problem, theta, mesh):
        asked.of.append(("importance", problem, theta, mesh))
        return LikelihoodFunction(None, None, None)

    monkeypatch.setattr(methods, "structured_likelihood", structured)
    monkeypatch.setattr(methods, "quadrature_likelihood", quadrature)
    monkeypatch.setattr(methods, "importance_likelihood", importance)
    return asked


@pytest.mark.parametrize("size", [1, 3])
def test_groups_of_few_latents_have_quadrature(chosen, size):
    few = problem(size, 5)
    assert isinstance(methods.choose_likelihood(few, THETA, MESH), LikelihoodFunction)
    assert chosen.of == [("quadrature", few, MESH)]


@pytest.mark.parametrize(
    ("size", "num_groups", "mesh"),
    [(4, 2, None), (400, 2, MESH), (3, None, None), (150, None, None), (200, None, MESH)],
)
def test_up_to_400_latents_have_importance_sampling(chosen, size, num_groups, mesh):
    some = problem(size, num_groups)
    assert isinstance(methods.choose_likelihood(some, THETA, mesh), LikelihoodFunction)
    assert chosen.of == [("importance", some, THETA, mesh)]


def test_of_more_in_a_group_there_is_no_likelihood(chosen):
    assert methods.choose_likelihood(problem(401, 2), THETA) is None
    assert chosen.of == []


@pytest.mark.parametrize(
    ("size", "found", "is_used"),
    [
        (151, SPARSE, True),
        (151, DENSE, False),
        (400, DENSE, False),
        (401, DENSE, True),
        (401, SPARSE, True),
        (151, "No structure.", False),
    ],
)
def test_one_large_block_has_factors_if_these_are_sparse_or_there_is_nothing_else(
    chosen, size, found, is_used
):
    chosen.found = found
    large = problem(size)
    given = methods.choose_likelihood(large, THETA)
    assert chosen.of[0] == ("structured", large, THETA)
    assert (given is found) is is_used
    assert len(chosen.of) == (1 if is_used else 2)


def test_a_large_block_without_structure_has_no_likelihood(chosen):
    chosen.found = "No structure."
    assert methods.choose_likelihood(problem(401), THETA) is None
    assert [one[0] for one in chosen.of] == ["structured"]


def test_a_structure_that_is_named_is_used_or_missed_aloud(chosen):
    small = problem(3, structure="sparse")
    assert methods.choose_likelihood(small, THETA) is SPARSE
    assert chosen.of == [("structured", small, THETA)]
    chosen.found = "It is full."
    with pytest.raises(ValueError, match="structure is 'sparse', but there is none. It is full."):
        methods.choose_likelihood(small, THETA)


@pytest.mark.parametrize(
    ("nonzeros", "size", "is_sparse"),
    [(25, 10, True), (26, 10, False), (10, 10, True), (1, 2, True), (2, 2, False)],
)
def test_a_quarter_of_the_matrix_is_sparse(nonzeros, size, is_sparse):
    assert methods._is_sparse(with_structure(nonzeros, size)) is is_sparse


def test_no_structure_is_not_sparse():
    assert methods._is_sparse(LikelihoodFunction(None, None, None)) is False


# An information of 100 and of 4 with a covariance, whose errors are 0.1 and 0.5 without it.
HESSIAN = -np.array([[100.0, 8.0], [8.0, 4.0]])
ERRORS = np.sqrt(np.diag(np.linalg.inv(-HESSIAN)))
TOP = Climb(np.array([1.0, 2.0]), Local(-9.0, np.array([0.3, -0.4]), HESSIAN, "modes"), 3, True)
WHOLE, SAMPLE = problem(2, 36), problem(2, 4)
# A third of a standard error of the sample is one of nine times as many groups.
ALLOWED = 0.01 * ERRORS / 3


@pytest.fixture
def by_order(monkeypatch):
    """Rules; `shares` of what is allowed by which those of few nodes would move the estimate."""
    at = SimpleNamespace(shares={}, error=0.0, described=None, asked=[])

    def quadrature(problem, mesh=None, order=None):
        def evaluate(theta, extra):
            assert problem is SAMPLE
            assert theta is TOP.theta
            assert extra == "modes"
            at.asked.append(order)
            moved = ALLOWED * np.array(at.shares.get(order, (9.0, 9.0)))
            return Local(-9.0, TOP.local.gradient - HESSIAN @ moved, HESSIAN, extra)

        def describe(theta, extra):
            assert problem is SAMPLE
            assert order is None
            assert theta is TOP.theta
            assert extra == "modes"
            if at.described is not None:
                return at.described
            return QuadratureLikelihood(-9.0, at.error, *np.zeros((3, 4)), 0.0, 29)

        return LikelihoodFunction((problem, mesh, order), evaluate, describe)

    monkeypatch.setattr(methods, "quadrature_likelihood", quadrature)
    return at


@pytest.mark.parametrize(
    ("shares", "order"),
    [
        ({5: (0.9, -0.9)}, 5),
        ({5: (0.9, -1.1), 7: (0.9, 0.9)}, 7),
        ({5: (-1.1, 0.9), 6: (0.0, 0.0), 7: (2.0, 2.0), 8: (0.0, 0.0), 9: (0.0, 0.0)}, 9),
        ({11: (0.0, 0.0)}, 11),
    ],
)
def test_the_fewest_nodes_are_taken_that_hardly_move_the_estimate(by_order, shares, order):
    by_order.shares = shares
    found = methods.likelihood_of_all(WHOLE, SAMPLE, TOP, MESH)
    assert found.start == (WHOLE, MESH, order)
    assert by_order.asked == list(range(5, order + 1, 2))
    assert found.rule_is_known is True


def test_what_is_reported_has_the_usual_nodes(by_order):
    by_order.shares = {5: (0.0, 0.0)}
    found = methods.likelihood_of_all(WHOLE, SAMPLE, TOP)
    described = dict(
        zip(found.describe.__code__.co_freevars, found.describe.__closure__, strict=True)
    )
    assert described["order"].cell_contents is None
    assert described["problem"].cell_contents is WHOLE
    assert found.evaluate.__closure__ is not None


def test_the_usual_nodes_are_taken_where_no_fewer_do(by_order):
    found = methods.likelihood_of_all(WHOLE, SAMPLE, TOP, MESH)
    assert found.start == (WHOLE, MESH, None)
    assert found.rule_is_known is False
    assert by_order.asked == list(range(5, ORDERS[2], 2))


def test_the_usual_nodes_are_taken_where_even_these_are_inaccurate(by_order):
    by_order.error, by_order.shares = 1.0, {5: (0.0, 0.0)}
    found = methods.likelihood_of_all(WHOLE, SAMPLE, TOP, MESH)
    assert found.start == (WHOLE, MESH, None)
    assert by_order.asked == []


def test_of_a_value_by_another_rule_nothing_is_known_and_few_nodes_may_do(by_order):
    by_order.described, by_order.shares = "another type", {5: (0.0, 0.0)}
    assert methods.likelihood_of_all(WHOLE, SAMPLE, TOP).start == (WHOLE, None, 5)


def test_three_latents_have_quadrature_of_all_and_four_the_usual_choice(by_order, monkeypatch):
    asked = []
    monkeypatch.setattr(methods, "choose_likelihood", lambda *given: asked.append(given))
    four = problem(4, 36)
    assert methods.likelihood_of_all(four, SAMPLE, TOP, MESH) is None
    assert asked == [(four, TOP.theta, MESH)]
    three = problem(3, 36)
    found = methods.likelihood_of_all(three, SAMPLE, TOP, MESH)
    assert found.start == (three, MESH, None)
    assert len(asked) == 1

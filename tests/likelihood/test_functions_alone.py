"""A likelihood as a function: the cheapest value, and what evaluations hand on."""

import jax.numpy as jnp
import numpy as np

from marginax.likelihood.functions import (
    FineStart,
    LikelihoodFunction,
    StructuredStart,
    modes_of,
)
from marginax.likelihood.newton import Local

MODES = jnp.zeros((2, 3))


def evaluate(theta, start):
    return Local(theta.sum() + len(start), np.zeros(2), np.eye(2), start)


def test_a_value_is_by_the_cheapest_program():
    plain = LikelihoodFunction(MODES, evaluate, None)
    assert plain.value_at(np.array([1.0, 2.0]), "start") == 8.0
    cheap = plain._replace(value=lambda theta, start: -theta.sum() - len(start))
    assert cheap.value_at(np.array([1.0, 2.0]), "start") == -8.0


def test_nothing_is_known_of_a_function_that_does_not_say_so():
    plain = LikelihoodFunction(MODES, evaluate, None)
    assert plain.rule_is_known is False
    assert 0 < plain.rough_gain < 1e-6
    assert 0 < plain.negligible < 1e-6
    assert plain.first_radius == 2.0


def test_modes_are_taken_from_whatever_was_handed_on():
    structured = StructuredStart(MODES, np.zeros(1), np.zeros(1), np.zeros((1, 1)))
    assert structured.num_draws == 0
    assert modes_of(structured) is MODES
    assert modes_of(FineStart(MODES, None)) is MODES
    assert modes_of(MODES) is MODES
    assert modes_of(None) is None

"""Fits of one model to other data compile nothing again, and another model is never mistaken."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.model.model_key import shared_model

pytestmark = pytest.mark.usefixtures("as_users_write")


def log_joint(theta, x, y):
    """y_i ~ N(x, 1), x ~ N(mean, sd^2), of one group."""
    prior = -0.5 * ((x - theta["mean"]) / theta["sd"]) ** 2 - jnp.log(theta["sd"])
    return prior - 0.5 * jnp.sum((y - x) ** 2)


def problem_of(y, function=log_joint):
    return mx.Problem.grouped(
        function,
        y,
        theta={"mean": 0.0, "sd": 1.0},
        latent=0.0,
        theta_transforms={"sd": mx.transforms.positive},
    )


def data(seed):
    return np.random.default_rng(seed).normal(size=(12, 3)) * 2


@pytest.mark.slow
def test_a_study_compiles_once():
    programs = []

    def count(event, seconds, fun_name="", **_):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            programs.append(fun_name)

    first = mx.fit(problem_of(data(0)), key=jax.random.key(0))
    problem = problem_of(data(1))
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        second = mx.fit(problem, key=jax.random.key(0))
        assert programs == []
        # Another function: everything anew, in fewer than ten programs.
        mx.fit(
            problem_of(data(1), lambda t, x, y: log_joint(t, x, y) - 0.25 * x**4),
            key=jax.random.key(0),
        )
        assert 5 <= len(programs) <= 10, " ".join(
            programs
        )  # one of them is the check of the new problem
    finally:
        jax.monitoring.clear_event_listeners()
    alone = mx.fit(problem_of(jnp.asarray(data(1)) + 0), key=jax.random.key(0))
    np.testing.assert_array_equal(second.estimates, alone.estimates)
    assert np.abs(first.estimates - second.estimates).max() > 1e-3
    means = data(1).mean(axis=1)
    np.testing.assert_allclose(second.theta["mean"], means.mean(), atol=1e-6)


def test_what_is_the_same_model():
    one = shared_model(problem_of(data(0)))
    assert one.data is None
    assert shared_model(problem_of(data(1))) is one
    assert (
        shared_model(problem_of(data(0), lambda t, x, y: log_joint(t, x, y))) is one
    )  # written again
    assert shared_model(problem_of(data(0)).with_data(data(2))) is one
    assert shared_model(problem_of(data(0)[:, :2])) is not one  # other shapes
    free = mx.Problem.grouped(
        log_joint, data(0), theta={"mean": 0.0, "sd": 1.0}, latent=0.0
    )  # without the constraint
    assert shared_model(free) is not one


def test_constants_that_a_function_reads_count():
    # The bug: a global variable changed between two fits, and the programs of the first used.
    scale = {"value": 1.0, "array": jnp.ones(3)}

    def reads(theta, x, y):
        return log_joint(theta, x * scale["value"], y * scale["array"])

    problem = problem_of(data(0), reads)
    before = shared_model(problem)
    scale["value"] = 2.0
    assert shared_model(problem) is not before
    scale["value"] = 1.0
    assert shared_model(problem) is before
    scale["array"] = jnp.array([1.0, 2.0, 1.0])
    assert shared_model(problem) is not before


def forward_rule(slope):
    @jax.custom_jvp
    def square(x):
        return x**2

    square.defjvp(lambda primals, tangents: (primals[0] ** 2, slope * tangents[0]))
    return lambda theta, x, y: log_joint(theta, x, y) - square(x)


def reverse_rule(slope):
    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (x**2, None), lambda _, cotangent: (slope * cotangent,))
    return lambda theta, x, y: log_joint(theta, x, y) - square(x)


@pytest.mark.parametrize("with_rule", [forward_rule, reverse_rule])
def test_rules_that_the_text_does_not_show_are_told_apart_by_function(with_rule):
    # The bug: rules of reverse derivatives were overlooked, and a fit took those of another model.
    one, two = with_rule(1.0), with_rule(2.0)
    assert shared_model(problem_of(data(0), one)) is not shared_model(problem_of(data(0), two))
    assert shared_model(problem_of(data(0), one)) is shared_model(problem_of(data(1), one))


def test_a_shared_model_does_not_keep_the_data():
    problem = problem_of(data(3) ** 2)
    left = weakref.ref(problem.data)
    shared_model(problem)
    del problem
    gc.collect()
    assert left() is None


def test_blocks_of_the_same_names_are_the_same_model():
    """A tree of names was equal to itself alone, so that every data set compiled anew."""

    def problem(blocks):
        return mx.Problem(
            lambda theta, x, y: -0.5 * jnp.sum((x["a"] - theta) ** 2) - 0.5 * jnp.sum(x["b"] ** 2),
            theta=0.0,
            latent={"a": jnp.zeros(2), "b": jnp.zeros((2, 3))},
            latent_blocks=blocks,
        )

    first = shared_model(problem({"a": "row", "b": ("row", "column")}))
    assert shared_model(problem({"a": "row", "b": ("row", "column")})) is first
    assert shared_model(problem({"a": "row", "b": "row"})) is not first
    assert shared_model(problem({"a": None, "b": ("row", "column")})) is not first
    assert shared_model(problem(None)) is not first

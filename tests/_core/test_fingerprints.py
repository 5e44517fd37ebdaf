"""Fingerprints see every array that a function closes over, however deep in jitted programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._core.fingerprints import constants, digest, text_of
from marginax.errors import CheckpointError
from marginax.model.model_key import shared_model

X = np.random.default_rng(0).normal(size=(6, 3))


def plainly(weights):
    return lambda x: jnp.sum(weights * x)


def jitted(weights):
    return jax.jit(plainly(weights))


def in_a_loop(weights):
    return lambda x: jax.lax.fori_loop(0, 3, lambda i, total: total + jitted(weights)(x), 0.0)


def in_a_branch(weights):
    return lambda x: jax.lax.cond(x[0] > 0, jitted(weights), jitted(jnp.ones(3)), x)


def differentiated(weights):
    return lambda x: jnp.sum(jax.grad(jitted(weights))(x) * x)


def rematerialised(weights):
    return lambda x: jax.checkpoint(jitted(weights))(x)


def prints_of(function):
    traced = jax.make_jaxpr(function)(jnp.ones(3))
    return digest(text_of(traced), constants(traced))


@pytest.mark.parametrize(
    "build", [plainly, jitted, in_a_loop, in_a_branch, differentiated, rematerialised]
)
@pytest.mark.parametrize("library", [np, jnp])
def test_closed_over_arrays_count_at_every_depth(build, library):
    # The bug: constants of an inner program stand neither in the text nor among the outer ones.
    one = prints_of(build(library.asarray([1.0, 2.0, 3.0])))
    assert prints_of(build(library.asarray([1.0, 2.0, 3.0]))) == one
    assert prints_of(build(library.asarray([1.0, 2.0, 4.0]))) != one


def test_which_program_holds_which_array_counts():
    a, b = jitted(jnp.arange(3.0)), jitted(jnp.ones(3))
    assert prints_of(lambda x: a(x) + a(2 * x) - b(3 * x)) != prints_of(
        lambda x: a(x) + b(2 * x) - a(3 * x)
    )


def test_numbers_in_the_text_have_all_their_digits():
    with jax.enable_x64(True):
        prints = {prints_of(lambda x, c=c: jnp.sum(x * c)) for c in (0.1, 0.1 + 1e-10, 0.1 + 1e-16)}
    assert len(prints) == 3


def test_a_checksum_knows_shapes_dtypes_and_order():
    arrays = [np.zeros(2), np.zeros((2, 1)), np.zeros(2, int), np.zeros(4, np.float32), "\0" * 16]
    assert len({digest(array) for array in arrays}) == len(arrays)
    assert digest("a", np.zeros(2)) != digest(np.zeros(2), "a")
    assert digest("ab", "c") != digest("a", "bc")


def test_a_jitted_model_is_not_mistaken_for_its_sibling():
    # The bug: the second fit runs on the arrays of the first, and nothing shows it.
    def problem(weights):
        @jax.jit
        def log_joint(theta, x, y):
            return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum(weights * (y - x) ** 2)

        return mx.Problem.grouped(log_joint, X, theta=0.0, latent=0.0)

    one = shared_model(problem(jnp.array([1.0, 2.0, 3.0])))
    assert shared_model(problem(jnp.array([1.0, 2.0, 3.0]))) is one
    assert shared_model(problem(jnp.array([1.0, 2.0, 4.0]))) is not one


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [jax.jit, lambda function: function])
def test_a_folder_of_a_model_with_other_arrays_is_refused(tmp_path, wrap):
    # The bug: what a run traces is a jitted program, whose constants were not looked at.
    def run(weights, max_steps):
        @wrap
        def log_joint(theta, x, y):
            return -0.5 * jnp.sum((x - theta) ** 2) - 0.5 * jnp.sum(weights * (y - x) ** 2)

        method = mx.pgd(log_joint, 0.05, 0.05)
        settings = {"block_size": 20, "stop": mx.stopping.never(), "diagnose": False}
        return mx.run(
            *(method, 0.0, X, jnp.ones(3)),
            key=jax.random.key(0),
            **(settings | {"max_steps": max_steps, "checkpoint": tmp_path}),
        )

    run(jnp.array([1.0, 2.0, 3.0]), 40)
    assert run(jnp.array([1.0, 2.0, 3.0]), 80).num_steps == 80  # its own folder
    with pytest.raises(CheckpointError, match="another algorithm, model or setting"):
        run(jnp.array([1.0, 2.0, 4.0]), 120)

"""A density as one object: what it knows, that it keeps it, and that a wrapper does not hide it."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.model.log_joint import Batching, as_log_joint, take_rows

Y = jnp.arange(12.0).reshape(6, 2)
QUIET = {"max_steps": 20, "block_size": 10, "stop": mx.stopping.never(), "diagnose": False}


def of_a_group(theta, x, y):
    return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)


@pytest.fixture
def problem():
    return mx.Problem.grouped(of_a_group, Y, theta=0.0, latent=0.0)


def cloud(groups=6):
    return jax.random.normal(jax.random.key(1), (5, groups))


def test_a_plain_function_knows_nothing():
    density = as_log_joint(of_a_group)
    assert density(0.0, 1.0, Y[0]) == of_a_group(0.0, 1.0, Y[0])
    assert (density.batching, density.blocks, density.num_groups) == (None, "whole", None)
    assert density.theta_weight(cloud()) == 1
    assert density.chunk_size(cloud(), 1) is None
    assert as_log_joint(density) is density


def test_a_grouped_problem_says_what_it_is_made_of(problem):
    density = problem.unconstrained_log_joint
    assert density is problem.unconstrained_log_joint  # one object: nothing compiles twice
    assert (density.num_groups, density.blocks) == (6, "leading")
    assert density.theta_weight(cloud(3)) == 2  # half of the groups count twice
    assert density.chunk_size(cloud(), 10) == 2  # ten rows are two groups of five particles
    assert density.chunk_size(cloud(), 30) is None  # all of them
    expected = sum(of_a_group(0.3, x, y) for x, y in zip(cloud()[0], Y, strict=True))
    np.testing.assert_allclose(density(0.3, cloud()[0], Y), expected)


def test_groups_known_all_at_once_only_are_not_taken_apart():
    together = mx.Problem.grouped(
        lambda theta, x, y: jax.vmap(of_a_group, (None, 0, 0))(theta, x, y),
        Y,
        theta=0.0,
        latent=0.0,
        num_groups=6,
    )
    density = together.unconstrained_log_joint
    assert density.num_groups is None
    assert density.blocks == "leading"


def test_a_problem_of_other_data_or_precision_has_a_density_of_its_own(problem):
    # The bug: a copy with the original's density would hold on to the original's data.
    bare = problem.without_data()
    assert bare.unconstrained_log_joint is not problem.unconstrained_log_joint
    assert bare.unconstrained_log_joint.function.__self__ is bare


def test_minibatches_are_part_of_the_density():
    density = mx.minibatched(lambda theta, x: -(x**2), lambda theta, x, y: -((y - x) ** 2), 6)
    assert isinstance(density, mx.LogJoint)
    assert density.batching == Batching(6, take_rows)
    assert density.num_groups is None


def test_wrapping_keeps_the_structure(problem):
    density = problem.unconstrained_log_joint
    half = density.wrap(lambda theta, x, y: 0.5 * density(theta, x, y))
    assert (half.batching, half.blocks) == (density.batching, density.blocks)
    assert float(half(0.0, cloud()[0], Y)) == 0.5 * float(density(0.0, cloud()[0], Y))
    method = mx.svgd_em(half, 0.1, 0.1, mx.kernels.blockwise(mx.kernels.rbf(1.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = mx.run(method, 0.0, cloud(), Y, key=jax.random.key(0), batch_size=2, **QUIET)
    assert ran.num_steps == 20


@pytest.mark.parametrize("by", ["run", "trajectory"])
def test_a_function_around_it_is_told_what_it_hides(problem, by):
    # The bug: a lambda silently lost chunks and batches.
    density = problem.unconstrained_log_joint
    method = mx.svgd_em(lambda *parts: density(*parts), 0.1, 0.1, mx.kernels.rbf(1.0))
    how = {"run": (mx.run, QUIET), "trajectory": (mx.trajectory, {"num_steps": 2})}
    loop, settings = how[by]
    with pytest.warns(UserWarning, match=r"knows \(here: its groups\).*`its.wrap\(function\)`"):
        loop(method, 0.0, cloud(), Y, key=jax.random.key(0), **settings)


def test_a_problem_around_a_problem_is_told_nothing(problem):
    # Its latent is another one: there is nothing that a loop could use.
    inner = mx.LogJoint(lambda theta, x, y: -0.5 * jnp.sum((x - theta) ** 2), blocks="leaves")
    method = mx.svgd_em(lambda *parts: inner(*parts), 0.1, 0.1, mx.kernels.rbf(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.trajectory(method, 0.0, cloud(), None, 2, key=jax.random.key(0))

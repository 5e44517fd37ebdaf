"""Problems: constraints, names, groups of different sizes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax.likelihood.quadrature import quadrature_likelihood
from marginax.model import parameter_table
from marginax.model.parameter_table import parameter_names
from marginax.model.transforms import (
    interval,
    positive,
)


def log_joint(theta, x, y):
    return -0.5 * jnp.sum((x - theta["m"]) ** 2) / theta["sd"] ** 2 - jnp.sum((y - x) ** 2)


def grouped(**more):
    options = {"theta": {"m": 0.5, "sd": 2.0}, "latent": 0.0} | more
    options.setdefault("theta_transforms", {"sd": positive})
    return mx.Problem.grouped(log_joint, jnp.ones((4, 3)), **options)


def test_the_unconstrained_log_joint_is_the_users_at_constrained_values(key):
    problem = grouped(latent_transforms=positive, latent=1.0)
    theta = {"m": jnp.asarray(0.3), "sd": jnp.asarray(-0.7)}
    latent = jax.random.normal(key, (4,))
    by_hand = sum(
        log_joint({"m": 0.3, "sd": jnp.exp(-0.7)}, jnp.exp(x), jnp.ones(3)) + x for x in latent
    )
    np.testing.assert_allclose(
        problem.unconstrained_log_joint(theta, latent, problem.data), by_hand, rtol=1e-6
    )


def test_a_group_log_joint_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\), but it must be one number"):
        mx.Problem.grouped(
            lambda theta, x, y: theta + x + y, jnp.ones((4, 3)), theta=0.0, latent=0.0
        )


def test_theta_starts_and_returns_on_its_own_scale():
    problem = grouped()
    np.testing.assert_allclose(problem.start_theta()["sd"], np.log(2.0), rtol=1e-6)
    back = problem.constrained_theta(problem.start_theta())
    np.testing.assert_allclose(ravel_pytree(back)[0], [0.5, 2.0], rtol=1e-6)
    assert problem.num_parameters == 2
    assert problem.latent_size == 1


def test_names_come_from_the_tree_or_from_the_user():
    theta = {"b": jnp.zeros(2), "s": {"in": 1.0}}

    def density(theta, x, y):
        return -jnp.sum(x**2) - jnp.sum(theta["b"] ** 2) - theta["s"]["in"]

    def problem(**more):
        return mx.Problem(density, theta=theta, latent=jnp.zeros(2), **more)

    assert parameter_names(problem()) == ("b[0]", "b[1]", "s.in")
    named = problem(names={"b": ["intercept", "slope"], "s.in": "noise"})
    assert parameter_names(named) == ("intercept", "slope", "noise")
    with pytest.raises(ValueError, match=r"names\['b'\] has 1 names, but theta has 2"):
        parameter_names(problem(names={"b": ["only"]}))


def test_pad_groups_keeps_every_row():
    padded = mx.pad_groups(["b", "a", "b", "b"], y=[1.0, 2.0, 3.0, 4.0], t=[1, 2, 3, 4])
    np.testing.assert_array_equal(padded["mask"], [[1, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(padded["y"], [[2, 2, 2], [1, 3, 4]])
    np.testing.assert_array_equal(padded["t"][1], [1, 3, 4])
    with pytest.raises(ValueError, match="Column 'y' has 1 rows"):
        mx.pad_groups(["a", "b"], y=[1.0])
    # The bugs: a column that replaced the mask, and an empty table refused in NumPy's words.
    with pytest.raises(ValueError, match="called 'mask'.*another name"):
        mx.pad_groups(["a", "b"], mask=[1.0, 0.0])
    with pytest.raises(ValueError, match="no rows.*at least one"):
        mx.pad_groups([], y=[])


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: grouped(theta={"m": 0.0, "sd": -1.0}), ValueError, "not inside positive"),
        (lambda: grouped(theta_transforms={"sdd": positive}), ValueError, "names \\['sdd'\\]"),
        (lambda: grouped(latent=jnp.zeros((), int)), TypeError, "discrete latent"),
        (lambda: interval(1.0, 1.0), ValueError, "empty or not finite"),
        (
            lambda: mx.Problem.grouped(
                log_joint, {"y": jnp.ones((4, 3)), "t": jnp.ones(3)}, theta={"m": 0.0}, latent=0.0
            ),
            ValueError,
            "share a leading axis",
        ),
        (lambda: grouped(latent=jnp.nan), ValueError, "finite|NaN|nan"),
    ],
)
def test_bad_problems_are_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_density_that_is_nowhere_finite_is_refused():
    with pytest.raises(ValueError, match="-inf|finite|NaN"):
        mx.Problem(lambda theta, x, y: jnp.log(-jnp.ones(())) + x, theta=0.0, latent=0.0)


@pytest.mark.slow
def test_a_group_without_data_is_its_prior():
    """All of its mask is 0: it adds nothing to the likelihood."""

    def density(theta, x, data):
        prior = -0.5 * (x - theta) ** 2 - 0.5 * jnp.log(2 * jnp.pi)
        return prior + jnp.sum(data["mask"] * (-0.5 * (data["y"] - x) ** 2))

    data = {"y": np.array([[1.0, 2.0], [3.0, 3.0], [9.0, 9.0]]), "mask": np.ones((3, 2))}
    data["mask"][2] = 0.0
    found = []
    for rows in (2, 3):
        part = {k: v[:rows] for k, v in data.items()}
        likelihood = quadrature_likelihood(mx.Problem.grouped(density, part, theta=0.0, latent=0.0))
        theta = np.array([0.7])
        here = likelihood.evaluate(theta, likelihood.start)
        found.append((here, likelihood.describe(theta, likelihood.start)))
    (two, without), (three, with_it) = found
    np.testing.assert_allclose(two.gradient, three.gradient, rtol=1e-6)
    np.testing.assert_allclose(without.by_group, with_it.by_group[:2], rtol=1e-6)
    np.testing.assert_allclose(with_it.by_group[2], 0.0, atol=1e-8)


def test_parameters_stay_in_the_order_in_which_they_were_written():
    # JAX sorts the keys of dicts, and tables had "between" before "mean".
    theta = {"mean": 1.0, "sd": {"within": 2.0, "between": 3.0}, "a": jnp.array([4.0, 5.0])}

    def log_joint(theta, x, y):
        scale = theta["sd"]["within"] + theta["sd"]["between"] ** 2
        return -0.5 * jnp.sum((x - theta["mean"] - theta["a"][0]) ** 2 + (y - x) ** 2) / scale

    positive = {"sd": {"within": mx.transforms.positive, "between": mx.transforms.positive}}
    problem = mx.Problem(log_joint, theta, jnp.zeros(3), jnp.ones(3), theta_transforms=positive)
    for one in (problem, problem.with_data(jnp.zeros(3))):
        names = parameter_table.parameter_names(one)
        assert names == ("mean", "sd.within", "sd.between", "a[0]", "a[1]")
        flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(one.start_theta())])
        numbers, jacobian = parameter_table.numbers_and_jacobian(one, flat)
        np.testing.assert_allclose(numbers, [1.0, 2.0, 3.0, 4.0, 5.0], rtol=1e-6)
        # On the reals they are a, mean, log between, log within.
        by_hand = np.zeros((5, 5))
        by_hand[[0, 1, 2, 3, 4], [2, 4, 3, 0, 1]] = [1.0, 2.0, 3.0, 1.0, 1.0]
        np.testing.assert_allclose(jacobian, by_hand, rtol=1e-6)
        assert parameter_table.sole_coordinates(one) == (2, 4, 3, 0, 1)
        assert parameter_table.unconstrained_names(one)[:3] == ("a[0]", "a[1]", "mean")
        ends = parameter_table.intervals(one, numbers, np.array([0.1, 0.2, 0.3, 0.4, 0.5]), 2.0)
        np.testing.assert_allclose(ends[0], [0.8, 1.2], rtol=1e-5)
        np.testing.assert_allclose(ends[1], 2.0 * np.exp([-0.2, 0.2]), rtol=1e-5)
        np.testing.assert_allclose(ends[4], [4.0, 6.0], rtol=1e-5)


def test_labels_of_groups_are_kept():
    padded = mx.pad_groups(["b", "a", "b", "c"], y=[1.0, 2.0, 3.0, 4.0])
    assert padded.labels.tolist() == ["a", "b", "c"]
    assert type(jax.tree.map(lambda leaf: leaf, padded)) is dict
    assert len(jax.tree.leaves(padded)) == 2

    def log_joint(theta, x, rows):
        terms = -0.5 * (rows["y"] - x) ** 2
        return jnp.sum(rows["mask"] * terms) - 0.5 * (x - theta) ** 2

    problem = mx.Problem.grouped(log_joint, padded, theta=0.0, latent=0.0)
    assert problem.group_labels.tolist() == ["a", "b", "c"]
    assert problem.with_groups(np.array([0, 2])).group_labels.tolist() == ["a", "c"]
    assert problem.with_data(dict(padded)).group_labels.tolist() == ["a", "b", "c"]
    assert mx.Problem.grouped(log_joint, dict(padded), theta=0.0, latent=0.0).group_labels is None

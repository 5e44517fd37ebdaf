"""Inputs that JAX would change in silence: digits, ranges, halves, text, and what is not there."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import marginax as mx
from marginax.model.problem import in_double_precision
from marginax.model.transforms import interval, positive
from marginax.running.arguments import as_data

RANDOM = np.random.default_rng(7)
Y = RANDOM.normal(size=(12, 4))
START = {"m": 0.0, "sd": 1.0}


def of_a_group(theta, x, y):
    return norm.logpdf(x, theta["m"], theta["sd"]) + jnp.sum(norm.logpdf(y, x, 1.0))


def grouped(data, log_joint=of_a_group, theta=START, latent=0.0, transforms=positive):
    maps = {"sd": transforms} if transforms is not None else None
    return mx.Problem.grouped(log_joint, data, theta=theta, latent=latent, theta_transforms=maps)


@pytest.fixture
def narrow():
    """JAX as users have it: 32 bits, and its own promotion."""
    with (
        jax.enable_x64(False),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        yield


@pytest.mark.float32
def test_double_precision_has_the_digits_that_were_given(narrow):
    # The bug: data were rounded to float32, and the Newton steps in float64 had the rounded ones.
    given = Y + 1e6
    problem = grouped(given, theta={"m": 1e6 + 0.1, "sd": 1.0})
    own = given.copy()
    given[:] = 0.0  # a buffer that a study fills again
    with jax.enable_x64(True):
        double = in_double_precision(problem)
        assert double.data.dtype == jnp.float64
        np.testing.assert_array_equal(double.data, own)
        assert float(double.theta["m"]) == 1e6 + 0.1
        assert double.loses_digits == []
    harmless = grouped(Y)
    assert harmless.data.dtype == jnp.float32
    with jax.enable_x64(True):
        np.testing.assert_array_equal(in_double_precision(harmless).data, Y)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (Y + 1e6, "data has numbers near 1e.06 that vary by .*float32 rounds them"),
        (np.stack([Y, 0.01 * Y + 2.45e6], axis=2), "near 2.45e.06"),  # one column of two
        (1e6 * RANDOM.normal(size=(12, 1)) + Y, "float32 rounds"),  # within groups only
        (1e30 * Y**2 * 1e9, "as large as .*which float32 has not"),
    ],
)
def test_digits_that_matter_are_counted(narrow, data, says):
    problem = grouped(data, lambda theta, x, y: -0.5 * (x - theta["m"]) ** 2 - 0.0 * jnp.sum(y))
    assert len(problem.loses_digits) == 1
    (said,) = problem.loses_digits

    assert re.search(says, said)


@pytest.mark.parametrize(
    "data",
    [
        Y,
        Y.astype(np.float32) + np.float32(1e6),
        2000 + 10 * Y,  # years
        np.full((12, 4), 0.1),  # a constant has no spread to lose
        np.stack([Y, np.full((12, 4), 1e6 + 0.1)], axis=2),
        np.arange(48).reshape(12, 4),
        Y[:2],  # two groups: one value may be near the other by accident
        np.where(Y > 1, np.nan, Y),
    ],
)
def test_ordinary_data_lose_nothing(narrow, data):
    flat = grouped(data, lambda theta, x, y: -0.5 * (x - theta["m"]) ** 2)
    assert flat.loses_digits == []


@pytest.mark.float32
def test_integers_out_of_range_do_not_wrap(narrow):
    # The bug: 3e9 became -1294967296, also where the log joint was checked.
    ids = 3_000_000_000 + np.arange(12)

    def log_joint(theta, x, data):
        wrapped = jnp.where(data["id"] < 0, jnp.nan, 0.0)
        return of_a_group(theta, x, data["y"]) + wrapped

    problem = grouped({"y": Y, "id": ids}, log_joint)
    assert problem.loses_digits == [
        "data['id'] has integers such as 3000000011, which int32 has not."
    ]
    np.testing.assert_array_equal(problem.data["id"], ids)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(in_double_precision(problem).data["id"], ids)
    with pytest.raises(ValueError, match=r"3000000011, which int32 has not.*jax_enable_x64"):
        as_data(problem.data)


@pytest.mark.float32
def test_the_exact_copy_follows_the_data(narrow):
    problem = grouped(Y + 1e6, theta={"m": 0.1, "sd": 1.0})
    some, other = problem.with_groups(np.array([3, 5])), problem.with_data(Y)
    assert problem.without_data()._exact.keys() == {"theta"}
    assert problem.without_data().loses_digits == []
    assert other.loses_digits == []
    with jax.enable_x64(True):
        np.testing.assert_array_equal(in_double_precision(some).data, (Y + 1e6)[[3, 5]])
        assert some.num_groups == 2
        np.testing.assert_array_equal(in_double_precision(other).data, Y)
        assert float(in_double_precision(other).theta["m"]) == 0.1


@pytest.mark.float32
@pytest.mark.parametrize("half", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_for_storing_only(half, as_users_write):
    # The bugs: an estimate rounded to three digits, and a crash in NumPy's words.
    default = jnp.result_type(float)
    for start in (np.asarray(0.5, half), jnp.asarray(0.5, half)):
        problem = grouped(Y.astype(half), theta={"m": start, "sd": 1.0}, latent=start)
        leaves = jax.tree.leaves((problem.theta, problem.latent, problem.data))
        assert {leaf.dtype for leaf in leaves} == {default}


@pytest.mark.float32
def test_a_run_says_what_it_would_lose(narrow):
    with pytest.warns(UserWarning, match="near 1e.06 that vary by .*jax_enable_x64.*subtract"):
        held = as_data({"y": Y + 1e6})
    np.testing.assert_array_equal(held["y"], Y + 1e6)
    assert as_data(None) is None
    here = jnp.ones(3)
    assert as_data({"y": here})["y"] is here
    assert as_data(Y).dtype == jnp.float32  # and no warning, which would be an error


def test_text_is_refused_in_a_sentence():
    # The bug: "Error interpreting argument to stage as a JAX value".
    labels = np.array(["a", "b"] * 6)
    for refused in (
        lambda: grouped({"y": Y, "site": labels}),
        lambda: as_data({"y": Y, "site": labels.astype(object)}),
        lambda: as_data({"site": "a"}),
    ):
        with pytest.raises(TypeError, match=r"data\['site'\] has dtype .* 'a'.*pad_groups\(labels"):
            refused()
    with pytest.raises(TypeError, match="Column 'site' has dtype .* code it"):
        mx.pad_groups(np.arange(12), site=labels)


@pytest.mark.parametrize("empty", [{}, jnp.zeros(0), {"a": np.zeros((0, 3))}])
def test_no_parameters_are_refused(empty):
    # The bug: IndexError: list index out of range.
    with pytest.raises(ValueError, match="theta has no numbers.*nothing to estimate.*theta="):
        mx.Problem(lambda theta, x, y: -0.5 * x**2, theta=empty, latent=0.0)
    with pytest.raises(ValueError, match="latent has no numbers.*nothing to integrate out"):
        mx.Problem(lambda theta, x, y: -0.5 * theta**2, theta=0.0, latent=empty)


def test_a_value_of_the_data_is_named_where_it_is_the_cause():
    # The bug: "constrained quantities on an unconstrained scale" for a NaN in row 4.
    data = {"y": Y.copy()}
    data["y"][4, 2], data["y"][7, 0] = np.nan, np.inf

    def log_joint(theta, x, data):
        return of_a_group(theta, x, data["y"])

    says = (
        r"log_joint is nan.*in 2 of the 12 groups: 4, 7\. data\['y'\] has 2 values that are NaN or "
        r"infinite, the first data\['y'\]\[4, 2\] = nan, row 4, column 2\..*mask"
    )
    with pytest.raises(ValueError, match=says) as caught:
        grouped(data, log_joint)
    assert "unconstrained scale" not in str(caught.value)

    def masked(theta, x, data):
        known = jnp.isfinite(data["y"])
        terms = norm.logpdf(jnp.where(known, data["y"], 0.0), x, 1.0)
        return norm.logpdf(x, theta["m"], theta["sd"]) + jnp.sum(jnp.where(known, terms, 0.0))

    assert grouped(data, masked).num_groups == 12  # NaN that is masked is no fault
    with pytest.raises(ValueError, match=r"is finite as soon as theta\['sd'\] alone is moved"):
        grouped(data, masked, theta={"m": 0.0, "sd": 0.0}, transforms=None)


def test_a_problem_that_is_not_finite_speaks_of_its_own_start():
    # The bug: "not finite for 1 of the 1 particles", which nobody had given.
    def horseshoe(theta, x, y):
        scale = theta["tau"] * jnp.abs(x["local"])
        return jnp.sum(norm.logpdf(x["b"], 0.0, scale)) + jnp.sum(norm.logpdf(y, x["b"], 1.0))

    latent = {"b": jnp.zeros(4), "local": jnp.zeros(4)}
    with pytest.raises(ValueError, match=r"start of theta and latent.*latent\['local'\]") as caught:
        mx.Problem(horseshoe, theta={"tau": 1.0}, latent=latent, data=Y[0])
    assert "particles" not in str(caught.value)
    latent["local"] = jnp.ones(4)
    problem = mx.Problem(horseshoe, theta={"tau": 1.0}, latent=latent, data=Y[0])
    cloud = {"b": jnp.zeros((3, 4)), "local": jnp.zeros((3, 4))}
    method = mx.pgd(problem.unconstrained_log_joint, 0.1, 0.1)
    with pytest.raises(
        ValueError, match="3 of the 3 particles.*theta and latent that your problem"
    ):
        mx.run(method, problem.start_theta(), cloud, Y[0], max_steps=1, key=jax.random.key(0))


def test_a_start_outside_is_named_with_its_domain():
    # The bug: "The start of theta has -1.0".
    with pytest.raises(ValueError, match=r"theta\['sd'\] is -1.0.*not inside positive \(above 0\)"):
        grouped(Y, theta={"m": 0.0, "sd": -1.0})
    start = {"m": 0.0, "sd": np.array([0.5, 2.0])}
    with pytest.raises(ValueError, match=r"theta\['sd'\]\[1\] is 2.0.*\(between 0 and 1\)"):
        grouped(Y, theta=start, transforms=interval(0.0, 1.0))


def test_shapes_are_those_of_one_group():
    # The bug: one latent = float64[60] and data = float64[60, 118] for a group that has [] and
    # [118].
    with pytest.raises(
        ValueError, match=r"(?s)one group failed.*one latent = float\d+\[\] and "
    ) as e:
        grouped(Y, lambda theta, x, y: jnp.sum(y @ jnp.ones(7)))
    assert "data = float64[4]" in str(e.value) or "data = float32[4]" in str(e.value)

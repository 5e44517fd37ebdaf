"""Transforms: there and back, volumes against autodiff, densities against scipy, tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.model import parameter_table
from marginax.model.transforms import (
    correlation_cholesky,
    covariance_cholesky,
    identity,
    interval,
    lower_bound,
    ordered,
    positive,
    simplex,
    unit_interval,
)

SIZES = [2, 3, 5]
PRECISE = jax.config.jax_enable_x64
# A transform, the shape of its reals, and the free entries of what it makes of them.
TRANSFORMS = {
    "identity": (identity, (3,), lambda x: x),
    "positive": (positive, (3,), lambda x: x),
    "interval": (interval(-2.0, 5.0), (3,), lambda x: x),
    "unit": (unit_interval, (), lambda x: x),
    "lower_bound": (lower_bound(-1.5), (3,), lambda x: x),
    "ordered": (ordered, (4,), lambda x: x),
    "ordered rows": (ordered, (2, 3), lambda x: x),
    "simplex": (simplex(4), (3,), lambda x: x[:-1]),
    "simplex of two": (simplex(2), (1,), lambda x: x[:-1]),
    "correlation": (correlation_cholesky(3), (3,), lambda x: x[np.tril_indices(3, -1)]),
    "covariance": (covariance_cholesky(3), (6,), lambda x: x[np.tril_indices(3)]),
    "variance": (covariance_cholesky(1), (1,), lambda x: x[0]),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", TRANSFORMS)
def test_there_and_back_with_the_volume_of_autodiff(name, key):
    transform, shape, entries = TRANSFORMS[name]
    u = jax.random.normal(key, shape)
    x = transform.forward(u)
    assert bool(transform.contains(x))
    close = {"rtol": 1e-9, "atol": 1e-9} if PRECISE else {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(transform.inverse(x), u, **close)
    size = int(np.prod(shape))
    jacobian = jax.jit(jax.jacobian(lambda v: entries(transform.forward(v)).reshape(size)))(u)
    volume = jnp.linalg.slogdet(jacobian.reshape(size, size))[1]
    np.testing.assert_allclose(transform.log_abs_det_jacobian(u), volume, **close)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_limits_are_where_values_go(name):
    transform, shape, _ = TRANSFORMS[name]
    if transform is ordered:
        return  # an entry has no limit of its own
    size = int(np.prod(shape))
    for i in range(size):
        for far, limit in zip(
            (-30.0, 30.0), transform.limits[i % len(transform.limits)], strict=True
        ):
            x = transform.forward(jnp.zeros(size).at[i].set(far).reshape(shape))
            shown = x if transform.display is None else transform.display.values(x)
            value = float(jnp.ravel(shown)[i])
            if limit is not None and np.isinf(limit):
                assert value * limit > 0
            elif limit is not None:
                assert value == pytest.approx(limit, abs=1e-6)


@pytest.mark.slow
def test_what_is_made_is_what_the_names_say(key):
    u = 3 * jax.random.normal(key, (200, 4))
    assert bool(jnp.all(jnp.diff(ordered.forward(u), axis=1) > 0))
    shares = jax.vmap(simplex(5).forward)(u)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12 if PRECISE else 1e-5)
    assert bool(jnp.all(shares > 0))
    # The bug: without the shift zeros are halves of what is left, not equal shares.
    np.testing.assert_allclose(simplex(5).forward(jnp.zeros(4)), 0.2, rtol=1e-6)
    assert bool(jnp.all(lower_bound(2.0).forward(u) > 2))
    factor = covariance_cholesky(2).forward(jnp.array([np.log(2.0), np.log(3.0), np.arctanh(0.5)]))
    np.testing.assert_allclose(factor @ factor.T, [[4.0, 3.0], [3.0, 9.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("transform", "bad"),
    [
        (lower_bound(1.0), jnp.array([2.0, 1.0])),
        (ordered, jnp.array([1.0, 1.0])),
        (ordered, jnp.array(1.0)),
        (simplex(3), jnp.array([0.5, 0.5, 0.5])),
        (simplex(3), jnp.array([1.0, 0.0, 0.0])),
        (simplex(3), jnp.array([0.5, 0.5])),
        (covariance_cholesky(2), jnp.array([[1.0, 0.5], [0.5, 1.0]])),
        (covariance_cholesky(2), jnp.array([[1.0, 0.0], [0.5, -1.0]])),
        (covariance_cholesky(2), jnp.eye(3)),
    ],
)
def test_values_outside_are_refused(transform, bad):
    assert not bool(transform.contains(bad))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: lower_bound(-np.inf), "must be a finite number"),
        (lambda: simplex(1), "at least 2"),
        (lambda: covariance_cholesky(0), "at least 1"),
        (lambda: interval(1.0, 1.0), "`positive` or `lower_bound`"),
    ],
)
def test_transforms_of_nothing_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_dirichlet_latent_integrates_to_one():
    # The density of the transformed latent against the trapezoidal rule: a wrong volume shows.
    transform, alpha = simplex(3), np.array([2.0, 3.0, 1.5])
    at = jnp.linspace(-12, 12, 161)
    u = jnp.stack(jnp.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)
    x = np.asarray(jax.vmap(transform.forward)(u), float)
    density = stats.dirichlet(alpha).pdf((x / x.sum(axis=1, keepdims=True)).T)
    volume = np.exp(np.asarray(jax.vmap(transform.log_abs_det_jacobian)(u), float))
    total = np.sum(density * volume) * float(at[1] - at[0]) ** 2
    assert total == pytest.approx(1.0, abs=1e-6 if PRECISE else 1e-3)


def displayed_problem():
    def log_joint(theta, x, y):
        return -0.5 * jnp.sum((x - y) ** 2) - 0.5 * jnp.sum(theta["cuts"] ** 2)

    return mx.Problem(
        log_joint,
        theta={
            "cuts": jnp.array([-1.0, 0.5]),
            "shares": jnp.array([0.2, 0.3, 0.5]),
            "root": jnp.array([[2.0, 0.0], [1.5, jnp.sqrt(9 - 2.25)]]),
            "low": jnp.array(3.0),
        },
        latent=jnp.zeros(2),
        data=jnp.zeros(2),
        theta_transforms={
            "cuts": ordered,
            "shares": simplex(3),
            "root": covariance_cholesky(2),
            "low": lower_bound(1.0),
        },
    )


def test_tables_show_what_a_reader_wants():
    problem = displayed_problem()
    names = parameter_table.parameter_names(problem)
    assert names == (
        *("cuts[0]", "cuts[1]", "shares[0]", "shares[1]", "shares[2]"),
        *("root.sd[0]", "root.sd[1]", "root[1,0]", "low"),
    )
    shown = np.asarray(parameter_table.displayed(problem, problem.start_theta()), float)
    expected = [-1.0, 0.5, 0.2, 0.3, 0.5, 2.0, 3.0, 0.5, 3.0]
    np.testing.assert_allclose(shown, expected, rtol=1e-6, atol=1e-6)
    assert len(parameter_table.unconstrained_names(problem)) == 2 + 1 + 3 + 2
    # Cut points, shares and a covariance hang together; a bounded number stands alone.
    assert parameter_table.sole_coordinates(problem) == (*[None] * 8, 2)


def test_intervals_stay_inside_what_is_allowed():
    problem = displayed_problem()
    shown = np.asarray(parameter_table.displayed(problem, problem.start_theta()), float)
    ends = parameter_table.intervals(problem, shown, np.full(len(shown), 2.0), 3.0)
    names = parameter_table.parameter_names(problem)
    by_name = dict(zip(names, ends, strict=True))
    assert by_name["low"][0] > 1
    assert np.all(by_name["root.sd[0]"] > 0)
    assert np.all(np.abs(by_name["root[1,0]"]) < 1)
    assert all(0 < end < 1 for i in range(3) for end in by_name[f"shares[{i}]"])
    assert np.all(ends[:, 0] < ends[:, 1])
    assert np.all((ends[:, 0] < shown) & (shown < ends[:, 1]))
    # On a log scale the interval of a standard deviation is symmetric in ratios.
    low, high = by_name["root.sd[1]"]
    assert low * high == pytest.approx(9.0, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("u", [-40.0, -12.0, -1.0, 0.0, 0.5, 9.5, 12.0, 40.0])
def test_one_correlation_by_its_closed_form(u):
    # The bug: 1 - tanh^2 is 0 in float32 from u = 9 on, and the gradient of its root NaN.
    pair, at = correlation_cholesky(2), jnp.array([u], jnp.float32)
    tanh, sech = np.tanh(u), 1 / np.cosh(u)
    close = {"rtol": 1e-5, "atol": 1e-30}
    np.testing.assert_allclose(pair.forward(at), [[1, 0], [tanh, sech]], **close)
    slopes = jax.jacobian(pair.forward)(at)[..., 0]
    # How far 1 - tanh^2 is from 0 there depends on how the compiler writes tanh.
    np.testing.assert_allclose(slopes, [[0, 0], [sech**2, -tanh * sech]], rtol=1e-4, atol=1e-6)
    assert slopes[1, 1] == pytest.approx(-tanh * sech, rel=1e-5)
    np.testing.assert_allclose(
        pair.log_abs_det_jacobian(at), 2 * (np.log(2) - np.logaddexp(u, -u)), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(jax.grad(pair.log_abs_det_jacobian)(at), -2 * tanh, rtol=1e-5)
    # A log of cosh through |u| would have no curvature at 0.
    np.testing.assert_allclose(
        jax.hessian(pair.log_abs_det_jacobian)(at)[0, 0], -2 * sech**2, rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_factor_has_rows_of_length_one_and_its_volume(size):
    transform = correlation_cholesky(size)
    u = jnp.asarray(np.random.default_rng(size).normal(size=size * (size - 1) // 2))
    factor = transform.forward(u)
    close = {"atol": 1e-12 if PRECISE else 1e-5}
    np.testing.assert_allclose(jnp.sum(factor**2, axis=1), 1.0, **close)
    np.testing.assert_allclose(factor, jnp.tril(factor))
    np.testing.assert_allclose(transform.inverse(factor), u, atol=1e-8 if PRECISE else 1e-3)
    rows, columns = np.tril_indices(size, -1)
    jacobian = jax.jacobian(lambda u: transform.forward(u)[rows, columns])(u)
    expected = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(transform.log_abs_det_jacobian(u), expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_gradients_near_one_are_finite(size):
    transform = correlation_cholesky(size)
    u = jnp.full(size * (size - 1) // 2, 12.0, jnp.float32)
    assert jnp.all(jnp.isfinite(jax.jacobian(transform.forward)(u)))
    assert jnp.all(jnp.isfinite(jax.grad(transform.log_abs_det_jacobian)(u)))

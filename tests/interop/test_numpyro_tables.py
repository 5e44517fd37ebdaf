"""Tables of NumPyro params whose entries hang together, or have bounds of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.model import parameter_table

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402

pytestmark = pytest.mark.usefixtures("as_users_write")


@pytest.mark.slow
def test_ordered_cutpoints_are_printed(key):
    """As many free as shown numbers is not one by one: entries were mapped alone (IndexError)."""

    def model(y):
        cuts = numpyro.param("cuts", jnp.array([-1.0, 1.0]), constraint=constraints.ordered_vector)
        with numpyro.plate("groups", len(y)):
            x = numpyro.sample("x", dist.Normal(0.0, 1.0))
            with numpyro.plate("times", y.shape[1]):
                numpyro.sample("y", dist.OrderedLogistic(x, cuts), obs=y.T)

    y = np.random.default_rng(0).integers(0, 3, size=(12, 3))
    problem = mx.from_numpyro(model, y)
    fit = mx.fit(problem, key=key, num_starts=1, draw_posterior=False, max_steps=20)
    assert "cuts[1]" in str(fit)
    error = fit.standard_errors
    expected = fit.estimates[:, None] + np.array([-1, 1]) * 1.959964 * error[:, None]
    np.testing.assert_allclose(fit.confidence_intervals(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="hangs together with others"):
        fit.profile_interval("cuts[1]")


@pytest.mark.parametrize(
    ("constraint", "value", "elementwise"),
    [
        (constraints.interval(np.zeros(2), np.array([1.0, 4.0])), [0.5, 3.0], False),
        (constraints.interval(0.0, 4.0), [0.5, 3.0], True),
        (constraints.less_than(4.0), [0.5, 3.0], True),
        (constraints.simplex, [0.2, 0.8], False),
    ],
)
def test_only_entries_with_the_same_bounds_are_mapped_one_by_one(constraint, value, elementwise):
    def model(y):
        p = numpyro.param("p", jnp.array(value), constraint=constraint)
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x + p[0], 1.0), obs=y)

    problem = mx.from_numpyro(model, jnp.array(0.3))
    (to,) = jax.tree.leaves(problem.theta_transforms, is_leaf=lambda to: hasattr(to, "elementwise"))
    assert to.elementwise == elementwise
    table = parameter_table.intervals(problem, np.array(value), np.full(2, 0.1), 1.96)
    assert np.all((table[:, 0] < value) & (table[:, 1] > value))
    if elementwise:  # where it is free, and never outside
        assert np.all(table < 4)
    else:
        np.testing.assert_allclose(table[:, 1] - table[:, 0], 2 * 1.96 * 0.1, rtol=1e-6)

"""The structure of a problem's curvature: found, overridden, and refused."""

import jax
import jax.numpy as jnp
import many_latents as many
import numpy as np
import pytest

import marginax as mx


@pytest.mark.slow
@pytest.mark.parametrize("kind", [None, "dense", "chain", "arrow", "sparse"])
def test_the_kind_can_be_overridden_and_changes_no_number(kind):
    model = many.crossed(12, 7, 60)
    structure = mx.structure_of(model, kind)
    assert kind in (None, structure.factors.kind)
    x = np.random.default_rng(0).normal(size=19)
    theta = np.array([0.1, 0.8, -0.5, -0.4])
    entries = structure.curvature(jnp.asarray(theta), jnp.asarray(x), model.data, structure.maps)
    factor = structure.factors.factor(entries)
    matrix = structure.pattern.matrix(entries).toarray()
    found = float(structure.factors.log_determinant(factor))
    np.testing.assert_allclose(found, np.linalg.slogdet(matrix)[1], rtol=1e-10)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=len(structure.pattern.rows)))
    at = (jnp.asarray(theta), jnp.asarray(x), model.data, structure.maps)
    np.testing.assert_allclose(structure.weighted(*at, weights), entries @ weights, rtol=1e-10)


@pytest.mark.slow
def test_a_problem_may_name_its_structure():
    model = many.crossed(12, 7, 60)
    named = mx.Problem(
        many.crossed_log_joint,
        model.theta,
        model.latent,
        model.data,
        theta_transforms=model.theta_transforms,
        structure="arrow",
    )
    fit = mx.fit(named, num_starts=1, draw_posterior=False)
    assert "an arrow" in fit.likelihood.method
    theta = {name: float(value) for name, value in fit.theta.items()}
    exact = many.crossed_log_likelihood(model.data, theta)
    np.testing.assert_allclose(fit.log_likelihood, exact, rtol=1e-10)


def test_structures_that_there_are_not():
    def log_joint(theta, x, y):
        return -jnp.sum(x**2) * theta

    with pytest.raises(ValueError, match="structure is 'ring', but it must be one of dense"):
        mx.Problem(log_joint, 1.0, jnp.zeros(3), structure="ring")
    grouped = mx.Problem.grouped(log_joint, jnp.ones((4, 2)), theta=1.0, latent=0.0)
    with pytest.raises(ValueError, match="has 4 groups"):
        mx.structure_of(grouped)
    everything = mx.Problem(
        lambda theta, x, y: -theta * jax.nn.logsumexp(x**2), 1.0, jnp.ones(1200)
    )
    with pytest.raises(ValueError, match="full"):
        mx.structure_of(everything)

"""Every derivative that the likelihood of many latents asks for, against those by hand."""

import jax
import jax.numpy as jnp
import latents_by_hand as by_hand
import numpy as np
import pytest
from latents_by_hand import COLS, ROWS, K, Y, matrix

from marginax.likelihood.blocks import Blocks
from marginax.likelihood.many_latents import latents_of
from marginax.model.structure import Maps

THETA = np.array([0.3, 0.4])
X = np.array([0.7, -0.2, 1.1])
XS = np.random.default_rng(0).normal(size=(11, 3))  # more than are taken at a time
WEIGHTS = np.array([0.5, -1.0, 2.0, 0.3, 0.7, 1.5])
BY_HAND = by_hand.latents()


def log_densities(theta, x, data):
    """Of one block, in JAX; the data are Y."""
    mu, log_tau = theta
    away = x[0] - mu
    square = away @ jnp.asarray(K) @ away
    value = jnp.sum(data * x[0] - jnp.exp(x[0])) - jnp.exp(log_tau) * square / 2 + 1.5 * log_tau
    return value[None]


def curvature(theta, x, data, maps):
    whole = jnp.diag(jnp.exp(x)) + jnp.exp(theta[1]) * jnp.asarray(K)
    return whole[ROWS, COLS]


def compiled(identity=None):
    structure = BY_HAND.structure._replace(
        curvature=curvature,
        weighted=lambda theta, x, data, maps, weights: weights @ curvature(theta, x, data, maps),
        identity=identity,
    )
    starts = jnp.stack([jnp.asarray(X) + 1, jnp.zeros(3)])
    return latents_of(Blocks(log_densities, jnp.asarray(Y), starts, False), structure)


@pytest.fixture(scope="module")
def latents():
    return compiled()


MAPS = Maps(None, None, None)  # which these do not need
# For every function what follows theta; the data are put in, and for None the maps.
ARGUMENTS = {
    "score": (X, "data"),
    "slopes": (X, "data", None, WEIGHTS),
    "cross": (X, "data", np.array([1.0, -2.0, 0.5])),
    "complete": (X, "data", None, WEIGHTS),
    "values": (XS, "data"),
    "pulls": (XS, "data"),
    "mixed": (X, "data", None),
    "stein_scores": (X, "data", XS),
    "means": (XS, "data", None),
    "curvature": (X, "data", None),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_derivatives_are_those_by_hand(latents, name):
    given = ARGUMENTS[name]
    given = [latents.data if isinstance(one, str) else one for one in given]
    given = [MAPS if one is None else jnp.asarray(one) for one in given]
    found = getattr(latents, name)(jnp.asarray(THETA), *given)
    expected = getattr(BY_HAND, name)(jnp.asarray(THETA), *given)
    found, expected = (jax.tree.leaves(part) for part in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_products_of_several_matrices_with_several_vectors(latents):
    entries = np.stack([WEIGHTS, WEIGHTS**2])
    found = latents.bend(jnp.asarray(entries), jnp.asarray(XS))
    assert found.shape == (2, 11, 3)
    for one, row in zip(found, entries, strict=True):
        np.testing.assert_allclose(one, XS @ matrix(row), rtol=1e-12)


def test_the_block_s_data_start_and_structure_are_handed_on(latents):
    np.testing.assert_array_equal(latents.data, Y)
    np.testing.assert_array_equal(latents.start, X + 1)
    assert latents.lift is latents.structure.lift
    assert latents.curvature is curvature


def test_programs_are_known_by_the_model_and_their_own_names(latents):
    names = [name for name in (*ARGUMENTS, "bend") if name != "curvature"]
    known = compiled("some model")
    for name in names:
        assert getattr(latents, name)._identity is None
        assert getattr(known, name)._identity == f"some model {name}"

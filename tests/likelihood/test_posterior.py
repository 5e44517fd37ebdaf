"""Posterior draws: what they may cost, and whether chains have come to rest."""

import jax.numpy as jnp
import numpy as np
import pytest

from marginax.likelihood import posterior
from marginax.likelihood.climbs import maximum_from
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local


@pytest.mark.parametrize("num_latents", [1, 800, 4_000, 50_000, 100_000])
def test_draws_have_room(num_latents):
    """A floor of 50 draws of 20 chains went past what was called the most numbers."""
    chains, draws = posterior._room(num_latents)
    assert not posterior.too_many_latents(num_latents)
    assert chains * draws * num_latents <= posterior.MOST_NUMBERS
    assert chains >= 8
    assert draws >= 50
    if num_latents <= 800:
        assert (chains, draws) == (20, 250)


def test_last_steps_that_start_where_nothing_is_finite_change_nothing():
    """Other draws may have no finite weight where the coarse ones had: the climb before stays."""
    top = Climb(np.ones(1), Local(-3.0, np.zeros(1), -np.eye(1), 0), 1, True)

    def nowhere(theta, extra):
        return Local(np.nan, np.full(1, np.nan), np.full((1, 1), np.nan), None)

    rule = LikelihoodFunction(jnp.zeros(1), None, lambda theta, extra: "described", nowhere)
    found = maximum_from(rule, np.ones((1, 1)), [top])
    assert found.best is top
    assert found.likelihood == "described"

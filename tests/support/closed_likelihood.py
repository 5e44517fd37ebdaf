"""Likelihoods in closed form, to be climbed without a model behind them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.likelihood.climbs import Maximum
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local


def closed_likelihood(log_likelihood: Callable[[Any], Any]) -> LikelihoodFunction:
    """What is climbed, from a function of flat theta in JAX."""

    @jax.jit
    def local(theta: Any) -> Any:
        slope = jax.value_and_grad(log_likelihood)
        return *slope(theta), jax.hessian(log_likelihood)(theta)

    def evaluate(theta: np.ndarray, extra: Any) -> Local:
        value, gradient, hessian = jax.device_get(local(jnp.asarray(theta)))
        return Local(float(value), gradient, hessian, extra)

    return LikelihoodFunction(None, evaluate, None)


def maximum_at(function: LikelihoodFunction, theta: np.ndarray) -> Maximum:
    """A maximum that was found there."""
    best = Climb(theta, function.evaluate(theta, None), 9, True)
    return Maximum(best, 0, 1, (), function, None)

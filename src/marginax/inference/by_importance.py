"""The likelihood of a problem with blocks of moderate size, by importance sampling."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from marginax.inference.importance import Draws, log_ratios, pareto_k, standard_draws
from marginax.inference.likelihood import (
    Evidence,
    Likelihood,
    compiled_local,
    flat_latents,
    one_latent,
)
from marginax.inference.modes import Laplace, laplace
from marginax.inference.newton import Local, by_differences
from marginax.problem import Problem

__all__ = ["LARGEST_BLOCK", "importance_likelihood"]

LARGEST_BLOCK = 400  # latents in one block whose dense curvature is affordable
JOINT_DRAWS, GROUP_DRAWS = 2**13, 2**10
DEGREES = (math.inf, 12.0, 5.0)  # a Gaussian first: it is exact where the posterior is one


def importance_likelihood(problem: Problem, theta: np.ndarray) -> Likelihood:
    """With the proposal, Gaussian or t, that has the largest effective sample size at theta."""
    _, unravel = ravel_pytree(problem.start_theta())
    _, unravel_latent = ravel_pytree(one_latent(problem))
    grouped = problem.num_groups is not None
    num_draws = GROUP_DRAWS if grouped else JOINT_DRAWS
    log_joint = problem.free_group_log_joint if grouped else problem.free_log_joint
    # Without groups there is one block, and all the data are its.
    data = problem.data if grouped else jax.tree.map(lambda leaf: leaf[None], problem.data)
    start = flat_latents(problem)

    def locate(theta: Array, start: Array, data: Any) -> Laplace:
        def one(start: Array, y: Any) -> Laplace:
            return laplace(lambda x: log_joint(unravel(theta), unravel_latent(x), y), start)

        return jax.vmap(one)(start, data)

    def ratios(theta: Array, at: Laplace, data: Any, z: Array, log_q: Array) -> Any:
        def one(at: Laplace, y: Any) -> Any:
            def log_density(x: Array) -> Array:
                return log_joint(unravel(theta), unravel_latent(x), y)

            return log_ratios(log_density, at, z, log_q)

        return jax.vmap(one)(at, data)

    def total(theta: Array, at: Laplace, data: Any, z: Array, log_q: Array) -> Array:
        logs, _ = ratios(theta, at, data, z, log_q)
        return jnp.sum(jax.nn.logsumexp(logs, axis=1)) - len(logs) * math.log(num_draws)

    local = compiled_local(locate, total)

    @jax.jit
    def weigh(theta: Array, start: Array, data: Any, z: Array, log_q: Array) -> Any:
        at = locate(theta, start, data)
        logs, points = ratios(theta, at, data, z, log_q)
        share = jax.nn.softmax(logs, axis=1)
        mean = jnp.einsum("gs,gsp->gp", share, points)
        variance = jnp.einsum("gs,gsp->gp", share, (points - mean[:, None]) ** 2)

        def score_error(share: Array, points: Array, y: Any) -> Array:
            def score(x: Array) -> Array:
                return jax.grad(lambda t: log_joint(unravel(t), unravel_latent(x), y))(theta)

            scores = jax.vmap(score)(points)
            away = (scores - (share @ scores)[None]) * share[:, None]
            return away.T @ away

        covariance = jnp.sum(jax.vmap(score_error)(share, points, data), axis=0)
        return logs, share, mean, variance, covariance

    def arrays(draws: Draws) -> tuple[Array, Array]:
        return jnp.asarray(draws.z, start.dtype), jnp.asarray(draws.log_density, start.dtype)

    def effective(share: Array) -> np.ndarray:
        return 1 / np.sum(np.asarray(share) ** 2, axis=1)

    proposals = [standard_draws(start.shape[1], num_draws, degrees) for degrees in DEGREES]
    at_theta = [weigh(jnp.asarray(theta), start, data, *arrays(draws)) for draws in proposals]
    draws = proposals[int(np.argmax([effective(found[1]).min() for found in at_theta]))]

    def evaluate(theta: np.ndarray, start: Array) -> Local:
        return local(theta, start, data, *arrays(draws))

    def describe(theta: np.ndarray, start: Array) -> Evidence:
        logs, share, mean, variance, covariance = weigh(
            jnp.asarray(theta), start, data, *arrays(draws)
        )
        sizes = effective(share)
        each = np.asarray(jax.nn.logsumexp(logs, axis=1)) - math.log(num_draws)
        heavy = f"t ({draws.degrees:g} degrees of freedom)"
        shape = "Gaussian" if math.isinf(draws.degrees) else heavy
        return Evidence(
            method=f"importance sampling, {num_draws} draws from a {shape} at the mode",
            log_likelihood=float(each.sum()),
            error=float(np.sqrt(np.sum(np.maximum(1 / sizes - 1 / num_draws, 0.0)))),
            by_group=each if grouped else None,
            effective_draws=float(sizes.min()),
            pareto_k=max(pareto_k(row) for row in np.asarray(logs)),
            score_covariance=np.asarray(covariance),
            mean=np.asarray(mean),
            sd=np.sqrt(np.asarray(variance)),
        )

    @jax.jit
    def placed_value(theta: Array, start: Array, data: Any, z: Array, log_q: Array) -> Any:
        at = locate(theta, start, data)
        return total(theta, at, data, z, log_q), at.mode

    def evaluate_finely(theta: np.ndarray, start: Array) -> Local:
        # With the proposal following theta the draws' noise hardly changes from point to point,
        # and not at all for a Gaussian posterior; with the proposal fixed it does.
        coarse = evaluate(theta, start)
        steps = 0.05 / np.sqrt(np.maximum(np.abs(np.diag(coarse.hessian)), 1e-2))

        def value(theta: np.ndarray) -> float:
            found, _ = placed_value(jnp.asarray(theta), coarse.extra, data, *arrays(draws))
            return float(found)

        return Local(*by_differences(value, theta, steps), coarse.extra)

    return Likelihood("importance sampling", start, evaluate, describe, evaluate_finely)

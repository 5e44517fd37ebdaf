r"""JALA-EM: Langevin particles with weights that follow theta, and the likelihood for free.

With U_k = -l(theta_k, .) and, for a move from x to y,

    alpha_k(x, y) = U_k(x) + (y - x)' grad U_k(x) / 2 + (h / 4) |grad U_k(x)|^2

one step is, for every particle x with log weight A,

    x'          = x - h grad U_k(x) + sqrt(2h) W
    theta_{k+1} = theta_k + gamma sum_i w_i grad_theta l(theta_k, x_i),    w = softmax(A)
    A          <- A - alpha_{k+1}(x', x) + alpha_k(x, x')

so that (1/N) sum_i exp(A_i) estimates p_{theta_k}(y) / p_{theta_0}(y), without bias whatever the
step, if the start is drawn from the posterior at theta_0 and theta's path is given; or
p_{theta_k}(y) itself, if A starts at l(theta_0, x) - log q(x) for a start drawn from q. Particles
are drawn anew by their weights, whenever these are worth too few, and the mean of the weights is
then kept aside.

References:
    Cuin, Carbone and Akyildiz (2025), Learning latent variable models via Jarzynski-adjusted
    Langevin algorithm, NeurIPS.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float

from marginax._core import trees
from marginax._core.checks import check_positive, check_start
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import values_and_scores
from marginax.model.log_joint import as_log_joint, require_density
from marginax.typing import Data, Key, Latent, LogDensity, Particles, Theta

__all__ = ["JALAEMInfo", "JALAEMState", "jala_em"]


class JALAEMState(NamedTuple):
    """State of JALA-EM.

    Attributes:
        theta: the estimate.
        particles: the cloud, of which every particle has a weight.
        log_weights: A, of every particle.
        log_normalizer: log of the mean weights that were set aside when particles were drawn anew.
        num_steps: steps so far.
        theta_optimizer_state: what the theta optimizer remembers.
    """

    theta: Theta
    particles: Particles
    log_weights: Array
    log_normalizer: Array
    num_steps: Array
    theta_optimizer_state: optax.OptState

    @property
    def log_likelihood(self) -> Array:
        """log p_theta(y), up to that at the start unless the start's density was given."""
        return self.log_normalizer + _log_mean(self.log_weights)


class JALAEMInfo(NamedTuple):
    """What one step of JALA-EM saw.

    Attributes:
        theta_score: the ascent direction of theta, before any optimizer.
        scores: the latent score of every particle, the drift of its Langevin move.
        log_likelihood: after the step, as of `JALAEMState`.
        effective_size: 1 / sum w^2 after the move, before particles are drawn anew.
    """

    theta_score: Theta
    scores: Particles
    log_likelihood: Array
    effective_size: Array


def jala_em(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    step_size: ArrayLike,
    *,
    start_log_density: Callable[[Latent], Array] | None = None,
    resample_below: float = 0.5,
) -> Algorithm:
    """Jarzynski-adjusted Langevin EM, which knows the likelihood along its way.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data,
            with all its constants if its likelihood is wanted.
        theta_optimizer: any optax optimizer for theta, or a step size.
        step_size: h of the Langevin particles. The weights are right for any; the larger, the
            sooner they differ.
        start_log_density: `log q(latent)` of the distribution that the first particles were drawn
            from. By default they count as draws from the posterior at the first theta, and the
            likelihood is known relative to that one's.
        resample_below: particles are drawn anew (systematic resampling) when their weights are
            worth less than this share of them; 0 for never.

    Returns:
        The algorithm. It is stochastic: average the last iterates of theta. Its particles have
        weights, `state.log_weights`, which need all of the data at every step: no batches.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((100, 3))
        >>> method = mx.jala_em(log_joint, 0.1, 0.1)
        >>> end = mx.trajectory(method, 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.history[500:].mean() - 2.0) < 0.1)  # the maximum likelihood estimate is 2
        True
    """
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")
    require_density(log_joint, "jala_em follows its values")
    if not 0 <= resample_below <= 1:
        raise ValueError(f"resample_below is {resample_below!r}, but it is a share: from 0 to 1.")

    def init(key: Key, theta: Theta, particles: Particles) -> JALAEMState:
        del key
        theta, particles = check_start(theta, particles)
        dtype = trees.inner(particles, particles).dtype
        zeros = jnp.zeros(trees.cloud_size(particles), dtype)
        return JALAEMState(
            theta,
            particles,
            zeros,
            jnp.zeros((), dtype),
            jnp.zeros((), jnp.int32),
            theta_optimizer.init(theta),
        )

    def step(key: Key, state: JALAEMState, data: Data) -> tuple[JALAEMState, JALAEMInfo]:
        if as_log_joint(log_joint).theta_weight(state.particles) != 1:
            raise ValueError(
                "jala_em was given a batch of the groups, but its weights follow the density of "
                "all of them: run it without batch_size, or take `pgd`."
            )
        move_key, draw_key = jax.random.split(key)
        x, log_weights = state.particles, state.log_weights
        values, scores = values_and_scores(log_joint, state.theta, x, data)
        if start_log_density is not None:
            first = values - jax.vmap(start_log_density)(x)
            log_weights = jnp.where(state.num_steps == 0, first, log_weights)
        moved = langevin.overdamped(move_key, x, scores, step_size)
        direction = _weighted_score(log_joint, state.theta, x, jax.nn.softmax(log_weights), data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer,
            direction,
            state.theta_optimizer_state,
            state.theta,
            log_joint=log_joint,
            particles=x,
            data=data,
        )
        forwards = _alpha(values, scores, x, moved, step_size)
        backwards = _alpha(*values_and_scores(log_joint, theta, moved, data), moved, x, step_size)
        log_weights = log_weights - backwards + forwards
        size = 1 / jnp.sum(jax.nn.softmax(log_weights) ** 2)
        too_few = size < resample_below * len(log_weights)
        chosen = _systematic(draw_key, log_weights)
        kept = jax.tree.map(lambda leaf: jnp.where(too_few, leaf[chosen], leaf), moved)
        aside = jnp.where(too_few, _log_mean(log_weights), 0)
        state = JALAEMState(
            theta,
            kept,
            jnp.where(too_few, 0, log_weights),
            state.log_normalizer + aside,
            state.num_steps + 1,
            theta_optimizer_state,
        )
        return state, JALAEMInfo(direction, scores, state.log_likelihood, size)

    def rescale(factor: ArrayLike) -> Algorithm:
        return jala_em(
            log_joint,
            rescaled(theta_optimizer, factor),
            step_size * factor,
            start_log_density=start_log_density,
            resample_below=resample_below,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        replicated=("theta", "theta_optimizer_state"),
    )


def _weighted_score(
    log_joint: LogDensity, theta: Theta, particles: Particles, weights: Array, data: Data
) -> Theta:
    """sum_i w_i grad_theta l(theta, x_i), by one gradient of the sum."""

    def total(theta: Theta) -> Array:
        return jnp.sum(weights * jax.vmap(lambda x: log_joint(theta, x, data))(particles))

    return jax.grad(total)(theta)


def _alpha(
    values: Array, scores: Particles, here: Particles, there: Particles, step_size: ArrayLike
) -> Float[Array, " n"]:
    """alpha(x, y) of every particle: U = -values, grad U = -scores."""
    s, x, y = (trees.ravel_cloud(cloud) for cloud in (scores, here, there))
    return -values - jnp.sum((y - x) * s, axis=1) / 2 + step_size / 4 * jnp.sum(s**2, axis=1)


def _log_mean(log_weights: Array) -> Array:
    return jax.nn.logsumexp(log_weights) - jnp.log(jnp.asarray(len(log_weights), log_weights.dtype))


def _systematic(key: Key, log_weights: Float[Array, " n"]) -> Any:
    """Places of as many particles, each about as often as its weight says."""
    n = len(log_weights)
    up_to = jnp.cumsum(jax.nn.softmax(log_weights))
    heights = (jnp.arange(n, dtype=up_to.dtype) + jax.random.uniform(key, dtype=up_to.dtype)) / n
    return jnp.minimum(jnp.searchsorted(up_to, heights * up_to[-1]), n - 1)

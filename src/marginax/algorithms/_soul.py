r"""SOUL: one long Langevin chain instead of a cloud; theta climbs the average over the chain.

    X_{k+1}     = X_k + gamma grad_x l(theta_t, X_k) + sqrt(2 gamma) Z,  k = 0..N-1
    theta_{t+1} = theta_t + delta (1/N) sum_{k=1..N} grad_theta l(theta_t, X_k)

X_0 is the last state of the chain before, and theta climbs the average over the NEW chain.

`particles` holds the N states of the chain, oldest first; the first chain starts at the last
particle given.

References:
    De Bortoli, Durmus, Pereyra and Vidal (2021), Efficient stochastic optimisation by unadjusted
    Langevin Monte Carlo, Statistics and Computing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike

from marginax._core import trees
from marginax._core.checks import check_count, check_positive, check_start
from marginax.algorithms._pgd import PGDInfo
from marginax.algorithms.contract import Algorithm
from marginax.flows import langevin
from marginax.flows.optimizers import Optimizer, as_optimizer, ascend, rescaled
from marginax.flows.scores import latent_score, theta_score
from marginax.typing import Count, Data, Key, Latent, LogDensity, Particles, Theta

__all__ = ["SOULState", "soul"]


class SOULState(NamedTuple):
    """State of SOUL.

    Attributes:
        theta: the current iterate.
        particles: the states of the latest chain, oldest first.
        theta_optimizer_state: what the theta optimizer remembers.
        num_steps: steps taken, warm-up included.
        theta_average: the weighted mean of the iterates after warm-up, the method's own estimate.
        total_weight: the sum of its weights so far.
    """

    theta: Theta
    particles: Particles
    theta_optimizer_state: optax.OptState
    num_steps: Array
    theta_average: Theta
    total_weight: Array


def soul(
    log_joint: LogDensity,
    theta_optimizer: Optimizer,
    step_size: ArrayLike,
    *,
    theta_bounds: tuple[Theta, Theta] | None = None,
    num_warmup: Count = 0,
    averaging_weight: ArrayLike | optax.Schedule = 1.0,
) -> Algorithm:
    """Stochastic optimisation via unadjusted Langevin.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data.
        theta_optimizer: any optax optimizer for theta, or a step size; `optax.sgd(schedule)` for
            the decreasing steps delta_n of the paper.
        step_size: gamma of the chain.
        theta_bounds: a box (lower, upper) onto which theta is projected after every step: two
            numbers, or two trees like theta.
        num_warmup: for this many first steps the chain runs and theta stays where it is.
        averaging_weight: weight of the n-th iterate (n = 0, 1, ... after warm-up) in
            `state.theta_average`, a number or a schedule; the paper uses delta_n.

    Returns:
        The algorithm. It is stochastic and sequential: the N steps of a chain cannot run in
        parallel.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((50, 3))
        >>> method = mx.soul(log_joint, 0.1, 0.1, num_warmup=5)
        >>> end = mx.trajectory(method, 0.0, x0, y, 1000, key=jax.random.key(0))
        >>> bool(abs(end.state.theta_average - 2.0) < 0.2)  # the maximum likelihood estimate is 2
        True
    """
    theta_optimizer = as_optimizer(theta_optimizer, "theta_optimizer")
    check_positive(step_size, "step_size")
    num_warmup = check_count(num_warmup, "num_warmup", least=0)

    def init(key: Key, theta: Theta, particles: Particles) -> SOULState:
        del key
        theta, particles = check_start(theta, particles)
        if theta_bounds is not None:
            theta = _project(theta, *theta_bounds)
        weight = jnp.zeros((), jnp.result_type(float, *jax.tree.leaves(theta)))
        return SOULState(
            theta, particles, theta_optimizer.init(theta), jnp.zeros((), jnp.int32), theta, weight
        )

    def step(key: Key, state: SOULState, data: Data) -> tuple[SOULState, PGDInfo]:
        def move(x: Latent, key: Key) -> tuple[Latent, tuple[Latent, Latent]]:
            score = latent_score(log_joint, state.theta, x, data)
            x = langevin.overdamped(key, x, score, step_size)
            return x, (x, score)

        last = jax.tree.map(lambda leaf: leaf[-1], state.particles)
        keys = jax.random.split(key, trees.cloud_size(state.particles))
        _, (chain, scores) = jax.lax.scan(move, last, keys)

        direction = theta_score(log_joint, state.theta, chain, data)
        theta, theta_optimizer_state = ascend(
            theta_optimizer,
            direction,
            state.theta_optimizer_state,
            state.theta,
            log_joint=log_joint,
            particles=chain,
            data=data,
        )
        if theta_bounds is not None:
            theta = _project(theta, *theta_bounds)

        weight = averaging_weight
        if callable(averaging_weight):
            weight = averaging_weight(state.num_steps - num_warmup)
        weight = jnp.asarray(weight).astype(state.total_weight.dtype)
        total_weight = state.total_weight + weight
        share = jnp.where(total_weight > 0, weight / total_weight, 1)
        theta_average = trees.add_scaled(
            state.theta_average, share, trees.difference(theta, state.theta_average)
        )
        after = SOULState(
            theta, chain, theta_optimizer_state, state.num_steps + 1, theta_average, total_weight
        )
        held = state._replace(particles=chain, num_steps=state.num_steps + 1)
        # During warm-up the chain moves and everything else stays where it was.
        warm = state.num_steps >= num_warmup
        state = jax.tree.map(lambda new, old: jnp.where(warm, new, old), after, held)
        return state, PGDInfo(direction, scores)

    def rescale(factor: ArrayLike) -> Algorithm:
        return soul(
            log_joint,
            rescaled(theta_optimizer, factor),
            step_size * factor,
            theta_bounds=theta_bounds,
            num_warmup=num_warmup,
            averaging_weight=averaging_weight,
        )

    return Algorithm(
        init,
        step,
        log_joint,
        rescale,
        stochastic=True,
        blocks=None,
        replicated=("theta", "theta_optimizer_state", "theta_average"),
    )


def _project(theta: Theta, lower: Theta, upper: Theta) -> Theta:
    """Clips theta into the box; a bound that is one number holds for every coordinate."""
    low, high = (trees.number_or_like(b, theta, "a bound of theta_bounds") for b in (lower, upper))
    return jax.tree.map(jnp.clip, theta, low, high)

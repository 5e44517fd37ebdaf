"""Other ways to maximise a marginal likelihood, each as an iterator over its estimates of theta.

Every function takes a problem (theta and latent on the reals), the same model as NumPyro users
write it, and a key; what it returns starts a run anew whenever it is called, with the programs that
it has compiled before. Choices that were open were made once, for both models, by hand.
"""

from collections.abc import Callable, Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import optax
from jax.flatten_util import ravel_pytree
from numpyro.contrib.einstein import SVGD, RBFKernel
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import marginax as mx

__all__ = ["RIVALS", "Start"]

Start = Callable[[], Iterator[Any]]
NUM_PARTICLES = 20
SVI_STEPS, SVI_RATE = 20_000, 0.01
SVGD_STEPS, SVGD_RATE = 10_000, 0.05
# Monte Carlo EM: iterations, and draws in each.
ROUNDS = ((15, 64), (10, 256), (10, 1024))
WARM_UP, NEWTON_STEPS = 300, 8


def by_fit(problem: mx.Problem, model: Any, key: Any) -> Start:
    """`fit` as it comes: standard errors, and posterior draws."""
    return lambda: iter(
        [ravel_pytree(mx.fit(problem, key=key, progress=False).unconstrained_theta)[0]]
    )


def by_fit_without_draws(problem: mx.Problem, model: Any, key: Any) -> Start:
    """`fit` without posterior draws."""
    settings = {"key": key, "progress": False, "draw_posterior": False}
    return lambda: iter([ravel_pytree(mx.fit(problem, **settings).unconstrained_theta)[0]])


def by_svi(problem: mx.Problem, model: Any, key: Any) -> Start:
    """NumPyro's SVI with `AutoNormal`; Adam's step falls from 0.01 to 0.0001 over the run."""
    given = (problem.data, problem.start_theta())
    decay = optax.exponential_decay(SVI_RATE, SVI_STEPS, 0.01)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(decay), Trace_ELBO())

    def body(state: Any, _: None) -> Any:
        return svi.update(state, *given)[0], None

    advance = jax.jit(lambda state: jax.lax.scan(body, state, None, 500)[0])

    def start() -> Iterator[Any]:
        state = svi.init(key, *given)
        for _ in range(SVI_STEPS // 500):
            state = advance(state)
            found = svi.get_params(state)
            yield ravel_pytree({name: found[name] for name in given[1]})[0]

    return start


def by_numpyro_svgd(
    problem: mx.Problem, model: Any, key: Any, num_particles: int = NUM_PARTICLES
) -> Start:
    """NumPyro's SVGD of the latents; theta, as `param` sites, climbs beside it by the same Adam."""
    given = (problem.data, problem.start_theta())
    svgd = SVGD(model, numpyro.optim.Adam(SVI_RATE), RBFKernel(), num_particles)

    def body(state: Any, _: None) -> Any:
        return svgd.update(state, *given)[0], None

    advance = jax.jit(lambda state: jax.lax.scan(body, state, None, 250)[0])

    def start() -> Iterator[Any]:
        state = svgd.init(key, *given)
        for _ in range(SVGD_STEPS // 250):
            state = advance(state)
            found = svgd.get_params(state)
            yield ravel_pytree({name: found[name] for name in given[1]})[0]

    return start


def by_blackjax_svgd(
    problem: mx.Problem, model: Any, key: Any, num_particles: int = NUM_PARTICLES
) -> Start:
    """BlackJAX's `svgd` of the latents, and around it Adam in theta, a step of each in turn."""
    score = jax.grad(problem.unconstrained_log_joint, argnums=1)
    svgd = blackjax.svgd(lambda x, theta: score(theta, x, problem.data), optax.adam(SVGD_RATE))
    climb = optax.adam(optax.exponential_decay(SVI_RATE, SVGD_STEPS, 0.01))

    def loss(theta: Any, cloud: Any) -> Any:
        each = jax.vmap(problem.unconstrained_log_joint, (None, 0, None))(
            theta, cloud, problem.data
        )
        return -jnp.mean(each)

    def body(carry: Any, _: None) -> Any:
        state, theta, memory = carry
        state = svgd.step(state, theta=theta)
        updates, memory = climb.update(jax.grad(loss)(theta, state.particles), memory)
        return (state, optax.apply_updates(theta, updates), memory), None

    advance = jax.jit(lambda carry: jax.lax.scan(body, carry, None, 250)[0])

    def start() -> Iterator[Any]:
        theta, latent = problem.start_theta(), problem.start_latent()
        cloud = latent + jax.random.normal(key, (num_particles, *latent.shape), latent.dtype)
        carry = (svgd.init(cloud), theta, climb.init(theta))
        for _ in range(SVGD_STEPS // 250):
            carry = advance(carry)
            yield ravel_pytree(carry[1])[0]

    return start


def by_monte_carlo_em(problem: mx.Problem, model: Any, key: Any) -> Start:
    """Monte Carlo EM: BlackJAX's NUTS (window adaptation at the start), Newton's M-step."""
    flat, unravel = ravel_pytree(problem.start_theta())

    def density(theta: Any) -> Callable[[Any], Any]:
        return lambda x: problem.unconstrained_log_joint(unravel(theta), x, problem.data)

    @jax.jit
    def warm_up(key: Any, theta: Any, x: Any) -> Any:
        adaptation = blackjax.window_adaptation(blackjax.nuts, density(theta))
        (state, settings), _ = adaptation.run(key, x, WARM_UP)
        return state.position, settings

    def iterate(key: Any, theta: Any, x: Any, settings: Any, num_draws: int) -> Any:
        nuts = blackjax.nuts(density(theta), **settings)

        def draw(state: Any, key: Any) -> Any:
            state = nuts.step(key, state)[0]
            return state, state.position

        keys = jax.random.split(key, num_draws)
        state, draws = jax.lax.scan(draw, nuts.init(x), keys)

        def q(theta: Any) -> Any:
            return jnp.mean(jax.vmap(lambda x: density(theta)(x))(draws))

        def newton(_: Any, theta: Any) -> Any:
            # Uphill whatever the signs of the curvature: far from the maximum Q is not concave.
            values, vectors = jnp.linalg.eigh(jax.hessian(q)(theta))
            size = jnp.maximum(jnp.abs(values), 1e-6 * jnp.max(jnp.abs(values)))
            step = vectors @ ((vectors.T @ jax.grad(q)(theta)) / size)
            return theta + step / jnp.maximum(1, jnp.max(jnp.abs(step)))

        return jax.lax.fori_loop(0, NEWTON_STEPS, newton, theta), state.position

    advance = jax.jit(iterate, static_argnums=4)

    def start() -> Iterator[Any]:
        keys = iter(jax.random.split(key, 1 + sum(count for count, _ in ROUNDS)))
        theta, (x, settings) = flat, warm_up(next(keys), flat, problem.start_latent())
        for count, num_draws in ROUNDS:
            for _ in range(count):
                theta, x = advance(next(keys), theta, x, settings, num_draws)
                yield theta

    return start


RIVALS = {
    "mx.fit": by_fit,
    "mx.fit, draw_posterior=False": by_fit_without_draws,
    "NumPyro SVI": by_svi,
    "NumPyro SVGD": by_numpyro_svgd,
    "BlackJAX SVGD": by_blackjax_svgd,
    "Monte Carlo EM, NUTS": by_monte_carlo_em,
}

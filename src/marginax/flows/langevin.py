r"""Langevin moves, overdamped, adjusted and underdamped: the noisy steps of stochastic methods.

Overdamped (Euler-Maruyama), temperature T:

    x <- x + h s + sqrt(2 h T) W

Adjusted (Metropolis): a move from x to y is kept with probability min(1, exp(r)),

    r = l(y) - l(x) + log q(y, x) - log q(x, y),    log q(x, y) = -|y - x - h s(x)|^2 / (4h)

Underdamped, friction g, inverse mass e (so the momentum's stationary variance is T/e), exact for a
frozen force s: with a = g e, w = exp(-a h),

    x <- x + c1 u + c2 s + e_x        c1 = (1 - w)/g       c2 = (h - (1 - w)/a)/g
    u <- w u + k s + e_u              k  = (1 - w)/a
    Var e_x = T (2h - 3/a + 4w/a - w^2/a)/g      Cov = T (1 - w)^2/a      Var e_u = T (1 - w^2)/e

Written with z = a h: c2 = (z + expm1(-z))/(g a) and Var e_x = T psi(z)/(g a), psi(z) = 2z - 3 + 4
exp(-z) - exp(-2z). Both cancel to nothing for small z (in float32 psi is negative noise below z =
0.005), so both have a series there.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from marginax._core import trees
from marginax.typing import Key, Particles

__all__ = [
    "Underdamped",
    "keep",
    "log_acceptance",
    "overdamped",
    "psi",
    "thermostat",
    "underdamped",
    "underdamped_coefficients",
]

# Below this z the series is used; with these many terms its truncation is below float64 rounding
# there.
_SERIES_BELOW = 0.4
_PSI_SERIES = [(-1) ** k * (4 - 2**k) / math.factorial(k) for k in range(3, 19)]
_CHI_SERIES = [(-1) ** k / math.factorial(k) for k in range(2, 18)]


def overdamped(
    key: Key, position: PyTree, drift: PyTree, step_size: ArrayLike, temperature: ArrayLike = 1.0
) -> PyTree:
    """x + h s + sqrt(2 h T) W, with W standard normal."""
    moved = trees.add_scaled(position, step_size, drift)
    noise_scale = jnp.sqrt(2 * jnp.asarray(step_size) * temperature)
    return trees.add_scaled(moved, noise_scale, trees.normal_like(key, position))


def log_acceptance(
    here: tuple[Particles, Float[Array, " n"], Particles],
    there: tuple[Particles, Float[Array, " n"], Particles],
    step_size: ArrayLike,
) -> Float[Array, " n"]:
    """r of every particle, for moves between two clouds: (positions, values of l, scores) each."""
    (x, at_x, s_x), (y, at_y, s_y) = (
        (trees.ravel_cloud(cloud), values, trees.ravel_cloud(scores))
        for cloud, values, scores in (here, there)
    )
    h = jnp.asarray(step_size, x.dtype)
    forwards = jnp.sum((y - x - h * s_x) ** 2, axis=1)
    backwards = jnp.sum((x - y - h * s_y) ** 2, axis=1)
    # What is not finite there is no place to go.
    ratio = at_y - at_x + (forwards - backwards) / (4 * h)
    return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)


def keep(accepted: Array, there: PyTree, here: PyTree) -> PyTree:
    """The moved tree where the move is accepted: one answer for all, or one for each particle."""

    def chosen(new: Array, old: Array) -> Array:
        each = accepted.reshape(accepted.shape + (1,) * (new.ndim - accepted.ndim))
        return jnp.where(each, new, old)

    return jax.tree.map(chosen, there, here)


class Underdamped(NamedTuple):
    """The coefficients of the exact underdamped step, at temperature 1.

    Attributes:
        decay: w = exp(-a h), what is left of the momentum.
        drift: c1, how far the momentum carries the position.
        position_gain: c2, how far the force carries the position.
        momentum_gain: k, how much the force adds to the momentum.
        momentum_noise: sd of e_u.
        shared_noise: part of e_x that is made of the same draw as e_u, per unit of that draw.
        position_noise: sd of the part of e_x that is independent of e_u.
    """

    decay: Array
    drift: Array
    position_gain: Array
    momentum_gain: Array
    momentum_noise: Array
    shared_noise: Array
    position_noise: Array


def underdamped_coefficients(
    step_size: ArrayLike, friction: ArrayLike, inverse_mass: ArrayLike = 1.0
) -> Underdamped:
    """The numbers of the module's equations, e_x split into a part along e_u and the rest."""
    rate = jnp.asarray(friction) * inverse_mass
    z = rate * step_size
    decay = jnp.exp(-z)
    lost = -jnp.expm1(-z)  # 1 - w without cancellation
    variance_u = lost * (1 + decay) / inverse_mass
    # Var e_x - Cov^2 / Var e_u. Both are of order z^3 and a quarter of psi is left: little cancels.
    variance_x_given_u = (psi(z) - lost**3 / (1 + decay)) / (friction * rate)
    momentum_noise = jnp.sqrt(variance_u)
    return Underdamped(
        decay=decay,
        drift=lost / friction,
        position_gain=_chi(z) / (friction * rate),
        momentum_gain=lost / rate,
        momentum_noise=momentum_noise,
        shared_noise=lost**2 / rate / momentum_noise,
        position_noise=jnp.sqrt(variance_x_given_u),
    )


def underdamped(
    key: Key | None,
    position: PyTree,
    momentum: PyTree,
    force: PyTree,
    coefficients: Underdamped,
    temperature: ArrayLike = 1.0,
) -> tuple[PyTree, PyTree]:
    """One exact step for a frozen force; without a key there is no noise (temperature 0)."""
    c = coefficients
    moved = trees.add_scaled(trees.add_scaled(position, c.drift, momentum), c.position_gain, force)
    damped = jax.tree.map(lambda u: c.decay.astype(u.dtype) * u, momentum)
    kicked = trees.add_scaled(damped, c.momentum_gain, force)
    if key is None:
        return moved, kicked
    momentum_key, position_key = jax.random.split(key)
    shared = trees.normal_like(momentum_key, position)
    own = trees.normal_like(position_key, position)
    scale = jnp.sqrt(jnp.asarray(temperature))
    moved = trees.add_scaled(moved, scale * c.shared_noise, shared)
    moved = trees.add_scaled(moved, scale * c.position_noise, own)
    return moved, trees.add_scaled(kicked, scale * c.momentum_noise, shared)


def thermostat(
    key: Key,
    velocity: PyTree,
    step_size: ArrayLike,
    friction: ArrayLike,
    temperature: ArrayLike = 1.0,
) -> PyTree:
    """The noise and friction alone, unit mass: d v + sqrt(T (1 - d^2)) W, d = exp(-g h)."""
    z = jnp.asarray(friction) * step_size
    scale = jnp.sqrt(-jnp.expm1(-2 * z) * temperature)
    damped = jax.tree.map(lambda v: jnp.exp(-z).astype(v.dtype) * v, velocity)
    return trees.add_scaled(damped, scale, trees.normal_like(key, velocity))


def psi(z: ArrayLike) -> Array:
    """2z - 3 + 4 exp(-z) - exp(-2z), accurate for every z >= 0 (it is 2z^3/3 to leading order)."""
    z = jnp.asarray(z)
    direct = 2 * z - 3 + 4 * jnp.exp(-z) - jnp.exp(-2 * z)
    return jnp.where(z < _SERIES_BELOW, z**3 * _polynomial(z, _PSI_SERIES), direct)


def _chi(z: Array) -> Array:
    """Z + expm1(-z), which is z^2/2 to leading order."""
    return jnp.where(z < _SERIES_BELOW, z**2 * _polynomial(z, _CHI_SERIES), z + jnp.expm1(-z))


def _polynomial(z: Array, coefficients: list[float]) -> Array:
    value = jnp.zeros_like(z)
    for coefficient in reversed(coefficients):
        value = value * z + coefficient
    return value

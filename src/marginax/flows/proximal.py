r"""Densities with a part that has no gradient everywhere: l = f - g, g convex with a proximal map.

    prox_lambda(z) = argmin_u g(u) + |u - z|^2 / (2 lambda)

A user gives `prox(theta, latent, scale) -> (theta, latent)`, joint in both because g may couple
them, as a Laplace prior around theta does. theta has one such step from every particle, and takes
their mean. Two ways to use it:

    smoothed   grad g is replaced by that of its Moreau envelope, (z - prox_lambda(z)) / lambda
    split      a step along f alone, and then prox_h, with h the step itself

References:
    Encinar, Crucinio and Akyildiz (2025), Proximal interacting particle Langevin algorithms, UAI.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike

from marginax._core import trees
from marginax._core.checks import check_positive
from marginax.typing import Latent, Particles, Theta

__all__ = [
    "Prox",
    "Smooth",
    "as_smooth",
    "box",
    "group_soft_threshold",
    "laplace_around_theta",
    "nuclear",
    "of_latent",
    "proximal_step",
    "soft_threshold",
]

HALVINGS = 60  # of an interval, to the last digit
Prox = Callable[[Theta, Latent, ArrayLike], tuple[Theta, Latent]]


class Smooth(NamedTuple):
    """A proximal map used by its Moreau envelope.

    Attributes:
        prox: `prox(theta, latent, scale) -> (theta, latent)`.
        scale: lambda: the smaller, the closer to g, and the shorter the steps, h < 2 / (L +
            1 / lambda) where the gradient of f has the Lipschitz constant L.
    """

    prox: Prox
    scale: float

    def pulls(self, theta: Theta, particles: Particles) -> tuple[Theta, Particles]:
        """Minus the gradients of the envelope, in theta (a mean over particles) and the latents."""
        nearby_theta, nearby = _of_all(self.prox, theta, particles, self.scale)
        pull = jax.tree.map(lambda near, here: (near - here) / self.scale, nearby_theta, theta)
        return pull, jax.tree.map(lambda near, here: (near - here) / self.scale, nearby, particles)


def proximal_step(
    prox: Prox, theta: Theta, particles: Particles, step_size: ArrayLike
) -> tuple[Theta, Particles]:
    """prox_h of every particle with theta, of which theta takes the mean."""
    return _of_all(prox, theta, particles, step_size)


def _of_all(
    prox: Prox, theta: Theta, particles: Particles, scale: ArrayLike
) -> tuple[Theta, Particles]:
    thetas, moved = jax.vmap(lambda latent: prox(theta, latent, scale))(particles)
    mean = trees.particle_mean(thetas)
    given, made = (str(jax.tree.structure(pair)) for pair in ((theta, particles), (mean, moved)))
    if given != made:
        raise ValueError(
            "prox(theta, latent, scale) must return a pair like (theta, latent), of the same "
            f"structure {given}; it returned {made}."
        )
    return mean, moved


def of_latent(operator: Callable[[Array, ArrayLike], Array]) -> Prox:
    """The `prox` of a part that depends on the latent alone, leaf by leaf.

    Args:
        operator: `operator(leaf, scale)`, one of those below, or your own.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> prox = mx.proximal.of_latent(mx.proximal.soft_threshold(2.0))  # of 2 |x|
        >>> prox(0.0, jnp.array([3.0, 0.5]), 0.5)[1].tolist()
        [2.0, 0.0]
    """

    def prox(theta: Theta, latent: Latent, scale: ArrayLike) -> tuple[Theta, Latent]:
        return theta, jax.tree.map(lambda leaf: operator(leaf, scale), latent)

    return prox


def laplace_around_theta(weight: float = 1.0) -> Prox:
    """The `prox` of weight times the distances of all x_d from one number theta: a Laplace prior.

    For a given theta, x_d goes towards it by at most weight * scale; and theta solves

        theta = theta_0 + sum_d clip(x_d - theta, -weight scale, weight scale),

    whose right side falls in theta, so that halving an interval finds it.
    """

    def prox(theta: Theta, latent: Latent, scale: ArrayLike) -> tuple[Theta, Latent]:
        x = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(latent)])
        most = jnp.asarray(weight * scale, x.dtype)

        def closer(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = (ends[0] + ends[1]) / 2
            above = theta + jnp.sum(jnp.clip(x - middle, -most, most)) > middle
            return jnp.where(above, middle, ends[0]), jnp.where(above, ends[1], middle)

        reach = x.size * most
        ends = jax.lax.fori_loop(0, HALVINGS, closer, (theta - reach, theta + reach))
        found = (ends[0] + ends[1]) / 2
        operator = soft_threshold(weight)
        return found, jax.tree.map(lambda leaf: found + operator(leaf - found, scale), latent)

    return prox


def soft_threshold(weight: ArrayLike = 1.0) -> Callable[[Array, ArrayLike], Array]:
    """Of weight times the sum of absolute values: a Laplace prior."""

    def operator(x: Array, scale: ArrayLike) -> Array:
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - weight * scale, 0)

    return operator


def box(low: ArrayLike, high: ArrayLike) -> Callable[[Array, ArrayLike], Array]:
    """Of what is 0 between two bounds and infinite elsewhere: the nearest point between them."""

    def operator(x: Array, scale: ArrayLike) -> Array:
        del scale
        bounds = (jnp.broadcast_to(jnp.asarray(end, x.dtype), x.shape) for end in (low, high))
        return optax.projections.projection_box(x, *bounds)

    return operator


def group_soft_threshold(weight: ArrayLike = 1.0) -> Callable[[Array, ArrayLike], Array]:
    """Of weight times the sum of the groups' lengths, groups along all axes but the last."""

    def operator(x: Array, scale: ArrayLike) -> Array:
        length = jnp.linalg.norm(x, axis=-1, keepdims=True)
        shrunk = jnp.maximum(length - weight * scale, 0)
        return x * shrunk / jnp.where(length > 0, length, 1)

    return operator


def nuclear(weight: ArrayLike = 1.0) -> Callable[[Array, ArrayLike], Array]:
    """Of g = weight times the sum of singular values: matrices of low rank."""

    def operator(x: Array, scale: ArrayLike) -> Array:
        left, values, right = jnp.linalg.svd(x, full_matrices=False)
        return (left * jnp.maximum(values - weight * scale, 0)[..., None, :]) @ right

    return operator


def as_smooth(prox: Prox | None, smoothing: float | None) -> Smooth | None:
    """The envelope that two arguments of a method mean; None without one."""
    if smoothing is None:
        return None
    check_positive(smoothing, "smoothing")
    if prox is None:
        raise ValueError(
            f"smoothing is {smoothing!r}, but there is no prox to smooth: give prox= as well."
        )
    return Smooth(prox, smoothing)

r"""The linear kernel, which matches moments: exact for a Gaussian posterior with few particles.

k(x, x') = 1 + (x - m)' A (x' - m),   m the cloud's mean, A = S^-1 or diag(1 / v), held constant

With z = x - m, s_bar = (1/N) sum_j s_j and C = (1/N) sum_j s_j z_j':

    phi(x_i) = s_bar + (C + I) A z_i

The cloud is at rest when s_bar = 0 and C = -I. By Stein's identity that holds under the posterior,
and for a Gaussian posterior it fixes mean and covariance exactly, with any N above the dimension.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax import _tree, stein
from marginax.base import Particles
from marginax.stein import Kernel

__all__ = ["linear"]


def linear(covariance: str = "full") -> Kernel:
    """Moment matching, 1 + (x - m)' A (x' - m) over the whole latent; use it within `blockwise`.

    Args:
        covariance: "full", A the inverse of the cloud's covariance, or "diagonal", A = diag(1 / v),
            cheaper for large blocks. Both are at rest at the same clouds.

    Returns:
        A kernel. It sees means and covariances only: the shape of a posterior that is not Gaussian
        it leaves as the start had it, so add `rbf`.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> kernel = mx.kernels.linear()
        >>> x = jnp.array([[-1.0], [1.0]])  # variance 1, and so is the posterior's: at rest
        >>> kernel.velocity(x, -x).tolist()
        [[0.0], [0.0]]
    """
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"covariance is {covariance!r}, but it must be 'full' or 'diagonal'.")

    def parts(x: Array, s: Array) -> tuple[Array, Array, Array, Array]:
        """s_bar, z, A z and (C + I) A z, a row per particle."""
        mean_score = jnp.mean(s, axis=0, keepdims=True)
        z = stein.centred(x)
        scaled = z / stein.variances(z) if covariance == "diagonal" else stein.by_covariance(z)
        return mean_score, z, scaled, stein.regress(scaled, z, s) + scaled

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        mean_score, _, _, deviation = parts(x, s)
        return _tree.unravel_cloud(mean_score + deviation, particles)

    def whitened(particles: Particles, scores: Particles) -> Particles:
        x, s = _tree.ravel_cloud(particles), _tree.ravel_cloud(scores)
        mean_score, z, scaled, deviation = parts(x, s)
        return _tree.unravel_cloud(mean_score + _capped(deviation, z, scaled), particles)

    return Kernel(velocity, f"linear({covariance!r})", whitened)


def _capped(
    deviation: Float[Array, "n d"], z: Float[Array, "n d"], scaled: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """Limits the linear part; a cloud far too narrow (it has 1 / variance times z) would burst.

    No particle moves further, relative to the mean, than it is away from it, or than it would be in
    a cloud of unit size, which is what the metric expects of the posterior.
    """
    in_unit_cloud = jnp.sum(z * scaled, axis=1)
    allowed = jnp.sqrt(jnp.maximum(jnp.sum(z**2, axis=1), in_unit_cloud))
    reach = jnp.linalg.norm(deviation, axis=1) / jnp.maximum(allowed, 1e-6)
    return deviation / jnp.maximum(1, jnp.max(reach))

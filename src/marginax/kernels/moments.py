r"""Kernels that match moments: `linear`, and `moment_matched`, which adds a shape to it.

**linear**: k(x, x') = 1 + (x - m)' A (x' - m), m the cloud's mean, A = S^-1 or diag(1 / v), held
constant. With z = x - m, s_bar = (1/N) sum_j s_j and C = (1/N) sum_j s_j z_j':

    phi(x_i) = s_bar + (C + I) A z_i

The cloud is at rest when s_bar = 0 and C = -I. By Stein's identity that holds under the posterior,
and for a Gaussian posterior it fixes mean and covariance exactly, with any N above the dimension.

**moment_matched**: the affine part of another kernel's velocity phi_k, its least-squares fit by
a + B z, is taken out, and the linear kernel's velocity, which is affine, takes its place:

    phi(x_i) = [ s_bar + (C + I) S^-1 z_i ]  +  [ phi_k(x_i) - a - B z_i ]

The two brackets are orthogonal over the cloud, so it is at rest only where both vanish: there
s_bar = 0 and C = -I hold EXACTLY, and k has given the cloud the best shape it can. A plain sum
`k + linear()` balances the two instead: k's shortage of variance then remains, about one per cent
with 20 particles, and where the data say little about a variance the estimate multiplies it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax._core import linalg, trees
from marginax._core.linalg import by_covariance, centered, regress
from marginax.kernels.base import Kernel, check_kernel, whitened_velocity
from marginax.typing import Particles

__all__ = ["linear", "moment_matched"]


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
        z = linalg.centered(x)
        scaled = z / linalg.variances(z) if covariance == "diagonal" else linalg.by_covariance(z)
        return mean_score, z, scaled, linalg.regress(scaled, z, s) + scaled

    def velocity(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        mean_score, _, _, deviation = parts(x, s)
        return trees.unravel_cloud(mean_score + deviation, particles)

    def whitened(particles: Particles, scores: Particles) -> Particles:
        x, s = trees.ravel_cloud(particles), trees.ravel_cloud(scores)
        mean_score, z, scaled, deviation = parts(x, s)
        return trees.unravel_cloud(mean_score + _capped(deviation, z, scaled), particles)

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


# Whitened, the shape may change by this many widths of the cloud in a unit of time.
CAP = 1.0


def moment_matched(kernel: Kernel) -> Kernel:
    """Mean and covariance by `linear()`, everything beyond them by `kernel`; within `blockwise`.

    Args:
        kernel: for the shape, such as `rbf("mean")`. It works on the whole latent, or within
            `blockwise(moment_matched(...))` on each block.

    Returns:
        The kernel to start with. For a Gaussian posterior it is exact, with any N above the
        dimension of a block, and for others it is better than `rbf + linear` and than `linear`.

    Example:
        >>> import jax.numpy as jnp, marginax as mx
        >>> kernel = mx.kernels.moment_matched(mx.kernels.rbf("mean"))
        >>> x = jnp.array([[-1.0], [1.0]])  # mean and variance of the posterior below: at rest
        >>> abs(kernel.velocity(x, -x)).max().round(3).item()
        0.0
    """
    check_kernel(kernel)
    moments = linear()

    def velocity(particles: Particles, scores: Particles) -> Particles:
        shape = _beyond_affine(kernel.velocity, particles, scores)[0]
        return jax.tree.map(
            jnp.add,
            moments.velocity(particles, scores),
            trees.unravel_cloud(shape, particles),
        )

    def whitened(particles: Particles, scores: Particles) -> Particles:
        def of_kernel(x: Particles, s: Particles) -> Particles:
            return whitened_velocity(kernel, x, s)

        shape, z = _beyond_affine(of_kernel, particles, scores)
        # Crowded particles repel each other like 1 / distance: a cloud far too narrow would burst.
        width = jnp.sqrt(jnp.mean(jnp.sum(z**2, axis=1)))
        reach = jnp.max(jnp.linalg.norm(shape, axis=1)) / jnp.maximum(width, 1e-6)
        return jax.tree.map(
            jnp.add,
            whitened_velocity(moments, particles, scores),
            trees.unravel_cloud(shape / jnp.maximum(1, reach / CAP), particles),
        )

    return Kernel(velocity, f"moment_matched({kernel.name})", whitened)


def _beyond_affine(
    velocity: Callable[[Particles, Particles], Particles], particles: Particles, scores: Particles
) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """phi_k less its least-squares fit a + B z, and z."""
    x, phi = trees.ravel_cloud(particles), trees.ravel_cloud(velocity(particles, scores))
    z = centered(x)
    phi = phi - jnp.mean(phi, axis=0, keepdims=True)
    return phi - regress(by_covariance(z), z, phi), z

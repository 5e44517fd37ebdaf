"""Moments of clouds against posteriors that are not Gaussian: which kernel to use when.

Twenty blocks, each a posterior of one dimension with its own start, theta held fixed. Errors are
those of the mean (in standard deviations), of the standard deviation (relative), of the mean
absolute deviation (relative), and of the third central moment (in cubed standard deviations), all
as averages of absolute values over the blocks.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

import marginax as mx

NUM_BLOCKS, NUM_STEPS = 20, 2000


def skewed(x: jax.Array) -> jax.Array:
    """The logarithm of a Gamma(2) variable: what a Poisson count with a flat prior leaves."""
    return 2 * x - jnp.exp(x)


def heavy_tailed(x: jax.Array) -> jax.Array:
    """Student's t with five degrees of freedom."""
    return -3 * jnp.log1p(x**2 / 5)


def bimodal(x: jax.Array) -> jax.Array:
    """Two unit Gaussians, five standard deviations apart, with weights 0.7 and 0.3."""
    return jnp.logaddexp(jnp.log(0.7) - 0.5 * (x + 2.5) ** 2, jnp.log(0.3) - 0.5 * (x - 2.5) ** 2)


def gaussian(x: jax.Array) -> jax.Array:
    """For comparison."""
    return -0.5 * x**2


def exact(log_density: Callable[[jax.Array], jax.Array]) -> tuple[np.ndarray, np.ndarray]:
    """A fine grid and its normalised weights."""
    grid = np.linspace(-30, 30, 60_001)
    weights = np.exp(np.asarray(log_density(jnp.asarray(grid)), np.float64))
    return grid, weights / weights.sum()


def errors(cloud: np.ndarray, grid: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of the four expectations, averaged over blocks."""
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    absolute = weights @ np.abs(grid - mean)
    third = weights @ (grid - mean) ** 3
    z = cloud - cloud.mean(axis=0)
    of_cloud = (
        np.abs(cloud.mean(axis=0) - mean) / sd,
        np.abs(cloud.std(axis=0) / sd - 1),
        np.abs(np.abs(z).mean(axis=0) / absolute - 1),
        np.abs((z**3).mean(axis=0) - third) / sd**3,
    )
    return np.array([error.mean() for error in of_cloud])


def main() -> None:
    """Prints one row per posterior, number of particles and kernel."""
    rbf, linear = mx.kernels.rbf("mean"), mx.kernels.linear()
    kernels = {
        "rbf": rbf,
        "linear": linear,
        "rbf + linear": rbf + linear,
        "moment_matched(rbf)": mx.kernels.moment_matched(rbf),
    }
    restart = mx.momentum.adaptive_restart()
    print(
        f"{'posterior':<14} {'N':>3}  {'kernel':<20} {'mean':>7} {'sd':>7} {'abs':>7} {'third':>7}"
        "  Stein ratio"
    )
    for density in (gaussian, skewed, heavy_tailed, bimodal):
        grid, weights = exact(density)

        def log_joint(theta: jax.Array, x: jax.Array, data: None, density=density) -> jax.Array:
            return jnp.sum(density(x)) + 0 * theta

        for n in (20, 100):
            start = 0.5 + 1.5 * jax.random.normal(jax.random.key(n), (n, NUM_BLOCKS))
            for name, kernel in kernels.items():
                sampler = mx.m_svgd_em(
                    log_joint,
                    optax.set_to_zero(),
                    0.2,
                    mx.kernels.blockwise(kernel),
                    particle_momentum=restart,
                    particle_metric=mx.metrics.curvature(),
                )
                end = mx.trajectory(sampler, 0.0, start, None, NUM_STEPS, key=jax.random.key(0))
                row = errors(np.asarray(end.particles, np.float64), grid, weights)
                ratio = mx.diagnostics.stein_ratio(log_joint, 0.0, end.particles)
                print(
                    f"{density.__name__:<14} {n:>3}  {name:<20} "
                    + " ".join(f"{value:7.3f}" for value in row)
                    + f"  {float(jnp.min(ratio)):.2f} to {float(jnp.max(ratio)):.2f}"
                )


if __name__ == "__main__":
    main()

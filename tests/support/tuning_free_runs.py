"""The tuning-free configuration as tests run it."""

import jax

import marginax as mx

K = mx.kernels
RBF = K.rbf("mean")
DEFAULT = K.blockwise(K.moment_matched(RBF))


def configuration(log_joint, kernel=DEFAULT, blocks="leading"):
    """Written out, so that the constructor of this configuration is not its own oracle."""
    restart = mx.momentum.adaptive_restart()
    return mx.m_svgd_em(
        log_joint,
        mx.em_gradient(),
        0.25,
        kernel,
        theta_momentum=restart,
        particle_momentum=restart,
        particle_metric=mx.metrics.curvature(blocks),
    )


def fitted(log_joint, start, particles, data, num_steps=400, **options):
    method = configuration(log_joint, **options)
    return mx.trajectory(method, start, particles, data, num_steps, key=jax.random.key(0))

"""Every algorithm on one model of pytrees: what the contract is checked on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import marginax as mx

N = 5


def log_joint(theta, latent, data):
    """Pytrees everywhere: theta a dict, the latent a tuple, the data a dict."""
    intercepts, scale = latent
    prior = -0.5 * jnp.sum((intercepts - theta["mean"]) ** 2) - 0.5 * (scale - theta["scale"]) ** 2
    fitted = intercepts * jnp.tanh(scale)
    return prior - 0.5 * jnp.sum((data["y"] - fitted) ** 2) - 0.01 * jnp.sum(theta["mean"] ** 2)


def m_step(particles, data):
    return {"mean": particles[0].mean(axis=0) / 1.02, "scale": particles[1].mean(axis=0)}


RBF = mx.kernels.rbf("mean")
PROX = mx.proximal.of_latent(mx.proximal.soft_threshold(0.3))
# Every algorithm as a function of the density and one step size.
ALGORITHMS = {
    "svgd_em": lambda lj, h: mx.svgd_em(lj, h, h, RBF),
    "m_svgd_em": lambda lj, h: mx.m_svgd_em(lj, h, h, RBF),
    "m_svgd_em_restart": lambda lj, h: mx.m_svgd_em(
        lj,
        h,
        h,
        RBF,
        theta_momentum=mx.momentum.adaptive_restart(),
        particle_momentum=mx.momentum.nesterov(),
    ),
    "m_svgd_em_adagrad": lambda lj, h: mx.m_svgd_em(
        lj, optax.adagrad(h), optax.adagrad(h), mx.kernels.imq("median")
    ),
    "m_svgd_em_curvature": lambda lj, h: mx.m_svgd_em(
        lj,
        mx.em_gradient(),
        h,
        mx.kernels.blockwise(mx.kernels.moment_matched(RBF), "leaves"),
        theta_momentum=mx.momentum.adaptive_restart(),
        particle_momentum=mx.momentum.adaptive_restart(),
        particle_metric=mx.metrics.curvature(),
    ),
    "m_svgd_em_wag": lambda lj, h: mx.m_svgd_em(
        lj, h, h, RBF, theta_momentum=mx.momentum.wag(), particle_momentum=mx.momentum.wag(3.5)
    ),
    "m_svgd_em_riemannian": lambda lj, h: mx.m_svgd_em(
        lj, h, h, RBF, particle_momentum=mx.momentum.riemannian(0.8)
    ),
    "asvgd_em": lambda lj, h: mx.asvgd_em(lj, h, h, RBF),
    "asvgd_em_heavy_ball": lambda lj, h: mx.asvgd_em(
        lj, h, h, RBF, quadratic=None, restart="particles"
    ),
    "svgd_em_gfsd": lambda lj, h: mx.svgd_em(lj, h, h, mx.kernels.gfsd("mean")),
    "m_svgd_em_blob": lambda lj, h: mx.m_svgd_em(lj, h, h, mx.kernels.blob("median")),
    "coin_em_gfsf": lambda lj, h: mx.coin_em(lj, mx.kernels.gfsf(1.0)),
    "m_svgd_em_batches": lambda lj, h: mx.m_svgd_em(
        lj, h, h, mx.kernels.random_batches(mx.kernels.rbf(1.0), 5)
    ),
    "coin_em": lambda lj, h: mx.coin_em(lj, RBF),
    "pgd": lambda lj, h: mx.pgd(lj, h, h),
    "pmgd": lambda lj, h: mx.pgd(lj, mx.exact_m_step(m_step), h),
    "pqn": lambda lj, h: mx.pqn(lj, h),
    "soul": lambda lj, h: mx.soul(lj, h, h, num_warmup=1, theta_bounds=(-5.0, 5.0)),
    "mpgd": lambda lj, h: mx.mpgd(lj, h, 1.5, 3.0),
    "mpgd_rms": lambda lj, h: mx.mpgd(
        lj,
        h,
        1.5,
        3.0,
        theta_step_size=h / 2,
        theta_friction=1.0,
        theta_inverse_mass=2.0,
        theta_preconditioner=optax.scale_by_rms(),
    ),
    "adjusted_pmgd": lambda lj, h: mx.adjusted_pmgd(lj, mx.exact_m_step(m_step), h),
    "mcem": lambda lj, h: mx.mcem(lj, h, h, 3),
    "mcem_ecm": lambda lj, h: mx.mcem(
        lj,
        mx.conditional_m_steps(
            lambda theta, x, y: theta | {"mean": m_step(x, y)["mean"]},
            lambda theta, x, y: theta | {"scale": m_step(x, y)["scale"]},
            likelihood_steps=[lambda theta, y: theta],
        ),
        h,
        2,
    ),
    "ipla": lambda lj, h: mx.ipla(lj, h),
    "myipla": lambda lj, h: mx.ipla(lj, h, prox=PROX, smoothing=0.5),
    "pipgla": lambda lj, h: mx.ipla(lj, h, prox=PROX),
    "mypgd": lambda lj, h: mx.pgd(lj, h, h, prox=PROX, smoothing=0.5),
    "jala_em": lambda lj, h: mx.jala_em(lj, h, h),
    "kiplmc1": lambda lj, h: mx.kipla(lj, h, 2.0),
    "kiplmc2": lambda lj, h: mx.kipla(lj, h, 2.0, discretization="kiplmc2"),
}
# What a loop reads off a method, said here a second time: those whose theta comes to rest, ...
DETERMINISTIC = {
    "svgd_em", "m_svgd_em", "m_svgd_em_restart", "m_svgd_em_adagrad", "m_svgd_em_curvature",
    "m_svgd_em_wag", "m_svgd_em_riemannian", "asvgd_em", "asvgd_em_heavy_ball", "svgd_em_gfsd",
    "m_svgd_em_blob", "coin_em_gfsf", "coin_em",
}  # fmt: skip
# ... those that cannot be rescaled, and those whose particles are in other blocks than "whole".
WITHOUT_RESCALE = {"coin_em", "coin_em_gfsf"}
BLOCKS = {"m_svgd_em_curvature": "leaves", "soul": None}
# Fields of States that must be as new after a backtrack: what a method is moving with.
RESET = {
    "theta_ahead", "particles_ahead", "theta_momentum", "particle_momentum", "theta_velocity",
    "particle_velocity", "momentum_count", "momentum_speed", "theta_momentum_state",
    "particle_momentum_state",
}  # fmt: skip
# Fields that are whole on every device of a mesh: theta, and what belongs to it.
REPLICATED = {
    "theta", "theta_ahead", "theta_momentum", "theta_velocity", "theta_average",
    "theta_optimizer_state", "theta_momentum_state", "theta_preconditioner_state", "metric_state",
}  # fmt: skip


def start(dtype=None):
    dtype = jnp.result_type(float) if dtype is None else dtype
    key_a, key_b = jax.random.split(jax.random.key(1))
    theta = {"mean": jnp.array([0.1, -0.2, 0.4], dtype), "scale": jnp.array(0.3, dtype)}
    particles = (jax.random.normal(key_a, (N, 3), dtype), jax.random.normal(key_b, (N,), dtype))
    return theta, particles, {"y": jnp.array([1.0, 0.5, -1.5], dtype)}


def assert_trees_close(actual, expected, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), actual, expected)

"""The ratios that `make bench` holds to the baseline: pairs of programs timed in turns."""

import unittest.mock
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import marginax as mx
from benchmarks import baseline, many_groups
from benchmarks.scaling import fit_step, joint_step
from benchmarks.timing import interleaved
from marginax.kernels import radial

__all__ = ["measure"]

Call = Callable[[], Any]
STEPS = 200  # of a scan, so that calling it costs nothing beside it


class Pair(NamedTuple):
    """A ratio: the time of `this` over that of `that`, in turns."""

    this: Call
    that: Call
    repeats: int = 15


def measure(before: dict[str, float]) -> dict[str, float]:
    """All ratios; one that looks worse than the baseline is measured twice more before it counts.

    Args:
        before: the baseline.
    """
    found = {}
    for name, make in PAIRS.items():
        pair = make()
        for attempt in range(3):
            times = interleaved(
                {"this": pair.this, "that": pair.that}, (1 + attempt) * pair.repeats, 2.0
            )
            ratio = times["this"] / times["that"]
            found[name] = min(ratio, found.get(name, ratio))
            if name not in before or not baseline.complaints({name: ratio}, {name: before[name]}):
                break
        known = f"   baseline {before[name]:8.3f}" if name in before else ""
        print(f"  {name:<58} {found[name]:8.3f}{known}", flush=True)
    return found


def _scan(algorithm: mx.Algorithm, theta: Any, particles: Any, data: Any) -> Call:
    """Many steps as one compiled program."""

    def steps(theta: Any, particles: Any, data: Any) -> Any:
        nothing = {"record": lambda state, info: ()}
        key = jax.random.key(0)
        return mx.trajectory(algorithm, theta, particles, data, STEPS, key=key, **nothing).state

    compiled = jax.jit(steps).lower(theta, particles, data).compile()
    return lambda: compiled(theta, particles, data)


def _toy() -> tuple[Any, ...]:
    model = mx.models.ToyHierarchical(12.0, 12.0)
    y = model.simulate(jax.random.key(0), 10.0, 20)
    return model.log_joint, jnp.zeros(()), jax.random.normal(jax.random.key(1), (20, 20)), y


def _momentum() -> Pair:
    log_joint, *start = _toy()
    kernel = mx.kernels.rbf(5.0)
    return Pair(
        _scan(mx.m_svgd_em(log_joint, 0.3, 0.3, kernel), *start),
        _scan(mx.svgd_em(log_joint, 0.3, 0.3, kernel), *start),
    )


def _median() -> Pair:
    log_joint, *start = _toy()
    return Pair(
        _scan(mx.svgd_em(log_joint, 0.3, 0.3, mx.kernels.rbf("median")), *start),
        _scan(mx.svgd_em(log_joint, 0.3, 0.3, mx.kernels.rbf(5.0)), *start),
    )


def _vmapped() -> Pair:
    log_joint, theta, particles, y = _toy()
    method = mx.svgd_em(log_joint, 0.3, 0.3, mx.kernels.rbf(5.0))

    def steps(theta: Any) -> Any:
        return mx.trajectory(method, theta, particles, y, STEPS, key=jax.random.key(0)).theta

    many, one = jax.jit(jax.vmap(steps)), jax.jit(steps)
    thetas = jnp.linspace(-3, 3, 50)
    return Pair(lambda: many(thetas), lambda: one(theta))


def _run() -> Pair:
    log_joint, theta, particles, y = _toy()
    method = mx.m_svgd_em(log_joint, 0.3, 0.3, mx.kernels.rbf(5.0))
    steps = 20_000

    @jax.jit
    def bare(theta: Any, particles: Any, y: Any) -> Any:
        nothing = {"record": lambda state, info: ()}
        key = jax.random.key(2)
        return mx.trajectory(method, theta, particles, y, steps, key=key, **nothing).state

    def with_run() -> Any:
        settings = {"max_steps": steps, "block_size": 500, "stop": mx.stopping.settled(1e-30)}
        key = jax.random.key(2)
        return mx.run(method, theta, particles, y, progress=False, key=key, **settings).state

    return Pair(with_run, lambda: bare(theta, particles, y), 10)


def _scores() -> Pair:
    """A model whose gradient is nearly all of a step: logistic regression."""
    features = jax.random.normal(jax.random.key(0), (5000, 10))
    labels = (jax.random.uniform(jax.random.key(1), (5000,)) < 0.5).astype(features.dtype)

    def log_joint(theta: Any, x: Any, data: Any) -> Any:
        eta = data[0] @ x
        return jnp.sum(data[1] * eta - jax.nn.softplus(eta)) - 0.5 * jnp.sum((x - theta) ** 2)

    data, particles = (features, labels), jax.random.normal(jax.random.key(2), (20, 10))
    method = mx.svgd_em(log_joint, 1e-5, 1e-5, mx.kernels.rbf("mean"))
    gradients = jax.vmap(jax.grad(log_joint, (0, 1)), (None, 0, None))

    @jax.jit
    def ascent(particles: Any) -> Any:
        def one(_: Any, carry: Any) -> Any:
            theta, x = carry
            of_theta, of_x = gradients(theta, x, data)
            return theta + 1e-5 * jnp.mean(of_theta), x + 1e-5 * of_x

        return jax.lax.fori_loop(0, STEPS // 10, one, (jnp.zeros(()), particles))

    with unittest.mock.patch(f"{__name__}.STEPS", STEPS // 10):
        step = _scan(method, jnp.zeros(()), particles, data)
    return Pair(step, lambda: ascent(particles))


def _tiled() -> Pair:
    def velocity(dense: int) -> Call:
        x = jax.random.normal(jax.random.key(0), (4096, 10))
        with unittest.mock.patch.object(radial, "DENSE", dense):
            compiled = jax.jit(mx.kernels.rbf("mean").velocity).lower(x, x).compile()
        return lambda: compiled(x, x)

    return Pair(velocity(0), velocity(2**62), 10)


def _blocks() -> Pair:
    y = many_groups.simulate(1000)
    problem = many_groups.problem(y)
    joint = mx.svgd_em(problem.unconstrained_log_joint, 1e-5, 1e-5, mx.kernels.rbf("mean"))
    particles = 0.3 * jax.random.normal(jax.random.key(0), (16, 1000, 2))
    step = jax.jit(lambda state: joint.step(jax.random.key(0), state, problem.data)[0])
    state = joint.init(jax.random.key(0), problem.start_theta(), particles)
    ours, _ = fit_step(1000)
    return Pair(ours, lambda: step(state), 30)


def _fit() -> Pair:
    """The same model again compiles nothing; a compilation of one step is the yardstick."""
    model = mx.models.RandomIntercept
    truth = mx.models.RandomInterceptTheta(jnp.ones(()), jnp.zeros(()), jnp.zeros(()))
    y = model.simulate(jax.random.key(0), truth, 30, 5)

    def log_joint(theta: Any, x: Any, y: Any) -> Any:
        return model.log_joint(mx.models.RandomInterceptTheta(*theta), x[None], y[None])

    problem = mx.Problem.grouped(log_joint, y, theta=(0.0, 0.0, 0.0), latent=0.0)
    settings = {"key": jax.random.key(0), "draw_posterior": False, "progress": False}
    return Pair(lambda: mx.fit(problem, **settings).theta, lambda: fit_step(30)[0](), 3)


def _growth(this: Callable[[int], Any], large: int, small: int, repeats: int) -> Pair:
    return Pair(this(large)[0], this(small)[0], repeats)


PAIRS: dict[str, Callable[[], Pair]] = {
    "step: M-SVGD-EM / SVGD-EM": _momentum,
    "step: median / fixed bandwidth": _median,
    "step: SVGD-EM / its gradients alone": _scores,
    "step: fit's own / joint RBF, 1,000 groups": _blocks,
    "velocity: tiles / whole Gram matrix, N = 4,096": _tiled,
    "step: N = 4,096 / N = 2,048, joint RBF": lambda: _growth(joint_step, 4096, 2048, 15),
    "step: D = 200 / D = 20, joint RBF": lambda: Pair(
        joint_step(1000, 200)[0], joint_step(1000, 20)[0], 20
    ),
    "step: 40,000 / 10,000 groups, fit's own": lambda: _growth(fit_step, 40_000, 10_000, 8),
    "sweep: 50 runs in one call / one run": _vmapped,
    "run / bare scan": _run,
    "fit, once compiled / compiling one step of its algorithm": _fit,
}

"""Every kernel and field on five posteriors: where theta comes to rest, and what the cloud keeps.

Each model has one theta whose marginal maximum is known from a closed form or a dense grid. All
run M-SVGD-EM with adaptive restarts and 50 particles from the same starts; each field has the step
at which theta has come closest to rest after 3,000 steps, out of six, because the fields' steps are
not comparable. The error of theta is a mean of absolute values over four starts.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.optimize

import marginax as mx
from benchmarks.tables import save

NUM_PARTICLES, NUM_STEPS, NUM_STARTS = 50, 3000, 4
STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
KERNELS = {
    "rbf('median')": mx.kernels.rbf("median"),
    "rbf('mean')": mx.kernels.rbf("mean"),
    "imq('mean')": mx.kernels.imq("mean"),
    "inverse_log('mean')": mx.kernels.inverse_log("mean"),
    "energy('mean')": mx.kernels.energy("mean"),
    "gfsd('mean')": mx.kernels.gfsd("mean"),
    "blob('mean')": mx.kernels.blob("mean"),
    "gfsf('mean')": mx.kernels.gfsf("mean"),
    "moment_matched(rbf('mean'))": mx.kernels.moment_matched(mx.kernels.rbf("mean")),
}


class Case(NamedTuple):
    """A model with one theta and its answer.

    Attributes:
        log_joint: the density.
        data: its third argument.
        size: numbers in a latent.
        exact: the maximum of the marginal likelihood.
        theta_step: theta's step over the particles', where its curvature is another.
    """

    log_joint: Callable[[Any, Any, Any], jax.Array]
    data: Any
    size: int
    exact: float
    theta_step: float


def toy() -> Case:
    """Twenty latents, all Gaussian: the paper's toy model."""
    model = mx.models.ToyHierarchical(12.0, 12.0)
    y = model.simulate(jax.random.key(0), 5.0, 20)
    return Case(model.log_joint, y, 20, float(jnp.mean(y)), 1.0)


def logistic() -> Case:
    """The paper's logistic regression; its maximum by importance sampling, to 0.0008."""
    model = mx.models.LogisticRegression(25.0)
    return Case(model.log_joint, mx.models.wisconsin(45).train, 9, 0.998, 1.0)


def banana() -> Case:
    """x_1 ~ N(theta, 1), x_2 ~ N(x_1^2, 1/4); y sees x_2 well and x_1 badly."""
    y = (0.8, 1.4)

    def log_joint(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        bend = (x[1] - x[0] ** 2) ** 2 / (2 * 0.25)
        seen = (data[0] - x[0]) ** 2 / (2 * 1.0) + (data[1] - x[1]) ** 2 / (2 * 1.0)
        return -0.5 * (x[0] - theta) ** 2 - bend - seen

    def marginal(theta: float) -> float:
        # x_2 by hand: data_1 ~ N(x_1^2, 1.25).
        def integrand(x: float) -> float:
            return float(
                np.exp(
                    -0.5 * (x - theta) ** 2
                    - 0.5 * (y[0] - x) ** 2
                    - (y[1] - x**2) ** 2 / (2 * 1.25)
                )
            )

        return scipy.integrate.quad(integrand, -8, 8, limit=200)[0]

    return Case(log_joint, jnp.array(y), 2, _maximum(marginal, 0.0, 3.0), 1.0)


def bimodal() -> Case:
    """x ~ N(theta, 1), y ~ N(x^2, 1/2): two modes, of which the prior prefers one."""
    y = 1.5

    def log_joint(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return -0.5 * jnp.sum((x - theta) ** 2) - jnp.sum((data - x**2) ** 2)

    def marginal(theta: float) -> float:
        def integrand(x: float) -> float:
            return float(np.exp(-0.5 * (x - theta) ** 2 - (y - x**2) ** 2))

        return scipy.integrate.quad(integrand, -8, 8, limit=200)[0]

    return Case(log_joint, jnp.array([y]), 1, _maximum(marginal, 0.1, 3.0), 1.0)


def funnel() -> Case:
    """v ~ N(theta, 1), x_i ~ N(0, exp(v)), y_i ~ N(x_i, 1/4): scales that differ by the place."""
    y = np.array([0.4, -1.9, 1.1, 0.2, 2.4])

    def log_joint(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        v, rest = x[0], x[1:]
        prior = -0.5 * (v - theta) ** 2 - 0.5 * jnp.sum(rest**2) * jnp.exp(-v) - 2.5 * v
        return prior - 2 * jnp.sum((data - rest) ** 2)

    def marginal(theta: float) -> float:
        def integrand(v: float) -> float:
            variance = np.exp(v) + 0.25
            fit = -0.5 * np.sum(y**2) / variance - 2.5 * np.log(variance)
            return float(np.exp(fit - 0.5 * (v - theta) ** 2))

        return scipy.integrate.quad(integrand, -15, 15, limit=400)[0]

    return Case(log_joint, jnp.array(y), 6, _maximum(marginal, -4.0, 6.0), 1.0)


def _maximum(marginal: Callable[[float], float], low: float, high: float) -> float:
    found = scipy.optimize.minimize_scalar(
        lambda theta: -marginal(theta),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(found.x)


def measure(case: Case, kernel: mx.kernels.Kernel) -> dict[str, float]:
    """Error of theta, Stein ratio and time of a step, at the step where theta rests best."""
    rule = mx.momentum.adaptive_restart()

    def run(step: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        method = mx.m_svgd_em(
            case.log_joint,
            step * case.theta_step,
            step,
            kernel,
            theta_momentum=rule,
            particle_momentum=rule,
        )
        start = jax.random.normal(key, (NUM_PARTICLES, case.size))
        end = mx.trajectory(method, 0.5, start, case.data, NUM_STEPS, key=key)
        ratio = mx.diagnostics.stein_ratio(case.log_joint, end.theta, end.particles, case.data)
        moved = jnp.max(jnp.abs(end.history[-NUM_STEPS // 5 :] - end.theta))
        return end.theta, jnp.mean(ratio), moved

    keys = jax.random.split(jax.random.key(7), NUM_STARTS)
    # One after the other: LAPACK's batched calls under `vmap` may wait for each other for ever.
    sweep = jax.jit(
        lambda: jax.lax.map(
            lambda step: jax.lax.map(lambda key: run(step, key), keys), jnp.array(STEPS)
        )
    )
    theta, ratio, moved = map(np.asarray, sweep())
    best = int(np.argmin(np.where(np.isfinite(theta).all(axis=1), moved.max(axis=1), np.inf)))
    one = jax.jit(lambda key: run(jnp.asarray(STEPS[best]), key))
    jax.block_until_ready(one(keys[0]))
    began = time.perf_counter()
    jax.block_until_ready(one(keys[0]))
    seconds = time.perf_counter() - began
    return {
        "error": float(np.mean(np.abs(theta[best] - case.exact))),
        "ratio": float(np.mean(ratio[best])),
        "moved": float(moved[best].max()),
        "step": STEPS[best],
        "microseconds": 1e6 * seconds / NUM_STEPS,
    }


def main() -> None:
    """Writes `results/fields.md`, one row per kernel."""
    jax.config.update("jax_enable_x64", True)
    cases = {make.__name__: make() for make in (toy, logistic, banana, bimodal, funnel)}
    rows: list[dict] = []
    columns: dict[str, Callable[[dict], str]] = {"kernel or field": lambda row: f"`{row['name']}`"}
    for name in cases:
        columns[name] = lambda row, name=name: cell(row[name])
    columns["microseconds a step"] = lambda row: " / ".join(
        f"{row[name]['microseconds']:.0f}" for name in cases
    )
    words = (
        "# Kernels and fields on five posteriors\n\n`python -m benchmarks.fields`: mean |error| of "
        "theta over four starts; Stein ratio (1 is right). M-SVGD-EM, adaptive restarts, "
        f"{NUM_PARTICLES} particles, {NUM_STEPS} steps of the size (of {STEPS}) at which theta "
        "rested best. A star: theta still moved by more than a tenth of its error or 0.001."
    )
    for name, kernel in KERNELS.items():
        rows.append(
            {"name": name} | {case: measure(model, kernel) for case, model in cases.items()}
        )
        print(rows[-1], flush=True)
        exact = {case: model.exact for case, model in cases.items()}
        save("fields", words, rows, columns, exact=exact)


def cell(found: dict[str, float]) -> str:
    """Error and Stein ratio; a star where theta had not come to rest."""
    restless = found["moved"] > max(1e-3, 0.1 * found["error"])
    return f"{found['error']:.3g}{'*' if restless else ''}; {found['ratio']:.2f}"


if __name__ == "__main__":
    main()

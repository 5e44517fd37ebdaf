"""What a kernel costs in accuracy: `python -m benchmarks.kernel_accuracy`, two minutes.

The tuning-free configuration with each kernel, from simulated data to estimates, beside exact
maximum likelihood: how far theta is off, and how much of the posterior variance the cloud holds by
its own account, the mean Stein ratio. The models and their oracles are those of the tests.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import marginax as mx
from benchmarks.tables import save
from marginax.models import RandomIntercept, RandomInterceptTheta

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import mixed_models as mm  # noqa: E402
from tuning_free_runs import fitted  # noqa: E402

K = mx.kernels
RBF = K.rbf("mean")
KERNELS = {
    'rbf("mean") over all': RBF,
    'blockwise(rbf("mean"))': K.blockwise(RBF),
    'blockwise(rbf("mean") + linear())': K.blockwise(RBF + K.linear()),
    "blockwise(linear())": K.blockwise(K.linear()),
    'blockwise(moment_matched(rbf("mean")))': K.blockwise(K.moment_matched(RBF)),
}
WORDS = """# What a kernel costs in accuracy

`python -m benchmarks.kernel_accuracy`: the tuning-free configuration with each kernel, 400 steps,
float64. The largest error of any coordinate of theta on unconstrained scales against exact maximum
likelihood, over the data sets, from the smallest to the largest; and the mean Stein ratio of the
cloud, which is the share of the posterior variance that it holds where that is Gaussian."""
COLUMNS = {
    "model": lambda row: row["model"],
    "kernel": lambda row: f"`{row['kernel']}`",
    "particles": lambda row: str(row["particles"]),
    "data sets": lambda row: str(row["num"]),
    "error of theta": lambda row: f"{row['low']:.1e} to {row['high']:.1e}",
    "Stein ratio": lambda row: f"{row['ratio']:.3f}",
}


def intercept(seed):
    """Random intercepts, 40 groups of 5."""
    truth = RandomInterceptTheta(*map(jnp.asarray, (1.0, 0.0, 0.0)))
    y = RandomIntercept.simulate(jax.random.key(seed), truth, 40, 5)
    start = RandomInterceptTheta(*(jnp.zeros(()),) * 3)
    return RandomIntercept.log_joint, start, (40,), y, RandomIntercept.maximum_likelihood(y)


def slopes(seed):
    """A linear model with correlated slopes, 20 groups of 10."""
    data, start = mm.simulate_slopes(seed), mm.slopes_start()
    exact = mm.maximum_likelihood(mm.slopes_log_marginal, start, data)
    return mm.slopes_log_joint, start, (20, 2), data, exact


def counts(kind, log_joint, log_marginal):
    """Binomial or Poisson, 30 groups of 5."""

    def made(seed):
        data, start = mm.simulate_counts(seed, kind), mm.counts_start()
        exact = mm.maximum_likelihood(log_marginal, start, data)
        return log_joint, start, (30,), data, exact

    return made


MODELS = {
    "random intercept, 40 groups of 5": (intercept, (10, 20), 2),
    "linear, correlated slopes, 20 groups of 10": (slopes, (20,), 4),
    "binomial, 30 groups of 5": (
        counts("binomial", mm.binomial_log_joint, mm.binomial_log_marginal),
        (20,),
        6,
    ),
    "Poisson, 30 groups of 5": (
        counts("poisson", mm.poisson_log_joint, mm.poisson_log_marginal),
        (20,),
        6,
    ),
}


def measure() -> None:
    """Every kernel on every model."""
    rows: list[dict] = []
    for model, (make, sizes, num) in MODELS.items():
        made = [make(seed) for seed in range(num)]
        for kernel, n in ((kernel, n) for kernel in KERNELS for n in sizes):
            errors, ratios = [], []
            for seed, (log_joint, start, shape, data, exact) in enumerate(made):
                cloud = jax.random.normal(jax.random.key(10 + seed), (n, *shape))
                end = fitted(log_joint, start, cloud, data, kernel=KERNELS[kernel])
                ratio = mx.diagnostics.stein_ratio(log_joint, end.theta, end.particles, data)
                errors.append(float(mm.distance(end.theta, exact)))
                ratios.append(float(jnp.mean(ratio)))
            row = {"model": model, "kernel": kernel, "particles": n, "num": num}
            row |= {"low": min(errors), "high": max(errors), "ratio": sum(ratios) / num}
            print(row)
            rows.append(row)
            save("kernel_accuracy", WORDS, rows, COLUMNS)


if __name__ == "__main__":
    measure()

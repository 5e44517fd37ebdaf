"""NumPyro's SVGD and `fit` where a latent is positive: `python -m benchmarks.constrained_latents`.

Gamma-distributed rates of counts, so that the marginal is negative binomial and the estimate is
known: 2 / mean(y). The model and data are those of docs/numpyro.md.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.einstein import SVGD, RBFKernel
from numpyro.distributions import constraints

import marginax as mx
from benchmarks.tables import save

jax.config.update("jax_enable_x64", True)
STEPS, PARTICLES = 5_000, 20
WORDS = f"""# A positive latent

`python -m benchmarks.constrained_latents`: counts with Gamma(2, rate) rates; the exact estimate is
2 / mean(y). NumPyro's SVGD with {PARTICLES} particles, Adam and {STEPS:,} steps; five seeds."""
COLUMNS = {
    "method": lambda row: row["method"],
    "estimates": lambda row: ", ".join(f"{value:.4f}" for value in row["estimates"]),
    "exact": lambda row: f"{row['exact']:.4f}",
}


def model(size, y=None):
    """y_g ~ Poisson(x_g), x_g ~ Gamma(2, rate)."""
    rate = numpyro.param("rate", 1.0, constraint=constraints.positive)
    with numpyro.plate("groups", size):
        x = numpyro.sample("x", dist.Gamma(2.0, rate))
        numpyro.sample("y", dist.Poisson(x), obs=y)


def by_svgd(y, seed):
    """The rate at the end of NumPyro's SVGD."""
    svgd = SVGD(model, numpyro.optim.Adam(0.01), RBFKernel(), PARTICLES)
    ran = svgd.run(jax.random.key(seed), STEPS, len(y), y=y, progress_bar=False)
    return float(svgd.get_params(ran.state)["rate"])


def measure() -> None:
    """Both methods."""
    y = np.random.default_rng(3).multinomial(195, np.full(60, 1 / 60)).astype(float)
    fit = mx.fit(mx.from_numpyro(model, 60, y=y), draw_posterior=False)
    exact = 2 / y.mean()
    rows = [
        {"method": "mx.fit", "estimates": [float(fit.theta["rate"])], "exact": exact},
        {
            "method": "NumPyro SVGD",
            "estimates": [by_svgd(y, seed) for seed in range(5)],
            "exact": exact,
        },
    ]
    save("constrained_latents", WORDS, rows, COLUMNS)
    print(rows)


if __name__ == "__main__":
    measure()

# %% [markdown]
# # Stochastic volatility: a series whose variance is a series itself
#
# Returns of a day are normal with a variance of that day, whose logarithm follows an
# autoregression:
#
#     h_1 ~ N(mean, sd^2 / (1 - phi^2)),    h_t ~ N(mean + phi (h_{t-1} - mean), sd^2)
#     y_t ~ N(0, exp(h_t))
#
# There are as many latents as days, and each depends on the one before. `fit` finds that their
# curvature is a chain. TMB and R-INLA take Laplace's approximation here; its error is measured
# below. The exact answer is known too: with one latent after the other integrated out on a grid,
# the likelihood of a series is a product of sums.

# %%
import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm as log_norm
from scipy.stats import norm

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="300 days instead of 1,500")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

days = 300 if arguments.quick else 1500
rng = np.random.default_rng(3)
h = np.empty(days)
h[0] = -1.0 + 0.3 / np.sqrt(1 - 0.95**2) * rng.normal()
for t in range(1, days):
    h[t] = -1.0 + 0.95 * (h[t - 1] + 1.0) + 0.3 * rng.normal()
y = np.exp(h / 2) * rng.normal(size=days)

# %% [markdown]
# The log joint as it stands above. `interval(-1, 1)` keeps the persistence stationary.


# %%
def log_joint(theta, h, y):
    mean, phi, sd = theta["mean"], theta["persistence"], theta["sd"]
    first = log_norm.logpdf(h[0], mean, sd / jnp.sqrt(1 - phi**2))
    others = jnp.sum(log_norm.logpdf(h[1:], mean + phi * (h[:-1] - mean), sd))
    return first + others + jnp.sum(log_norm.logpdf(y, 0.0, jnp.exp(h / 2)))


problem = mx.Problem(
    log_joint,
    theta={"mean": 0.0, "persistence": 0.8, "sd": 0.5},
    latent=np.zeros(days),
    data=y,
    theta_transforms={
        "persistence": mx.transforms.interval(-1.0, 1.0),
        "sd": mx.transforms.positive,
    },
)
fit = mx.fit(problem)
print(fit)

# %% [markdown]
# The filter on a grid: the density of h_t given the days before, moved by one day and weighed by
# the next return.


# %%
def exact_log_likelihood(mean, persistence, sd, num_nodes=500):
    spread = sd / np.sqrt(1 - persistence**2)
    grid = np.linspace(mean - 8 * spread, mean + 8 * spread, num_nodes)
    step = grid[1] - grid[0]
    moves = norm.pdf(grid[None, :], mean + persistence * (grid[:, None] - mean), sd) * step
    density, total = norm.pdf(grid, mean, spread) * step, 0.0
    for one in y:
        weighed = density * norm.pdf(one, 0.0, np.exp(grid / 2))
        total += np.log(weighed.sum())
        density = (weighed / weighed.sum()) @ moves
    return total


estimate = {name: float(value) for name, value in fit.theta.items()}
exact = exact_log_likelihood(**estimate)
error, laplace = fit.likelihood.error, fit.likelihood.laplace
print(f"\nKnown answer: log likelihood {exact:.3f}; marginax {fit.log_likelihood:.3f}", end="")
print(f" (stated error {error:.3f}), Laplace {laplace:.3f}")
assert abs(fit.log_likelihood - exact) < max(0.03, 3 * error)
assert fit.ok

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

mean, sd = fit.likelihood.mean[0], fit.likelihood.sd[0]
plt.style.use("marginax.interop.figures")
figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
top.plot(y, color="#999999", linewidth=0.7)
top.set(ylabel="return", title="Returns, and the volatility behind them")
ends = np.exp((mean - 2 * sd) / 2), np.exp((mean + 2 * sd) / 2)
bottom.fill_between(np.arange(days), *ends, color="#0072B2", alpha=0.25, label="two sd")
bottom.plot(np.exp(mean / 2), color="#0072B2", label="posterior mean")
bottom.plot(np.exp(h / 2), color="#D55E00", linewidth=0.8, label="true")
bottom.set(xlabel="day", ylabel="standard deviation")
bottom.legend(frameon=False, ncols=3)
for axes in (top, bottom):
    axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "volatility.png", dpi=150)
print(f"Figure: {arguments.out / 'volatility.png'}")

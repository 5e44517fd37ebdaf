# %% [markdown]
# # Shrinkage: how much to believe one estimate among many
#
# Many estimates y_i of many true values x_i, each with a known standard error:
#
#     y_i ~ N(x_i, se_i^2),    x_i ~ N(mean, spread^2)
#
# Empirical Bayes estimates the mean and the spread by maximum marginal likelihood, and then every
# x_i by its posterior mean, which lies between y_i and the mean. Two examples: one in which the
# data say that there is nothing to tell apart, and one in which shrinkage pays.

# %%
import argparse
from pathlib import Path

import jax
import numpy as np
from jax.scipy.stats import norm
from scipy import stats

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="200 means instead of 1000, one start")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()
settings = {"num_starts": 1, "draw_posterior": False} if arguments.quick else {}
key, truth_key, noise_key = jax.random.split(jax.random.key(0), 3)


def log_joint(theta, x, one):
    prior = norm.logpdf(x, theta["mean"], theta["spread"])
    return prior + norm.logpdf(one["y"], x, one["se"])


def empirical_bayes(y, se):
    problem = mx.Problem.grouped(
        log_joint,
        {"y": y, "se": se},
        theta={"mean": 0.0, "spread": 1.0},
        latent=0.0,
        theta_transforms={"spread": mx.transforms.positive},
    )
    return mx.fit(problem, key=key, **settings)


# %% [markdown]
# ## Eight schools
#
# The effects of coaching on a test in eight schools (Rubin 1981), in points, with their standard
# errors. Integrating by hand, y_i ~ N(mean, spread^2 + se_i^2). The eight numbers differ no more
# than their errors make them, so the likelihood is highest at a spread of exactly 0; the mean is
# then the one weighted by 1 / se^2.

# %%
y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
se = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
schools = empirical_bayes(y, se)
print(schools)

pooled, pooled_error = np.sum(y / se**2) / np.sum(1 / se**2), np.sum(1 / se**2) ** -0.5
error = schools.standard_errors[0]
print(f"\nKnown answer: mean {pooled:.4f} (standard error {pooled_error:.4f}), spread 0")
print(f"marginax:     mean {schools.theta['mean']:.4f} ({error:.4f}), ", end="")
where = "at the boundary" if schools.boundaries else "inside"
print(f"spread {schools.theta['spread']:.4f}, {where}")
assert abs(schools.theta["mean"] - pooled) < 1e-3
assert abs(error - pooled_error) < 0.01
assert schools.theta["spread"] < 0.01
assert np.isnan(schools.standard_errors[1])  # none is invented
assert any("boundary" in note for note in schools.notes)
assert schools.ok  # something found, and no failure

# %% [markdown]
# A note says so, and the spread has no standard error: at a boundary there is none. It is what the
# data say, and nothing to warn of. Still, a maximum at 0 is a poor summary of this likelihood,
# which at a spread of 5 is only a quarter lower. A full Bayesian averages over that and is not
# surprised: with flat priors for the mean and the spread, half of the posterior lies above the
# median printed here.

# %%
spread = np.linspace(0, 40, 4001)
variance = spread[:, None] ** 2 + se**2
weight = np.sum(1 / variance, axis=1)
centre = np.sum(y / variance, axis=1) / weight
profile = stats.norm.logpdf(y, centre[:, None], np.sqrt(variance)).sum(axis=1)
posterior = np.exp(profile) / np.sqrt(weight)  # the flat mean integrated out
share = np.cumsum(posterior) / np.sum(posterior)
drop = profile[0] - profile[np.searchsorted(spread, 5)]
print(f"\nLog likelihood at a spread of 5, below that at 0: {drop:.2f}")
print(f"Posterior median of the spread: {spread[np.searchsorted(share, 0.5)]:.1f} points")

# %% [markdown]
# ## Many means
#
# Simulated: x_i ~ N(1, 0.8^2), all standard errors 1. The maximum is known in closed form (the mean
# of y, and the variance of y less 1), and so are the posterior means. The James-Stein estimate
# shrinks to the mean by a rule that needs no prior, and must be close.

# %%
size = 200 if arguments.quick else 1000
truth = 1.0 + 0.8 * np.asarray(jax.random.normal(truth_key, (size,)))
y = truth + np.asarray(jax.random.normal(noise_key, (size,)))
fit = empirical_bayes(y, np.ones(size))
print()
print(fit)

exact_spread = np.sqrt(max(np.var(y) - 1, 0))
exact = y.mean() + exact_spread**2 / (exact_spread**2 + 1) * (y - y.mean())
ours = np.asarray(fit.random_effects().mean)
james_stein = y.mean() + (1 - (size - 3) / np.sum((y - y.mean()) ** 2)) * (y - y.mean())
print(f"\nKnown answer: mean {y.mean():.5f}, spread {exact_spread:.5f}")
print(f"marginax:     mean {fit.theta['mean']:.5f}, spread {fit.theta['spread']:.5f}")
print(f"largest difference of a posterior mean: {np.max(np.abs(ours - exact)):.1e}\n")
risks = {}
for name, guess in {"raw": y, "James-Stein": james_stein, "empirical Bayes": ours}.items():
    risks[name] = np.mean((guess - truth) ** 2)
    print(f"mean squared error, {name:<15} {risks[name]:.3f}")
print(f"expected if mean and spread were known: {0.8**2 / (0.8**2 + 1):.3f}")
assert abs(fit.theta["mean"] - y.mean()) < 1e-4
assert abs(fit.theta["spread"] - exact_spread) < 1e-4
assert np.max(np.abs(ours - exact)) < 1e-4
assert abs(risks["empirical Bayes"] - risks["James-Stein"]) < 0.01 < risks["raw"] - 0.4
assert fit.ok

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

plt.style.use("marginax.interop.figures")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
left.plot(spread, np.exp(profile - profile[0]), color="#0072B2", label="likelihood (profile)")
left.plot(
    spread, posterior / posterior.max(), "--", color="#D55E00", label="posterior, flat priors"
)
left.set(xlabel="spread between schools", ylabel="relative to the highest", title="Eight schools")
left.set(xlim=(0, 25), ylim=(0, 1.05))
left.legend(frameon=False)
ends = np.array([y.min(), y.max()])
line = y.mean() + (exact - y.mean())[0] / (y - y.mean())[0] * (ends - y.mean())
right.plot(y, truth, ".", color="#999999", markersize=3)
right.plot(ends, ends, "--", color="#D55E00", label="believe y")
right.plot(ends, line, color="#0072B2", label="posterior mean")
right.set(xlabel="estimate y", ylabel="true value x", title=f"{size} means")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "shrinkage.png", dpi=150)
print(f"Figure: {arguments.out / 'shrinkage.png'}")

# %% [markdown]
# # Counts on a map: a Gaussian field behind Poisson counts
#
# The logarithm of the rate in a cell is a mean and a field whose neighbours are alike:
#
#     p(x) ~ exp(-precision/2 sum over neighbours (x_i - x_j)^2 - pull/2 sum x_i^2)
#     y_i ~ Poisson(exp(mean + x_i))
#
# The prior's constant depends on theta. On a grid it is known: cosine waves are the eigenvectors of
# the differences. Each cell meets its four neighbours, so that the curvature has five entries a
# row; `fit` finds that, and factors it row of the map by row. On a small map plain importance
# sampling with dense matrices says whether the likelihood is right; on the large one it has no
# effective draws left.

# %%
import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="a map of 13 x 13 instead of 40 x 40")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

side = 13 if arguments.quick else 40
rng = np.random.default_rng(2)
bends = 2 - 2 * np.cos(np.pi * np.arange(side) / side)
waves = np.cos(np.pi * np.outer(np.arange(side) + 0.5, np.arange(side)) / side)
waves /= np.linalg.norm(waves, axis=0)
spectrum = 3.0 * (bends[:, None] + bends[None, :]) + 0.2
field = waves @ (rng.normal(size=(side, side)) / np.sqrt(spectrum)) @ waves.T
counts = rng.poisson(np.exp(1.0 + field)).astype(float)


# %%
def log_joint(theta, x, counts):
    """The field as a matrix; counts without their factorials, which no parameter changes."""
    apart = jnp.sum(jnp.diff(x, axis=0) ** 2) + jnp.sum(jnp.diff(x, axis=1) ** 2)
    spectrum = theta["precision"] * (bends[:, None] + bends[None, :]) + theta["pull"]
    prior = jnp.sum(jnp.log(spectrum)) - x.size * jnp.log(2 * jnp.pi)
    prior = prior - theta["precision"] * apart - theta["pull"] * jnp.sum(x**2)
    eta = theta["mean"] + x
    return 0.5 * prior + jnp.sum(counts * eta - jnp.exp(eta))


problem = mx.Problem(
    log_joint,
    theta={"mean": 0.0, "precision": 1.0, "pull": 1.0},
    latent=np.zeros((side, side)),
    data=counts,
    theta_transforms=dict.fromkeys(("precision", "pull"), mx.transforms.positive),
)
print(mx.structure_of(problem))
fit = mx.fit(problem)
print(fit)

# %% [markdown]
# The oracle at the estimate: draws from a normal distribution at the mode, with dense matrices, if
# the map is not too large for it.


# %%
def by_plain_draws(mean, precision, pull, num_draws=100_000):
    walk = np.diff(np.eye(side), axis=0)
    along = walk.T @ walk
    prior = precision * (np.kron(along, np.eye(side)) + np.kron(np.eye(side), along))
    prior += pull * np.eye(side * side)
    y, x = counts.ravel(), np.zeros(side * side)
    for _ in range(50):
        rate = np.exp(mean + x)
        x = x + np.linalg.solve(prior + np.diag(rate), y - rate - prior @ x)
    root = np.linalg.cholesky(prior + np.diag(np.exp(mean + x)))
    noise, logs = np.random.default_rng(0), []
    for _ in range(num_draws // 2000):
        z = noise.normal(size=(2000, side * side))
        draws = x + np.linalg.solve(root.T, z.T).T
        eta = mean + draws
        value = eta @ y - np.exp(eta).sum(axis=1) - 0.5 * np.sum(draws @ prior * draws, axis=1)
        logs.append(value + 0.5 * np.sum(z**2, axis=1))
    logs = np.concatenate(logs)
    weight = np.exp(logs - logs.max())
    constant = 0.5 * np.linalg.slogdet(prior)[1] - np.sum(np.log(np.diag(root)))
    error = weight.std() / weight.mean() / np.sqrt(len(weight))
    return logs.max() + np.log(weight.mean()) + constant, error


print(f"\nmarginax: {fit.log_likelihood:.3f} (stated error {fit.likelihood.error:.3f})", end="")
print(f", Laplace {fit.likelihood.laplace:.3f}")
if side <= 15:
    exact, error = by_plain_draws(**{name: float(value) for name, value in fit.theta.items()})
    print(f"Known answer: {exact:.3f} by plain draws (their error {error:.3f})")
    assert abs(fit.log_likelihood - exact) < 4 * (error + fit.likelihood.error) + 0.02
assert fit.ok

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

found = fit.likelihood.mean[0].reshape(side, side)
largest = np.abs(field).max()
plt.style.use("marginax.interop.figures")
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
style = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
for axes, what, title in zip(
    panels, (counts, found, field), ("counts", "posterior mean", "true field"), strict=True
):
    image = axes.imshow(what, **({"cmap": "Greys"} if what is counts else style))
    axes.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=panels[1:], shrink=0.8)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "spatial_counts.png", dpi=150)
print(f"Figure: {arguments.out / 'spatial_counts.png'}")

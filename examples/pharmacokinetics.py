# %% [markdown]
# # Pharmacokinetics: one compartment, twelve people
#
# Twelve people took theophylline by mouth, and its concentration in their blood was measured over a
# day (Boeckmann, Sheiner and Beal 1994). The drug is absorbed at rate ka, spreads over a volume V
# and is cleared at CL, so that ke = CL / V:
#
#     c(t) = dose ka / (V (ka - ke)) (exp(-ke t) - exp(-ka t)),    measured with N(0, noise^2)
#
# People differ: log ka, log V and log CL are normal in the population. A dose for the next patient
# needs the population, that is the typical values and the spread, and these are the maximum of the
# marginal likelihood. The curve is not linear in its parameters, so there is no closed form.
# Approximations to first order are common, and can be biased; here the integral over each person's
# three numbers is done by quadrature.

# %%
import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.optimize import minimize
from scipy.special import logsumexp

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="one start, and a coarser grid to check")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

here = Path(__file__).parent if "__file__" in globals() else Path()  # a notebook has no file
table = np.genfromtxt(here / "data" / "theophylline.csv", delimiter=",", names=True)
columns = {"dose": table["Dose"], "time": table["Time"], "measured": table["conc"]}
data = mx.pad_groups(table["Subject"], **columns)  # arrays [people, samples], and a mask

# %% [markdown]
# The log density of ONE person, and that is all. The dose is in mg per kg of body weight, so V is
# in litres and CL in litres an hour per kg. The noise has one standard deviation for all
# concentrations, because some of the measurements are 0.


# %%
def concentration(ka, v, cl, dose, time):
    ke = cl / v
    return dose * ka / (v * (ka - ke)) * (jnp.exp(-ke * time) - jnp.exp(-ka * time))


def log_joint(theta, x, one):
    prior = jnp.sum(norm.logpdf(x, jnp.log(theta["typical"]), theta["sd"]))
    curve = concentration(*jnp.exp(x), one["dose"], one["time"])
    return prior + jnp.sum(one["mask"] * norm.logpdf(one["measured"], curve, theta["noise"]))


positive = mx.transforms.positive
start = {"typical": jnp.array([1.0, 0.5, 0.05]), "sd": jnp.full(3, 0.3), "noise": 1.0}
problem = mx.Problem.grouped(
    log_joint,
    data,
    theta=start,
    latent=jnp.log(start["typical"]),
    theta_transforms={"typical": positive, "sd": positive, "noise": positive},
    names={"typical": ["ka", "V", "CL"], "sd": ["sd log ka", "sd log V", "sd log CL"]},
    num_observations=len(table),
)
settings = {"num_starts": 1, "draw_posterior": False} if arguments.quick else {}
fit = mx.fit(problem, key=jax.random.key(0), **settings)
print(fit)

# %% [markdown]
# ## By brute force
#
# The answer must not depend on how the integral is done. This is the same likelihood in NumPy, with
# nothing from marginax: the trapezoidal rule on a cube of points for every person, from five prior
# standard deviations below the typical values to five above. SciPy climbs it from the same start,
# with derivatives from finite differences.

# %%
points = 41 if arguments.quick else 61
z = np.linspace(-5, 5, points)
log_weight = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(z[1] - z[0])
log_weight = log_weight[:, None, None] + log_weight[:, None] + log_weight


def brute_force(free):
    """The log likelihood at logs of ka, V, CL, their three standard deviations, and noise."""
    typical, sd, noise = free[:3], np.exp(free[3:6]), np.exp(free[6])
    ka, v, cl = (np.exp(m + s * z) for m, s in zip(typical, sd, strict=True))
    ka, v = ka[:, None, None], v[:, None]
    ke, total = cl / v, 0.0
    for label in np.unique(table["Subject"]):
        terms = log_weight.copy()
        for row in table[table["Subject"] == label]:
            curve = np.exp(-ke * row["Time"]) - np.exp(-ka * row["Time"])
            curve *= row["Dose"] * ka / (v * (ka - ke))
            terms -= 0.5 * ((row["conc"] - curve) / noise) ** 2
        total += logsumexp(terms)
    return total - len(table) * (np.log(noise) + 0.5 * np.log(2 * np.pi))


first = np.log(np.concatenate([start["typical"], start["sd"], [start["noise"]]]))
best = minimize(lambda free: -brute_force(free), first, method="BFGS", options={"gtol": 1e-3})
errors = fit.standard_errors
print(f"\n{'':<15} {'brute force':>12} {'marginax':>10} {'difference':>11} {'in std. errors':>15}")
away = fit.estimates - np.exp(best.x)
for name, known, found, off, error in zip(
    fit.names, np.exp(best.x), fit.estimates, away, errors, strict=True
):
    print(f"{name:<15} {known:12.5f} {found:10.5f} {off:11.1e} {off / error:15.5f}")
here_too = brute_force(np.log(fit.estimates))
found = fit.log_likelihood
print(f"{'log likelihood':<15} {-best.fun:12.5f} {found:10.5f} {found + best.fun:11.1e}")
print(f"\nKnown answer: a cube of {points}^3 points per person, climbed by SciPy.")
print(f"Estimates within {np.max(np.abs(away / errors)):.5f} standard errors of it;", end=" ")
print(f"log likelihood at our estimate {found:.5f}, by brute force {here_too:.5f}.")
assert np.all(np.abs(away) < 2e-3 * errors)
assert abs(found - here_too) < 2e-4
assert fit.ok

# %% [markdown]
# People differ most in how fast they absorb the drug: the standard deviation of log ka is 0.66, so
# one person in seven absorbs at twice the typical rate or faster. Volumes hardly differ. The
# figure draws everybody's own curve, at the posterior means of their three numbers.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

own = np.exp(np.asarray(fit.random_effects().mean))  # [people, 3]
hours = np.linspace(0, 25, 200)
plt.style.use("marginax.interop.figures")
figure, grid = plt.subplots(3, 4, figsize=(10, 6.5), sharex=True, sharey=True, layout="constrained")
for i, axes in enumerate(grid.flat):
    dose = data["dose"][i, 0]
    typical = concentration(*fit.theta["typical"], dose, hours)
    axes.plot(hours, typical, "--", color="#999999", label="typical person, same dose")
    axes.plot(hours, concentration(*own[i], dose, hours), color="#0072B2", label="this person")
    axes.plot(data["time"][i], data["measured"][i], "o", color="#D55E00", ms=4, label="measured")
    axes.set_title(f"subject {i + 1}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
figure.supxlabel("hours after the dose")
figure.supylabel("theophylline (mg/L)")
figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "pharmacokinetics.png", dpi=150)
print(f"Figure: {arguments.out / 'pharmacokinetics.png'}")

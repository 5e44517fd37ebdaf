# %% [markdown]
# # A mixed model: how sleep loss slows reactions
#
# Belenky et al. (2003) let 18 people spend at most three hours a night in bed and measured their
# reaction times (in ms) on ten days. Every person has a line of their own, and the lines come from
# a population:
#
#     reaction_i ~ N(a_s + b_s day_i, residual^2)
#     (a_s, b_s) ~ N((intercept, slope), covariance)
#
# We want the six numbers of the population, not the 36 of these people. Maximising over both at
# once does not work: let all lines be the same and the covariance go to 0, and the joint density
# grows without bound. Integrating the lines out leaves the marginal likelihood, which has a proper
# maximum. R's lme4 computes it in closed form, so we know what must come out.

# %%
import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="one start, and the larger model only")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

here = Path(__file__).parent if "__file__" in globals() else Path()  # a notebook has no file
table = np.genfromtxt(here / "data" / "sleepstudy.csv", delimiter=",", names=True)
people, person = np.unique(table["Subject"], return_inverse=True)
days, reaction = table["Days"], table["Reaction"]

# %% [markdown]
# The model as one writes it for NumPyro: a long table, and an index from rows to people. What is
# to be estimated is a `param` site, what is to be integrated out a `sample` site. The likelihood
# keeps people apart, which `from_numpyro` finds out by itself: it makes 18 groups of two latents.
# A line is written as its mean plus standard normals times a scale, as samplers like it; the
# marginal likelihood is the same either way.


# %%
def model(person, days, reaction, correlated=True):
    positive = constraints.positive
    mean = jnp.stack([numpyro.param("intercept", 300.0), numpyro.param("slope", 0.0)])
    sd_intercept = numpyro.param("sd intercept", 30.0, constraint=positive)
    sd_slope = numpyro.param("sd slope", 10.0, constraint=positive)
    residual = numpyro.param("residual", 30.0, constraint=positive)
    # The Cholesky factor of the correlation matrix; tables show the correlation itself.
    factor = jnp.eye(2)
    if correlated:
        factor = numpyro.param("correlation", factor, constraint=constraints.corr_cholesky)
    scale = jnp.stack([sd_intercept, sd_slope])[:, None] * factor
    with numpyro.plate("people", len(people)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    line = mean + z @ scale.T
    with numpyro.plate("rows", len(reaction)):
        fitted = line[person, 0] + line[person, 1] * days
        numpyro.sample("reaction", dist.Normal(fitted, residual), obs=reaction)


settings = {"num_starts": 1, "draw_posterior": False} if arguments.quick else {}
key = jax.random.key(0)
fit = mx.fit(mx.from_numpyro(model, person, days, reaction), key=key, **settings)
print(fit)

# %% [markdown]
# ## Beside lme4
#
# The column lme4 is what `lmer(Reaction ~ Days + (Days | Subject), REML = FALSE)`, `confint` and
# `anova` print. Its intervals come from the profile likelihood, and so can ours: they need no
# normal approximation, which matters for standard deviations of 18 people.

# %%
lme4 = {
    "intercept": "251.405",
    "slope": "10.467",
    "sd intercept": "23.780",
    "sd slope": "5.717",
    "correlation[1,0]": "0.081",
    "residual": "25.592",
}
ours = dict(zip(fit.names, fit.estimates, strict=True))
errors = dict(zip(fit.names, fit.standard_errors, strict=True))
rows = [(name, printed, ours[name]) for name, printed in lme4.items()]
rows += [("se intercept", "6.632", errors["intercept"]), ("se slope", "1.502", errors["slope"])]
rows += [("log likelihood", "-875.97", fit.log_likelihood)]
rows += [("AIC", "1763.94", fit.aic)]
intervals = {
    "sd intercept": ("14.38", "37.72"),
    "correlation[1,0]": ("-0.48", "0.685"),
    "residual": ("22.90", "28.86"),
}
for name, (low, high) in intervals.items():
    found = fit.profile_interval(name)
    rows += [(f"{name}, from", low, found[0]), (f"{name}, to", high, found[1])]

if not arguments.quick:
    smaller = mx.fit(mx.from_numpyro(model, person, days, reaction, correlated=False), key=key)
    test = fit.likelihood_ratio_test(smaller)
    rows += [("no correlation: chi square", "0.0639", test.statistic)]
    rows += [("no correlation: p value", "0.8004", test.p_value)]

print(f"\n{'':<28} {'lme4':>10} {'marginax':>11} {'difference':>11}")
units = []
for name, printed, found in rows:
    difference = found - float(printed)
    units.append(abs(difference) * 10 ** len(printed.split(".")[1]))
    print(f"{name:<28} {printed:>10} {found:11.4f} {difference:11.4f}")
print(f"\nKnown answer: lme4's output. Largest difference: {max(units):.2f} of its last digit.")
assert max(units) < 1
assert fit.ok

# %% [markdown]
# The correlation could be left out: the likelihood hardly changes. What the model does to single
# people is called shrinkage: a line fitted to ten points of one person alone is drawn towards the
# population, the more the less sure it is.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

scale = np.array([ours["sd intercept"], ours["sd slope"]])[:, None] * fit.theta["correlation"]
centre = np.array([ours["intercept"], ours["slope"]])
mean = centre + np.asarray(fit.random_effects().mean["z"]) @ np.asarray(scale).T  # of the lines
alone = np.array(
    [np.polyfit(days[person == i], reaction[person == i], 1)[::-1] for i in range(len(people))]
)
plt.style.use("marginax.interop.figures")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for start, end in zip(alone, mean, strict=True):
    arrow = {"arrowstyle": "->", "color": "#999999", "shrinkA": 3, "shrinkB": 2}
    left.annotate("", xy=end, xytext=start, arrowprops=arrow)
left.plot(*alone.T, "o", color="#D55E00", markersize=4, label="each person alone")
left.plot(*mean.T, "o", color="#0072B2", markersize=4, label="mixed model")
left.plot(*centre, "k+", markersize=12, label="population")
left.set(xlabel="intercept (ms)", ylabel="slope (ms per day)", title="Lines shrink to each other")
left.set_ylim(-11, 24)  # room for the legend
left.legend(frameon=False, loc="lower left")
for colour, label in zip(["#D55E00", "#0072B2", "#009E73"], [308, 335, 332], strict=True):
    i = int(np.flatnonzero(people == label)[0])
    right.plot(days[person == i], reaction[person == i], "o", color=colour, markersize=4)
    right.plot([0, 9], mean[i, 0] + mean[i, 1] * np.array([0, 9]), color=colour, label=f"{label}")
    right.plot([0, 9], alone[i, 0] + alone[i, 1] * np.array([0, 9]), ":", color=colour)
right.set(xlabel="day", ylabel="reaction time (ms)", title="Three people (dotted: alone)")
right.legend(frameon=False, title="subject")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "mixed_model.png", dpi=150)
print(f"Figure: {arguments.out / 'mixed_model.png'}")

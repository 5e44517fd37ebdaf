# %% [markdown]
# # Item response: five questions of a law school test
#
# 1000 people answered the five questions of section 6 of the Law School Admission Test (Bock and
# Lieberman 1970). In the two-parameter logistic model a question has a difficulty and a
# discrimination, how sharply it tells able people from others, and a person has an ability:
#
#     P(right) = logistic(discrimination (ability - difficulty)),    ability ~ N(0, 1)
#
# Estimating the abilities together with the questions does not work: every new person brings a new
# parameter and only five answers, and the discriminations do not come right however many people
# there are. Integrating the abilities out does, and this is what Bock and Lieberman proposed (with
# a normal distribution function in place of the logistic one).

# %%
import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import expit, logsumexp

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="one start, no posterior draws")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

# How many people gave each of the 32 patterns of answers, 00000, 00001, ..., 11111.
counts = np.array(
    [3, 6, 2, 11, 1, 1, 3, 4, 1, 8, 0, 16, 0, 3, 2, 15]
    + [10, 29, 14, 81, 3, 28, 15, 80, 16, 56, 21, 173, 11, 61, 28, 298]
)
patterns = (np.arange(32)[:, None] >> np.arange(5)[::-1]) & 1  # question 1 is the first digit
assert counts.sum() == 1000
assert (counts @ patterns).tolist() == [924, 709, 553, 763, 870]  # right answers per question

# %% [markdown]
# A group is a person. People with the same answers have the same likelihood, and it is tempting to
# fit 32 patterns with their counts as weights in the log joint. That would be another model: a
# count multiplies the log of an integral, not what is inside it. So there are 1000 groups, and that
# is no trouble.

# %%
answers = np.repeat(patterns, counts, axis=0).astype(float)  # [people, questions]


def log_joint(theta, ability, answers):
    log_odds = theta["discrimination"] * (ability - theta["difficulty"])
    return norm.logpdf(ability) + jnp.sum(answers * log_odds - jax.nn.softplus(log_odds))


problem = mx.Problem.grouped(
    log_joint,
    answers,
    theta={"difficulty": jnp.zeros(5), "discrimination": jnp.ones(5)},
    latent=0.0,
    # Positive: who is more able answers right more often. It also settles ability's direction.
    theta_transforms={"discrimination": mx.transforms.positive},
    names={
        name: [f"{name} {i + 1}" for i in range(5)] for name in ("difficulty", "discrimination")
    },
)
settings = {"num_starts": 1, "draw_posterior": False} if arguments.quick else {}
fit = mx.fit(problem, key=jax.random.key(0), **settings)
print(fit)

# %% [markdown]
# ## Beside ltm
#
# The R package ltm comes with these data, and `ltm(LSAT ~ z1, IRT.param = TRUE)` fits this model.
# Its optimizer stops a little before the top: it says itself that a derivative is still 0.024. So
# we also compute the likelihood with the trapezoidal rule in NumPy, at both estimates.


# %%
def pattern_probabilities(difficulty, discrimination):
    """Of every pattern, by the trapezoidal rule over ability."""
    ability = np.linspace(-10, 10, 2001)[:, None]
    right = expit(discrimination * (ability - difficulty))
    log_given = np.log(right) @ patterns.T + np.log1p(-right) @ (1 - patterns).T  # [ability, 32]
    log_prior = -0.5 * ability**2 - 0.5 * np.log(2 * np.pi) + np.log(0.01)
    return np.exp(logsumexp(log_given + log_prior, axis=0))


ltm = np.array(
    [-3.3597, -1.3696, -0.2799, -1.8659, -3.1236, 0.8254, 0.7229, 0.8905, 0.6886, 0.6575]
)
ltm_errors = [0.8669, 0.3073, 0.0997, 0.4341, 0.8700, 0.2581, 0.1867, 0.2326, 0.1852, 0.2100]
errors = fit.standard_errors
print(f"\n{'':<17} {'ltm':>8} {'marginax':>9} {'difference':>11}   {'se, ltm':>8} {'marginax':>9}")
for row in zip(fit.names, ltm, fit.estimates, fit.estimates - ltm, ltm_errors, errors, strict=True):
    print("{:<17} {:8.4f} {:9.4f} {:11.4f}   {:8.4f} {:9.4f}".format(*row))

exact = {
    name: counts @ np.log(pattern_probabilities(*np.split(estimates, 2)))
    for name, estimates in (("ltm", ltm), ("marginax", fit.estimates))
}
found = fit.log_likelihood
worst = np.max(np.abs(fit.estimates - ltm) / errors)
print(f"\nlog likelihood: ltm prints -2466.653, marginax {found:.6f}")
print(f"by the trapezoidal rule: {exact['ltm']:.6f} at ltm's estimate, ", end="")
print(f"{exact['marginax']:.6f} at ours")
print(f"Known answer: ltm's estimates. Ours are within {worst:.4f} standard errors of them, and")
print(f"the likelihood there is higher by {exact['marginax'] - exact['ltm']:.1e}.")
assert worst < 0.005
assert np.allclose(errors, ltm_errors, rtol=0.005)
assert abs(found - exact["marginax"]) < 1e-6
assert abs(found + 2466.653) < 1e-3
assert exact["marginax"] > exact["ltm"]

# %% [markdown]
# All questions are easy (difficulties below 0, the average person), and none is very sharp. The
# right panel asks whether the model fits: for every pattern the number of people observed beside
# the number expected. Chi square is about 18 on 21 degrees of freedom, so it does.

# %%
expected = 1000 * pattern_probabilities(*np.split(fit.estimates, 2))
print(f"chi square of the patterns: {np.sum((counts - expected) ** 2 / expected):.1f}, 21 d.f.")
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

plt.style.use("marginax.interop.figures")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
grid = np.linspace(-5, 3, 200)
for i, colour in enumerate(["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]):
    curve = expit(fit.theta["discrimination"][i] * (grid - fit.theta["difficulty"][i]))
    left.plot(grid, curve, color=colour, label=f"question {i + 1}")
left.plot(grid, 0.5 * np.exp(-0.5 * grid**2), ":", color="black", label="people")
left.set(xlabel="ability", ylabel="P(right)", title="The five questions", ylim=(0, 1))
left.legend(frameon=False)
# Square roots of counts have a standard deviation of about one half, large and small ones alike.
ends = np.array([0.5, 18.5])
right.plot(ends, ends, color="black", linewidth=0.8)
right.fill_between(ends, ends - 0.5, ends + 0.5, color="#999999", alpha=0.3, linewidth=0)
right.plot(np.sqrt(expected), np.sqrt(counts), "o", color="#0072B2", markersize=4)
ticks = np.array([0, 1, 10, 30, 100, 200, 300])
right.set_xticks(np.sqrt(ticks[1:]), ticks[1:])
right.set_yticks(np.sqrt(ticks), ticks)
right.set(xlabel="people expected", ylabel="people observed", title="The 32 patterns of answers")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "item_response.png", dpi=150)
print(f"Figure: {arguments.out / 'item_response.png'}")

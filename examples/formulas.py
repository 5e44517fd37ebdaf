# %% [markdown]
# # Mixed models from a formula: salamanders in streams below mines
#
# Price et al. (2016) counted salamanders at 23 sites, some of them downstream of mountaintop
# mining. Counts at one site go together, so that sites need an effect of their own. One line says
# it, in the way of R's lme4:
#
#     count ~ mined + (1 | site)
#
# How much mining matters depends on what is believed about the zeros. We fit Poisson counts, extra
# zeros, and the negative binomial distribution, and let the likelihood speak. The Poisson model is
# known from lme4 with 25 quadrature nodes.

# %%
import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="the Poisson model alone")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

here = Path(__file__).parent if "__file__" in globals() else Path()  # a notebook has no file
table = pd.read_csv(here / "data" / "salamanders.csv")
poisson = mx.mixed("count ~ mined + (1 | site)", table, "poisson")
print(poisson)

# %% [markdown]
# The summary has what lme4's has, and two things more: a standard error of the sites' standard
# deviation, and the error of the log likelihood, because the integral over the sites' effects was
# done by two rules that agree. As rate ratios:

# %%
print(poisson.table(exp=True).to_string(index=False))

# %% [markdown]
# R's `glmer(count ~ mined + (1 | site), d, poisson, nAGQ = 25)` gives, with unmined sites as the
# reference:

# %%
KNOWN = {"Intercept": 0.759042142, "mined[yes]": -2.264636553, "sd(Intercept | site)": 0.57736053}
ours = dict(zip(poisson.names, poisson.estimates, strict=True))
worst = max(abs(ours[name] / value - 1) for name, value in KNOWN.items())
assert worst < 1e-4
print(f"Known answer: lme4 with 25 nodes. Ours is within {worst:.1e} of it, relative.")

# %% [markdown]
# Two thirds of the counts are 0. Poisson's distribution has not nearly as many, even with sites of
# different abundance. Either some zeros have another reason, or counts vary more than Poisson's.

# %%
if not arguments.quick:
    zeros = mx.mixed("count ~ mined + (1 | site)", table, "poisson", zero_inflation=True)
    spread = mx.mixed("count ~ mined + (1 | site)", table, "negative_binomial")
    both = mx.mixed("count ~ mined + (1 | site)", table, "negative_binomial", zero_inflation=True)
    for fit in (poisson, zeros, spread, both):
        print(f"{fit.family.name:32s} logLik {fit.log_likelihood:9.3f}  AIC {fit.aic:8.2f}")
    print(both.anova(spread))

# %% [markdown]
# The negative binomial explains the zeros; with it, extra ones add nothing. Which sites are rich,
# and whether residuals look as they should, a figure shows.

# %%
best = poisson if arguments.quick else spread
figure = best.plot()
arguments.out.mkdir(parents=True, exist_ok=True)
path = arguments.out / "formulas.png"
figure.savefig(path, dpi=120)
effects = best.random_effects()
richest = effects.iloc[int(np.argmax(effects["mean"]))]
print(
    f"Richest site for its kind: {richest['level']}, {np.exp(richest['mean']):.1f} times the mean"
)
print(f"Figure: {path}")
if "get_ipython" in globals():  # a notebook shows it
    from IPython.display import Image, display

    display(Image(path))

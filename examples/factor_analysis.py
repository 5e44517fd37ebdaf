# %% [markdown]
# # Factor analysis: what nine measurements of a cell have in common
#
# The Breast Cancer Wisconsin data have nine features of cells, scored 1 to 10 by a pathologist and
# standardised here. In factor analysis few latent factors explain how they go together:
#
#     y = loadings x + noise e,    x ~ N(0, I) (one or two factors), e ~ N(0, I) (nine features)
#
# Loadings and noise are shared by all rows, the factors x belong to one row each and are integrated
# out. All is Gaussian, so the marginal likelihood is known exactly, y ~ N(0, loadings loadings' +
# noise^2), and SciPy can maximise it: an answer to compare with.

# %%
import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.optimize import minimize

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="100 rows and one factor")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

features = ["clump", "size", "shape", "adhesion", "epithelial", "nuclei", "chromatin", "nucleoli"]
features += ["mitoses"]
wisconsin = mx.models.wisconsin(None).train  # all 683 rows
y = np.asarray(wisconsin.features, float)[: 100 if arguments.quick else None]

# %% [markdown]
# Loadings are determined only up to a rotation of the factors, and factors only up to sign. The
# usual remedy: nothing above the diagonal, so that the first feature has no second factor, and a
# positive diagonal. There are 9 + 9 free numbers with one factor and 17 + 9 with two.


# %%
def loadings_of(theta, num_factors):
    """The matrix [features, factors] from its positive diagonal and what is below it."""
    rows, columns = np.tril_indices(9, -1, num_factors)
    below = jnp.zeros((9, num_factors)).at[rows, columns].set(theta["below"])
    return below.at[np.arange(num_factors), np.arange(num_factors)].set(theta["diagonal"])


def fit_factors(num_factors):
    def log_joint(theta, x, row):
        fitted = loadings_of(theta, num_factors) @ x
        return jnp.sum(norm.logpdf(x)) + jnp.sum(norm.logpdf(row, fitted, theta["noise"]))

    rows, columns = np.tril_indices(9, -1, num_factors)
    problem = mx.Problem.grouped(
        log_joint,
        y,
        # The second factor starts at 0, but for its diagonal.
        theta={
            "below": jnp.where(columns == 0, 0.5, 0.0),
            "diagonal": jnp.full(num_factors, 0.5),
            "noise": jnp.full(9, 0.7),
        },
        latent=jnp.zeros(num_factors),
        theta_transforms={"diagonal": mx.transforms.positive, "noise": mx.transforms.positive},
        names={
            "below": [f"{features[i]} {j + 1}" for i, j in zip(rows, columns, strict=True)],
            "diagonal": [f"{features[j]} {j + 1}" for j in range(num_factors)],
            "noise": [f"noise {name}" for name in features],
        },
    )
    return mx.fit(problem, key=jax.random.key(0), num_starts=1, draw_posterior=False)


fits = {k: fit_factors(k) for k in ((1,) if arguments.quick else (1, 2))}
for fit in fits.values():
    print(fit, end="\n\n")

# %% [markdown]
# ## Beside the exact likelihood
#
# SciPy maximises the Gaussian likelihood, with its derivatives, from twenty random starts. With one
# factor they all end at the same place (up to sign). With two some end lower, in what is called a
# Heywood case: the noise of one feature goes to 0, and a factor is that feature. Our fit began at
# one start; with `num_starts=3`, which takes some minutes here, the summary says "Starts disagree"
# and by how much.


# %%
def negative_log_likelihood(free, num_factors):
    """Per row, and its gradient; `free` is the lower triangle of the loadings and the log noise."""
    rows, columns = np.tril_indices(9, 0, num_factors)
    loadings, noise = np.zeros((9, num_factors)), np.exp(free[len(rows) :])
    loadings[rows, columns] = free[: len(rows)]
    covariance, sample = loadings @ loadings.T + np.diag(noise**2), y.T @ y / len(y)
    inverse = np.linalg.inv(covariance)
    value = 9 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + np.trace(inverse @ sample)
    slope = inverse - inverse @ sample @ inverse
    gradient = np.concatenate([(slope @ loadings)[rows, columns], np.diag(slope) * noise**2])
    return 0.5 * value, gradient


random = np.random.default_rng(0)
for num_factors, fit in fits.items():
    rows, columns = np.tril_indices(9, 0, num_factors)
    ends = [
        minimize(negative_log_likelihood, start, num_factors, jac=True, options={"gtol": 1e-8})
        for start in 0.5 * random.normal(size=(20, len(rows) + 9))
    ]
    best = min(ends, key=lambda end: end.fun)
    maxima = sorted({f"{-len(y) * end.fun:.3f}" for end in ends})
    print(f"{num_factors} factor(s): SciPy's maxima from twenty starts: {', '.join(maxima)}")
    # Signs are arbitrary to SciPy: loadings times their transpose can be compared, and the noise.
    loadings, exact = np.asarray(loadings_of(fit.theta, num_factors)), np.zeros((9, num_factors))
    exact[rows, columns] = best.x[: len(rows)]
    common = np.max(np.abs(loadings @ loadings.T - exact @ exact.T))
    noise = np.max(np.abs(np.asarray(fit.theta["noise"]) - np.exp(best.x[len(rows) :])))
    known, found = -len(y) * best.fun, fit.log_likelihood
    print(f"Known answer: log likelihood {known:.5f}; marginax {found:.5f}")
    print(f"largest difference: {common:.1e} in loadings loadings', {noise:.1e} in the noise\n")
    assert abs(found - known) < 1e-4
    assert max(common, noise) < 1e-4
    assert fit.ok

if not arguments.quick:
    gain = fits[1].bic - fits[2].bic
    print(f"BIC falls by {gain:.1f} with the second factor, for 8 numbers more.\n")

# %% [markdown]
# One factor carries most: all loadings are positive, and in all 683 rows those of the size and the
# shape of cells are the largest. Its score tells benign from malignant tumours, although no label
# was used.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

one = fits[1]
score = np.asarray(one.random_effects().mean)[:, 0]
order = [one.names.index(f"{name} 1") for name in features]
middle, (low, high) = one.estimates[order], one.confidence_intervals()[order].T
plt.style.use("marginax.interop.figures")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.errorbar(middle, range(9), xerr=[middle - low, high - middle], fmt="o", color="#0072B2")
left.set_yticks(range(9), features)
left.set(xlabel="loading, 95 % interval", title=f"One factor, {len(y)} rows", xlim=(0, None))
left.invert_yaxis()
bins = np.linspace(score.min(), score.max(), 30)
for label, name, colour in ((0, "benign", "#009E73"), (1, "malignant", "#D55E00")):
    chosen = score[np.asarray(wisconsin.labels)[: len(y)] == label]
    right.hist(chosen, bins, color=colour, alpha=0.7, label=name)
right.set(xlabel="factor score (posterior mean)", ylabel="rows", title="Labels were not used")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "factor_analysis.png", dpi=150)
print(f"Figure: {arguments.out / 'factor_analysis.png'}")

# %% [markdown]
# # Crossed ratings: students rate teachers, and neither is nested in the other
#
#     rating = mean + student + teacher + noise
#
# Each student rates some teachers, each teacher is rated by some students: given the ratings all of
# them depend on each other, and there are no independent groups. `fit` finds the two crossed
# factors in the trace of the model, eliminates the larger and factors what is left. All is normal,
# so that the likelihood is exact, and SciPy's sparse matrices can say whether it is.

# %%
import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy import sparse
from scipy.sparse.linalg import splu

import marginax as mx

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="180 students instead of 3,000")
parser.add_argument("--out", type=Path, default=Path("out"))
arguments, _ = parser.parse_known_args()

students, teachers, rows = (180, 40, 900) if arguments.quick else (3000, 1100, 73_000)
rng = np.random.default_rng(5)
student, teacher = rng.integers(0, students, rows), rng.integers(0, teachers, rows)
strictness, quality = 0.6 * rng.normal(size=students), 0.4 * rng.normal(size=teachers)
rating = 3.2 + strictness[student] + quality[teacher] + rng.normal(size=rows)

# %% [markdown]
# The latent is a dict, and rows of the data pick from it by index.


# %%
def log_joint(theta, x, data):
    mean = theta["mean"] + x["student"][data["student"]] + x["teacher"][data["teacher"]]
    of_students = jnp.sum(norm.logpdf(x["student"], 0.0, theta["sd_student"]))
    of_teachers = jnp.sum(norm.logpdf(x["teacher"], 0.0, theta["sd_teacher"]))
    rows = jnp.sum(norm.logpdf(data["rating"], mean, theta["noise"]))
    return rows + of_students + of_teachers


positive = dict.fromkeys(("sd_student", "sd_teacher", "noise"), mx.transforms.positive)
problem = mx.Problem(
    log_joint,
    theta={"mean": 0.0, "sd_student": 1.0, "sd_teacher": 1.0, "noise": 1.0},
    latent={"student": np.zeros(students), "teacher": np.zeros(teachers)},
    data={"student": student, "teacher": teacher, "rating": rating},
    theta_transforms=positive,
)
print(mx.structure_of(problem))
fit = mx.fit(problem)
print(fit)


# %%
def exact_log_likelihood(mean, sd_student, sd_teacher, noise):
    """By the mixed-model equations: |V| and V^-1 from a matrix of the size of the effects."""
    columns = np.concatenate([student, students + teacher])
    places = (np.tile(np.arange(rows), 2), columns)
    z = sparse.csr_array((np.ones(2 * rows), places), shape=(rows, students + teachers))
    sds = np.repeat([sd_student, sd_teacher], [students, teachers])
    lu = splu(sparse.csc_array(z.T @ z / noise**2 + sparse.diags_array(1 / sds**2)))
    away = rating - mean
    pull = z.T @ away / noise**2
    log_det = np.sum(np.log(np.abs(lu.U.diagonal()))) + 2 * np.sum(np.log(sds))
    log_det += 2 * rows * np.log(noise)
    quadratic = away @ away / noise**2 - pull @ lu.solve(pull)
    return -0.5 * (quadratic + log_det + rows * np.log(2 * np.pi))


estimate = {name: float(value) for name, value in fit.theta.items()}
exact = exact_log_likelihood(**estimate)
print(f"\nKnown answer: log likelihood {exact:.6f}; marginax {fit.log_likelihood:.6f}")
assert abs(fit.log_likelihood - exact) < 1e-8 * abs(exact)
assert fit.ok

# %% [markdown]
# Ranks of teachers: the posterior means are drawn to 0 by as much as they are uncertain.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: matplotlib is missing (pip install 'marginax[plot]').")
    raise SystemExit from None

# The latent's leaves in the order of their names: students, then teachers.
mean, sd = (part[0][students:] for part in (fit.likelihood.mean, fit.likelihood.sd))
order = np.argsort(mean)[:: max(1, teachers // 60)]
plt.style.use("marginax.interop.figures")
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.axhline(0, color="#999999", linewidth=0.8)
axes.errorbar(
    np.arange(len(order)), mean[order], 2 * sd[order], fmt=".", color="#0072B2", label="two sd"
)
axes.plot(np.arange(len(order)), quality[order], "x", color="#D55E00", label="true")
axes.set(xlabel="teachers, by rank", ylabel="quality", xticks=[], title="Crossed ratings")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
arguments.out.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.out / "crossed_ratings.png", dpi=150)
print(f"Figure: {arguments.out / 'crossed_ratings.png'}")

"""Every family with one factor, with slopes and crossed, beside dense quadrature in NumPy.

    python -m benchmarks.mixed_families [family ...]

Of every fit: by how much the log likelihood is off; the largest slope of the oracle's likelihood at
the estimate, along a parameter in units of its standard error, which is by how many standard errors
the estimate is off; and the error that the fit states. The oracle shares no code with the library:
trapezium rules over all random effects, SciPy's distributions. Crossed designs have two levels in
the second factor, so that this is possible.
"""

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.special import expit, logsumexp

import marginax as mx

RESULTS = Path(__file__).parent / "results" / "mixed_families.md"
STRUCTURES = {
    "one factor": "y ~ x + (1 | g)",
    "slopes": "y ~ x + (x | g)",
    "crossed": "y ~ x + (1 | g) + (1 | h)",
}
FAMILIES = (
    "gaussian",
    "binomial",
    "poisson",
    "negative_binomial",
    "gamma",
    "beta",
    "ordinal",
    "student",
    "zero-inflated poisson",
)


def log_density(family, y, eta, values):
    """Of rows [n, 1] at linear predictors [n, points], by SciPy."""
    if family == "gaussian":
        return stats.norm.logpdf(y, eta, values["sigma"])
    if family == "binomial":
        return -np.logaddexp(0, np.where(y > 0, -eta, eta))
    if family == "poisson":
        return stats.poisson.logpmf(y, np.exp(eta))
    if family == "negative_binomial":
        k = values["size"]
        return stats.nbinom.logpmf(y, k, k / (k + np.exp(eta)))
    if family == "gamma":
        return stats.gamma.logpdf(y, values["shape"], scale=np.exp(eta) / values["shape"])
    if family == "beta":
        m, k = expit(eta), values["precision"]
        return stats.beta.logpdf(y, m * k, (1 - m) * k)
    if family == "student":
        return stats.t.logpdf((y - eta) / values["sigma"], values["df"]) - np.log(values["sigma"])
    if family == "ordinal":
        cuts = np.concatenate([[-np.inf], values["cut"], [np.inf]])
        k = y.astype(int)
        return np.log(expit(cuts[k + 1] - eta) - expit(cuts[k] - eta))
    extra = values["zero_probability"]
    own = np.log1p(-extra) + stats.poisson.logpmf(y, np.exp(eta))
    return np.where(y == 0, np.logaddexp(np.log(extra), own), own)


def simulated(family, structure, seed):
    """A table of 240 rows."""
    random = np.random.default_rng(seed)
    groups, each = 20, 12
    g = np.repeat(np.arange(groups), each)
    h = random.integers(0, 2, len(g))
    x = random.normal(size=len(g))
    b = 0.7 * random.normal(size=(groups, 2)) @ np.array([[1.0, 0.0], [0.4, 0.5]]).T
    eta = 0.4 + 0.5 * x + b[g, 0]
    if structure == "slopes":
        eta = eta + b[g, 1] * x
    if structure == "crossed":
        eta = eta + np.array([0.5, -0.6])[h]
    y = {
        "gaussian": lambda: random.normal(eta, 0.8),
        "binomial": lambda: random.uniform(size=len(g)) < expit(eta),
        "poisson": lambda: random.poisson(np.exp(eta)),
        "negative_binomial": lambda: random.poisson(random.gamma(2.0, np.exp(eta) / 2.0)),
        "gamma": lambda: random.gamma(3.0, np.exp(eta) / 3.0),
        "beta": lambda: np.clip(random.beta(8 * expit(eta), 8 * expit(-eta)), 1e-9, 1 - 1e-9),
        "ordinal": lambda: np.digitize(eta + random.logistic(size=len(g)), [-0.8, 0.4, 1.5]),
        "student": lambda: eta + 0.6 * random.standard_t(4, len(g)),
        "zero-inflated poisson": lambda: (
            random.poisson(np.exp(eta)) * (random.uniform(size=len(g)) > 0.25)
        ),
    }[family]()
    return {"y": np.asarray(y, float), "x": x, "g": g, "h": h}


def oracle(fit, family, structure, data):
    """The log likelihood as a function of all parameters in the order of `fit.names`."""
    names = fit.names
    y, x, g, h = (np.asarray(data[k]) for k in "yxgh")

    def value(parameters):
        at = dict(zip(names, parameters, strict=True))
        eta = at.get("Intercept", 0.0) + at["x"] * x
        values = {k: v for k, v in at.items() if k in ("sigma", "size", "shape", "precision", "df")}
        values["zero_probability"] = at.get("zero_probability")
        values["cut"] = [v for k, v in at.items() if k.startswith("cut")]
        sd = at["sd(Intercept | g)"]
        if structure == "slopes":
            slope, rho = at["sd(x | g)"], at["corr(Intercept, x | g)"]
            t = np.linspace(-8, 8, 121)
            u, w = (grid.ravel() for grid in np.meshgrid(t, t, indexing="ij"))
            added = np.stack([sd * u, slope * (rho * u + np.sqrt(1 - rho**2) * w)])
            prior = -0.5 * (u**2 + w**2) - np.log(2 * np.pi) + 2 * np.log(t[1] - t[0])
        else:
            t = np.linspace(-9, 9, 401)
            added, prior = (sd * t)[None], -0.5 * t**2 - 0.5 * np.log(2 * np.pi)
            prior = prior + np.log(t[1] - t[0])
        z = np.column_stack([np.ones(len(x)), x])[:, : len(added)]
        if structure != "crossed":
            return sum(_level(family, y, eta, z, added, prior, values, g == k) for k in set(g))
        v = np.linspace(-7, 7, 61)
        of_second = at["sd(Intercept | h)"] * v
        parts = np.zeros((len(v), len(v)))
        for k in set(g):
            rows = [(g == k) & (h == one) for one in (0, 1)]
            terms = []
            for mask in rows:
                e = eta[mask][:, None, None] + (sd * t)[None, :, None] + of_second[None, None, :]
                terms.append(log_density(family, y[mask][:, None, None], e, values).sum(axis=0))
            both = terms[0][:, :, None] + terms[1][:, None, :] + prior[:, None, None]
            parts += logsumexp(both, axis=0)
        outer = -0.5 * v**2 - 0.5 * np.log(2 * np.pi) + np.log(v[1] - v[0])
        return logsumexp(parts + outer[:, None] + outer[None, :])

    return value


def _level(family, y, eta, z, added, prior, values, rows):
    inside = log_density(family, y[rows][:, None], eta[rows][:, None] + z[rows] @ added, values)
    return logsumexp(inside.sum(axis=0) + prior)


def judged(family, structure, seed):
    """The row of a table."""
    data = simulated(family, structure, seed)
    began = time.perf_counter()
    zero = family.startswith("zero")
    name = "poisson" if zero else family
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = mx.mixed(STRUCTURES[structure], data, name, zero_inflation=zero)
    seconds = time.perf_counter() - began
    value = oracle(fit, family, structure, data)
    at = fit.estimates
    errors = np.array(
        [
            *(row[2] for row in fit.fixed_rows()),
            *(one.standard_error or np.nan for one in fit.solution.numbers),
        ]
    )
    off = fit.log_likelihood - value(at)
    free = np.flatnonzero(np.isfinite(errors) & (errors > 0))
    shift = 0.0
    for k in free:
        step = np.zeros(len(at))
        step[k] = 0.05 * errors[k]
        slope = (value(at + step) - value(at - step)) / 0.1
        shift = max(shift, abs(slope))
    return {
        "family": family,
        "structure": structure,
        "off": off,
        "stated": fit.solution.error,
        "shift": shift,
        "seconds": seconds,
        "said": "CONVERGED" if fit.ok else "; ".join(fit.warnings),
        "notes": len(fit.notes),
    }


def main():
    """Fits, prints and writes."""
    asked = sys.argv[1:] or FAMILIES
    lines = [
        "| family | structure | log likelihood off | error stated | estimate off, in standard "
        "errors | seconds | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for family in asked:
        for structure in STRUCTURES:
            row = judged(family, structure, 0)
            cells = (family, structure, f"{row['off']:+.1e}", f"{row['stated']:.0e}")
            cells += (f"{row['shift']:.4f}", f"{row['seconds']:.1f}", row["said"])
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if not sys.argv[1:]:
        head = "# Families beside dense quadrature\n\n`python -m benchmarks.mixed_families`\n\n"
        RESULTS.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""The families that the fuzzer combines, as a user of the library writes them in JAX.

A model is a prior of one group's latent, a likelihood of its rows given a predictor, and maybe a
fixed effect of a covariate. `fuzz_marginals` has the same in NumPy, for the oracle.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.scipy.stats import cauchy, gamma, laplace, norm, t

import marginax as mx

Kinds = dict[str, str]  # of every parameter: real, positive, share

PRIORS: dict[str, Kinds] = {
    "normal": {"mean": "real", "sd": "positive"},
    "laplace": {"mean": "real", "sd": "positive"},
    "student": {"mean": "real", "sd": "positive"},
    "mixture": {"low": "real", "gap": "positive", "p": "share"},
    "spike": {"slab": "positive", "p": "share"},
    "gamma": {"mean": "positive", "shape": "positive"},
    "lognormal": {"mu": "real", "sd": "positive"},
    "uniform": {"level": "real", "span": "positive"},
    "slopes": {"mean": "real", "mean_slope": "real", "sd": "positive", "sd_slope": "positive"},
}
LINKS = {
    "normal": "identity",
    "cauchy": "identity",
    "student": "identity",
    "square": "square",
    "poisson": "log",
    "gamma": "log",
    "negbin": "log",
    "bernoulli": "logit",
    "binomial": "logit",
}
DISPERSIONS = {  # the parameter that a likelihood has of its own
    "normal": "noise",
    "cauchy": "noise",
    "student": "noise",
    "square": "noise",
    "gamma": "k",
    "negbin": "k",
}
TRIALS = 10.0  # of the binomial
FREEDOM = 4.0  # degrees of it in the student's t of the rows; 3 in that of the latents
TRANSFORMS = {"positive": mx.transforms.positive, "share": mx.transforms.unit_interval}
LATENT_TRANSFORMS = {
    "gamma": mx.transforms.positive,
    "lognormal": mx.transforms.positive,
    "uniform": mx.transforms.unit_interval,
}


class Family(NamedTuple):
    """A prior and a likelihood.

    Attributes:
        prior: of one group's latent.
        likelihood: of its rows.
        covariate: whether there is a fixed effect.
        known: whether the likelihood's dispersion is given with the data.
    """

    prior: str
    likelihood: str
    covariate: bool = False
    known: bool = False

    @property
    def link(self) -> str:
        return LINKS[self.likelihood]

    @property
    def dispersion(self) -> str | None:
        return DISPERSIONS.get(self.likelihood)

    @property
    def kinds(self) -> Kinds:
        kinds = dict(PRIORS[self.prior])
        if self.covariate:
            kinds["beta"] = "real"
        if self.dispersion is not None and not self.known:
            kinds[self.dispersion] = "positive"
        return dict(sorted(kinds.items()))

    def __str__(self) -> str:
        extras = " + covariate" * self.covariate + ", known dispersion" * self.known
        return f"{self.prior} x {self.likelihood}{extras}"


def is_sensible(family: Family) -> bool:
    """Whether a family means something: some do not, and two latents have an oracle for some."""
    if family.likelihood == "square":
        return family.prior in ("normal", "laplace", "student", "spike") and not family.covariate
    if family.prior == "slopes":
        one_top = family.likelihood not in ("cauchy", "student")
        return one_top and not family.covariate
    if family.prior in ("gamma", "lognormal"):
        return not (family.covariate and family.link == "logit")
    return not (family.known and family.dispersion is None)


@lru_cache(None)
def log_joint(family: Family) -> Any:
    """The log joint of one group, one function per family so that programs are found again."""
    prior, terms = _LOG_PRIORS[family.prior], _LOG_TERMS[family.likelihood]

    def of_one_group(theta: Any, x: Any, data: Any) -> Any:
        predictor = _predictor(family, theta, x, data)
        dispersion = data["known"] if family.known else theta.get(family.dispersion)
        rows = terms(data["y"], predictor, dispersion)
        return prior(theta, x, data) + jnp.sum(jnp.where(data["mask"], rows, 0.0))

    return of_one_group


def _predictor(family: Family, theta: Any, x: Any, data: Any) -> Any:
    if family.prior == "slopes":
        return x[0] + x[1] * data["z"]
    if family.prior == "uniform":
        x = theta["level"] + theta["span"] * x
    if family.prior in ("gamma", "lognormal") and family.link != "identity":
        x = jnp.log(x)
    return x + theta["beta"] * data["z"] if family.covariate else x + jnp.zeros_like(data["y"])


def _mixture(theta: Any, x: Any, data: Any) -> Any:
    low = norm.logpdf(x, theta["low"], data["width"])
    high = norm.logpdf(x, theta["low"] + theta["gap"], data["width"])
    return jnp.logaddexp(jnp.log1p(-theta["p"]) + low, jnp.log(theta["p"]) + high)


def _spike(theta: Any, x: Any, data: Any) -> Any:
    spike = norm.logpdf(x, 0.0, data["width"])
    slab = norm.logpdf(x, 0.0, theta["slab"])
    return jnp.logaddexp(jnp.log1p(-theta["p"]) + spike, jnp.log(theta["p"]) + slab)


_LOG_PRIORS = {
    "normal": lambda theta, x, data: norm.logpdf(x, theta["mean"], theta["sd"]),
    "laplace": lambda theta, x, data: laplace.logpdf(x, theta["mean"], theta["sd"]),
    "student": lambda theta, x, data: t.logpdf(x, 3.0, theta["mean"], theta["sd"]),
    "mixture": _mixture,
    "spike": _spike,
    "gamma": lambda theta, x, data: gamma.logpdf(
        x, theta["shape"], scale=theta["mean"] / theta["shape"]
    ),
    "lognormal": lambda theta, x, data: (
        norm.logpdf(jnp.log(x), theta["mu"], theta["sd"]) - jnp.log(x)
    ),
    "uniform": lambda theta, x, data: 0.0 * x,
    "slopes": lambda theta, x, data: (
        norm.logpdf(x[0], theta["mean"], theta["sd"])
        + norm.logpdf(x[1], theta["mean_slope"], theta["sd_slope"])
    ),
}


def _negbin(y: Any, eta: Any, k: Any) -> Any:
    total = jnp.logaddexp(jnp.log(k), eta)
    counts = gammaln(y + k) - gammaln(k) - gammaln(y + 1.0)
    return counts + k * (jnp.log(k) - total) + y * (eta - total)


_CHOICES = float(sum(jnp.log(jnp.arange(1.0, TRIALS + 1))))  # log 10!

_LOG_TERMS = {
    "normal": lambda y, eta, noise: norm.logpdf(y, eta, noise),
    "cauchy": lambda y, eta, noise: cauchy.logpdf(y, eta, noise),
    "student": lambda y, eta, noise: t.logpdf(y, FREEDOM, eta, noise),
    "square": lambda y, eta, noise: norm.logpdf(y, eta**2, noise),
    "poisson": lambda y, eta, _: y * eta - jnp.exp(eta) - gammaln(y + 1.0),
    "gamma": lambda y, eta, k: gamma.logpdf(y, k, scale=jnp.exp(eta) / k),
    "negbin": _negbin,
    "bernoulli": lambda y, eta, _: y * eta - jax.nn.softplus(eta),
    "binomial": lambda y, eta, _: (
        y * eta
        - TRIALS * jax.nn.softplus(eta)
        + _CHOICES
        - gammaln(y + 1.0)
        - gammaln(TRIALS - y + 1.0)
    ),
}


def problem(family: Family, data: Any, start: dict[str, float], latent: Any) -> mx.Problem:
    """The problem that a user would give to `fit`."""
    kinds = family.kinds
    return mx.Problem.grouped(
        log_joint(family),
        data,
        theta={name: start[name] for name in kinds},
        latent=latent,
        theta_transforms={
            name: TRANSFORMS[kind] for name, kind in kinds.items() if kind in TRANSFORMS
        },
        latent_transforms=LATENT_TRANSFORMS.get(family.prior),
    )

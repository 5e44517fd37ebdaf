"""`mixed`: from a formula and a table to a fitted model."""

import time
from typing import Any

import numpy as np

from marginax.formulas.climbing import fit_by_climbing
from marginax.formulas.design import Design, make_design
from marginax.formulas.families import FAMILIES, Family
from marginax.formulas.families.zero_inflation import with_extra_zeros
from marginax.formulas.linear_fit import fit_linear
from marginax.formulas.parsing import parse
from marginax.formulas.responses import Response
from marginax.formulas.result import MixedFit

__all__ = ["family_of", "mixed"]

OTHER_NAMES = {
    "normal": "gaussian",
    "bernoulli": "binomial",
    "negbinomial": "negative_binomial",
    "nbinom2": "negative_binomial",
    "t": "student",
    "student_t": "student",
    "cumulative": "ordinal",
}


def mixed(
    formula: str,
    data: Any,
    family: str | Family = "gaussian",
    *,
    link: str | None = None,
    weights: Any = None,
    reml: bool = False,
    zero_inflation: bool = False,
) -> MixedFit:
    """Fits a mixed model that a formula describes, by maximum likelihood.

    Args:
        formula: such as "reaction ~ days + (days | subject)". Fixed effects are written as the
            formulae package reads them; `(effects | group)` vary over the levels of a column,
            correlated, and `(effects || group)` uncorrelated; `g/h` is `g` and `g:h`.
        data: any dataframe (pandas, polars, PyArrow, ...), or a dict of columns. Rows with a gap in
            a column that is used are left out, with a note.
        family: "gaussian", "binomial", "poisson", "negative_binomial", "gamma", "beta", "ordinal"
            or "student"; or a `Family` of your own.
        link: if not the family's usual one: "logit", "probit" or "cloglog".
        weights: a column, or a number for every row: of a binomial proportion the trials, of a
            gaussian response what the variance is divided by, of others how often a row counts.
        reml: restricted maximum likelihood, for gaussian responses.
        zero_inflation: counts with a probability of extra zeros.

    Returns:
        A `MixedFit`; `print(fit)` is its summary.

    Example:
        >>> import marginax as mx
        >>> yields = [1545, 1440, 1440, 1520, 1580, 1540, 1555, 1490, 1595, 1550, 1605, 1510]
        >>> table = {"yields": yields, "batch": list("AAAABBBBCCCC")}
        >>> fit = mx.mixed("yields ~ 1 + (1 | batch)", table)
        >>> round(float(fit.fixed_effects["estimate"][0]), 2)
        1530.83
    """
    began = time.perf_counter()
    chosen = family_of(family, zero_inflation)
    link = _link(chosen, link)
    parsed = parse(formula)
    design = make_design(parsed, data, weights)
    if not chosen.has_intercept:
        design = _without_intercept(design)
    response = chosen.check(design.response, design.weights)
    _check_varies(response)
    design = design._replace(response=response)
    if chosen.name == "gaussian":
        solution = fit_linear(design, reml)
    else:
        if reml:
            raise ValueError(
                f'reml=True is for the family "gaussian"; with "{chosen.name}" there is no '
                "restricted likelihood. Leave it out."
            )
        solution = fit_by_climbing(design, chosen, link, response)
    return MixedFit(
        design=design,
        family=chosen,
        link=link,
        reml=reml,
        solution=solution,
        seconds=time.perf_counter() - began,
    )


def family_of(family: str | Family, zero_inflation: bool = False) -> Family:
    """The family of a name, with extra zeros if asked for."""
    if isinstance(family, str):
        name = family.lower().replace("-", "_").replace(" ", "_")
        name = OTHER_NAMES.get(name, name)
        if name not in FAMILIES:
            raise ValueError(
                f"There is no family {family!r}; there are {', '.join(FAMILIES)}. Or give a "
                "`marginax.formulas.families.Family` of your own."
            )
        found = FAMILIES[name]
    elif isinstance(family, Family):
        found = family
    else:
        raise TypeError(
            f"The family is a {type(family).__name__}; it must be a name, one of "
            f"{', '.join(FAMILIES)}, or a Family."
        )
    return with_extra_zeros(found) if zero_inflation else found


def _link(family: Family, link: str | None) -> str:
    if link is None:
        return family.links[0]
    if link not in family.links:
        raise ValueError(
            f'The family "{family.name}" has the link{"s" * (len(family.links) > 1)} '
            f"{', '.join(family.links)}, and not {link!r}."
        )
    return link


def _without_intercept(design: Design) -> Design:
    """Cut points take the place of the intercept."""
    keep = np.array([name != "Intercept" for name in design.names], bool)
    columns = design.columns._replace(fixed=design.columns.fixed[:, keep])
    names = tuple(name for name, kept in zip(design.names, keep, strict=True) if kept)
    return design._replace(columns=columns, names=names)


def _check_varies(response: Response) -> None:
    trials = 1.0 if response.trials is None else response.trials
    share = response.values / trials
    if len(share) > 1 and np.ptp(share) == 0 and response.trials is None:
        raise ValueError(
            f"The response {response.name!r} is {share[0]:g} in every row: nothing varies that "
            "could be explained."
        )

"""Two fitted mixed models of the same data, and one model fitted to data of its own making."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from marginax.formulas.families.zero_inflation import NAME as ZEROS
from marginax.formulas.frames import table_like

__all__ = ["Anova", "Bootstrap", "anova", "bootstrapped"]


class Anova(NamedTuple):
    """A likelihood-ratio test of a smaller model within a larger one.

    Attributes:
        formulas: of the smaller and the larger.
        parameters: how many each has.
        aic: of each.
        bic: of each.
        log_likelihood: of each.
        statistic: twice the difference of the log likelihoods.
        degrees: how many parameters more the larger has.
        p_value: from the chi-square distribution.
        note: what to keep in mind; empty if there is nothing.
    """

    formulas: tuple[str, str]
    parameters: tuple[int, int]
    aic: tuple[float, float]
    bic: tuple[float, float]
    log_likelihood: tuple[float, float]
    statistic: float
    degrees: int
    p_value: float
    note: str

    def __str__(self) -> str:
        lines = [f"{'':8s} {'npar':>5s} {'AIC':>10s} {'BIC':>10s} {'logLik':>11s}"]
        lines[0] += f" {'Chisq':>9s} {'Df':>3s} {'p':>9s}"
        for k, name in enumerate(("smaller", "larger")):
            lines.append(
                f"{name:8s} {self.parameters[k]:5d} {self.aic[k]:10.2f} {self.bic[k]:10.2f} "
                f"{self.log_likelihood[k]:11.3f}"
            )
        lines[-1] += f" {self.statistic:9.4f} {self.degrees:3d} {self.p_value:9.3g}"
        lines += [f"smaller: {self.formulas[0]}", f"larger:  {self.formulas[1]}"]
        return "\n".join(lines + ([f"Note: {self.note}"] if self.note else []))


def anova(one: Any, other: Any) -> Anova:
    """The test of two fits, whichever is the larger."""
    sizes = [fit.solution.num_parameters for fit in (one, other)]
    if sizes[0] == sizes[1]:
        raise ValueError(
            f"Both models have {sizes[0]} parameters: a likelihood-ratio test needs one inside the "
            "other. Compare them by AIC."
        )
    smaller, larger = (one, other) if sizes[0] < sizes[1] else (other, one)
    _check_comparable(smaller, larger)
    gain = larger.log_likelihood - smaller.log_likelihood
    error = larger.solution.error + smaller.solution.error
    statistic, degrees = max(2 * gain, 0.0), abs(sizes[0] - sizes[1])
    from scipy.special import chdtrc  # slow to import

    p_value = float(chdtrc(degrees, statistic))
    return Anova(
        formulas=(_said(smaller), _said(larger)),
        parameters=(min(sizes), max(sizes)),
        aic=(smaller.aic, larger.aic),
        bic=(smaller.bic, larger.bic),
        log_likelihood=(smaller.log_likelihood, larger.log_likelihood),
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        note=" ".join(_notes(smaller, larger, gain, error, p_value)),
    )


def _said(fit: Any) -> str:
    return f"{fit.formula} ({fit.family.name})"


def _check_comparable(smaller: Any, larger: Any) -> None:
    for what, get in (
        ("family", lambda fit: fit.family.name),
        ("link", lambda fit: fit.link),
        ("response", lambda fit: fit.design.response.name),
        ("number of rows", lambda fit: fit.num_observations),
    ):
        here, there = get(smaller), get(larger)
        # Extra zeros, and another distribution of the same counts, are larger models of them.
        if here != there and what != "family":
            raise ValueError(
                f"The fits differ in their {what}: {here} and {there}. A likelihood-ratio test "
                "needs two models of the same data."
            )
    if not np.array_equal(smaller.design.response.values, larger.design.response.values):
        raise ValueError(
            "The fits are of different responses. A likelihood-ratio test needs two models of the "
            "same data."
        )
    if smaller.reml != larger.reml:
        raise ValueError(
            "One fit is by REML and the other by maximum likelihood. Fit both with reml=False."
        )
    if smaller.reml and smaller.design.names != larger.design.names:
        raise ValueError(
            "Restricted likelihoods of different fixed effects cannot be compared. Fit both with "
            "reml=False."
        )


def _notes(smaller: Any, larger: Any, gain: float, error: float, p_value: float) -> list[str]:
    if gain < -max(1e-3, 2 * error):
        return [
            "The larger model has the lower likelihood, by more than the errors of both "
            f"({error:.2g}): it does not contain the smaller one, or a fit missed its maximum."
        ]
    notes = []
    more = _num_variances(larger) - _num_variances(smaller)
    zeros = [any(one.name == ZEROS for one in fit.family.parameters) for fit in (smaller, larger)]
    if zeros == [False, True]:
        notes.append(
            "Without extra zeros their probability is 0, an end of its range, so that this p-value "
            "is too large, up to twice."
        )
    if more > 0:
        notes.append(
            "The smaller model sets a variance to 0, an end of its range, so that this p-value is "
            "too large."
        )
        if more == 1 and larger.solution.num_parameters - smaller.solution.num_parameters == 1:
            notes[-1] += f" For one variance it is half of it, {p_value / 2:.3g}."
    if error > 0.05:
        notes.append(
            f"The likelihoods have errors, {error:.2g} together: so uncertain is half of this."
        )
    return notes


def _num_variances(fit: Any) -> int:
    return sum(
        1 for one in fit.solution.numbers if one.about is not None and not one.about.is_correlation
    )


class Bootstrap(NamedTuple):
    """Estimates from data that the fitted model made.

    Attributes:
        names: of the parameters.
        estimates: of the fit itself.
        replicates: [replicates, parameters].
        num_failed: replicates that could not be fitted, and are not among these.
        backend: of tables.
    """

    names: tuple[str, ...]
    estimates: np.ndarray
    replicates: np.ndarray
    num_failed: int
    backend: Any

    def intervals(self, level: float = 0.95) -> Any:
        """A table: of every parameter its estimate, standard error, bias and interval."""
        tails = [0.5 - level / 2, 0.5 + level / 2]
        low, high = np.quantile(self.replicates, tails, axis=0)
        return table_like(
            {
                "parameter": self.names,
                "estimate": self.estimates,
                "std_error": self.replicates.std(axis=0, ddof=1),
                "bias": self.replicates.mean(axis=0) - self.estimates,
                "low": low,
                "high": high,
            },
            self.backend,
        )


def bootstrapped(
    names: tuple[str, ...],
    estimates: np.ndarray,
    again: Callable[[int], np.ndarray],
    num: int,
    backend: Any,
) -> Bootstrap:
    """Fits of simulated data.

    Args:
        names: of the parameters.
        estimates: of the fit itself.
        again: `again(k)`, the estimates from data set k.
        num: how many.
        backend: of tables.
    """
    found, failed = [], 0
    for k in range(num):
        try:
            found.append(again(k))
        except (ValueError, np.linalg.LinAlgError):  # a data set without a single success, say
            failed += 1
    if len(found) < 2:
        raise ValueError(f"{failed} of {num} simulated data sets could not be fitted.")
    return Bootstrap(names, estimates, np.array(found), failed, backend)

"""The text of a fit: a table of estimates, the likelihood, one clear line and every doubt."""

import textwrap
from typing import Any

import numpy as np

__all__ = ["agreement", "summary_text"]


def summary_text(fit: Any) -> str:
    """What `print(fit)` shows."""
    lines = [f"Maximum marginal likelihood: {fit.method}", ""]
    lines += _table(fit)
    lines += ["", *_likelihood(fit), *_draws(fit)]
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in fit.timings.items())
    lines += [f"time: {seconds}", "", *_verdict(fit)]
    for note in fit.notes:
        lines += textwrap.wrap(f"Note: {note}", 96, subsequent_indent="    ")
    return "\n".join(lines)


def _table(fit: Any) -> list[str]:
    names, estimates = fit.names, fit.estimates
    width = max(9, *(len(name) for name in names))
    if fit.information is None:
        rows = [f"{name:<{width}} {_number(x)}" for name, x in zip(names, estimates, strict=True)]
        return [f"{'parameter':<{width}} {'estimate':>11}", *rows]
    errors, intervals = fit.standard_errors(), fit.confidence_intervals()
    head = (
        f"{'parameter':<{width}} {'estimate':>11} {'std. error':>11} {'z':>8} {'95 % interval':>25}"
    )
    rows = []
    for name, x, se, (low, high) in zip(names, estimates, errors, intervals, strict=True):
        z = f"{x / se:8.2f}" if np.isfinite(se) else f"{'-':>8}"
        interval = f"[{_number(low).strip()}, {_number(high).strip()}]"
        interval = "-" if np.isnan(se) else interval
        rows.append(f"{name:<{width}} {_number(x)} {_number(se)} {z} {interval:>25}")
    return [head, *rows]


def _likelihood(fit: Any) -> list[str]:
    evidence = fit.evidence
    if evidence is None:
        return ["log likelihood not computed"]
    groups, counted = fit.problem.num_groups, fit.problem.num_observations
    line = f"log likelihood {evidence.log_likelihood:.3f} (error {evidence.error:.1g})"
    line += f", AIC {fit.aic:.2f}"
    if fit.problem.sample_size is not None:
        line += f", BIC {fit.bic:.2f} (n = {fit.problem.sample_size} "
        line += f"{'groups' if counted is None else 'observations'})"
    lines = [line, f"by {evidence.method}"]
    if np.isfinite(evidence.effective_draws):
        worst = "" if groups is None else " in the worst group"
        lines[-1] += f"; {evidence.effective_draws:.0f} effective draws{worst}"
        lines[-1] += f", Pareto k {evidence.pareto_k:.2f}"
    return lines


def _draws(fit: Any) -> list[str]:
    lines = []
    if fit.information is not None and np.any(fit.score_covariance > 0):
        errors = fit.standard_errors()
        known = np.isfinite(errors)
        share = np.max(fit.monte_carlo_error()[known] / errors[known], initial=0.0)
        lines.append(f"Monte Carlo error of the estimates: at most {share:.1%} of a standard error")
    if fit.draws is not None:
        lines.append(
            f"posterior of the latents: {fit.draws.sampler}, R-hat {fit.draws.rhat:.3f}, "
            f"{fit.draws.effective_draws:.0f} effective draws of the worst"
        )
    return lines


def agreement(fit: Any) -> str:
    """How many starts led to the estimate, as the end of a sentence."""
    if fit.num_starts == 1:
        return ""
    if fit.num_agreeing == fit.num_starts:
        return f", {fit.num_starts} starts agree"
    return f", {fit.num_agreeing} of {fit.num_starts} starts led here and the others nowhere"


def _verdict(fit: Any) -> list[str]:
    if not fit.doubts:
        return [f"CONVERGED{agreement(fit)}."]
    lines = ["DOUBTFUL:"]
    for doubt in fit.doubts:
        lines += textwrap.wrap(doubt, 92, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _number(value: float) -> str:
    words = "-" if np.isnan(value) else "unbounded"
    return f"{value:11.4g}" if np.isfinite(value) else f"{words:>11}"

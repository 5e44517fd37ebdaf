"""The text of a fit: a table of estimates, the likelihood, one clear line and every doubt."""

import textwrap
from typing import Any

import numpy as np

__all__ = ["summary_text"]


def summary_text(fit: Any) -> str:
    """What `print(fit)` shows."""
    lines = [f"Maximum marginal likelihood: {fit.method}", ""]
    lines += _table(fit)
    lines += ["", *_likelihood(fit)]
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in fit.timings.items())
    lines += [f"time: {seconds}", "", *_verdict(fit)]
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
        if se == 0:
            continue  # fixed by construction: the zeros and the corner of a Cholesky factor
        z = x / se if np.isfinite(se) and se > 0 else np.nan
        interval = f"[{_number(low).strip()}, {_number(high).strip()}]"
        rows.append(f"{name:<{width}} {_number(x)} {_number(se)} {z:8.2f} {interval:>25}")
    return [head, *rows]


def _likelihood(fit: Any) -> list[str]:
    evidence = fit.evidence
    if evidence is None:
        return ["log likelihood not computed (polish=False)"]
    groups = fit.problem.num_groups
    line = f"log likelihood {evidence.log_likelihood:.3f} (error {evidence.error:.1g})"
    line += f", AIC {fit.aic:.2f}"
    if groups is not None:
        line += f", BIC {fit.bic:.2f} (n = {groups} groups)"
    lines = [line, f"by {evidence.method}"]
    if np.isfinite(evidence.effective_draws):
        worst = "" if groups is None else " in the worst group"
        lines[-1] += f"; {evidence.effective_draws:.0f} effective draws{worst}"
        lines[-1] += f", Pareto k {evidence.pareto_k:.2f}"
        share = np.max(fit.monte_carlo_error() / np.maximum(fit.standard_errors(), 1e-300))
        lines.append(f"Monte Carlo error of the estimates: at most {share:.1%} of a standard error")
    return lines


def _verdict(fit: Any) -> list[str]:
    if not fit.doubts:
        starts = len(fit.run.statuses)
        agree = f", {starts} starts agree" if starts > 1 else ""
        return [f"CONVERGED{agree}."]
    lines = ["DOUBTFUL:"]
    for doubt in fit.doubts:
        lines += textwrap.wrap(doubt, 92, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _number(value: float) -> str:
    return f"{value:11.4g}" if np.isfinite(value) else f"{'unbounded':>11}"

"""Figures of a mixed model, and its draws for ArviZ."""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from marginax.fitting.charts import Interval, effects_panel, estimates_panel, residuals_panel
from marginax.fitting.predictive import quantile_residuals
from marginax.formulas.curves import curve_panel, num_simulated
from marginax.formulas.tables import check_group, fixed_columns
from marginax.interop.drawing import Panel, figure_of

__all__ = [
    "as_inference_data",
    "plot_effects",
    "plot_estimates",
    "plot_mixed",
    "plot_predictions",
    "plot_residuals",
]

MOST_EFFECTS = 4  # in the figure of everything


def plot_mixed(fit: Any) -> Any:
    """All panels: estimates, the data with their curve, residuals, random effects."""
    panels = [
        estimates_panel(list(_intervals(fit, False, 0.95).values())),
        curve_panel(fit, None),
        _residuals(fit),
        *list(_effects(fit, None, 0.95))[:MOST_EFFECTS],
    ]
    return figure_of(panels)


def plot_estimates(fit: Any, names: Sequence[str] | None, exp: bool, level: float) -> Any:
    """Fixed effects with intervals, or whatever is named."""
    rows = _intervals(fit, exp, level)
    wanted = fit.design.names if names is None else tuple(names)
    wrong = [name for name in wanted if name not in rows]
    if wrong:
        raise ValueError(f"There is no parameter {wrong[0]!r}; there are {', '.join(rows)}.")
    if not wanted:
        raise ValueError("The model has no fixed effects. Name other parameters: names=fit.names.")
    return figure_of([estimates_panel([rows[name] for name in wanted])])


def plot_effects(fit: Any, group: str | None, level: float) -> Any:
    """A panel for every effect of every group, or of one."""
    return figure_of(list(_effects(fit, group, level)), columns=3)


def plot_predictions(fit: Any, x: str | None) -> Any:
    """The data along a column, with the curve."""
    return figure_of([curve_panel(fit, x)])


def plot_residuals(fit: Any) -> Any:
    """Residuals against fitted values."""
    return figure_of([_residuals(fit)])


def _intervals(fit: Any, exp: bool, level: float) -> dict[str, Interval]:
    """Of all parameters; effects are compared with 0, or as ratios with 1."""
    table = fixed_columns(fit.design.names, fit.solution, fit.link, exp=exp, level=level)
    rows = {
        name: Interval(name, x, low, high, float(exp), is_ratio=exp)
        for name, x, low, high in zip(
            *(table[key] for key in ("term", "estimate", "low", "high")), strict=True
        )
    }
    for one in fit.solution.numbers:
        low, high = (math.nan if end is None else end for end in (one.low, one.high))
        rows[one.name] = Interval(one.name, one.estimate, low, high)
    return rows


def _residuals(fit: Any) -> Panel:
    """Pearson's; of counts, 0/1 and categories quantile residuals, since Pearson's are stripes."""
    where = "fitted" if fit.fitted.ndim == 1 else "linear predictor"
    at = fit.fitted if fit.fitted.ndim == 1 else fit.predict(kind="link")
    values = fit.design.response.values
    if fit.family.name == "gaussian" or np.any(values != np.round(values)):
        return residuals_panel(at, fit.residuals("pearson"), "Pearson", where)
    made = fit.simulate(num_simulated(fit), seed=0, new_effects=False)
    return residuals_panel(at, quantile_residuals(made, values), "quantile", where)


def _effects(fit: Any, group: str | None, level: float) -> Iterator[Panel]:
    """A panel for every effect: its levels in the order of their means."""
    half, words = NormalDist().inv_cdf(0.5 + level / 2), f"{100 * level:g} % interval"
    groups = fit.design.columns.groups
    check_group(groups, group)
    for one, effects in zip(groups, fit._effects, strict=True):
        if group not in (None, one.name):
            continue
        for e, effect in enumerate(one.effects):
            mean, sd = effects.mean[:, e], effects.sd[:, e]
            title = f"{effect} | {one.name}"
            ends = (mean - half * sd, mean + half * sd)
            yield effects_panel(title, one.levels, (mean, *ends), words)


def as_inference_data(fit: Any, num: int, seed: int) -> Any:
    """Draws of the random effects, with the labels of their levels; the data; the estimate."""
    try:
        import arviz
    except ImportError:
        raise ImportError(
            "`to_arviz` needs ArviZ, which is not installed: `pip install 'marginax[arviz]'`."
        ) from None
    posterior: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    dims: dict[str, Any] = {}
    for group, draws in zip(
        fit.design.columns.groups, fit.draws(num, seed=seed).values(), strict=True
    ):
        name = group.name
        posterior[name] = draws[None]
        coords |= {f"{name}_level": [str(x) for x in group.levels], f"{name}_effect": group.effects}
        dims[name] = [f"{name}_level", f"{name}_effect"]
    estimate = {"estimate": fit.estimates}
    return arviz.from_dict(
        posterior=posterior,
        observed_data={fit.design.response.name: fit.design.response.values},
        constant_data=estimate,
        coords={**coords, "parameter": list(fit.names)},
        dims={**dims, "estimate": ["parameter"]},
    )

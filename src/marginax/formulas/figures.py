"""Figures of a mixed model, and its draws for ArviZ."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["as_inference_data", "plot_mixed"]

KINDS = ("all", "effects", "caterpillar", "residuals")
MOST_LEVELS = 60  # of a caterpillar; of more, the highest and the lowest
INK, SOFT, LINE = "#1f4e79", "#9db7d1", "#b0b0b0"


def plot_mixed(fit: Any, kind: str) -> Any:
    """A figure with one panel, or with all of them."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "Figures need matplotlib, which is not installed: `pip install 'marginax[plot]'`."
        ) from None
    panels = _panels(fit, kind)
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.8 * rows), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for draw, ax in zip(panels, axes, strict=False):
        draw(ax)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def _panels(fit: Any, kind: str) -> list[Callable[[Any], None]]:
    panels: list[Callable[[Any], None]] = []
    if kind in ("all", "effects") and len(fit.design.names):
        panels.append(partial(_fixed, fit=fit))
    if kind in ("all", "residuals"):
        panels.append(partial(_residuals, fit=fit))
    if kind in ("all", "caterpillar"):
        panels += [
            partial(_caterpillar, fit=fit, g=g, e=e)
            for g, group in enumerate(fit.design.columns.groups)
            for e in range(len(group.effects))
        ]
    return panels


def _fixed(ax: Any, fit: Any) -> None:
    """Estimates with intervals, without the intercept where there are others."""
    rows = [row for row in fit.fixed_rows() if row[0] != "Intercept"] or fit.fixed_rows()
    rows = [row for row in rows if np.isfinite(row[5]) and np.isfinite(row[6])]
    places = np.arange(len(rows))[::-1]
    for place, (_, x, _, _, _, low, high) in zip(places, rows, strict=True):
        ax.plot([low, high], [place, place], color=SOFT, lw=2.5, solid_capstyle="round")
        ax.plot(x, place, "o", color=INK, ms=5)
    ax.axvline(0, color=LINE, lw=1, zorder=0)
    ax.set_yticks(places, [row[0] for row in rows])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel(
        "effect, with 95 % interval" + ("" if fit.link == "identity" else f" ({fit.link})")
    )
    ax.set_title("Fixed effects")
    _plain(ax)


def _residuals(ax: Any, fit: Any) -> None:
    fitted = fit.fitted if fit.fitted.ndim == 1 else fit.predict(kind="link")
    ax.plot(
        fitted,
        fit.residuals("pearson"),
        ".",
        color=INK,
        ms=4,
        alpha=min(1.0, 60 / len(fitted) + 0.2),
    )
    ax.axhline(0, color=LINE, lw=1, zorder=0)
    ax.set_xlabel("fitted" if fit.fitted.ndim == 1 else "linear predictor")
    ax.set_ylabel("Pearson residual")
    ax.set_title("Residuals")
    _plain(ax)


def _caterpillar(ax: Any, fit: Any, g: int, e: int) -> None:
    """The levels in the order of their means, with intervals."""
    group, effects = fit.design.columns.groups[g], fit._effects[g]
    mean, sd = effects.mean[:, e], effects.sd[:, e]
    order = np.argsort(mean)
    title = f"{group.effects[e]} | {group.name}"
    if len(order) > MOST_LEVELS:
        half = MOST_LEVELS // 2
        order = np.concatenate([order[:half], order[-half:]])
        title += f" (the {half} lowest and highest of {group.num_levels})"
    places = np.arange(len(order))
    ax.hlines(places, (mean - 1.96 * sd)[order], (mean + 1.96 * sd)[order], color=SOFT, lw=2)
    ax.plot(mean[order], places, "o", color=INK, ms=3)
    ax.axvline(0, color=LINE, lw=1, zorder=0)
    labels = [str(group.levels[i]) for i in order]
    ax.set_yticks(places, labels, fontsize=8 if len(labels) <= 25 else 5)
    ax.set_ylim(-0.8, len(order) - 0.2)
    ax.set_xlabel("random effect, with 95 % interval")
    ax.set_title(title, fontsize=10)
    _plain(ax)


def _plain(ax: Any) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


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

"""Figures of a fit: estimates, paths of theta, random effects, and predictions beside the data.

Needs matplotlib (`pip install "marginax[plot]"`). Charts of plain numbers are in `charts` and
`predictive`, how all of them look in `interop/drawing`.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import tree_leaves_with_path
from jaxtyping import PyTree

from marginax.diagnostics.cloud import HIGH, LOW
from marginax.diagnostics.measures import stein_ratio
from marginax.fitting.charts import (
    Interval,
    effects_panel,
    estimates_panel,
    series_panel,
)
from marginax.fitting.predictive import (
    Predicted,
    predicted_from,
    predictions_panel,
    predictive_residuals,
)
from marginax.interop.drawing import (
    BLUE,
    COLORS,
    GREY,
    PALE,
    Panel,
    figure_of,
    readable_ticks,
    shortened,
)
from marginax.model.inputs import path_name
from marginax.model.model_key import shared_model
from marginax.model.parameter_table import displayed, is_free

__all__ = ["given_predictions", "plot_estimates", "plot_fit", "plot_predictions", "plot_effects"]

MOST_PATHS, MOST_EFFECTS = 6, 2  # in the figure of everything
MOST_ALONE = 12  # random effects in a figure of their own
DASHES = ("-", "--", ":", "-.")
LONG = 60  # latents without groups: more are drawn in their order


def plot_fit(fit: Any, given: Predicted | None) -> Any:
    """All panels: estimates, predictions and residuals if given, random effects, paths."""
    panels = [estimates_panel(_intervals(fit, False, 0.95))]
    if given is not None:
        panels.append(predictions_panel(given))
        if given.observed is not None:
            panels.append(predictive_residuals(given))
    if fit.likelihood is not None or fit.draws is not None:
        panels += islice(_effects(fit, 0.95), MOST_EFFECTS)
    ratios = _stein_ratios(fit)
    right = bool(np.all((ratios >= LOW) & (ratios <= HIGH)))
    words = f"Particles: Stein ratio {_range(ratios)} of every latent (1 is right)."
    panels.append(_paths(fit, words if right else ""))
    if not right:
        panels.append(_ratios(ratios))
    return figure_of(panels)


def plot_estimates(fit: Any, names: Sequence[str] | None, exp: bool, level: float) -> Any:
    """Estimates with intervals alone."""
    rows = _intervals(fit, exp, level)
    if names is not None:
        known = {row.name: row for row in rows}
        wrong = [name for name in names if name not in known]
        if wrong:
            raise ValueError(f"There is no parameter {wrong[0]!r}; there are {', '.join(known)}.")
        rows = [known[name] for name in names]
    return figure_of([estimates_panel(rows)])


def plot_effects(fit: Any, level: float) -> Any:
    """The random effects alone, a panel for each, up to `MOST_ALONE`."""
    return figure_of(list(islice(_effects(fit, level), MOST_ALONE)), columns=3)


def plot_predictions(given: Predicted) -> Any:
    """Predictions beside the data alone."""
    return figure_of([predictions_panel(given)])


def given_predictions(fit: Any, predictive: PyTree, observed: Any, x: Any, mask: Any) -> Predicted:
    """What a user gave, in one form; columns of the problem's data by their names.

    A "mask" among the data, as `pad_groups` makes one, counts unless another is given.
    """
    leaves = tree_leaves_with_path(predictive)
    if len(leaves) != 1:
        raise ValueError(
            f"The predictions are {len(leaves)} arrays; give the one to draw, [draws, ...]."
        )
    path, draws = leaves[0]
    columns = fit.problem.data if isinstance(fit.problem.data, dict) else {}
    names = (
        observed if isinstance(observed, str) else (path_name(path) if path else "value"),
        x if isinstance(x, str) else "x",
    )
    seen, along, kept = (_column(columns, one) for one in (observed, x, mask))
    if mask is None and "mask" in columns and columns["mask"].shape == np.shape(draws)[1:]:
        kept = columns["mask"]
    return predicted_from(draws, seen, along, kept, names)


def _column(columns: dict[str, Any], given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given not in columns:
        there = f"they have {', '.join(columns)}" if columns else "they are no dict of columns"
        raise ValueError(f"The problem's data have no column {given!r}; {there}.")
    return columns[given]


def _intervals(fit: Any, exp: bool, level: float) -> list[Interval]:
    """Rows of the table; exponentials of free parameters are ratios, and others as they are."""
    rows = []
    table = fit.summary_table(level).rows
    for row, free in zip(table, is_free(fit.problem), strict=True):
        x, low, high = (math.nan if x is None else x for x in (row.estimate, row.low, row.high))
        if exp and free:
            x, low, high = np.exp(np.minimum([x, low, high], 700.0)).tolist()
        reference = float(exp) if free else None
        rows.append(Interval(row.name, x, low, high, reference, is_ratio=exp and free))
    return rows


def _effects(fit: Any, level: float) -> Iterator[Panel]:
    """A panel for every number of a group's latent, or for every leaf where there are no groups."""
    summary = fit.random_effects(level)
    words = f"{100 * level:g} % interval"
    trees = (summary.mean, summary.low, summary.high)
    leaves = zip(*(tree_leaves_with_path(tree) for tree in trees), strict=True)
    for (path, mean), (_, low), (_, high) in leaves:
        name = path_name(path) if path else "latent"
        values = [np.asarray(leaf, float) for leaf in (mean, low, high)]
        if fit.problem.num_groups is None:
            flat = [leaf.ravel() for leaf in values]
            long = flat[0].size > LONG
            title = f"Posterior of {name}"
            yield (
                series_panel(title, flat, words)
                if long
                else effects_panel(title, None, flat, words)
            )
            continue
        for place in np.ndindex(values[0].shape[1:]):
            index = f"[{', '.join(map(str, place))}]" if place else ""
            title = f"Random effects: {name}{index}"
            own = [leaf[(slice(None), *place)] for leaf in values]
            yield effects_panel(title, summary.labels, own, words)


def _paths(fit: Any, words: str) -> Panel:
    """theta of every start along its run, each parameter on its own scale, and a line below."""
    shown = fit.names[:MOST_PATHS]
    more = f" (first {MOST_PATHS} of {len(fit.names)})" if len(fit.names) > MOST_PATHS else ""

    def draw(part: Any) -> None:
        history = _constrained_history(fit)  # [starts, blocks, numbers]
        axes = part.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for j, (name, ax) in enumerate(zip(shown, axes, strict=True)):
            _path(fit, ax, history[:, :, j], j)
            ax.set_title(shortened(name, 40), fontsize=9, pad=2)
        axes[-1].set_xlabel("step of the particles")
        readable_ticks(axes[-1].xaxis, 6)
        if words:
            part.supxlabel(words, x=0.02, ha="left", fontsize=9)

    starts = len(fit.run.statuses)
    title = f"Paths of θ from {starts} start{'s' * (starts != 1)}{more}"
    return Panel(title, 1.1 + 0.75 * len(shown) + 0.3 * bool(words), draw)


def _path(fit: Any, ax: Any, paths: np.ndarray, j: int) -> None:
    estimate = float(fit.estimates[j])
    error = math.nan if fit.information is None else float(fit.standard_errors[j])
    # At least a standard error to each side: a path that stays looks like one that stays.
    reach = [estimate - error, estimate + error] if math.isfinite(error) else [estimate]
    for i, path in enumerate(paths):
        steps = _steps(fit.run, i, len(path))
        path = path[: len(steps)]
        dash = DASHES[i % len(DASHES)]
        ax.plot(steps, path, color=COLORS[i % len(COLORS)], linestyle=dash, linewidth=1.4)
        reach += path[np.isfinite(path)].tolist()
    if math.isfinite(error):
        ax.axhspan(estimate - error, estimate + error, color=PALE, alpha=0.35, linewidth=0)
    ax.axhline(estimate, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    margin = 0.08 * (max(reach) - min(reach)) or 0.1 * abs(estimate) or 1.0
    ax.set_ylim(min(reach) - margin, max(reach) + margin)
    readable_ticks(ax.yaxis, 3)


def _steps(run: Any, start: int, num_blocks: int) -> np.ndarray:
    """The steps after which theta of a start was kept; blocks after its end are not its own."""
    ends = np.linspace(0, run.num_steps, num_blocks + 1)[1:]
    return ends[ends <= run.steps_per_start[start] + 0.5]


def _stein_ratios(fit: Any) -> np.ndarray:
    """Of every latent coordinate of the cloud that the estimate came from, sorted."""
    theta = jax.tree.map(lambda leaf: leaf[fit.start], fit.run.theta)
    log_joint = shared_model(fit.problem).unconstrained_log_joint
    ratios = stein_ratio(log_joint, theta, fit.particles, fit.problem.data)
    return np.sort(np.asarray(ravel_pytree(ratios)[0], float))


def _range(ratios: np.ndarray) -> str:
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def _ratios(ratios: np.ndarray) -> Panel:
    """What a line of text says while it is near 1."""

    def draw(part: Any) -> None:
        ax = part.subplots()
        band = f"believed ({LOW} to {HIGH})"
        ax.axhspan(LOW, HIGH, color=PALE, alpha=0.35, linewidth=0, label=band)
        ax.axhline(1, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        ax.plot(np.arange(1, len(ratios) + 1), ratios, "o", color=BLUE, markersize=3)
        known = ratios[np.isfinite(ratios)]
        low, high = known.min(initial=0.7), known.max(initial=1.35)
        ax.set(ylim=(low - 0.05, high + 0.05), xlabel="latent coordinate, sorted")
        ax.set_ylabel("variance over the posterior's")
        readable_ticks(ax.xaxis)
        ax.legend()

    return Panel(f"Stein ratio of the particles: {_range(ratios)}", 3.2, draw)


def _constrained_history(fit: Any) -> np.ndarray:
    every = jax.vmap(jax.vmap(lambda theta: displayed(fit.problem, theta)))
    return np.asarray(jax.jit(every)(fit.run.history))

"""A fit in one figure: how theta got there, what it is, whether to believe the cloud, the latents.

Needs matplotlib (`pip install "marginax[plot]"`).
"""

from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from marginax.diagnostics.measures import stein_ratio
from marginax.model.model_key import shared_model
from marginax.model.parameter_table import displayed

__all__ = ["plot_fit"]

# Okabe and Ito's colours; dashes differ too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
MOST_PATHS, MOST_ROWS, MOST_LABELS = 6, 60, 60


def plot_fit(fit: Any, predictive: Any = None, observed: Any = None) -> Any:
    """Panels: paths, intervals, Stein ratios, latents and, if given, predictions.

    Args:
        fit: a `Fit`.
        predictive: [draws, ...], what `fit.predict` returned.
        observed: what was observed there, to compare.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "plot needs matplotlib. Install it with `pip install 'marginax[plot]'`."
        ) from None
    panels = [_paths, _intervals, _stein_ratios, _latents]
    if fit.likelihood is None and fit.draws is None:
        panels.remove(_latents)
    if fit.information is None:
        panels.remove(_intervals)
    count = len(panels) + (predictive is not None)
    rows = -(-count // 2)
    figure = Figure(figsize=(11, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for draw, ax in zip(panels, axes, strict=False):
        draw(fit, ax)
    if predictive is not None:
        _predictive(np.asarray(predictive), observed, axes[len(panels)])
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[:count]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _paths(fit: Any, ax: Any) -> None:
    """theta of every start along its run, in standard errors from the estimate."""
    history = _constrained_history(fit)  # [starts, blocks, numbers]
    estimates = fit.estimates
    if fit.information is not None:
        errors = fit.standard_errors
        scale = np.where(np.isfinite(errors) & (errors > 0), errors, np.abs(estimates) + 1.0)
        unit = "standard errors from the estimate"
    else:
        scale, unit = np.abs(estimates) + 1.0, "relative distance from the estimate"
    names = fit.names[:MOST_PATHS]
    steps = np.linspace(0, fit.run.num_steps, history.shape[1] + 1)[1:]
    for j, name in enumerate(names):
        for i, one in enumerate(history):
            ax.plot(
                steps,
                (one[:, j] - estimates[j]) / scale[j],
                color=COLORS[j % len(COLORS)],
                linestyle=DASHES[i % len(DASHES)],
                linewidth=1.3,
                label=name if i == 0 else None,
            )
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set_yscale("symlog", linthresh=1.0)
    more = f" (first {MOST_PATHS} of {len(fit.names)})" if len(fit.names) > MOST_PATHS else ""
    ax.set(xlabel="step of the particles", ylabel=unit)
    starts = "1 start" if len(history) == 1 else f"{len(history)} starts"
    ax.set_title(f"paths of θ from {starts}{more}")
    ax.legend(fontsize=8, ncols=2, framealpha=0.9, edgecolor="none")


def _intervals(fit: Any, ax: Any) -> None:
    """Estimates and 95 % intervals, each parameter on its own row and scaled to its interval."""
    names, estimates, ends = fit.names, fit.estimates, fit.confidence_intervals()
    errors = fit.standard_errors
    shown_rows = min(len(names), MOST_ROWS)
    for row in range(shown_rows):
        x, (low, high), se = estimates[row], ends[row], errors[row]
        text = f"{x:.3g}" if not np.isfinite(se) else f"{x:.3g} [{low:.3g}, {high:.3g}]"
        if np.isfinite(se) and se > 0:
            left, right = (low - x) / se, (high - x) / se
            ax.plot([left, right], [row, row], color=COLORS[0], linewidth=2)
        ax.plot([0], [row], "o", color=COLORS[1 if not np.isfinite(se) else 0], markersize=5)
        if shown_rows <= 20:
            at = (1.02, row)
            ax.annotate(text, at, xycoords=("axes fraction", "data"), va="center", fontsize=8)
    ax.axvline(0, color="black", linewidth=0.6)
    ax.set_yticks(range(shown_rows), names[:shown_rows], fontsize=8 if shown_rows <= 20 else 5)
    ax.invert_yaxis()
    ax.set_xlabel("standard errors from the estimate")
    ax.set_title("estimates with 95 % intervals")


def _stein_ratios(fit: Any, ax: Any) -> None:
    """The Stein ratio of every latent coordinate of the cloud the estimate came from."""
    theta = jax.tree.map(lambda leaf: leaf[fit.start], fit.run.theta)
    log_joint = shared_model(fit.problem).unconstrained_log_joint
    ratios = stein_ratio(log_joint, theta, fit.particles, fit.problem.data)
    values = np.sort(np.asarray(ravel_pytree(ratios)[0]))
    ax.axhspan(0.8, 1.25, color="#DDDDDD", label="believed (0.8 to 1.25)")
    ax.axhline(1, color="black", linewidth=0.6)
    ax.plot(np.arange(1, len(values) + 1), values, "o", color=COLORS[0], markersize=3)
    low, high = min(values.min(), 0.7), max(values.max(), 1.35)
    ax.set(ylim=(low - 0.05, high + 0.05), xlabel="latent coordinate, sorted", ylabel="Stein ratio")
    ax.set_title("the particles' variance over the posterior's")
    ax.legend(frameon=False, fontsize=8)


def _latents(fit: Any, ax: Any) -> None:
    """Caterpillar: posterior means and intervals, sorted, of the first number of every group."""
    summary = fit.random_effects()
    mean, low, high = (
        _first_number(fit, tree) for tree in (summary.mean, summary.low, summary.high)
    )
    order = np.argsort(mean)
    place = np.arange(len(mean))
    ax.vlines(place, low[order], high[order], color=COLORS[5], linewidth=max(0.5, 60 / len(mean)))
    ax.plot(place, mean[order], "o", color=COLORS[0], markersize=3 if len(mean) < 200 else 1)
    what = "group" if fit.problem.num_groups is not None else "latent"
    if summary.labels is not None and len(order) <= MOST_LABELS:
        words = [str(summary.labels[i]) for i in order]
        ax.set_xticks(place, words, rotation=90, fontsize=7)
    ax.set(xlabel=f"{what}, sorted", ylabel="posterior mean, 95 % interval")
    ax.set_title("latents" if what == "latent" else "effects of the groups (first latent)")


def _predictive(draws: np.ndarray, observed: Any, ax: Any) -> None:
    """Histograms of single predicted data sets, with the observed one."""
    flat = draws.reshape(len(draws), -1)
    seen = None if observed is None else np.ravel(np.asarray(observed))
    pooled = flat if seen is None else np.concatenate([flat.ravel(), seen])
    bins = np.histogram_bin_edges(pooled, bins=30, range=tuple(np.quantile(pooled, [0.001, 0.999])))
    middle = (bins[1:] + bins[:-1]) / 2
    counts = np.array([np.histogram(row, bins, density=True)[0] for row in flat])
    low, high = np.quantile(counts, [0.025, 0.975], axis=0)
    ax.fill_between(middle, low, high, color=COLORS[5], alpha=0.5, label="95 % of predictions")
    ax.plot(middle, counts.mean(axis=0), color=COLORS[0], label="mean prediction")
    if seen is not None:
        density = np.histogram(seen, bins, density=True)[0]
        ax.plot(middle, density, "--", color=COLORS[1], label="observed")
    ax.set(xlabel="value", ylabel="density", title="posterior predictive")
    ax.legend(frameon=False, fontsize=8)


def _constrained_history(fit: Any) -> np.ndarray:
    every = jax.vmap(jax.vmap(lambda theta: displayed(fit.problem, theta)))
    return np.asarray(jax.jit(every)(fit.run.history))


def _first_number(fit: Any, tree: PyTree) -> np.ndarray:
    leaf = np.asarray(jax.tree.leaves(tree)[0])
    if fit.problem.num_groups is None:
        return np.concatenate([np.ravel(part) for part in jax.tree.leaves(tree)])
    return leaf.reshape(len(leaf), -1)[:, 0]

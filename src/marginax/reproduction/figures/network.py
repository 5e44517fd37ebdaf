"""Figures of the Bayesian network."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from marginax.reproduction.columns import PUBLISHED, WRITTEN, stein_name
from marginax.reproduction.figures.style import (
    Drawing,
    Results,
    heat_map,
    line_style,
    panels,
    short_name,
)

__all__ = ["NETWORK_DRAWINGS"]

MARGINAX = "marginax / default"


def draw_curves(results: Results, kernel: str) -> Figure:
    """Test error and LPPD against the step from both starts; bands are one standard deviation."""
    measured = results["network_curves"]
    steps = np.array(measured["error"].coords["step"])
    kinds = {
        "as published": (PUBLISHED, ""),
        "as written, accumulator 0.1": (WRITTEN, " / accumulator 0.1"),
        "as written, accumulator 0": (WRITTEN, " / accumulator 0"),
    }
    figure, axes = panels(4, 3, height=2.5, sharey="row")
    for j, (title, (column, tail)) in enumerate(kinds.items()):
        labels = [f"{column} / {stein_name(a)} / {kernel}{tail}" for a in (0.0, 0.3, 0.5, 0.9)]
        labels += [MARGINAX] if column == WRITTEN else []
        for i, start in enumerate((0.0, 2.0)):
            for k, quantity in enumerate(("error", "lppd")):
                ax = axes[2 * k + i, j]
                for label in labels:
                    scale = 100 if quantity == "error" else 1
                    at = {"method": label, "start": start}
                    mean = scale * measured[quantity].at(**at)
                    sd = scale * measured[f"{quantity}_sd"].at(**at)
                    style = line_style(label)
                    ax.plot(steps, mean, label=short_name(label), **style)
                    ax.fill_between(
                        steps, mean - sd, mean + sd, color=style["color"], alpha=0.12, lw=0
                    )
                ax.set_title(f"{title}, from ({start:g}, {start:g})")
                ax.set(xlabel="step")
                if quantity == "error":
                    ax.set(ylim=(0, 60))
                else:
                    ax.set(ylim=(-0.9, 0))
    for row, name in zip(axes, ("test error in %",) * 2 + ("LPPD",) * 2, strict=True):
        row[0].set_ylabel(name)
    axes[0, 1].legend(frameon=False, fontsize=7.5)
    return figure


def draw_lppd(results: Results) -> Figure:
    """The two readings of LPPD side by side, as published."""
    measured = results["network_curves"]
    steps = np.array(measured["error"].coords["step"])
    figure, axes = panels(1, 2, height=3.0)
    for ax, start in zip(axes[0], (0.0, 2.0), strict=True):
        for momentum in (0.0, 0.9):
            label = f"{PUBLISHED} / {stein_name(momentum)} / RBF"
            colour = line_style(label)["color"]
            for quantity, dash, words in (
                ("lppd", "-", "log of the mean"),
                ("mean_log", ":", "mean of the logs (published)"),
            ):
                values = measured[quantity].at(method=label, start=start)
                name = f"{stein_name(momentum)}, {words}"
                ax.plot(steps, values, color=colour, linestyle=dash, label=name)
        ax.set(xlabel="step", ylabel="nats per image", title=f"from ({start:g}, {start:g})")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def draw_clouds(results: Results) -> Figure:
    """Test error and LPPD against the step for several numbers of particles."""
    measured = results["network_clouds"]
    steps = np.array(measured["error"].coords["step"])
    clouds = measured["error"].coords["num_particles"]
    labels = [f"{c} / {stein_name(a)} / RBF" for c in (PUBLISHED, WRITTEN) for a in (0.0, 0.9)]
    figure, axes = panels(2, len(clouds), height=2.7, sharey="row")
    for j, num_particles in enumerate(clouds):
        for i, quantity in enumerate(("error", "lppd")):
            ax = axes[i, j]
            for label in [*labels, MARGINAX]:
                values = measured[quantity].at(method=label, num_particles=num_particles)
                values = values * (100 if quantity == "error" else 1)
                style = line_style(label)
                name = short_name(label)
                if label.startswith(PUBLISHED):
                    style["linestyle"] = ":"
                    name += ", as published"
                ax.plot(steps, values, label=name, **style)
            ax.set(xlabel="step", title=f"N = {num_particles}")
        axes[0, j].set(ylim=(0, 60))
        axes[1, j].set(ylim=(-0.9, 0))
    axes[0, 0].set_ylabel("test error in %")
    axes[1, 0].set_ylabel("LPPD")
    axes[0, -1].legend(frameon=False, fontsize=7.5)
    return figure


def draw_starts(results: Results, kernel: str) -> Figure:
    """Final test error over the starting point of (alpha, beta)."""
    measured = results["network_starts"]["error"]
    alphas, betas = measured.coords["alpha"], measured.coords["beta"]
    rows = [
        [f"{column} / {stein_name(a)} / {kernel}" for a in (0.0, 0.3, 0.9)]
        for column in (PUBLISHED, WRITTEN)
    ]
    figure, axes = panels(2, 4, height=2.9)
    for i, labels in enumerate(rows):
        shown = [*labels, MARGINAX] if i == 1 else labels
        for ax, label in zip(axes[i], shown, strict=False):
            column = "" if label == MARGINAX else f"{label.split(' / ')[0]}, "
            values = 100 * measured.at(method=label)
            image = heat_map(
                ax,
                values.T,
                betas,
                alphas,
                low=0.0,
                high=60.0,
                title=f"{column}{short_name(label)}\nmean {values.mean():.1f} %",
                xlabel="α at the start",
                ylabel="β at the start",
            )
            ax.set_title(ax.get_title("left"), fontsize=8.5)
    axes[0, 3].axis("off")
    figure.colorbar(image, ax=axes, label="final test error in %", shrink=0.7)
    return figure


NETWORK_DRAWINGS = (
    Drawing("figure_17_network", ("network_curves",), partial(draw_curves, kernel="RBF")),
    Drawing("figure_18_network_median", ("network_curves",), partial(draw_curves, kernel="median")),
    Drawing("figure_19_network_lppd", ("network_curves",), draw_lppd),
    Drawing("figure_20_network_clouds", ("network_clouds",), draw_clouds),
    Drawing("figure_21_network_starts", ("network_starts",), partial(draw_starts, kernel="RBF")),
    Drawing(
        "figure_22_network_starts_median",
        ("network_starts",),
        partial(draw_starts, kernel="median"),
    ),
)

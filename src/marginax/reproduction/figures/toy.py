"""Figures of the toy hierarchical model."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from marginax.reproduction.columns import PUBLISHED, WRITTEN, stein_name
from marginax.reproduction.figures.style import (
    Drawing,
    Results,
    boxes,
    heat_map,
    line_style,
    panels,
    short_name,
)

__all__ = ["TOY_DRAWINGS"]

MARGINAX = "marginax / default"
NEVER = 1000.0


def draw_methods(results: Results, convention: str, kernel: str, detail: str = "") -> Figure:
    """(a) paths of theta, (b) squared error, (c) iterations; a row per column of the report."""
    measured = results["toy_methods"]
    steps = np.array(measured["theta_mean"].coords["step"])
    exact = measured["exact"].at(convention=convention)
    names = [stein_name(a) for a in (0.0, 0.3, 0.5, 0.9)]
    figure, axes = panels(2, 3, height=3.1)
    for row, column in enumerate((PUBLISHED, WRITTEN)):
        tail = f" / {detail}" if detail and column == WRITTEN else ""
        labels = [f"{column} / {name} / {kernel}{tail}" for name in names]
        labels += [f"{WRITTEN} / PGD", f"{column} / MPGD", f"{column} / SOUL"]
        if column == WRITTEN:
            labels.append(MARGINAX)
        path, error, count = axes[row]
        for label in labels:
            style = line_style(label)
            at = {"method": label, "convention": convention}
            path.plot(steps, measured["theta_mean"].at(**at), label=short_name(label), **style)
            error.loglog(steps, measured["squared_error"].at(**at), **style)
        path.axhline(exact, color="black", linestyle=":", linewidth=1)
        path.set(ylim=(-5, exact * 1.35), xlabel="step", ylabel="θ, mean of the trials")
        path.set_title(f"(a) {column}: θ, exact dotted")
        path.legend(frameon=False, fontsize=7, ncols=2, loc="lower right")
        error.set(ylim=(1e-9, 1e3), xlabel="step", ylabel="mean squared error")
        error.set_title(f"(b) {column}: squared error")
        counts = [measured["iterations"].at(method=m, convention=convention) for m in labels]
        boxes(count, counts, labels, never=int(steps[-1]))
        count.set(xlabel="steps until |θ − ȳ| < 0.05", title=f"(c) {column}: iterations")
    return figure


def draw_learning_rates(results: Results) -> Figure:
    """Squared error after 1000 steps against the step size; log-log above, linear below."""
    measured = results["toy_learning_rates"]["squared_error"]
    methods = {
        f"{WRITTEN} / SVGD-EM / RBF": ("SVGD-EM, RBF", "#000000", "-"),
        f"{WRITTEN} / SVGD-EM / median": ("SVGD-EM, median", "#0072B2", "--"),
        f"{PUBLISHED} / SVGD-EM / RBF": ("SVGD-EM, RBF, as published", "#D55E00", "-."),
        f"{WRITTEN} / PGD": ("PGD", "#7F7F7F", "--"),
        f"{WRITTEN} / SOUL": ("SOUL", "#E69F00", "--"),
    }
    figure, axes = panels(2, 2, height=3.0)
    gammas = np.array(measured.coords["step_size"])
    for column, convention in enumerate(measured.coords["convention"]):
        for label, (name, colour, dash) in methods.items():
            with np.errstate(over="ignore", invalid="ignore"):
                error = measured.at(method=label, convention=convention).mean(axis=0)
                error = np.where(error < 1e4, error, np.nan)  # beyond this it has diverged
            for ax in axes[:, column]:
                ax.plot(gammas, error, color=colour, linestyle=dash, label=name)
        for ax in axes[:, column]:
            ax.set(xscale="log", xlabel="step size γ", ylabel="mean squared error")
            ax.set_title(f"variances {convention}")
        axes[0, column].set(yscale="log")
        axes[1, column].set(ylim=(0, 120))
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def draw_ablation(results: Results, convention: str) -> Figure:
    """Momentum 0.8 in theta, the particles, both or neither, in 5, 20 and 50 dimensions."""
    measured = results["toy_ablation"]
    steps = np.array(measured["squared_error"].coords["step"])
    kinds = ("none", "θ only", "particles only", "both")
    dimensions = measured["iterations"].coords["dimension"]
    figure, axes = panels(5, len(dimensions), height=2.5)
    for j, dimension in enumerate(dimensions):
        for i, column in enumerate((PUBLISHED, WRITTEN)):
            labels = [f"{column} / {kind}" for kind in kinds]
            at = {"convention": convention, "dimension": dimension}
            for label in labels:
                style = line_style(label)
                if column == WRITTEN:
                    path = measured["theta_mean"].at(method=label, **at)
                    axes[0, j].plot(steps, path, label=short_name(label), **style)
                error = measured["squared_error"].at(method=label, **at)
                axes[1 + i, j].loglog(steps, error, label=short_name(label), **style)
            counts = [measured["iterations"].at(method=label, **at) for label in labels]
            boxes(axes[3 + i, j], counts, labels, never=int(steps[-1]))
            axes[1 + i, j].set(ylim=(1e-9, 1e3), title=f"D = {dimension}, {column}: squared error")
            axes[3 + i, j].set_title(f"D = {dimension}, {column}: iterations")
            axes[3 + i, j].tick_params(labelleft=j == 0)  # or they touch the numbers beside them
        axes[0, j].set(ylim=(-5, 20), title=f"D = {dimension}, {WRITTEN}: θ")
        for ax in axes[:3, j]:
            ax.set_xlabel("step")
        for ax in axes[3:, j]:
            ax.set_xlabel("steps until |θ − ȳ| < 0.05")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def draw_mpgd(results: Results, convention: str) -> Figure:
    """Iterations of MPGD over friction and momentum."""
    measured = results["toy_mpgd_tuning"]["iterations"]
    frictions, momenta = measured.coords["friction"], measured.coords["momentum"]
    figure, axes = panels(2, 2, height=2.9)
    places = [(c, s) for s in measured.coords["step_size"] for c in (PUBLISHED, WRITTEN)]
    for ax, (column, step_size) in zip(axes.T.flat, places, strict=True):
        values = measured.at(method=f"{column} / MPGD", convention=convention, step_size=step_size)
        image = heat_map(
            ax,
            values.T,
            momenta,
            frictions,
            low=0.0,
            high=NEVER,
            never=NEVER,
            form=".0f",
            title=f"{column}, γ = {step_size:g}",
            xlabel="friction ε",
            ylabel="momentum μ",
        )
    figure.colorbar(image, ax=axes, label="mean iterations (– : never)", shrink=0.8)
    return figure


TOY_DRAWINGS = (
    Drawing(
        "figure_01_toy", ("toy_methods",), partial(draw_methods, convention="12/12", kernel="RBF")
    ),
    Drawing(
        "figure_02_toy_median",
        ("toy_methods",),
        partial(draw_methods, convention="12/12", kernel="median", detail="γ = 0.3"),
    ),
    Drawing(
        "figure_03_toy_text",
        ("toy_methods",),
        partial(draw_methods, convention="144/1", kernel="RBF"),
    ),
    Drawing("figure_04_toy_learning_rates", ("toy_learning_rates",), draw_learning_rates),
    Drawing(
        "figure_05_toy_ablation", ("toy_ablation",), partial(draw_ablation, convention="12/12")
    ),
    Drawing(
        "figure_06_toy_ablation_text", ("toy_ablation",), partial(draw_ablation, convention="144/1")
    ),
    Drawing("figure_07_toy_mpgd", ("toy_mpgd_tuning",), partial(draw_mpgd, convention="12/12")),
    Drawing(
        "figure_08_toy_mpgd_text", ("toy_mpgd_tuning",), partial(draw_mpgd, convention="144/1")
    ),
)
